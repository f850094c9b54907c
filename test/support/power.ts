import { cp, readdir, rm, stat, truncate } from "node:fs/promises";
import { join } from "node:path";
import { type Broker, startNats, startRedis } from "../../src/sandbox/brokers/index.js";

/** The files of a nats-server, or of one of its streams, as they are on its disk at a moment. */
export interface OnDisk {
  /** Kills the server, and starts it with these files in place of what it has written since. */
  powerLoss(): Promise<Broker>;
}

/** Copies what is to survive. The server goes on. */
export async function onDisk({ dir, port, kill, exited }: Broker, stream = ""): Promise<OnDisk> {
  const files = join(dir, "jetstream", ...(stream === "" ? [] : ["jetstream", "$G", "streams", stream]));
  const copy = join(dir, "copy");
  await cp(files, copy, { recursive: true });
  return {
    powerLoss: async () => {
      kill("SIGKILL");
      await exited;
      await rm(files, { recursive: true });
      await cp(copy, files, { recursive: true });
      return startNats({ dir, port });
    },
  };
}

/** Bytes of the newest append-only file. */
export async function appendOnlyBytes(redis: Broker): Promise<number> {
  return (await stat(await appendOnlyFile(redis))).size;
}

/** Kills Redis, and starts it with so many bytes of its append-only file. */
export async function cutAppendOnlyFile(redis: Broker, bytes: number): Promise<Broker> {
  redis.kill("SIGKILL");
  await redis.exited;
  await truncate(await appendOnlyFile(redis), bytes);
  return startRedis({ dir: redis.dir, port: redis.port, appendonly: true });
}

/** Since Redis 7 it consists of several files; the last one grows. Before, it is one. */
async function appendOnlyFile({ dir }: Broker): Promise<string> {
  const folder = join(dir, "appendonlydir");
  const parts = (await readdir(folder).catch(() => [])).filter((name) => name.endsWith(".incr.aof")).sort();
  return parts.length === 0 ? join(dir, "appendonly.aof") : join(folder, parts.at(-1) as string);
}
