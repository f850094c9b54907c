import { persistent } from "../consistency/redis-loss/persistent.js";
import { forgetResumable, openResumable, type Resumable } from "../consistency/redis-loss/resumable.nats.js";
import { oneLine } from "../kernel/errors.js";
import { openFanout } from "../roles/fanout.js";
import { createReplaying } from "../roles/replaying.js";
import { atWorkbench, INTERRUPTED, type Workbench } from "./bootstrap.js";
import { createPacedProgress } from "./terminal.js";

/** A time as it was said, and in ms since the epoch. */
export interface Said {
  readonly text: string;
  readonly at: number;
}

/** What `replay` is told. */
export interface ReplayCommand {
  readonly from: Said;
  readonly to?: Said;
  /** Events a second at most. */
  readonly rate: number;
  readonly restart?: boolean;
  readonly json?: boolean;
}

/** What became of a replay. */
interface Outcome {
  /** Events applied by this run. */
  applied: number;
  /** When the newest of them was admitted, in ms since the epoch. */
  upTo: number | undefined;
  /** Events that could not be applied, by their sequence in the log. */
  readonly left_out: { readonly seq: number; readonly error: string }[];
}

/** `replay`; resolves to the exit code: 1 where an event could not be applied, 130 where it was interrupted. */
export function replayByHand(command: ReplayCommand): Promise<number> {
  return atWorkbench("replay", async (bench) => {
    const name = nameOf(command);
    if (command.restart) await forgetResumable(bench.connections.nats, name);
    const stretch = { from: command.from.at, to: command.to?.at };
    const resumable = await openResumable(bench.connections.nats, name, { ...stretch, stopping: bench.interrupted });
    if (resumable.resumed)
      console.error(`going on with what was begun before: ${resumable.left} events are left (--restart: all of it)`);
    const outcome: Outcome = { applied: 0, upTo: undefined, left_out: [] };
    const complete = await run(bench, command, { resumable, outcome });
    if (complete) await resumable.forget();
    console.log(command.json ? asJson(outcome, complete) : asText(outcome, complete));
    if (!complete) return INTERRUPTED;
    return outcome.left_out.length === 0 ? 0 : 1;
  });
}

/** False where it was interrupted. */
async function run(
  { config, connections, interrupted }: Workbench,
  { from, to, rate }: ReplayCommand,
  on: { readonly resumable: Resumable; readonly outcome: Outcome },
): Promise<boolean> {
  const { resumable, outcome } = on;
  const progress = createPacedProgress();
  const replaying = createReplaying(connections, openFanout({ config, connections }).apply);
  try {
    await replaying(
      { from: from.at, to: to?.at },
      {
        rate,
        stopping: interrupted,
        readStretch: resumable.read,
        around: (apply) =>
          persistent(apply, {
            stopping: interrupted,
            waiting: (error) => progress.say(() => `${outcome.applied} of ${resumable.left} events; waiting: ${error}`),
            leftOut: ({ seq }, error) => void outcome.left_out.push({ seq, error: oneLine(error) }),
          }),
        progress: (done, event) => {
          outcome.applied = done - outcome.left_out.length;
          outcome.upTo = Math.max(outcome.upTo ?? 0, event.time);
          progress.say(() => `${done} of ${resumable.left} events, up to ${dateOf(event.time)}`);
        },
      },
    );
  } catch (error) {
    if (!interrupted.aborted)
      throw new Error(`${oneLine(error)}; the same command goes on from here`, { cause: error });
  } finally {
    progress.end();
  }
  return !interrupted.aborted;
}

/**
 * The same command has the same name, and goes on with the same work. A date is
 * the same however it is written; `2h` is `2h`, whenever it is said.
 */
function nameOf({ from, to }: ReplayCommand): string {
  const part = ({ text, at }: Said): string => (/^\w+$/.test(text) ? text : String(at));
  return `replay-${part(from)}-${to ? part(to) : "end"}`;
}

const dateOf = (ms: number): string => new Date(ms).toISOString();

function asJson({ applied, upTo, left_out }: Outcome, complete: boolean): string {
  return JSON.stringify({ applied, left_out, up_to: upTo === undefined ? null : dateOf(upTo), complete });
}

function asText({ applied, upTo, left_out }: Outcome, complete: boolean): string {
  const lines = left_out.map(({ seq, error }) => `  left out ${seq} of DROPS: ${error}`);
  const reached = upTo === undefined ? "" : `, up to ${dateOf(upTo)}`;
  const end = complete ? "" : "\nstopped before the end; the same command, within a day, goes on from here";
  return [`${applied} events applied${reached}`, ...lines].join("\n") + end;
}
