import { execFile } from "node:child_process";
import { cpSync, existsSync, mkdtempSync, readdirSync, rmSync, symlinkSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect, test } from "@jest/globals";
import { inRepository, PORTS, readText, unknownVariables } from "./files.js";

interface Instruction {
  readonly name: string;
  readonly rest: string;
}

const text = readText("Dockerfile");
const instructions: Instruction[] = text
  .replace(/^#.*\n/gm, "")
  .replace(/\\\n\s*/g, "")
  .split("\n")
  .filter((line) => line.trim() !== "")
  .map((line) => {
    const [, name = "", rest = ""] = /^(\S+)\s+(.*)$/.exec(line) ?? [];
    return { name, rest };
  });
const lastFrom = instructions.map(({ name }) => name).lastIndexOf("FROM");
const runtime = instructions.slice(lastFrom);
const positionOf = (wanted: string, start: string): number =>
  runtime.findIndex(({ name, rest }) => name === wanted && rest.startsWith(start));
const migrationsIn = (folder: string): string[] =>
  readdirSync(folder, { recursive: true, encoding: "utf8" })
    .filter((file) => file.endsWith(".sql"))
    .sort();
const last = (wanted: string): string => runtime.filter(({ name }) => name === wanted).at(-1)?.rest ?? "";
const manifest = JSON.parse(readText("package.json")) as {
  bin: Record<string, string>;
  engines: { node: string };
  scripts: Record<string, string>;
  dependencies: Record<string, string>;
};

/** The last pattern of .dockerignore that fits decides. */
function ignored(path: string): boolean {
  const patterns = readText(".dockerignore")
    .split("\n")
    .filter((line) => line !== "" && !line.startsWith("#"));
  return patterns.reduce((out, pattern) => {
    const bare = pattern.replace(/^!/, "");
    const fits = bare === "*" || path === bare || path.startsWith(`${bare}/`);
    return fits ? !pattern.startsWith("!") : out;
  }, false);
}

test("every copied file is in the repository and not ignored, or comes from an earlier stage", () => {
  const stages: string[] = [];
  let copied = 0;
  for (const { name, rest } of instructions) {
    if (name === "FROM") stages.push(/ AS (\S+)$/.exec(rest)?.[1] ?? "");
    if (name !== "COPY") continue;
    const [, from] = /--from=(\S+)/.exec(rest) ?? [];
    const sources = rest
      .split(/\s+/)
      .filter((part) => !part.startsWith("--"))
      .slice(0, -1);
    copied += sources.length;
    if (from !== undefined) {
      expect(stages.slice(0, -1)).toContain(from);
      expect(["/app/dist", "/app/node_modules"]).toEqual(expect.arrayContaining(sources));
    } else {
      expect(sources.filter((source) => !existsSync(inRepository(source)) || ignored(source))).toEqual([]);
    }
  }
  expect(copied).toBeGreaterThan(8);
});

test("generated files stay out of the build", () => {
  for (const path of ["dist/main.js", "node_modules/nats", "src/gen/image.binpb", ".git/HEAD", ".env", "test"]) {
    expect({ path, ignored: ignored(path) }).toEqual({ path, ignored: true });
  }
  expect(ignored("src/state/entries/read-page.lua")).toBe(false);
});

test("every stage has the version of Node that README.md recommends, and package.json the oldest one that works", () => {
  const bases = instructions.filter(({ name }) => name === "FROM").map(({ rest }) => rest.split(" ")[0]);
  expect(bases.length).toBeGreaterThan(1);
  const [, major, oldest] = /Node (\d+) \(LTS\), or (\S+) and newer/.exec(readText("README.md")) ?? [];
  expect(manifest.engines.node).toBe(`>=${oldest}`);
  expect(new Set(bases)).toEqual(new Set([`node:${major}-bookworm-slim`]));
});

test("optional dependencies are installed, development dependencies are not in the image", () => {
  expect(instructions.filter(({ rest }) => rest.includes("omit=optional"))).toEqual([]);
  const source = runtime.find(({ name, rest }) => name === "COPY" && rest.includes("node_modules"))?.rest;
  const stage = /--from=(\S+)/.exec(source ?? "")?.[1];
  const begin = instructions.findIndex(({ name, rest }) => name === "FROM" && rest.endsWith(` AS ${stage}`));
  const commands = instructions.slice(begin + 1).filter(({ name }) => name === "RUN");
  expect(commands[0]?.rest).toMatch(/npm ci --omit=dev$/);
  expect(runtime).toContainEqual({ name: "ENV", rest: "NODE_ENV=production" });
});

test("the image has the clients of both databases and the migrations", async () => {
  const { packages } = JSON.parse(readText("package-lock.json")) as { packages: Record<string, { dev?: boolean }> };
  for (const name of ["pg", "@electric-sql/pglite"]) {
    expect(manifest.dependencies).toHaveProperty([name]);
    expect(packages[`node_modules/${name}`]?.dev).toBeUndefined();
  }
  const migrations = migrationsIn(inRepository("src"));
  expect(migrations).toEqual(expect.arrayContaining(["users/migrations/0001_users.sql"]));
  expect(migrations.filter((file) => ignored(`src/${file}`))).toEqual([]);
  const dist = mkdtempSync(join(tmpdir(), "avion-timeline-dist-"));
  try {
    const [, script = ""] = /^node -e "(.*)"$/.exec(manifest.scripts["build:assets"] ?? "") ?? [];
    expect(manifest.scripts["build"]).toContain("npm run build:assets");
    await promisify(execFile)(process.execPath, ["-e", script.replace("'dist'", JSON.stringify(dist))], {
      cwd: inRepository("."),
    });
    expect(migrationsIn(dist)).toEqual(migrations);
  } finally {
    rmSync(dist, { recursive: true, force: true });
  }
});

test("the sandbox is removed before dist is copied into the image, and the program runs without it", async () => {
  const built = instructions.filter(({ name, rest }) => name === "RUN" && rest.startsWith("npm run build"));
  expect(built).toEqual([{ name: "RUN", rest: "npm run build && rm -r dist/sandbox" }]);
  const folder = mkdtempSync(join(tmpdir(), "avion-timeline-image-"));
  try {
    for (const item of ["dist", "package.json"]) cpSync(inRepository(item), join(folder, item), { recursive: true });
    symlinkSync(inRepository("node_modules"), join(folder, "node_modules"));
    rmSync(join(folder, "dist/sandbox"), { recursive: true });
    const { stdout } = await promisify(execFile)(process.execPath, ["dist/main.js", "--help"], { cwd: folder });
    expect(stdout).toMatch(/^ {2}serve /m);
    expect(stdout).not.toMatch(/^ {2}(up|demo) /m);
    // Every module that a role is made of loads.
    await promisify(execFile)(process.execPath, ["-e", "import('./dist/roles/service.js')"], { cwd: folder });
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});

test("the embedded database has a folder that belongs to the user, in any working folder", () => {
  const [, folder = ""] =
    /^TIMELINE_DATA_DIR=(\/\S+)$/.exec(runtime.at(positionOf("ENV", "TIMELINE_"))?.rest ?? "") ?? [];
  const [user, group] = last("USER").split(":");
  expect(folder).not.toBe("");
  expect(runtime).toContainEqual({
    name: "RUN",
    rest: `install --directory --owner=${user} --group=${group} ${folder}`,
  });
  expect(positionOf("RUN", "install")).toBeLessThan(positionOf("USER", ""));
  // Otherwise Docker would make a volume for every container of every role, and keep it.
  expect(last("VOLUME")).toBe("");
});

test("the process has a numeric user other than root, and receives SIGTERM itself", () => {
  expect(last("USER")).toMatch(/^[1-9]\d*:[1-9]\d*$/);
  expect(last("STOPSIGNAL")).toBe("SIGTERM");
  expect(JSON.parse(last("ENTRYPOINT"))).toEqual(["node", manifest.bin["avion-timeline"]]);
  expect(JSON.parse(last("CMD"))).toEqual(["serve"]);
});

test("ports are the service's defaults, variables its own", () => {
  expect(last("EXPOSE").split(" ").map(Number)).toEqual([PORTS.grpc, PORTS.http]);
  expect(unknownVariables(text)).toEqual([]);
});

test("the health check asks /healthz at the configured address", async () => {
  const command = JSON.parse(last("HEALTHCHECK").replace(/^.*?CMD /, "")) as [string, ...string[]];
  expect(command[0]).toBe("node");
  expect(command.at(-1)).toContain(`:${PORTS.http}`);
  let status = 200;
  const asked: (string | undefined)[] = [];
  const server = createServer((request, response) => {
    asked.push(request.url);
    response.writeHead(status).end();
  });
  await new Promise<void>((resolve) => server.listen(0, resolve));
  const { port } = server.address() as AddressInfo;
  const check = (address = `0.0.0.0:${port}`): Promise<number> =>
    promisify(execFile)(process.execPath, command.slice(1), {
      env: { ...process.env, TIMELINE_HTTP_ADDR: address },
    }).then(
      () => 0,
      (error: { code: number }) => error.code,
    );
  try {
    expect(await check()).toBe(0);
    status = 503;
    expect(await check()).toBe(1);
    for (const host of ["[::]", "[::1]", "localhost"]) expect(await check(`${host}:${port}`)).toBe(1);
    expect(await check(`[::1]:${port}`)).toBe(1);
    expect(asked).toEqual(new Array(6).fill("/healthz"));
  } finally {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  }
  expect(await check()).toBe(1);
});
