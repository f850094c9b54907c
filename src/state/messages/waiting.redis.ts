import { isEdge, isErasure, isRelation, isStanding, parseStored, type TimelineEvent } from "../../contracts/events.js";
import type { Affected } from "../../contracts/timelines.js";
import type { Delivery } from "../../delivery/handler.js";
import type { WaitingMessages } from "../../delivery/process.js";
import { MINUTE, SECOND, sharedNow } from "../../kernel/time.js";
import type { Scripts } from "../../platform/redis/scripts.js";
import { WAITING_KEY } from "../keys.js";

/** Event of the log that waits for a single user. It is noted when it goes back to the queue. */
export interface WaitingEvent {
  readonly consumer: string;
  readonly seq: number;
  /** Time of the note, in ms since the epoch. */
  readonly at: number;
  /** Timelines may have this drop, or lack it, until the event is applied. */
  readonly drop?: string | undefined;
  readonly affected?: Affected | undefined;
}

/**
 * Returns whose pages an event affects. No page waits for an erasure or an edit, or lacks a deletion, since
 * deleted drops are hidden; local and global are written first.
 */
export function affectedBy(event: TimelineEvent): Affected | undefined {
  if (isEdge(event)) return { kind: "reader", user: event.payload.follower_id };
  if (isRelation(event)) return { kind: "reader", user: event.payload.user_id };
  if (isErasure(event) || isStanding(event)) return undefined;
  const { name, payload } = event;
  if (name === "drop_deleted" || name === "drop_edited" || payload.user_id === undefined) return undefined;
  return { kind: "author", user: payload.user_id };
}

/**
 * Maximum number of entries that are read. Above 5,000 entries the list is ignored, and every waiting event counts as
 * being applied.
 */
const MOST_READ = 5_000;
/** Time after which a message that was due and has not come again was given up, or removed by hand. */
const LATE_MS = 10 * SECOND;
/** Lifetime of the notes. A message never waits longer at a time. */
const KEEP_MS = 15 * MINUTE;

type Noted = WaitingEvent & { readonly until: number };

const fieldOf = ({ consumer, seq }: Pick<Delivery, "consumer" | "seq">): string => `${consumer} ${seq}`;

export function createWaiting({ command }: Pick<Scripts, "command">): WaitingMessages {
  return {
    note: async (delivery, delayMs) => {
      const { consumer, seq, subject, body, time } = delivery;
      const event = parseStored(subject, body, time);
      const drop = "drop_id" in event.payload ? event.payload.drop_id : undefined;
      const now = sharedNow();
      const noted: Noted = {
        consumer,
        seq,
        at: now,
        until: now + delayMs + LATE_MS,
        drop,
        affected: affectedBy(event),
      };
      await command("hset", (client) => client.hset(WAITING_KEY, fieldOf(delivery), JSON.stringify(noted)));
      await command("pexpire", (client) => client.pexpire(WAITING_KEY, KEEP_MS));
    },
    remove: async (delivery) => {
      await command("hdel", (client) => client.hdel(WAITING_KEY, fieldOf(delivery)));
    },
  };
}

export function createReadWaiting({ command }: Pick<Scripts, "command">): () => Promise<readonly WaitingEvent[]> {
  return async () => {
    if ((await command("hlen", (client) => client.hlen(WAITING_KEY))) > MOST_READ) return [];
    const texts = Object.values(await command("hgetall", (client) => client.hgetall(WAITING_KEY)));
    const noted = texts.map((text) => JSON.parse(text) as Noted);
    const over = noted.filter(({ until }) => until < sharedNow());
    if (over.length > 0) await command("hdel", (client) => client.hdel(WAITING_KEY, ...over.map(fieldOf)));
    return noted.filter((event) => !over.includes(event));
  };
}
