import type { NatsConnection } from "nats";
import { parseJson } from "../contracts/events.js";
import type { FanoutCompleted } from "../contracts/fanout.js";
import { COMPLETED_FANOUT, STREAM } from "../contracts/subjects.js";
import { logEntries } from "../platform/nats/read-log.js";
import type { State } from "../state/index.js";

interface Admission {
  readonly event: string;
  /** Time of the admission, in ms since the epoch. */
  readonly time: number;
}

/** Returns a function that reads the progress of the fan-outs of a drop, and their completions of one day. */
export function createReadFanOuts({ nats, state }: { readonly nats: NatsConnection; readonly state: State }) {
  const { readProgress } = state;
  return async (drop_id: string, admitted: readonly Admission[]) => {
    const [first] = admitted;
    if (first === undefined) return { progress: [], completions: [] };
    const events = [...new Set(admitted.map(({ event }) => event))];
    const progress = await Promise.all(events.map((event) => readProgress(event, drop_id)));
    return {
      progress: progress.filter((record) => record !== undefined),
      completions: await completionsOf(nats, drop_id, first.time),
    };
  };
}

async function completionsOf(nats: NatsConnection, drop: string, from: number): Promise<FanoutCompleted[]> {
  const completions: FanoutCompleted[] = [];
  for await (const { body } of logEntries(nats, { stream: STREAM.completions, subject: COMPLETED_FANOUT, from })) {
    const completed = parseJson(body) as FanoutCompleted;
    if (completed.drop_id === drop) completions.push(completed);
  }
  return completions;
}
