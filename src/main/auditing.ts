import { type AuditOptions, audit, type Report } from "../audit/audit.js";
import type { AuditDeps, TimelineKind } from "../audit/ports.js";
import { createReadStored, sampleUsers } from "../audit/timelines.redis.js";
import type { Logger } from "../kernel/logger.js";
import { createReadBacklogStart } from "../replay/log.nats.js";
import type { Config } from "./config.js";
import type { Connections } from "./connections.js";
import { createRebuilding } from "./rebuilding.js";

/** Audits over this process's connections. */
export interface Auditing {
  /** Users with a home timeline, at random. */
  sample(count: number): Promise<string[]>;
  homes(users: readonly string[], options?: AuditOptions): Promise<Report>;
  shared(name: SharedName, options?: AuditOptions): Promise<Report>;
}

type SharedName = Exclude<TimelineKind, "home">;

/** Wires audits: the component knows neither how timelines are rebuilt nor how far the log is applied. */
export function createAuditing(
  config: Config,
  connections: Pick<Connections, "nats" | "scripts" | "fenced" | "ledger" | "upstreams">,
  log: Logger,
): Auditing {
  const { nats, scripts, ledger } = connections;
  const rebuilding = createRebuilding(config, connections, log);
  const readStored = createReadStored(scripts, config.TIMELINE_KEY_TTL_MS);
  const common = {
    deadAmong: ledger.deadAmong,
    readBacklogStart: createReadBacklogStart(nats),
    maxEntries: config.TIMELINE_MAX_ENTRIES,
    settleMs: config.TIMELINE_AUDIT_SETTLE_MS,
  };
  const ofHomes: AuditDeps = {
    ...common,
    readStored: (user) => readStored("home", user),
    readExpected: async (user, of) => {
      const entries = await rebuilding.expected(user, of);
      // Where there is more, nothing is known below the last of them.
      return { entries, floor: entries.length < of.count ? 0 : (entries.at(-1)?.score ?? 0) };
    },
    rebuild: rebuilding.home,
  };
  const ofShared = (name: SharedName): AuditDeps => ({
    ...common,
    readStored: () => readStored(name, name),
    readExpected: () => rebuilding.sharedExpected(name),
    rebuild: async () => rebuilding.shared(name, await readStored(name, name)),
  });
  return {
    sample: (count) => sampleUsers(scripts, count),
    homes: (users, options) => audit(ofHomes, users, options),
    shared: (name, options) => audit(ofShared(name), [name], options),
  };
}
