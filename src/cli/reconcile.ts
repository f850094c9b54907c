import type { Command } from "commander";
import { createReconcile, type Reconciled } from "../consistency/index.js";
import { silent } from "../kernel/logger.js";
import { openLogAndUpstreams, runJob } from "./bootstrap.js";
import { parseTime, refuseEmptyRange } from "./option-values.js";
import { exitWith, JSON_OPTION } from "./options.js";

/** Times in ms since the epoch. */
interface ReconcileOptions {
  readonly since: number;
  readonly until?: number | undefined;
  readonly json?: boolean;
}

export function define(command: Command): void {
  command
    .requiredOption("--since <when>", "the start of the window: 15m, 2h, 7d (ago), or a date", parseTime)
    .option("--until <when>", "its end (default: now)", parseTime)
    .addOption(JSON_OPTION)
    .action((options: ReconcileOptions, command: Command) => {
      refuseEmptyRange(command, options.since, { end: "--until", to: options.until });
      return exitWith(reconcile)(options);
    });
}

function reconcile({ since, until = Date.now(), json }: ReconcileOptions): Promise<number> {
  return runJob({ name: "reconcile", open: openLogAndUpstreams, json }, async ({ connections, stopping, say }) => {
    const progress = (done: Reconciled, upTo: number): void =>
      say(() => `up to ${new Date(upTo).toISOString()}: ${done.changes} changes, ${done.admitted} admitted`);
    const found = await createReconcile({ ...connections, log: silent })({ since, until }, { progress, stopping });
    const text = `${found.changes} changes, ${found.admitted} of them had been lost and are admitted now`;
    return { json: found, text };
  });
}
