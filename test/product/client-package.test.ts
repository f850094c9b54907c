import { existsSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { expect, test } from "@jest/globals";
import { CLIENT, consumerFolder, run } from "../support/client-package.js";

const MAX_BYTES = 6 * 1_024;

const manifest = JSON.parse(readFileSync(join(CLIENT, "package.json"), "utf8")) as Record<string, unknown>;
const product = JSON.parse(readFileSync("package.json", "utf8")) as Record<string, unknown>;

test("the client has the product's version, license and Node, and no dependency", () => {
  for (const field of ["version", "license", "engines"]) expect(manifest[field]).toEqual(product[field]);
  expect(Object.keys(manifest).filter((field) => /dependencies$/i.test(field))).toEqual([]);
  const code = readFileSync(join(CLIENT, "dist/index.js"), "utf8");
  expect(code).not.toMatch(/\bimport\b\s*[({"'\w*]|\brequire\(/);
});

test("the client has at most 6 KB, gzipped", () => {
  expect(gzipSync(readFileSync(join(CLIENT, "dist/index.js"))).byteLength).toBeLessThanOrEqual(MAX_BYTES);
});

test("npm packs what is built, with types for each import, and nothing else", async () => {
  const { stdout } = await run("npm", ["pack", "--dry-run", "--json"], { cwd: CLIENT });
  const [{ files, name }] = JSON.parse(stdout) as [{ files: { path: string }[]; name: string }];
  expect(name).toBe("@avion/timeline-client");
  const paths = files.map(({ path }) => path);
  expect(paths.filter((path) => !/^dist\/([a-z-]+|gen\/schemas)\.d\.ts$/.test(path)).toSorted()).toEqual([
    "README.md",
    "dist/index.js",
    "package.json",
  ]);
  for (const path of paths.filter((each) => each.endsWith(".d.ts"))) {
    const text = readFileSync(join(CLIENT, path), "utf8");
    for (const [, imported = ""] of text.matchAll(/from "(\.[^"]+)\.js"/g))
      expect(existsSync(join(CLIENT, path, "..", `${imported}.d.ts`))).toBe(true);
  }
});

const PROGRAM = `
import { type StreamEvent, TimelineClient, TimelineError, type Timeline } from "@avion/timeline-client";
const client = new TimelineClient({ url: "http://localhost", token: async (refused?: string) => refused ?? "token" });
export const page: Promise<Timeline> = client.page("home", { limit: 5, expand: "drops" });
const stream = client.stream("home", { signal: new AbortController().signal });
stream.on("new_drop", ({ data, id }) => [data.created_at + 1, id.length]).on("down", ({ error }) => error.isFinal);
export async function read(): Promise<string> {
  for await (const message of stream) if (message.event === "drop_edited") return String(message.data.revision + 1);
  return "";
}
export async function kinds(): Promise<readonly string[]> {
  for await (const message of client.stream("notifications"))
    if (message.event === "notification") return [message.data.kind, (await client.unread()).newest_id];
  return (await client.positions()).positions.map(({ timeline }) => timeline);
}
client.stream("list:1").on("drop_deleted", ({ data }) => data.drop_id).on("reset", ({ data }) => data.reason);
stream.on("new_position", ({ data }) => client.setPosition({ ...data, version: data.version + 1 }));
export const newer: Promise<number | undefined> = client.page("local", { with_newer: true }).then((page) => page.newer);
// @ts-expect-error -- the stream of local has no notifications
client.stream("local").on("notification", () => undefined);
// @ts-expect-error -- notifications have no pages of drops
void client.page("notifications");
// @ts-expect-error -- a position has a version
void client.setPosition({ timeline: "home", drop_id: "1" });
export const idOf = ({ data }: StreamEvent<"drop_deleted">): string => data.drop_id;
// @ts-expect-error -- there is no such timeline
void client.page("rome");
// @ts-expect-error -- a number is no cursor
void client.page("home", { max_id: 5 });
// @ts-expect-error -- there is no such event
stream.on("drop_lost", () => undefined);
// @ts-expect-error -- an edit has a revision and no text
stream.on("drop_edited", ({ data }) => data.body);
void client.analyze({ did: "ada", type: "full" }).catch((error: TimelineError) => error.problem?.errors?.[0]?.field);
`;

test.each([
  { module: "node16", moduleResolution: "node16", lib: ["ES2022"], types: ["node"] },
  { module: "esnext", moduleResolution: "bundler", lib: ["ES2022", "DOM", "DOM.Iterable"], types: [] },
])("a program type-checks with moduleResolution $moduleResolution", async (options) => {
  const compilerOptions = {
    ...options,
    target: "ES2022",
    strict: true,
    exactOptionalPropertyTypes: true,
    noEmit: true,
    skipLibCheck: false,
    typeRoots: [join(process.cwd(), "node_modules/@types")],
  };
  const tsconfig = JSON.stringify({ compilerOptions, include: ["program.ts"] });
  const folder = await consumerFolder({ "program.ts": PROGRAM, "tsconfig.json": tsconfig });
  try {
    const tsc = join(process.cwd(), "node_modules/.bin/tsc");
    const { stdout } = await run(tsc, ["-p", folder]).catch((error: { stdout: string }) => error);
    expect(stdout).toBe("");
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});
