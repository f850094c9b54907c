import type { Held } from "./held.js";
import type { Feed, Note } from "./ports.js";
import type { Position } from "./position.js";
import { incompleteness, MOST_REPLAYED, type ResetReason } from "./resume.js";
import type { Seen } from "./seen.js";

/** What was read after a position. */
export interface Reading {
  readonly notes: Note[];
  /** Up to the leader's last, and not only up to where live ones take over. */
  readonly whole: boolean;
  readonly fault: ResetReason | undefined;
}

interface HistoryOptions {
  readonly feed: Feed;
  readonly user: string;
  readonly position: Position;
  /** Where to begin; what lies between it and the position was sent before, and is only remembered. */
  readonly from: number;
  /** Live notifications that have come meanwhile: up to the first of them is read. */
  readonly held: Held;
  readonly seen: Seen;
  readonly stopped: () => boolean;
}

/**
 * Reads what the stream holds of a user after a position. The state of the stream is
 * looked at afterwards: an incarnation never comes back, so that one that still stands
 * then stood all the time.
 */
export async function readHistory(options: HistoryOptions): Promise<Reading> {
  const { feed, user, position, from, held, seen, stopped } = options;
  const { seq, incarnation } = position;
  const notes: Note[] = [];
  let whole = true;
  await feed.read(user, from, (note) => {
    if (note.seq > seq) notes.push(note);
    else if (note.content?.key) seen.repeats(note.content.key);
    // From here on the live ones are known, so that reading need not run after who publishes.
    const previous = held.first?.previous;
    whole = previous === undefined || note.seq < previous || note.seq <= seq;
    return whole && notes.length < MOST_REPLAYED && !stopped();
  });
  const count = notes.length + held.count;
  const state = await feed.state();
  if (state.incarnation !== incarnation) return { notes: [], whole, fault: "stream_replaced" };
  const oldest = count >= state.perSubject ? await feed.oldestOf(user) : undefined;
  return { notes, whole, fault: incompleteness({ position: seq, count, state, oldest }) };
}
