import type { Command } from "commander";
import {
  forgetResumableRange,
  openResumableRange,
  parsed,
  type ResumableRange,
  replayRange,
  retrying,
} from "../consistency/index.js";
import { createFanout } from "../fanout/index.js";
import { oneLine } from "../kernel/errors.js";
import type { Config } from "../roles/config/config.js";
import type { Connections } from "../roles/connections.js";
import { INTERRUPTED, interruption, openTimelines, withConnections } from "./bootstrap.js";
import { parseRate, parseTime } from "./option-values.js";
import { exitWith, JSON_OPTION } from "./options.js";
import { withProgress } from "./terminal.js";

/** Replays a small server's day in minutes, without strain on its upstreams. */
const DEFAULT_RATE = 1_000;

interface Time {
  readonly text: string;
  /** In ms since the epoch. */
  readonly at: number;
}

interface ReplayOptions {
  readonly from: Time;
  readonly to?: Time;
  readonly rate: number;
  readonly restart?: boolean;
  readonly json?: boolean;
}

interface Outcome {
  applied: number;
  /** The admission of the newest of them, in ms since the epoch. */
  upTo: number | undefined;
  /** Events that could not be applied, by their sequence in the log. */
  readonly left_out: { readonly seq: number; readonly error: string }[];
}

const textAndTime = (text: string): Time => ({ text, at: parseTime(text) });

export function define(command: Command): void {
  command
    .requiredOption("--from <when>", "the start of the range: 15m, 2h, 7d (ago), or a date", textAndTime)
    .option("--to <when>", "its end, exclusive (default: the end of the log)", textAndTime)
    .option("--rate <per second>", "events a second at most", parseRate, DEFAULT_RATE)
    .option("--restart", "start over where the same command was stopped before its end")
    .addOption(JSON_OPTION)
    .action(exitWith(replay));
}

/** Exit code 1: an event could not be applied. */
function replay(options: ReplayOptions): Promise<number> {
  return withConnections({ name: "replay", open: openTimelines }, async (connections, config) => {
    const { nats } = connections;
    const name = nameOf(options);
    const stopping = interruption();
    if (options.restart) await forgetResumableRange(nats, name);
    const range = { since: options.from.at, until: options.to?.at ?? Number.POSITIVE_INFINITY };
    const resumable = await openResumableRange(nats, name, range);
    if (resumable.resumed)
      console.error(`continuing an earlier run: ${resumable.left} events are left (--restart: all of them)`);
    const outcome: Outcome = { applied: 0, upTo: undefined, left_out: [] };
    const complete = await run({ config, connections, range, rate: options.rate, resumable, outcome, stopping });
    if (complete) await resumable.forget();
    console.log(options.json ? asJson(outcome, complete) : asText(outcome, complete));
    if (!complete) return INTERRUPTED;
    return outcome.left_out.length === 0 ? 0 : 1;
  });
}

interface Run {
  readonly config: Config;
  readonly connections: Connections;
  readonly range: { readonly since: number; readonly until: number };
  readonly rate: number;
  readonly resumable: ResumableRange;
  readonly outcome: Outcome;
  readonly stopping: AbortSignal;
}

async function run({ config, connections, range, rate, resumable, outcome, stopping }: Run): Promise<boolean> {
  const replayed = (say: (text: () => string) => void): Promise<number> => {
    const fanout = createFanout({ ...connections, config, upstreams: connections.upstreams("fanout") });
    const apply = retrying(parsed(fanout.apply), {
      stopping,
      waiting: (error) => say(() => `${outcome.applied} of ${resumable.left} events; waiting: ${error}`),
      leftOut: ({ seq }, error) => void outcome.left_out.push({ seq, error: oneLine(error) }),
    });
    const progress = (done: number, event: { readonly time: number }): void => {
      outcome.applied = done - outcome.left_out.length;
      outcome.upTo = Math.max(outcome.upTo ?? 0, event.time);
      say(() => `${done} of ${resumable.left} events, up to ${dateOf(event.time)}`);
    };
    return replayRange({ readRange: () => resumable.read(stopping), apply }, range, { rate, stopping, progress });
  };
  try {
    await withProgress(replayed);
  } catch (error) {
    if (!stopping.aborted) throw new Error(`${oneLine(error)}; the same command continues from here`, { cause: error });
  }
  return !stopping.aborted;
}

/**
 * The name of the consumer that keeps the place: equal for equal ranges, however a date is written; a relative time
 * such as `2h` keeps its text.
 */
function nameOf({ from, to }: ReplayOptions): string {
  const part = ({ text, at }: Time): string => (/^\w+$/.test(text) ? text : String(at));
  return `replay-${part(from)}-${to ? part(to) : "end"}`;
}

const dateOf = (ms: number): string => new Date(ms).toISOString();

function asJson({ applied, upTo, left_out }: Outcome, complete: boolean): string {
  return JSON.stringify({ applied, left_out, up_to: upTo === undefined ? null : dateOf(upTo), complete });
}

function asText({ applied, upTo, left_out }: Outcome, complete: boolean): string {
  const lines = left_out.map(({ seq, error }) => `  left out ${seq} of DROPS: ${error}`);
  const reached = upTo === undefined ? "" : `, up to ${dateOf(upTo)}`;
  const end = complete ? "" : "\nstopped before the end; the same command, within a day, continues from here";
  return [`${applied} events applied${reached}`, ...lines].join("\n") + end;
}
