import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { rm, symlink } from "node:fs/promises";
import { join, resolve } from "node:path";
import { expect, test } from "@jest/globals";
import { temporaryFolder } from "../support/brokers.js";
import { eventually } from "../support/eventually.js";
import { newPort } from "../support/ports.js";
import { startStack } from "../support/stack.js";
import { runs } from "../support/suite.js";

const [, SECTION = ""] = readFileSync("docs/integration.md", "utf8").split(/^## .*$/m);
const [OWN = "", NONE = "", ...STEPS] = [...SECTION.matchAll(/^```sh\n([\s\S]*?)^```/gm)].map(
  ([, block = ""]) => block,
);

const hasPython = spawnSync("python3", ["-c", "import grpc, grpc_tools, redis"], { stdio: "ignore" }).status === 0;

/** A shell in a folder of its own, which has what a clone has. Each block of commands must succeed. */
async function openShell(env: Readonly<Record<string, string>>) {
  const folder = await temporaryFolder("ten-minutes");
  for (const name of ["dist", "docs", "proto", "node_modules", "package.json"])
    await symlink(resolve(name), join(folder, name));
  const { PATH } = process.env;
  // A group of its own: what the commands leave in the background ends with it.
  const shell = spawn("sh", ["-e"], { cwd: folder, env: { PATH, HOME: folder, ...env }, detached: true });
  const closed = once(shell, "close");
  let output = "";
  const keep = (part: Buffer): void => {
    output += part.toString();
  };
  for (const stream of [shell.stdout, shell.stderr]) stream.on("data", keep);
  let blocks = 0;
  return {
    output: () => output,
    async run(commands: string): Promise<void> {
      blocks++;
      const done = `block ${blocks} is done`;
      shell.stdin.write(`${commands}\necho '${done}'\n`);
      await eventually(() => output.includes(done) || shell.exitCode !== null, "the commands end", 60_000);
      expect([output.includes(done), output]).toEqual([true, output]);
    },
    async close(): Promise<void> {
      process.kill(-(shell.pid as number), "SIGKILL");
      await closed;
      await rm(folder, { recursive: true, force: true });
    },
  };
}

/** Runs the commands on brokers of the test: only ports are replaced. */
async function follow(start: string, ready: (output: string) => boolean): Promise<void> {
  const stack = await startStack({ service: false });
  try {
    const [grpc, http, services] = [await newPort(), await newPort(), await newPort()];
    const shell = await openShell({
      ...{ REDIS_URL: stack.redisServer.url, NATS_URL: stack.natsServer.url },
      ...{ TIMELINE_GRPC_ADDR: `127.0.0.1:${grpc}`, TIMELINE_HTTP_ADDR: `127.0.0.1:${http}` },
    });
    stack.defer(() => shell.close());
    const ports = { 50051: grpc, 8080: http, 50061: services, 6379: stack.redisServer.port };
    const placed = (commands: string): string =>
      Object.entries(ports).reduce((text, [usual, port]) => text.replaceAll(`:${usual}`, `:${port}`), commands);
    await shell.run(placed(start));
    await eventually(() => ready(shell.output()), "the services of the example serve");
    const [listen = "", post = "", read = "", ...others] = STEPS.map(placed);
    expect(others).toEqual([]);
    await shell.run(listen);
    await eventually(() => shell.output().includes("retry: "), "the stream is open");
    await shell.run(post);
    await eventually(() => /event: new_drop\n/.test(shell.output()) || shell.output(), "the stream tells of the drop");
    const [, drop = ""] = /event: new_drop\ndata: .*"drop_id":"([^"]+)"/.exec(shell.output()) ?? [];
    await shell.run(read);
    expect(shell.output()).toContain(`{"drop_ids":["${drop}"],"has_more":false`);
  } catch (error) {
    throw stack.explain(error);
  } finally {
    await stack.stop();
  }
}

(runs.quick ? test : test.skip)(
  "a team without services has a timeline by the commands of docs/integration.md",
  () => follow(NONE, () => true),
  120_000,
);

(runs.quick && hasPython ? test : test.skip)(
  "a team with services of its own has a timeline by the commands of docs/integration.md",
  () => follow(OWN, (output) => output.includes("UserService and PostService on port")),
  120_000,
);
