import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "@jest/globals";
import { eventually } from "./eventually.js";

/** What writes files here: nats-server uses pwrite64, and Redis and PostgreSQL answer after fdatasync. Sockets use neither. */
const CALLS = "fsync,fdatasync,pwrite64";

/** Makes each of these system calls of a server take `ms` longer, by strace, until the function returned is called. */
export async function slowDiskOf(pid: number, ms: number): Promise<() => Promise<void>> {
  const pids = [pid, ...descendantsOf(pid)];
  const attach = pids.flatMap((one) => ["-p", String(one)]);
  const inject = `inject=${CALLS}:delay_enter=${ms * 1_000}`;
  const tracer = spawn("strace", ["-f", "-qq", "-o", "/dev/null", "-e", `trace=${CALLS}`, "-e", inject, ...attach]);
  const ended = once(tracer, "exit");
  await eventually(() => pids.every(isTraced), "strace traces the server");
  return async () => {
    tracer.kill("SIGINT");
    await ended;
  };
}

/** The processes that it has started, and those that they have. */
function descendantsOf(pid: number): number[] {
  const children = readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").split(" ").filter(Boolean).map(Number);
  return children.flatMap((child) => [child, ...descendantsOf(child)]);
}

/** True for a process that has ended meanwhile, too. */
function isTraced(pid: number): boolean {
  try {
    const threads = readdirSync(`/proc/${pid}/task`);
    return threads.every((id) => /TracerPid:\t[1-9]/.test(readFileSync(`/proc/${pid}/task/${id}/status`, "utf8")));
  } catch {
    return true;
  }
}

const mayTrace = spawnSync("strace", ["-f", "-qq", "-o", "/dev/null", "true"]).status === 0;

/** Declares a test that traces servers; where strace cannot be used, its line in the report says so. */
export const tracedTest = (name: string, work: () => Promise<void>, timeoutMs: number): void =>
  mayTrace ? test(name, work, timeoutMs) : test.skip(`${name} (skipped: needs strace)`, work);
