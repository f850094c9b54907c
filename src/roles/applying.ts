import type { FanoutDeps } from "../fanout/fanout.js";
import { createSources } from "../fanout/sources.grpc.js";
import { createTimelineWriter } from "../fanout/timelines.redis.js";
import type { Config } from "./config/config.js";
import type { Connections } from "./connections.js";

/** What events are applied to timelines with; whom that is told to is another matter. */
export type Applying = Omit<FanoutDeps, "notify" | "queue" | "progress" | "complete" | "applied">;

/** Wires it to this process's connections. */
export function createApplying(
  config: Config,
  { scripts, fenced, fences, upstreams }: Pick<Connections, "scripts" | "fenced" | "fences" | "upstreams">,
): Applying {
  const maxEntries = config.TIMELINE_MAX_ENTRIES;
  const writer = createTimelineWriter(scripts, fenced, {
    maxEntries,
    ttlMs: config.TIMELINE_KEY_TTL_MS,
    activeOnly: config.TIMELINE_FANOUT_AUDIENCE === "active",
  });
  const sources = createSources(upstreams("fanout"), { followersAPage: config.TIMELINE_FANOUT_CHUNK_SIZE });
  return { writer, fences, ...sources, maxEntries };
}
