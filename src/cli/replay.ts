import type { Command } from "commander";
import { EventLog, parsed, replay, retrying } from "../consistency/index.js";
import type { Delivery } from "../delivery/handler.js";
import { createFanout } from "../fanout/index.js";
import { oneLine } from "../kernel/errors.js";
import { silent } from "../kernel/logger.js";
import { DAY } from "../kernel/time.js";
import { openTimelines, runJob } from "./bootstrap.js";
import { parseRate, parseTime, refuseEmptyRange } from "./option-values.js";
import { exitWith, JSON_OPTION, wholeNumber } from "./options.js";
import { AFTER_OPTION, Resumable } from "./resumable.js";

/** Replays a small server's day in minutes, without strain on its upstreams. */
const DEFAULT_RATE = 1_000;

/** Times are in ms since the epoch. */
interface ReplayOptions {
  readonly from: number;
  readonly to?: number | undefined;
  /** This is a sequence in the log. */
  readonly after?: number;
  readonly rate: number;
  readonly json?: boolean;
}

interface ReplayResult {
  applied: number;
  /** The newest of them was admitted at this time, in ms since the epoch. */
  upTo: number | undefined;
  /** These events could not be applied. Each is named by its sequence in the log. */
  readonly left_out: { readonly seq: number; readonly error: string }[];
}

export function define(command: Command): void {
  command
    .requiredOption("--from <when>", "the start of the range: 15m, 2h, 7d (ago), or a date", parseTime)
    .option("--to <when>", "its end, exclusive (default: the end of the log)", parseTime)
    .option(AFTER_OPTION, "continue where an earlier run stopped", wholeNumber({ max: Number.MAX_SAFE_INTEGER }))
    .option("--rate <per second>", "events a second at most", parseRate, DEFAULT_RATE)
    .addOption(JSON_OPTION)
    .action((options: ReplayOptions, command: Command) => {
      refuseEmptyRange(command, options.from, { end: "--to", to: options.to });
      return exitWith(replayByHand)(options);
    });
}

/** Ends with exit code 1 if an event could not be applied. */
function replayByHand({ from, to, after, rate, json }: ReplayOptions): Promise<number> {
  return runJob({ name: "replay", open: openTimelines, json }, async ({ connections, config, stopping, say }) => {
    const result: ReplayResult = { applied: 0, upTo: undefined, left_out: [] };
    const events = new Resumable<Delivery>(after?.toString(), ({ seq }) => String(seq - 1));
    const fanout = createFanout({ ...connections, config, upstreams: connections.upstreams("fanout"), log: silent });
    const apply = retrying(parsed(fanout.apply), {
      stopping,
      waiting: (error) => say(() => `${result.applied} events; waiting: ${error}${events.hint()}`),
      leftOut: ({ seq }, error) => void result.left_out.push({ seq, error: oneLine(error) }),
    });
    const eventLog = new EventLog(connections.nats);
    const range = { since: from, until: to ?? Number.POSITIVE_INFINITY, after };
    let done = 0;
    const work = async (event: Delivery): Promise<void> => {
      await apply(event);
      events.done(event);
      result.applied = ++done - result.left_out.length;
      const upTo = Math.max(result.upTo ?? 0, event.time);
      result.upTo = upTo;
      say(() => `${done} events, up to ${dateOf(upTo)}${events.hint()}`);
    };
    try {
      await replay(events.track(eventLog.readRange(range, DAY)), work, { rate, stopping });
    } catch (error) {
      if (!stopping.aborted) throw new Error(`${oneLine(error)}${events.hint()}`, { cause: error });
    }
    const complete = !stopping.aborted;
    const { applied, upTo, left_out } = result;
    const up_to = upTo === undefined ? null : dateOf(upTo);
    return {
      json: { applied, left_out, up_to, complete, after: complete ? null : (events.position ?? null) },
      text: asText(result, complete ? "" : `stopped before the end${events.hint()}`),
      failed: left_out.length > 0,
    };
  });
}

const dateOf = (ms: number): string => new Date(ms).toISOString();

function asText({ applied, upTo, left_out }: ReplayResult, end: string): string {
  const reached = upTo === undefined ? "" : `, up to ${dateOf(upTo)}`;
  const lines = left_out.map(({ seq, error }) => `  left out ${seq} of DROPS: ${error}`);
  return [`${applied} events applied${reached}`, ...lines, ...(end ? [end] : [])].join("\n");
}
