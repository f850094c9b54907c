import { type AuditOptions, audit, type Report } from "../audit/audit.js";
import { createReadHome, sampleUsers } from "../audit/homes.redis.js";
import type { Logger } from "../kernel/logger.js";
import { createReadBacklogStart } from "../replay/log.nats.js";
import type { Config } from "./config.js";
import type { Connections } from "./connections.js";
import { createRebuilding } from "./rebuilding.js";

/** Audits over this process's connections. */
export interface Auditing {
  /** Users with a home timeline, at random. */
  sample(count: number): Promise<string[]>;
  audit(users: readonly string[], options?: AuditOptions): Promise<Report>;
}

/** Wires audits: the component knows neither how homes are rebuilt nor how far the log is applied. */
export function createAuditing(
  config: Config,
  connections: Pick<Connections, "nats" | "scripts" | "ledger" | "upstreams">,
  log: Logger,
): Auditing {
  const { nats, scripts, ledger } = connections;
  const rebuilding = createRebuilding(config, connections, log);
  const deps = {
    readHome: createReadHome(scripts, config.TIMELINE_KEY_TTL_MS),
    readExpected: rebuilding.expected,
    deadAmong: ledger.deadAmong,
    readBacklogStart: createReadBacklogStart(nats),
    rebuild: rebuilding.home,
    maxEntries: config.TIMELINE_MAX_ENTRIES,
    settleMs: config.TIMELINE_AUDIT_SETTLE_MS,
  };
  return {
    sample: (count) => sampleUsers(scripts, count),
    audit: (users, options) => audit(deps, users, options),
  };
}
