import { existsSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { runCommand } from "../../../src/kernel/processes.js";
import type { Broker } from "../../../src/sandbox/brokers/index.js";

const DEPTH = 64;
const CLIENTS = 50;
const RANDOM = "__rand_int__";

export interface Load {
  /** Number of commands sent. */
  readonly requests: number;
  /** `__rand_int__` becomes twelve digits below `keys`. */
  readonly keys: number;
  readonly command: readonly string[];
}

/** The key that `__rand_int__` makes of `prefix` for this number. */
export const numbered = (prefix: string, number: number): string => prefix + String(number).padStart(12, "0");

/** The rate a pipelined load reaches, a second: by redis-benchmark where it came with the server, else by our own. */
export async function redisBenchmark(
  broker: Broker,
  load: Load,
): Promise<{ readonly name: string; readonly value: number }> {
  const cli = (broker.cli ?? "redis-cli").split(" ");
  const program = (cli.pop() as string).replace(/redis-cli$/, "redis-benchmark");
  const env = Object.fromEntries(cli.map((variable) => variable.split("=") as [string, string]));
  const options = ["-p", String(broker.port), "-P", String(DEPTH), "-c", String(CLIENTS), "-n", String(load.requests)];
  const args = [...options, "-r", String(load.keys), "--csv", ...load.command];
  const known = !program.includes("/") || existsSync(program);
  const run = known
    ? await runCommand(program, args, { env: { ...process.env, ...env }, timeoutMs: 300_000 })
    : undefined;
  const rate = /^"(?:[^"]|"")*","([\d.]+)"/m.exec(run?.output.split("\n").slice(1).join("\n") ?? "")?.[1];
  if (run?.code === 0 && rate !== undefined) return { name: `redis-benchmark -P ${DEPTH}`, value: Number(rate) };
  return { name: `own loader, ${DEPTH} a pipeline`, value: await ownLoad(broker.port, load) };
}

async function ownLoad(port: number, load: Load): Promise<number> {
  const batches = Math.ceil(load.requests / DEPTH);
  const sockets = await Promise.all(Array.from({ length: Math.min(CLIENTS, batches) }, () => opened(port)));
  let left = batches;
  const started = performance.now();
  await Promise.all(
    sockets.map(async (socket) => {
      while (left-- > 0) await sendBatch(socket, load);
      socket.destroy();
    }),
  );
  return (batches * DEPTH) / ((performance.now() - started) / 1_000);
}

function opened(port: number): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = connect(port, "127.0.0.1", () => resolve(socket)).once("error", reject);
  });
}

/** Each reply must be of one line: a number or a status. */
function sendBatch(socket: Socket, { command, keys }: Load): Promise<void> {
  const random = (): string => numbered("", Math.floor(Math.random() * keys));
  const one = (): string => {
    const parts = command.map((part) => part.replaceAll(RANDOM, random));
    return `*${parts.length}\r\n${parts.map((part) => `$${Buffer.byteLength(part)}\r\n${part}\r\n`).join("")}`;
  };
  return new Promise((resolve, reject) => {
    let replies = 0;
    const count = (chunk: Buffer): void => {
      if (chunk[0] === 0x2d && replies === 0) return reject(new Error(chunk.toString()));
      for (const byte of chunk) if (byte === 0x0a) replies++;
      if (replies < DEPTH) return;
      socket.off("data", count);
      resolve();
    };
    socket.on("data", count);
    socket.write(Array.from({ length: DEPTH }, one).join(""));
  });
}
