import type { NatsConnection } from "nats";
import { parseStored, SUBJECT_OF } from "../../contracts/events.js";
import { STREAM } from "../../contracts/subjects.js";
import { askNats, managerOf } from "../../platform/nats/ask.js";
import { createStoredMessages } from "../../platform/nats/message.js";
import { logEntries } from "../../platform/nats/read-log.js";
import type { HeldDrop } from "./judge.js";

const NEWEST = 40;
const OLDER = 10;
/** Messages at the end of the log that are looked through for its newest drops. */
const REACHES = [200, 2_000, 20_000];

/** Drops that the log admitted before `until` (ms since the epoch): some from all of its length, and its newest. */
export function createReadLoggedSample(nats: NatsConnection): (until: number) => Promise<readonly HeldDrop[]> {
  const messages = createStoredMessages(nats);
  const subject = SUBJECT_OF.drop_created;
  return async (until) => {
    const info = async () => (await managerOf(nats)).streams.info(STREAM.drops);
    const { state } = await askNats("the state of the log", info);
    const found = new Map<number, HeldDrop>();
    const take = (seq: number, entry: { readonly body: Uint8Array; readonly time: number }): void => {
      const drop = entry.time < until ? dropOf(subject, entry.body, entry.time) : undefined;
      if (drop) found.set(seq, drop);
    };
    const step = (state.last_seq - state.first_seq) / OLDER;
    for (let at = 0; at < OLDER && state.messages > 0; at++) {
      const entry = await messages.next(STREAM.drops, subject, Math.floor(state.first_seq + at * step));
      if (entry) take(entry.seq, entry);
    }
    for (const reach of REACHES) {
      const after = Math.max(state.first_seq - 1, state.last_seq - reach);
      const newest = [];
      for await (const entry of logEntries(nats, { stream: STREAM.drops, subject, after }))
        if (entry.time < until) newest.push(entry);
      for (const entry of newest.slice(-NEWEST)) take(entry.seq, entry);
      if (newest.length >= NEWEST || after < state.first_seq) break;
    }
    return [...found].sort(([one], [other]) => one - other).map(([, drop]) => drop);
  };
}

function dropOf(subject: string, body: Uint8Array, time: number): HeldDrop | undefined {
  try {
    const event = parseStored(subject, body, time);
    if (event.name !== "drop_created") return undefined;
    const { drop_id: drop, user_id: author, created_at: createdAt } = event.payload;
    return { drop, author, createdAt };
  } catch {
    // It is a dead letter.
    return undefined;
  }
}
