import { type AuditOptions, audit, type Report } from "../consistency/audit/audit.js";
import { observeAudit } from "../consistency/audit/observe.js";
import type { AuditDeps, TimelineKind, TimelinePlace } from "../consistency/audit/ports.js";
import { createReadStored, sampleUsers } from "../consistency/audit/timelines.redis.js";
import { createReadBacklogStart } from "../consistency/redis-loss/log.nats.js";
import { oneLine } from "../kernel/errors.js";
import type { Logger } from "../kernel/logger.js";
import { composeTimelines, type TimelinesConnections } from "./api.js";
import type { Config } from "./config/config.js";

/** Audits over this process's connections. */
export interface Auditing {
  /** Users with a home timeline, at random. */
  sample(count: number): Promise<string[]>;
  homes(users: readonly string[], options?: AuditOptions): Promise<Report>;
  shared(name: SharedName, options?: AuditOptions): Promise<Report>;
  /** Rebuilds one timeline, and counts what became of that. */
  repair(place: TimelinePlace): Promise<void>;
}

type SharedName = Exclude<TimelineKind, "home">;

/** Wires audits: the component knows neither how timelines are rebuilt nor how far the log is applied. */
export function createAuditing(config: Config, connections: TimelinesConnections, log: Logger): Auditing {
  const { nats, scripts, fences } = connections;
  const timelines = composeTimelines({ config, connections, log });
  const readStored = createReadStored(scripts, config.storedTimelines.ttlMs);
  const common = {
    retentionStart: fences.retentionStart,
    tombstonedAmong: fences.tombstonedAmong,
    readBacklogStart: createReadBacklogStart(nats),
    maxEntries: config.storedTimelines.maxEntries,
    settleMs: config.audit.settleMs,
  };
  const ofHomes: AuditDeps = {
    ...common,
    readStored: (user) => readStored("home", user),
    readExpected: async (user, of) => {
      const entries = await timelines.readExpectedHome(user, of);
      // Where there is more, nothing is known below the last of them.
      return { entries, floor: entries.length < of.count ? 0 : (entries.at(-1)?.score ?? 0) };
    },
    rebuild: timelines.rebuildHome,
  };
  const ofShared = (name: SharedName): AuditDeps => ({
    ...common,
    readStored: () => readStored(name, name),
    readExpected: () => timelines.readExpectedShared(name),
    rebuild: async () => timelines.rebuildShared(name, await readStored(name, name)),
  });
  const repair = async ({ kind, name }: TimelinePlace): Promise<void> => {
    try {
      await (kind === "home" ? ofHomes : ofShared(kind)).rebuild(name);
      observeAudit.repaired("repaired");
    } catch (error) {
      observeAudit.repaired("failed");
      log.error({ timeline: kind, error: oneLine(error) }, "a timeline that differs could not be rebuilt");
    }
  };
  return {
    repair,
    sample: (count) => sampleUsers(scripts, count),
    homes: (users, options) => audit(ofHomes, users, options),
    shared: (name, options) => audit(ofShared(name), [name], options),
  };
}
