import type { PartFeed } from "../feed.nats.js";
import { incarnationOf, type Notification, type StreamPosition } from "../notification.js";

/**
 * The sequence up to which every notification of the user is sent, with the incarnation of the user's part of NOTIFY it
 * counts in and the user's listing; the client gets it as `id:`. If a live notification moved it, the id has a check of
 * that notification. A resume goes on only if NOTIFY has the notification, since a live one may be forged.
 */
export class Position implements StreamPosition {
  seq = 0;
  /** NOTIFY was read up to there. Live messages move `seq` only: whoever may publish them can forge one. */
  verified = 0;
  /** Cached text. Formatting it for each event costs 5 % of the event. */
  incarnation = "";
  #createdAt = 0;
  /** Check of the notification that moved the position last. The notification itself would stay in memory. */
  #check: string | undefined;

  constructor(private readonly session: { readonly feed: PartFeed; readonly listing: string }) {}

  get listing(): string {
    return this.session.listing;
  }

  get check(): string | undefined {
    return this.seq > this.verified ? this.#check : undefined;
  }

  /** Live notifications do not name their incarnation: they are buffered until the feed is sure that it is this one. */
  get isCurrent(): boolean {
    return this.countsIn(this.session.feed.current());
  }

  countsIn(createdAt: number | undefined): boolean {
    return createdAt === this.#createdAt;
  }

  /** Tells whether no notification lies between the position and this one. */
  reaches({ seq, previous }: Notification): boolean {
    return seq <= this.seq || (previous !== undefined && previous <= this.seq);
  }

  moveTo({ seq, check }: Notification): void {
    this.seq = seq;
    this.#check = check;
  }

  settle(seq: number): void {
    this.seq = this.verified = seq;
  }

  countIn(createdAt: number): void {
    this.#createdAt = createdAt;
    this.incarnation = incarnationOf(createdAt, this.session.feed.part);
  }
}
