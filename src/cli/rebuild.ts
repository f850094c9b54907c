import type { Command } from "commander";
import { createTurns, paced } from "../kernel/concurrency.js";
import { codeOf, oneLine } from "../kernel/errors.js";
import { idFault } from "../kernel/ids.js";
import { silent } from "../kernel/logger.js";
import { createTimelines, type Homes, type Timelines } from "../timeline/index.js";
import { INTERRUPTED, interruption, openTimelines, withConnections } from "./bootstrap.js";
import { parseRate } from "./option-values.js";
import { exitWith, JSON_OPTION } from "./options.js";
import { withProgress } from "./terminal.js";

/** A rebuild reads the drops of all authors a user follows from the upstreams. */
const DEFAULT_RATE = 50;
const AT_ONCE = 8;
/** The command ends after so many timelines in a row that found a server unavailable. */
const GIVE_UP_AFTER = 3;
const MAX_LISTED_FAILURES = 100;

interface RebuildOptions {
  readonly all?: boolean;
  readonly shared?: boolean;
  /** The place where an earlier run over all homes stopped. */
  readonly after?: string;
  readonly rate: number;
  readonly json?: boolean;
}

type Chosen = RebuildOptions & { readonly users: readonly string[] };

interface Outcome {
  rebuilt: number;
  failures: number;
  readonly failed: { readonly timeline: string; readonly error: string }[];
  place: string | undefined;
}

export function define(timeline: Command): void {
  timeline
    .command("rebuild")
    .description("rebuild home timelines from the upstreams, whatever they hold now; no user is notified")
    .argument("[users...]", "users whose home timelines to rebuild")
    .option("--all", "all home timelines")
    .option("--shared", "local and global, from the log: entries older than the log are lost")
    .option("--after <place>", "with --all: continue where an earlier run stopped")
    .option("--rate <per second>", "timelines a second at most", parseRate, DEFAULT_RATE)
    .addOption(JSON_OPTION)
    .action((users: string[], options: RebuildOptions, command: Command) => {
      const chosen = { ...options, users };
      const fault = faultOf(chosen);
      if (fault) command.error(`error: ${fault}`);
      return exitWith(rebuild)(chosen);
    });
}

function faultOf({ users, all, shared, after }: Chosen): string | undefined {
  if (all && users.length > 0) return "name users, or --all, not both";
  if (after !== undefined && !all) return "--after goes with --all";
  return all || shared || users.length > 0 ? undefined : "say which timelines: users, --all, or --shared";
}

/** Exit code 1: a timeline could not be rebuilt. */
async function rebuild(chosen: Chosen): Promise<number> {
  for (const user of chosen.users) {
    const fault = idFault(user);
    if (fault) throw new Error(`user ${JSON.stringify(user)}: ${fault}`);
  }
  return withConnections({ name: "rebuild", open: openTimelines }, async (connections, config) => {
    const timelines = createTimelines({
      ...connections,
      upstreams: connections.upstreams("reads"),
      config,
      log: silent,
    });
    const outcome: Outcome = { rebuilt: 0, failures: 0, failed: [], place: chosen.after };
    const interrupted = interruption();
    const givenUp = new AbortController();
    const stopping = AbortSignal.any([interrupted, givenUp.signal]);
    const steps = chosen.all ? timelines.listHomes(chosen.after) : [{ users: chosen.users, place: "" }];
    await run(chosen, { timelines, outcome, steps, stopping, giveUp: () => givenUp.abort() });
    console.log(chosen.json ? asJson(outcome, !stopping.aborted) : asText(outcome, !stopping.aborted, chosen.all));
    if (interrupted.aborted) return INTERRUPTED;
    return outcome.failures === 0 ? 0 : 1;
  });
}

interface Run {
  readonly timelines: Timelines;
  readonly outcome: Outcome;
  readonly steps: AsyncIterable<Homes> | Iterable<Homes>;
  readonly stopping: AbortSignal;
  readonly giveUp: () => void;
}

function run(chosen: Chosen, { timelines, outcome, steps, stopping, giveUp }: Run): Promise<void> {
  let unavailableInRow = 0;
  const pace = { turn: createTurns(chosen.rate), atOnce: AT_ONCE, stopping };
  return withProgress(async (say) => {
    const one = async (timeline: string, work: () => Promise<void>): Promise<void> => {
      try {
        await work();
        outcome.rebuilt++;
        unavailableInRow = 0;
      } catch (error) {
        outcome.failures++;
        if (outcome.failed.length < MAX_LISTED_FAILURES) outcome.failed.push({ timeline, error: oneLine(error) });
        unavailableInRow = codeOf(error) === "unavailable" ? unavailableInRow + 1 : 0;
        if (unavailableInRow >= GIVE_UP_AFTER) giveUp();
      }
      const hint = outcome.place ? `; to continue from here: --after ${outcome.place}` : "";
      say(() => `${outcome.rebuilt} rebuilt, ${outcome.failures} failed${hint}`);
    };
    if (chosen.shared)
      for (const name of ["local", "global"] as const) await one(name, () => timelines.rebuildShared(name));
    for await (const { users, place } of steps) {
      if (stopping.aborted) break;
      if (place !== "") outcome.place = place;
      await paced(users, pace, (user) => one(user, () => timelines.rebuildHome(user)));
    }
  });
}

function asJson({ rebuilt, failures, failed, place }: Outcome, complete: boolean): string {
  return JSON.stringify({ rebuilt, failures, failed, complete, after: complete ? null : (place ?? null) });
}

function asText({ rebuilt, failures, failed, place }: Outcome, complete: boolean, all = false): string {
  const lines = [`${rebuilt} timelines rebuilt, ${failures} failed`];
  for (const { timeline, error } of failed) lines.push(`  ${JSON.stringify(timeline)}: ${error}`);
  if (!complete) lines.push(`stopped before the end${all && place ? `; to continue: --after ${place}` : ""}`);
  return lines.join("\n");
}
