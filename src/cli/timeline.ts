import type { Command } from "commander";
import { createThrottle, paced } from "../kernel/concurrency.js";
import { codeOf, oneLine, printable } from "../kernel/errors.js";
import type { Homes } from "../reads/index.js";
import type { Connections } from "../roles/connections.js";
import { type Answer, type Job, openTimelines, runJob, timelinesOn } from "./bootstrap.js";
import { defineExplain } from "./explain.js";
import { exitWith, JSON_OPTION, parseRate, parseUserIds } from "./options.js";
import { AFTER_OPTION, Resumable } from "./resumable.js";

/** A rebuild reads the drops of all authors a user follows from the upstreams. */
export const DEFAULT_RATE = 50;
const AT_ONCE = 8;
/** Number of timelines in a row that meet an unavailable server before the command ends. */
const GIVE_UP_AFTER = 3;
const MAX_LISTED_FAILURES = 100;

interface RebuildOptions {
  readonly all?: boolean;
  readonly shared?: boolean;
  /** An earlier run over all homes stopped at this position. */
  readonly after?: string;
  readonly rate: number;
  readonly json?: boolean;
}

type Chosen = RebuildOptions & { readonly users: readonly string[] };

interface RebuildCounts {
  rebuilt: number;
  failures: number;
  readonly failed: { readonly timeline: string; readonly error: string }[];
}

export function define(timeline: Command): void {
  defineExplain(timeline);
  timeline
    .command("rebuild")
    .description("rebuild home timelines from the upstreams, whatever they hold now; no user is notified")
    .argument("[users...]", "users whose home timelines to rebuild", parseUserIds)
    .option("--all", "all home timelines, and those of pulled authors")
    .option("--shared", "local and global, from the upstreams and the log: entries of more than a week ago are lost")
    .option(AFTER_OPTION, "with --all: continue where an earlier run stopped")
    .option("--rate <per second>", "timelines a second at most", parseRate, DEFAULT_RATE)
    .addOption(JSON_OPTION)
    .action((users: string[] = [], options: RebuildOptions, command: Command) => {
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

/** Ends with exit code 1 if a timeline could not be rebuilt. */
function rebuild(chosen: Chosen): Promise<number> {
  return runJob({ name: "rebuild", open: openTimelines, json: chosen.json }, (job) => rebuildChosen(job, chosen));
}

export async function rebuildChosen(
  { connections, config, stopping: interrupted, say }: Job<Connections>,
  chosen: Chosen,
): Promise<Answer> {
  const timelines = timelinesOn(connections, config);
  const counts: RebuildCounts = { rebuilt: 0, failures: 0, failed: [] };
  const homes = new Resumable<Homes>(chosen.after, ({ position }) => position);
  const givenUp = new AbortController();
  const stopping = AbortSignal.any([interrupted, givenUp.signal]);
  const attempt = createAttempt(counts, {
    attempted: () => say(() => `${counts.rebuilt} rebuilt, ${counts.failures} failed${homes.hint()}`),
    giveUp: () => givenUp.abort(),
  });
  if (chosen.shared)
    for (const name of ["local", "global"] as const) await attempt(name, () => timelines.rebuildShared(name));
  const pace = { throttle: createThrottle(chosen.rate), atOnce: AT_ONCE, stopping };
  const steps = chosen.all ? timelines.listHomes(chosen.after) : [{ users: chosen.users, position: "" }];
  try {
    for await (const step of homes.track(steps)) {
      const alone = chosen.all === true;
      await paced(step.users, pace, (user) => attempt(user, () => timelines.rebuildHome(user, { alone })));
      if (stopping.aborted) break;
      homes.done(step);
    }
    if (chosen.all && !stopping.aborted)
      await paced(await timelines.pulledAuthors(), pace, (author) =>
        attempt(author, () => timelines.rebuildAuthor(author)),
      );
  } catch (error) {
    // The position itself is refused.
    if (codeOf(error) === "invalid") throw error;
    throw new Error(`${oneLine(error)}${homes.hint()}`, { cause: error });
  }
  const complete = !stopping.aborted;
  return {
    json: { ...counts, complete, after: complete ? null : (homes.position ?? null) },
    text: asText(counts, complete ? "" : `stopped before the end${homes.hint()}`),
    failed: counts.failures > 0,
  };
}

type Attempt = (timeline: string, work: () => Promise<void>) => Promise<void>;

function createAttempt(
  counts: RebuildCounts,
  { attempted, giveUp }: { readonly attempted: () => void; readonly giveUp: () => void },
): Attempt {
  let unavailableInRow = 0;
  return async (timeline, work) => {
    try {
      await work();
      counts.rebuilt++;
      unavailableInRow = 0;
    } catch (error) {
      counts.failures++;
      if (counts.failed.length < MAX_LISTED_FAILURES) counts.failed.push({ timeline, error: oneLine(error) });
      unavailableInRow = codeOf(error) === "unavailable" ? unavailableInRow + 1 : 0;
      if (unavailableInRow >= GIVE_UP_AFTER) giveUp();
    }
    attempted();
  };
}

function asText({ rebuilt, failures, failed }: RebuildCounts, end: string): string {
  const lines = failed.map(({ timeline, error }) => `  ${printable(JSON.stringify(timeline))}: ${error}`);
  return [`${rebuilt} timelines rebuilt, ${failures} failed`, ...lines, ...(end ? [end] : [])].join("\n");
}
