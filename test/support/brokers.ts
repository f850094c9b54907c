import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import {
  type Broker,
  type RedisOptions,
  type StartOptions,
  startNats,
  startRedis,
} from "../../src/sandbox/brokers/index.js";
import { eventually } from "./eventually.js";

/** A private Redis in a folder of its own; `stop()` also removes the folder. */
export async function privateRedis(options: Omit<RedisOptions, "dir"> = {}): Promise<Broker> {
  const dir = await temporaryFolder("redis");
  return disposable(dir, () => startRedis({ ...options, dir }));
}

/** A test file needs a Redis with TLS: the Valkey that AVION_REDIS_SERVER may name is a package built without it. */
export function useRedisWithTls(): void {
  delete process.env["AVION_REDIS_SERVER"];
}

/** A private nats-server in a folder of its own; AVION_NATS_SERVER names another binary to test against. */
export async function privateNats(options: Omit<StartOptions, "dir"> = {}): Promise<Broker> {
  const dir = await temporaryFolder("nats");
  return disposable(dir, () => startNats({ ...options, dir }));
}

/** Runs `work` with a private Redis and a private NATS, and ends both whatever happens. */
export async function withBrokers<T>(work: (brokers: { redis: Broker; nats: Broker }) => Promise<T>): Promise<T> {
  const redis = await privateRedis({ appendonly: true });
  try {
    const nats = await privateNats();
    try {
      return await work({ redis, nats });
    } finally {
      await nats.stop();
    }
  } finally {
    await redis.stop();
  }
}

/** A new folder below the system's temporary one. */
export function temporaryFolder(purpose: string): Promise<string> {
  return mkdtemp(join(tmpdir(), `timeline-test-${purpose}-`));
}

/** True while a process of this pid runs; one that ended but was not collected by its parent counts as gone. */
export async function alive(pid: number): Promise<boolean> {
  const text = await readFile(`/proc/${pid}/stat`, "utf8").catch(() => undefined);
  if (text !== undefined) return !/\) [ZX] /.test(text);
  return !existsSync("/proc/self/stat") && spawnSync("ps", ["-p", String(pid)]).status === 0;
}

/** Stops the server's process. Resolves once none of its threads runs: the signal takes effect after it was sent. */
export async function freeze({ kill, pid }: Broker): Promise<void> {
  kill("SIGSTOP");
  await eventually(
    async () => (await threadStates(pid)).every((state) => state.startsWith("T")),
    "all threads stopped",
  );
}

async function threadStates(pid: number): Promise<string[]> {
  const tasks = await readdir(`/proc/${pid}/task`).catch(() => []);
  if (tasks.length === 0) return [spawnSync("ps", ["-o", "state=", "-p", String(pid)]).stdout.toString()];
  const stats = await Promise.all(tasks.map((task) => readFile(`/proc/${pid}/task/${task}/stat`, "utf8")));
  return stats.map((text) => text.slice(text.lastIndexOf(")") + 2));
}

async function disposable(dir: string, start: () => Promise<Broker>): Promise<Broker> {
  const remove = (): Promise<void> => rm(dir, { recursive: true, force: true });
  try {
    const broker = await start();
    return { ...broker, stop: () => broker.stop().then(remove) };
  } catch (error) {
    await remove();
    throw error;
  }
}
