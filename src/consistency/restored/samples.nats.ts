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
/** Numbers of messages before `until` that are searched for the newest events. */
const REACHES = [200, 2_000, 20_000];

/** Maximum number of messages fetched at a time: those after the last message before `until` are read in vain. */
const MOST_AT_ONCE = 1_000;

/**
 * Reads events of a subject that the log admitted before `until` (ms since the epoch): some from all of its length, and
 * the newest. Events in which nothing is held do not count.
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
    const sample = new Map<number, Held>();
    const take = (entry: Omit<LogEntry, "headers">): boolean => {
      const event = entry.time < until ? eventOf(entry) : undefined;
      const [item] = event ? heldIn(event) : [];
      if (item !== undefined) sample.set(entry.seq, item);
      return item !== undefined;
    };
    const step = (state.last_seq - state.first_seq) / OLDER;
    for (let index = 0; index < OLDER && state.messages > 0; index++) {
      const entry = await messages.next(STREAM.drops, subject, Math.floor(state.first_seq + index * step));
      if (entry) take(entry);
    }
    const last = (await firstSince(nats, until)) ?? state.last_seq + 1;
    for (const reach of REACHES) {
      const after = Math.max(state.first_seq, last - reach) - 1;
      const newest: LogEntry[] = [];
      const batch = Math.min(reach, MOST_AT_ONCE);
      for await (const entry of entriesOf(nats, { subject, after, until, batch, keptMs: MINUTE })) newest.push(entry);
      let taken = 0;
      for (const entry of newest.reverse()) if (take(entry) && ++taken === NEWEST) break;
      if (taken === NEWEST || after < state.first_seq) break;
    }
    return [...sample].sort(([a], [b]) => a - b).map(([, item]) => item);
  };
}

/** Returns the sequence of the first message since a time: a busy log stores more of these than are searched. */
async function firstSince(nats: NatsConnection, from: number): Promise<number | undefined> {
  for await (const { seq } of entriesOf(nats, { subject: ">", from, batch: 1, headersOnly: true, keptMs: MINUTE }))
    return seq;
  return undefined;
}
