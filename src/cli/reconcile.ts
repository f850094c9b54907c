import type { Command } from "commander";
import { createReconcile, type Reconciled, untilNow } from "../consistency/index.js";
import { oneLine } from "../kernel/errors.js";
import { silent } from "../kernel/logger.js";
import { openLogAndUpstreams, runJob } from "./bootstrap.js";
import { exitWith, JSON_OPTION, parseTime, refuseEmptyRange } from "./options.js";

/** Times are in ms since the epoch. */
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

/** Ends with exit code 1 if an upstream lists no changes. */
function reconcile({ since, until, json }: ReconcileOptions): Promise<number> {
  return runJob({ name: "reconcile", open: openLogAndUpstreams, json }, async ({ connections, stopping, say }) => {
    const range = until === undefined ? untilNow(since) : { since, until };
    let reached = range.since;
    const lacking = new Set<string>();
    const progress = (done: Reconciled, upTo: number): void => {
      reached = upTo;
      say(() => `up to ${dateOf(upTo)}: ${done.changes} changes, ${done.admitted} admitted`);
    };
    const handles = { ...connections, log: silent, lacking: (method: string) => void lacking.add(method) };
    const hint = (): string => `; to continue: --since ${dateOf(reached)}`;
    const report = await createReconcile(handles)(range, { progress, stopping }).catch((error: unknown) => {
      throw new Error(`${oneLine(error)}${hint()}`, { cause: error });
    });
    const complete = reached >= range.until;
    const lines = [
      `${report.changes} changes, ${report.admitted} of them had been lost and are admitted now`,
      ...[...lacking].map((method) => `no upstream answers ${method}: its changes were not looked at`),
      ...(complete ? [] : [`stopped before the end${hint()}`]),
    ];
    const rest = { complete, since: complete ? null : dateOf(reached), lacking: [...lacking] };
    return { json: { ...report, ...rest }, text: lines.join("\n"), failed: lacking.size > 0 };
  });
}

const dateOf = (ms: number): string => new Date(ms).toISOString();
