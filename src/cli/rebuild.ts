import { codeOf, oneLine } from "../kernel/errors.js";
import { idFault } from "../kernel/ids.js";
import { createTurns, paced } from "../kernel/paced.js";
import { openTimelines } from "../roles/api.js";
import type { Homes, Timelines } from "../timeline/index.js";
import { atWorkbench, INTERRUPTED } from "./bootstrap.js";
import { createPacedProgress } from "./terminal.js";

/** What `timeline rebuild` is told. */
export interface RebuildCommand {
  readonly users: readonly string[];
  readonly all?: boolean;
  readonly shared?: boolean;
  /** Where an earlier run over all homes was. */
  readonly after?: string;
  /** Homes a second at most. */
  readonly rate: number;
  readonly json?: boolean;
}

/** What became of it. */
interface Outcome {
  rebuilt: number;
  failures: number;
  /** The first of them. */
  readonly failed: { readonly timeline: string; readonly error: string }[];
  /** Of a run over all homes: where it is. */
  at: string | undefined;
}

const AT_ONCE = 8;
/** With a server away every rebuild fails: after so many in a row it is left at that. */
const GIVE_UP_AFTER = 3;
/** So many failures are named. */
const MOST_NAMED = 100;

/** `timeline rebuild`; resolves to the exit code: 1 where one could not be rebuilt, 130 where it was interrupted. */
export function rebuildByHand(command: RebuildCommand): Promise<number> {
  for (const user of command.users) {
    const fault = idFault(user);
    if (fault) throw new Error(`user ${JSON.stringify(user)}: ${fault}`);
  }
  return atWorkbench("rebuild", async ({ config, connections, log, interrupted }) => {
    const timelines = openTimelines({ config, connections, log });
    const outcome: Outcome = { rebuilt: 0, failures: 0, failed: [], at: command.after };
    const stopping = new AbortController();
    interrupted.addEventListener("abort", () => stopping.abort(), { once: true });
    const steps = command.all ? timelines.listHomes(command.after) : [{ users: command.users, at: "" }];
    await run(command, { timelines, outcome, steps, stopping });
    const left = stopping.signal.aborted;
    console.log(command.json ? asJson(outcome, !left) : asText(outcome, { left, all: command.all }));
    if (interrupted.aborted) return INTERRUPTED;
    return outcome.failures === 0 ? 0 : 1;
  });
}

interface Run {
  readonly timelines: Timelines;
  readonly outcome: Outcome;
  readonly steps: AsyncIterable<Homes> | Iterable<Homes>;
  readonly stopping: AbortController;
}

async function run(command: RebuildCommand, { timelines, outcome, steps, stopping }: Run): Promise<void> {
  const progress = createPacedProgress();
  let away = 0;
  const one = async (timeline: string, rebuild: () => Promise<void>): Promise<void> => {
    try {
      await rebuild();
      outcome.rebuilt++;
      away = 0;
    } catch (error) {
      outcome.failures++;
      if (outcome.failed.length < MOST_NAMED) outcome.failed.push({ timeline, error: oneLine(error) });
      away = codeOf(error) === "unavailable" ? away + 1 : 0;
      if (away >= GIVE_UP_AFTER) stopping.abort();
    }
    const place = outcome.at ? `; to go on from here: --after ${outcome.at}` : "";
    progress.say(() => `${outcome.rebuilt} rebuilt, ${outcome.failures} failed${place}`);
  };
  const pace = { turn: createTurns(command.rate), atOnce: AT_ONCE, stopping: stopping.signal };
  try {
    if (command.shared)
      for (const name of ["local", "global"] as const) await one(name, () => timelines.rebuildShared(name));
    for await (const { users, at } of steps) {
      if (stopping.signal.aborted) break;
      if (at !== "") outcome.at = at;
      await paced(users, pace, (user) => one(user, () => timelines.rebuildHome(user)));
    }
  } finally {
    progress.end();
  }
}

function asJson({ rebuilt, failures, failed, at }: Outcome, complete: boolean): string {
  return JSON.stringify({ rebuilt, failures, failed, complete, after: complete ? null : (at ?? null) });
}

function asText(
  { rebuilt, failures, failed, at }: Outcome,
  { left, all }: { left: boolean; all: boolean | undefined },
): string {
  const lines = [`${rebuilt} timelines rebuilt, ${failures} failed`];
  for (const { timeline, error } of failed) lines.push(`  ${JSON.stringify(timeline)}: ${error}`);
  if (left) lines.push(all && at ? `stopped before the end; to go on: --after ${at}` : "stopped before the end");
  return lines.join("\n");
}
