import type { NatsConnection } from "nats";
import type { TimelineEvent } from "../../contracts/events.js";
import { STREAM } from "../../contracts/subjects.js";
import { MINUTE } from "../../kernel/time.js";
import { askNats, managerOf } from "../../platform/nats/ask.js";
import { createStoredMessages } from "../../platform/nats/message.js";
import type { LogEntry } from "../../platform/nats/read-log.js";
import { entriesOf, eventOf } from "../log.nats.js";

const NEWEST = 40;
const OLDER = 10;
/** Messages at the end of the log that are looked through for its newest drops. */
const REACHES = [200, 2_000, 20_000];

/**
 * Reads events of a subject that the log admitted before `until` (ms since the epoch): some from all of its length, and
 * the newest.
 */
export function createReadSample<Held>(
  nats: NatsConnection,
  subject: string,
  heldIn: (event: TimelineEvent) => readonly Held[],
): (until: number) => Promise<readonly Held[]> {
  const messages = createStoredMessages(nats);
  return async (until) => {
    const info = async () => (await managerOf(nats)).streams.info(STREAM.drops);
    const { state } = await askNats("the state of the log", info);
    const found = new Map<number, Held>();
    const take = (entry: Omit<LogEntry, "headers">): void => {
      const event = entry.time < until ? eventOf(entry) : undefined;
      const [held] = event ? heldIn(event) : [];
      if (held !== undefined) found.set(entry.seq, held);
    };
    const step = (state.last_seq - state.first_seq) / OLDER;
    for (let at = 0; at < OLDER && state.messages > 0; at++) {
      const entry = await messages.next(STREAM.drops, subject, Math.floor(state.first_seq + at * step));
      if (entry) take(entry);
    }
    for (const reach of REACHES) {
      const after = Math.max(state.first_seq - 1, state.last_seq - reach);
      const newest: LogEntry[] = [];
      for await (const entry of entriesOf(nats, { subject, after, keptMs: MINUTE }))
        if (entry.time < until) newest.push(entry);
      for (const entry of newest.slice(-NEWEST)) take(entry);
      if (newest.length >= NEWEST || after < state.first_seq) break;
    }
    return [...found].sort(([one], [other]) => one - other).map(([, held]) => held);
  };
}
