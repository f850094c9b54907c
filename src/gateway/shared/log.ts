import type { SharedTimeline } from "../../contracts/stream-events.js";
import { type Byline, bylineOf } from "../../contracts/timelines.js";
import { NOTIFY_WINDOW_MS } from "../../contracts/times.js";
import { sharedNow } from "../../kernel/time.js";
import { incarnationOf, notificationBlock, type SharedMessage, type StreamPosition } from "../notification.js";

/** A change of local or global. */
type Change = Exclude<SharedMessage, { readonly viewer: string }>;

export interface SharedEntry {
  readonly seq: number;
  readonly key: string;
  readonly event: string;
  readonly createdAt: number | undefined;
  /** Undefined: nobody knows the author of a deleted drop. */
  readonly by: Byline | undefined;
  readonly timeline: SharedTimeline;
  /** The block on the wire: the same for all clients. */
  readonly block: string;
  readonly takenAt: number;
}

/** Ten minutes of 200 drops a second. A full log takes about 50 MB; streams that resume from before it get a reset. */
const MOST_ENTRIES = 131_072;
/** Names the log in positions, in place of a listing. */
const LISTING = "shared";
/** Entries are removed from the front in steps, since moving an array takes its whole length. */
const REMOVED_AT_ONCE = 4_096;

/**
 * The changes of local and global in the last ten minutes, as SHARED has them, in one place for all streams of a gateway.
 * A stream is a position in it, so that a slow client takes no memory.
 *
 * Repetitions are left out, and so are a drop and an edit after the deletion of the drop: fan-out may tell them in this
 * order. A deletion or an edit of a drop that no timeline holds any more is told if the log has told of the drop.
 */
export class SharedLog {
  /** Everything after this sequence, up to `last`, is in the log. */
  floor = 0;
  last = 0;
  incarnation = "";
  /** Index of the first entry that counts. */
  #start = 0;
  #entries: SharedEntry[] = [];
  readonly #told = new Map<string, SharedTimeline>();

  constructor(private readonly most = MOST_ENTRIES) {}

  get size(): number {
    return this.#entries.length - this.#start;
  }

  /** Begins anew after `seq`, in a stream that was created at this time, in ms since the epoch. */
  begin(seq: number, createdAt: number): void {
    this.incarnation = incarnationOf(createdAt);
    this.floor = this.last = seq;
    this.#entries = [];
    this.#start = 0;
    this.#told.clear();
  }

  positionAt(seq: number): StreamPosition {
    return { seq, incarnation: this.incarnation, listing: LISTING };
  }

  isPosition({ listing }: StreamPosition): boolean {
    return listing === LISTING;
  }

  /** Moves the end over a message that clients get nothing of. */
  pass(seq: number): void {
    this.last = seq;
  }

  /** Adds the message that follows the last one. */
  add(seq: number, { content, drop, shownIn }: Change): void {
    this.last = seq;
    const { event, createdAt, by, key = "" } = content;
    const deletion = `drop_deleted\n${drop}`;
    const timeline = shownIn ?? this.#told.get(`new_drop\n${drop}`);
    if (timeline === undefined || this.#told.has(key) || this.#told.has(deletion)) return;
    this.#told.set(key, timeline);
    const block = notificationBlock(this.positionAt(seq), content);
    const signed = by === undefined ? undefined : bylineOf(by);
    this.#entries.push({ seq, key, event, createdAt, by: signed, timeline, block, takenAt: sharedNow() });
    this.#removeOld();
  }

  /** Returns up to `most` entries of a timeline after a sequence, and the sequence up to which these are all. */
  after(seq: number, timeline: SharedTimeline, most: number) {
    const entries: SharedEntry[] = [];
    let index = this.#indexAfter(seq);
    for (; index < this.#entries.length && entries.length < most; index++) {
      const entry = this.#entries[index] as SharedEntry;
      if (timeline === "global" || entry.timeline === "local") entries.push(entry);
    }
    const isEnd = index >= this.#entries.length;
    return { entries, isEnd, seq: isEnd ? Math.max(seq, this.last) : (this.#entries[index - 1] as SharedEntry).seq };
  }

  #indexAfter(seq: number): number {
    // Nearly all streams are near the end.
    let [low, high] = [this.#start, this.#entries.length];
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((this.#entries[middle] as SharedEntry).seq <= seq) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  #removeOld(): void {
    const since = sharedNow() - NOTIFY_WINDOW_MS;
    for (let first = this.#entries[this.#start]; first; first = this.#entries[this.#start]) {
      if (this.size <= this.most && first.takenAt >= since) break;
      this.floor = first.seq;
      this.#told.delete(first.key);
      this.#start++;
    }
    if (this.#start < REMOVED_AT_ONCE) return;
    this.#entries = this.#entries.slice(this.#start);
    this.#start = 0;
  }
}
