import type { Command } from "commander";
import { EventLog, parsed, replay, retrying } from "../consistency/index.js";
import type { Delivery } from "../delivery/handler.js";
import { createFanout } from "../fanout/index.js";
import { oneLine } from "../kernel/errors.js";
import { silent } from "../kernel/logger.js";
import { DAY } from "../kernel/time.js";
import { openTimelines, runJob } from "./bootstrap.js";
import { exitWith, JSON_OPTION, parseRate, parseTime, refuseEmptyRange, wholeNumber } from "./options.js";
import { AFTER_OPTION, Resumable } from "./resumable.js";

/** Replays a small server's day in minutes, without strain on its upstreams. */
const DEFAULT_RATE = 1_000;

/** Times are in ms since the epoch. */
interface ReplayOptions {
  readonly from: number;
  readonly to?: number | undefined;
  /** A sequence in the log. */
  readonly after?: number;
  readonly rate: number;
  readonly json?: boolean;
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
    const left_out: { readonly seq: number; readonly error: string }[] = [];
    let done = 0;
    let upTo = 0;
    const events = new Resumable<Delivery>(after?.toString(), ({ seq }) => String(seq - 1));
    const fanout = createFanout({ ...connections, config, upstreams: connections.upstreams("fanout"), log: silent });
    const apply = retrying(parsed(fanout.apply), {
      stopping,
      waiting: (error) => say(() => `${done - left_out.length} events; waiting: ${error}${events.hint()}`),
      leftOut: ({ seq }, error) => void left_out.push({ seq, error: oneLine(error) }),
    });
    const eventLog = new EventLog(connections.nats);
    const range = { since: from, until: to ?? Number.POSITIVE_INFINITY, after };
    const work = async (event: Delivery): Promise<void> => {
      await apply(event);
      events.done(event);
      done++;
      upTo = Math.max(upTo, event.time);
      say(() => `${done} events, up to ${dateOf(upTo)}${events.hint()}`);
    };
    try {
      await replay(events.track(eventLog.readRange(range, DAY)), work, { rate, stopping });
    } catch (error) {
      if (!stopping.aborted) throw new Error(`${oneLine(error)}${events.hint()}`, { cause: error });
    }
    const complete = !stopping.aborted;
    const applied = done - left_out.length;
    const up_to = done === 0 ? null : dateOf(upTo);
    const lines = [
      `${applied} events applied${up_to === null ? "" : `, up to ${up_to}`}`,
      ...left_out.map(({ seq, error }) => `  left out ${seq} of DROPS: ${error}`),
      ...(complete ? [] : [`stopped before the end${events.hint()}`]),
    ];
    return {
      json: { applied, left_out, up_to, complete, after: complete ? null : (events.position ?? null) },
      text: lines.join("\n"),
      failed: left_out.length > 0,
    };
  });
}

const dateOf = (ms: number): string => new Date(ms).toISOString();
