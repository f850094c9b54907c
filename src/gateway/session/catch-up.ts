import { oneLine } from "../../kernel/errors.js";
import type { Logger } from "../../kernel/logger.js";
import type { PartFeed } from "../feed.nats.js";
import { type Notification, parsePosition } from "../notification.js";
import { historyFault, LiveBuffer, MAX_REPLAYED, type ResetReason } from "../resume.js";
import type { StreamClient } from "./client.js";
import type { SessionState } from "./state.js";

export interface Start {
  readonly seq: number;
  readonly reset?: ResetReason | undefined;
  readonly replay: readonly Notification[];
}

/** Reads what a client lacks, and keeps live notifications meanwhile. */
export class CatchUp {
  /** Created when it is needed: most streams are quiet. */
  #live: LiveBuffer | undefined;

  constructor(
    private readonly client: StreamClient,
    private readonly feed: PartFeed,
    private readonly state: SessionState,
    private readonly log: Logger,
  ) {}

  get buffer(): LiveBuffer {
    this.#live ??= new LiveBuffer();
    return this.#live;
  }

  async startAfter(lastEventId: string, lastSeq: number): Promise<Start> {
    const { position, reader } = this.client;
    const resetWith = (reset: ResetReason): Start => ({ seq: lastSeq, reset, replay: [] });
    const resumed = parsePosition(lastEventId);
    if (!resumed) return resetWith("unknown_position");
    const { seq, incarnation, listing, check } = resumed;
    if (incarnation !== position.incarnation) return resetWith("stream_replaced");
    if (seq > lastSeq) return resetWith("unknown_position");
    if (listing !== position.listing) return resetWith("registration_lost");
    if (await this.feed.isElsewhere(reader)) return resetWith("stream_replaced");
    position.settle(seq);
    // The read begins at 0: a notification that the client has may be stored again after its position.
    const { notifications, fault } = await this.#readHistory(0, check);
    return fault ? resetWith(fault) : { seq, replay: notifications };
  }

  /** Sends what NOTIFY has after the position, and then what is buffered. */
  async closeGap(): Promise<void> {
    this.state.on("gap");
    await this.#untilLive(true);
  }

  /** Sends a live notification that follows the position once it is judged, and those that come meanwhile. */
  async sendJudged(notification: Notification): Promise<void> {
    this.buffer.add(notification);
    this.state.on("gap");
    await this.#untilLive(false);
  }

  /** Sends what the client lacks, and then what is buffered. */
  async goLive(replay: readonly Notification[]): Promise<void> {
    const { position } = this.client;
    await this.#sendAll(replay, true);
    position.settle(position.seq);
    await this.#untilLive(false);
  }

  async #untilLive(readsFirst: boolean): Promise<void> {
    const { position } = this.client;
    try {
      for (let read = readsFirst; this.state.current !== "ended"; read = true) {
        if (read) await this.#readRound();
        await this.#sendBuffered();
        if ((this.#live?.highest ?? 0) <= position.seq && position.isCurrent) break;
      }
    } catch (error) {
      this.log.debug({ error: oneLine(error) }, "a stream did not catch up; the next heartbeat tries again");
    }
    this.#live = undefined;
    this.state.on("caughtUp");
  }

  startOver(reason: ResetReason, seq: number, createdAt: number): void {
    // The old stream's sequences mean nothing in a new one.
    if (reason === "stream_replaced") this.#live = undefined;
    this.client.startOver(reason, seq, createdAt);
  }

  async #readRound(): Promise<void> {
    const { position } = this.client;
    const aim = Math.max(position.seq, this.#live?.highest ?? 0);
    const { lastSeq, createdAt } = await this.feed.state();
    if (!position.countsIn(createdAt) || lastSeq < aim) return this.startOver("stream_replaced", lastSeq, createdAt);
    const { notifications, reachedEnd, fault } = await this.#readHistory(position.seq);
    if (fault === "stream_replaced") return;
    if (fault) return this.startOver(fault, Math.max(lastSeq, position.seq), createdAt);
    await this.#sendAll(notifications, false);
    // All notifications of the user up to this sequence were sent, or removed from the stream.
    position.settle(reachedEnd ? Math.max(position.seq, lastSeq) : position.seq);
  }

  /**
   * Reads the user's notifications after `from`. Of those up to the position, which were sent before, only keys are
   * kept, except of those that the owner of a list does not see. The state of the stream is read last: an incarnation
   * never returns, so an unchanged one did not change during the read either. A position with a check is continued only
   * if the read meets the notification that moved it there: a live message may have been forged.
   */
  async #readHistory(from: number, check?: string) {
    const { feed, buffer, client } = this;
    const { position, reader } = client;
    const { seq } = position;
    const [earlier, notifications]: [Notification[], Notification[]] = [[], []];
    let reachedEnd = true;
    let isConfirmed = check === undefined;
    await feed.read(reader, from, (notification) => {
      if (notification.seq === seq) isConfirmed ||= notification.check === check;
      if (notification.seq > seq) notifications.push(notification);
      else if (client.isJudged) earlier.push(notification);
      else client.noteSent(notification);
      // The buffer has the notifications after these: reading on might never catch up with a busy publisher.
      const previous = buffer.first?.previous;
      reachedEnd = previous === undefined || notification.seq < previous || notification.seq <= seq;
      return reachedEnd && notifications.length < MAX_REPLAYED && this.state.current !== "ended";
    });
    // An answer of before this read is good enough for notifications that were sent before.
    for (const notification of earlier)
      if (await client.isShown({ ...notification, heardAt: 0 })) client.noteSent(notification);
    const count = notifications.length + buffer.count;
    const state = await feed.state();
    if (!position.countsIn(state.createdAt)) return { notifications, reachedEnd, fault: "stream_replaced" as const };
    const oldest = count >= state.perSubject ? await feed.oldestOf(reader) : undefined;
    const fault = historyFault({ position: seq, count, state, oldest });
    return { notifications, reachedEnd, fault: fault ?? (isConfirmed ? undefined : "unknown_position") };
  }

  async #sendBuffered(): Promise<void> {
    const { client } = this;
    for (let next = this.#live?.first; next && client.position.reaches(next); next = this.#live?.first) {
      const isShown = await client.ready(next);
      if (!client.position.isCurrent || this.state.current === "ended") return;
      this.#live?.shift();
      if (next.seq > client.position.seq) client.send(next, false, isShown);
    }
  }

  async #sendAll(notifications: readonly Notification[], replayed: boolean): Promise<void> {
    const { client } = this;
    // A replayed drop is judged as a live one: by the relations of now.
    for (const notification of notifications) client.noteHiding(notification);
    for (const notification of notifications) {
      const isShown = await client.ready(notification);
      if (this.state.current === "ended") return;
      client.send(notification, replayed, isShown);
    }
  }
}
