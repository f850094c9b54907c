import { spawn, spawnSync } from "node:child_process";
import { text } from "node:stream/consumers";
import { expect } from "@jest/globals";

/** `.ci/run` builds the nats CLI. */
export const HAS_NATS = spawnSync("nats", ["--version"]).status === 0;
if (!HAS_NATS) console.warn("no nats CLI on PATH: the nats commands of the documents are not run");

/**
 * Runs one command in a shell as an operator or a cron job does, without a terminal. It must end with 0; the process of
 * the test goes on answering meanwhile.
 */
export async function inShell(command: string, env: Readonly<Record<string, string>>): Promise<string> {
  const child = spawn("sh", ["-c", command], { env, stdio: ["ignore", "pipe", "pipe"], timeout: 30_000 });
  const [output, errors, code] = await Promise.all([
    text(child.stdout),
    text(child.stderr),
    new Promise((resolve) => child.once("close", resolve)),
  ]);
  expect({ command, code, output, errors }).toMatchObject({ command, code: 0 });
  return output;
}
