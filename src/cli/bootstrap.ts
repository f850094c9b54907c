import { createFences } from "../consistency/fences/fences.js";
import { createReadHistory } from "../consistency/fences/log.nats.js";
import { createReadRetentionStart } from "../consistency/fences/retention.grpc.js";
import { createRetention } from "../consistency/fences/retention.js";
import { createFenceStore } from "../consistency/fences/store.redis.js";
import { oneLine } from "../kernel/errors.js";
import { type Logger, silent } from "../kernel/logger.js";
import { printableAddresses } from "../kernel/server-url.js";
import { pause, SECOND } from "../kernel/time.js";
import { connectNats } from "../platform/nats/connect.js";
import { createPublish } from "../platform/nats/publish.js";
import { followClock, type RedisClock } from "../platform/redis/clock.js";
import { connectRedis } from "../platform/redis/connect.js";
import { createFenced } from "../platform/redis/fenced.js";
import { createScripts } from "../platform/redis/scripts.js";
import { Refusal } from "../platform/refusals.js";
import { Closers } from "../roles/closers.js";
import { type Config, readCommandConfig } from "../roles/config/config.js";
import { checkFiles } from "../roles/config/files.js";
import {
  type Connections,
  createReadLimits,
  missingUpstreams,
  natsOptions,
  upstreamsOnDemand,
} from "../roles/connections.js";
import { toTerminal } from "./terminal.js";

/** What a command that works on timelines is given. */
export interface Workbench {
  readonly config: Config;
  readonly connections: Omit<Connections, "podName" | "topology" | "eviction">;
  readonly log: Logger;
  /** Aborts on SIGINT and SIGTERM: finish what is in hand. A second one ends the process at once. */
  readonly interrupted: AbortSignal;
}

/** Exit code after Ctrl-C, as a shell says it: 128 and the signal's number. */
export const INTERRUPTED = 130;

const PATIENCE_MS = 10 * SECOND;

/**
 * Runs a command on Redis, NATS and both upstreams; resolves to its exit code.
 *
 * @throws where one of them is not configured, or is not there within ten seconds: somebody watches
 */
export async function atWorkbench(name: string, work: (bench: Workbench) => Promise<number>): Promise<number> {
  const config = readCommandConfig(process.env);
  checkFiles(config);
  const missing = missingUpstreams(config.upstreams);
  if (missing.length > 0) throw new Error(`${missing.join(" and ")}: needed to ask the upstreams`);
  const closers = new Closers();
  try {
    const connections = await open(config, name, closers);
    return await work({ config, connections, log: silent, interrupted: untilInterrupted() });
  } finally {
    await closers.closeAll(toTerminal);
  }
}

async function open(
  config: Config,
  name: string,
  closers: Closers,
): Promise<Omit<Connections, "podName" | "topology" | "eviction">> {
  const upstreams = upstreamsOnDemand(config.upstreams, closers);
  const redis = connectRedis(config.redis.urls, silent);
  closers.add("Redis", () => redis.disconnect());
  const scripts = createScripts(redis);
  const clock = followClock(scripts);
  closers.add("Redis clock", () => clock.close());
  const fenced = createFenced(scripts, clock);
  await answered(clock, config.redis.urls);
  const nats = await connectNats({ ...natsOptions(config.nats, name), impatient: true }, silent).catch(
    (error: unknown) => {
      throw new Error(
        `NATS at ${printableAddresses(config.nats.servers)}: ${oneLine(error)}; start it there, or set NATS_URL`,
      );
    },
  );
  closers.add("NATS", () => nats.drain().catch(() => undefined));
  const retention = createRetention(createReadRetentionStart(() => upstreams("operator")));
  // Not every command needs the posts service, and pages hide what one writes that has gone.
  await retention.refresh().catch(() => false);
  return {
    scripts,
    fenced,
    nats,
    publish: createPublish(nats.jetstream()),
    retention,
    fences: createFences({
      store: createFenceStore(scripts, fenced),
      readHistory: createReadHistory(nats),
      retentionStart: retention.retentionStart,
      log: silent,
    }),
    upstreams,
    readLimits: createReadLimits(config.timeline),
  };
}

async function answered(clock: RedisClock, urls: readonly string[]): Promise<void> {
  const until = Date.now() + PATIENCE_MS;
  for (;;) {
    try {
      return await clock.sample();
    } catch (error) {
      if (error instanceof Refusal || Date.now() > until)
        throw new Error(`Redis at ${printableAddresses(urls)}: ${oneLine(error)}; start it there, or set REDIS_URL`, {
          cause: error,
        });
      // A connection is there a moment after it was asked for.
      await pause(SECOND / 20);
    }
  }
}

function untilInterrupted(): AbortSignal {
  const interrupted = new AbortController();
  for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => interrupted.abort());
  return interrupted.signal;
}
