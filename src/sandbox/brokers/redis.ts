import { findBroker } from "./find-broker.js";
import { freePort } from "./free-port.js";
import { type Attempt, launch, prepareFolder } from "./launch.js";
import { probeRedis } from "./probe.js";
import type { Broker, StartOptions } from "./types.js";

/** Options of {@link startRedis}. */
export type RedisOptions = StartOptions & {
  /** Keep the data across restarts: append-only file, synced every second. */
  readonly appendonly?: boolean;
};

/** Starts a private Redis (or Valkey) on loopback that ends with this process. */
export async function startRedis(options: RedisOptions): Promise<Broker> {
  const dir = await prepareFolder(options.dir);
  const binary = await findBroker("redis", { onProgress: options.onProgress, binary: options.binary });
  const nextAttempt = async (): Promise<Attempt> => {
    const port = options.port ?? (await freePort());
    return { port, args: redisArgs(port, options), probe: (pid) => probeRedis(port, pid) };
  };
  return launch({ kind: "redis", dir, binary, nextAttempt, portFixed: options.port !== undefined });
}

// The data folder is the working directory: older servers split a --dir with spaces in it.
function redisArgs(port: number, options: RedisOptions): string[] {
  const appendonly = options.appendonly === true ? "yes" : "no";
  const network = ["--port", String(port), "--bind", "127.0.0.1", "--daemonize", "no"];
  const storage = ["--save", "", "--appendonly", appendonly, "--appendfsync", "everysec"];
  const memory = ["--maxmemory-policy", "noeviction"];
  return [...network, ...storage, ...memory, ...(options.extraArgs ?? [])];
}
