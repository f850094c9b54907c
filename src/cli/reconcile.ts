import type { Command } from "commander";
import { createReconcile } from "../consistency/index.js";
import { silent } from "../kernel/logger.js";
import { INTERRUPTED, interruption, openLogAndUpstreams, withConnections } from "./bootstrap.js";
import { parseTime } from "./option-values.js";
import { exitWith, JSON_OPTION } from "./options.js";
import { withProgress } from "./terminal.js";

/** Times in ms since the epoch. */
interface ReconcileOptions {
  readonly since: number;
  readonly until?: number;
  readonly json?: boolean;
}

export function define(command: Command): void {
  command
    .requiredOption("--since <when>", "the start of the window: 15m, 2h, 7d (ago), or a date", parseTime)
    .option("--until <when>", "its end (default: now)", parseTime)
    .addOption(JSON_OPTION)
    .action(exitWith(reconcile));
}

function reconcile({ since, until = Date.now(), json }: ReconcileOptions): Promise<number> {
  return withConnections({ name: "reconcile", open: openLogAndUpstreams }, async (connections) => {
    const interrupted = interruption();
    const found = await withProgress((say) =>
      createReconcile({ ...connections, log: silent })(
        { since, until },
        {
          progress: (done, upTo) =>
            say(() => `up to ${new Date(upTo).toISOString()}: ${done.changes} changes, ${done.admitted} admitted`),
          stopping: interrupted,
        },
      ),
    );
    console.log(
      json
        ? JSON.stringify(found)
        : `${found.changes} changes, ${found.admitted} of them had been lost and are admitted now`,
    );
    return interrupted.aborted ? INTERRUPTED : 0;
  });
}
