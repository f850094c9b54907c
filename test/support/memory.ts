import { spawnSync } from "node:child_process";
import { Redis } from "ioredis";
import { connect, StorageType } from "nats";
import type { Broker } from "../../src/sandbox/brokers/index.js";

/** util-linux has it. */
export const canRefuseMemory = spawnSync("prlimit", ["--version"]).status === 0;

const BALLAST = Buffer.alloc(1_000_000, "x");
/** Go and jemalloc have some memory in reserve. */
const MOST_BALLAST = 2_000;

/** Gives a running server no more memory than it has, and data that need more: it ends where an allocation fails. */
export async function starve(server: Broker): Promise<void> {
  const { status, stderr } = spawnSync("prlimit", ["--pid", String(server.pid), "--as=1"], { encoding: "utf8" });
  if (status !== 0) throw new Error(`prlimit: ${stderr}`);
  const fill = server.kind === "redis" ? fillRedis : fillNats;
  await fill(server.url).catch(() => undefined);
  await server.exited;
}

async function fillRedis(url: string): Promise<void> {
  const redis = new Redis(url, { retryStrategy: () => null, maxRetriesPerRequest: 0 });
  redis.on("error", () => undefined);
  try {
    for (let number = 0; number < MOST_BALLAST; number++) await redis.set(`ballast:${number}`, BALLAST);
  } finally {
    redis.disconnect();
  }
}

async function fillNats(url: string): Promise<void> {
  const connection = await connect({ servers: url, reconnect: false });
  try {
    const manager = await connection.jetstreamManager();
    await manager.streams.add({ name: "BALLAST", subjects: ["ballast"], storage: StorageType.Memory });
    const jetstream = connection.jetstream();
    for (let number = 0; number < MOST_BALLAST; number++) await jetstream.publish("ballast", BALLAST);
  } finally {
    await connection.close();
  }
}
