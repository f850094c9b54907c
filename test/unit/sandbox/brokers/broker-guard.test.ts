import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import type { Readable } from "node:stream";
import { text } from "node:stream/consumers";
import { expect, test } from "@jest/globals";
import { alive } from "../../../support/brokers.js";
import { eventually } from "../../../support/eventually.js";

const GUARD = "src/sandbox/brokers/broker-guard.sh";

async function guarded(...command: string[]): Promise<{ guard: ChildProcess; pid: number }> {
  const guard = spawn("/bin/sh", [GUARD, ...command], { stdio: ["pipe", "ignore", "ignore", "pipe"] });
  return { guard, pid: Number(await text(guard.stdio[3] as Readable)) };
}

test.each([
  ["its code", "exit 7", 7],
  ["128 and the number of the signal that ended it", "kill -9 $$", 137],
])("the guard exits as its server: with %s", async (_how, script, code) => {
  const { guard } = await guarded("/bin/sh", "-c", script);
  if (guard.exitCode === null) await once(guard, "exit");
  expect(guard.exitCode).toBe(code);
});

test.each(["running", "stopped"])("a %s server ends when the guard's input is closed", async (state) => {
  const { guard, pid } = await guarded("sleep", "600");
  expect(await alive(pid)).toBe(true);
  if (state === "stopped") process.kill(pid, "SIGSTOP");
  guard.stdin?.end();
  await once(guard, "exit");
  expect(await alive(pid)).toBe(false);
});

test("a signal to the guard reaches its server", async () => {
  const { guard, pid } = await guarded("sleep", "600");
  guard.kill("SIGTERM");
  await once(guard, "exit");
  await eventually(async () => !(await alive(pid)), "the end of the server");
});

test("the server does not inherit the pipe: its input is empty", async () => {
  const { guard } = await guarded("/bin/sh", "-c", "read -r line && exit 1; exit 0");
  if (guard.exitCode === null) await once(guard, "exit");
  expect(guard.exitCode).toBe(0);
});
