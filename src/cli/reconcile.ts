import { silent } from "../kernel/logger.js";
import { connectNats } from "../platform/nats/connect.js";
import { createPublish } from "../platform/nats/publish.js";
import { Closers } from "../roles/closers.js";
import { readCommandConfig } from "../roles/config/config.js";
import { checkFiles } from "../roles/config/files.js";
import { missingUpstreams, natsOptions, upstreamsOnDemand } from "../roles/connections.js";
import { createReconciling } from "../roles/reconciling.js";
import { createProgress, toTerminal } from "./terminal.js";

/** What `reconcile` is told; times in ms since the epoch. */
export interface ReconcileOptions {
  readonly since: number;
  readonly until?: number;
  readonly json?: boolean;
}

/** Admits what the upstreams changed in a window and the log was never given; resolves to the exit code. */
export async function reconcileByHand(options: ReconcileOptions): Promise<number> {
  const config = readCommandConfig(process.env);
  checkFiles(config);
  const missing = missingUpstreams(config.upstreams);
  if (missing.length > 0) throw new Error(`${missing.join(" and ")}: needed to ask the upstreams what changed`);
  const closers = new Closers();
  const progress = createProgress();
  try {
    const nats = await connectNats({ ...natsOptions(config.nats, "reconcile"), impatient: true }, silent);
    closers.add("NATS", () => nats.close());
    const upstreams = upstreamsOnDemand(config.upstreams, closers);
    const reconcile = createReconciling({ nats, upstreams, publish: createPublish(nats.jetstream()) }, silent);
    const found = await reconcile({ since: options.since, until: options.until ?? Date.now() }, (done, upTo) =>
      progress.say(`up to ${new Date(upTo).toISOString()}: ${done.changes} changes, ${done.admitted} admitted`),
    );
    progress.end();
    console.log(
      options.json
        ? JSON.stringify(found)
        : `${found.changes} changes, ${found.admitted} of them had been lost and are admitted now`,
    );
    return 0;
  } finally {
    progress.end();
    await closers.closeAll(toTerminal);
  }
}
