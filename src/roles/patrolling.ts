import { observeAudit } from "../consistency/audit/observe.js";
import { startPatrol } from "../consistency/audit/patrol.js";
import { observeReconcile } from "../consistency/reconcile/observe.js";
import { AUDIT_LEASE_KEY } from "../contracts/keys.js";
import type { Logger } from "../kernel/logger.js";
import { MINUTE } from "../kernel/time.js";
import { createLease } from "../platform/redis/lease.js";
import { createAuditing } from "./auditing.js";
import type { Config } from "./config/config.js";
import type { Connections } from "./connections.js";
import { createReconciling } from "./reconciling.js";

/** So much of the past is reconciled in each round; longer than between two of them by default. */
const RECONCILED_MS = 15 * MINUTE;

interface PatrollingDeps {
  readonly config: Config;
  readonly connections: Connections;
  readonly log: Logger;
}

/** Starts the patrol of the role fanout, where it is not switched off; `busy`: while data is being mended. */
export function startPatrolling(
  { config, connections, log }: PatrollingDeps,
  busy: () => boolean,
): { close(): Promise<void> } {
  const { intervalMs, settleMs } = config.audit;
  if (intervalMs === 0) return { close: async () => undefined };
  const reconciling = createReconciling(connections, log);
  const auditing = createAuditing(config, connections, log);
  return startPatrol({
    lease: createLease(connections.scripts, AUDIT_LEASE_KEY),
    intervalMs,
    busy,
    reconcile: async (stopping) => {
      const now = Date.now();
      // What has just changed is on its way by itself.
      const found = await reconciling({ since: now - RECONCILED_MS, until: now - settleMs }, undefined, stopping);
      observeReconcile.reconciled(found);
      if (found.admitted > 0) log.warn(found, "events had been lost, and nobody had noticed; they are admitted now");
    },
    audit: async (stopping) => {
      const options = { fix: true, stopping };
      const [home, local, global] = await Promise.all([
        auditing.homes(await auditing.sample(config.audit.users), options),
        auditing.shared("local", options),
        auditing.shared("global", options),
      ]);
      return { home, local, global };
    },
    log,
    observe: observeAudit.audited,
  });
}
