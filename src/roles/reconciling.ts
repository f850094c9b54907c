import { createReadChanges } from "../consistency/reconcile/changes.grpc.js";
import { createAdmit, createReadAdmitted } from "../consistency/reconcile/log.nats.js";
import type { Window } from "../consistency/reconcile/ports.js";
import { type Reconciled, reconcile } from "../consistency/reconcile/reconcile.js";
import type { Logger } from "../kernel/logger.js";
import type { Connections } from "./connections.js";

/** Admits what the upstreams changed in a window and the log was never given. */
export type Reconciling = (
  window: Window,
  progress?: (done: Reconciled, upTo: number) => void,
  stopping?: AbortSignal,
) => Promise<Reconciled>;

/** Reconciles over this process's connections; `lacking` is told once of each method an upstream does not have. */
export function createReconciling(
  { nats, publish, upstreams }: Pick<Connections, "nats" | "publish" | "upstreams">,
  log: Logger,
  lacking: (method: string) => void = (method) =>
    log.warn({ method }, "the upstream cannot tell what changed; it is not reconciled"),
): Reconciling {
  const deps = {
    readChanges: createReadChanges(upstreams("reconcile"), log, lacking),
    readAdmitted: createReadAdmitted(nats),
    admit: createAdmit(publish),
  };
  return (window, progress, stopping) => reconcile(deps, window, progress, stopping);
}
