import { randomUUID } from "node:crypto";
import { oneLine } from "../kernel/errors.js";
import type { Logger } from "../kernel/logger.js";
import { sharedNow } from "../kernel/time.js";
import { connectionId, isRefused } from "../state/index.js";
import type { Principal } from "./auth.js";
import { type EventSink, StreamClient } from "./client.js";
import type { Feed, FeedState, Follower, PartFeed } from "./feed.nats.js";
import { greetingBlock, incarnationOf, type Notification, parsePosition, type StreamPosition } from "./notification.js";
import { observeGateway, type SentEvents } from "./observe.js";
import type { Registration } from "./registry.js";
import { type History, LiveBuffer, type ResetReason, readHistory } from "./resume.js";

interface SessionDeps {
  readonly feed: Feed;
  readonly sentEvents: SentEvents;
  readonly log: Logger;
}

interface Start {
  readonly seq: number;
  readonly reset?: ResetReason | undefined;
  readonly replay: readonly Notification[];
}

/**
 * One stream of one user. The position is the sequence up to which every notification of the user is sent, with the
 * incarnation of the user's part of NOTIFY it counts in and the user's listing; the client gets it as `id:`. If a live
 * notification moved it, the id has a check of that notification. A resume goes on only if NOTIFY has the notification,
 * since a live one may be forged.
 * Live notifications do not name their incarnation: they are buffered until the feed is sure that it is the session's.
 *
 * A session is *live* or *catching up*, at first catching up. Live, a notification whose predecessor is not beyond the
 * position is sent at once. Any other shows a gap, and the session catches up: it reads the stream after the position,
 * up to the leader's last or to the first buffered live notification; what finds no room in the buffer is read in another
 * round. Reconnects, and heartbeats with no live notification lately, compare the position with the user's last sequence
 * at the leader. If the stream lacks something, or was replaced, the client gets a `reset`, and goes on at its end.
 *
 * While the number of parts is changed, processes with another number store notifications of the user in other parts.
 * These cannot be put in order with those of the user's part: the client gets a `reset` in place of them.
 */
export class Session implements Registration, Follower {
  readonly id: string;
  /** The user's part of NOTIFY. */
  readonly feed: PartFeed;
  readonly createdAt = sharedNow();
  /** The last registration returned this listing of the user. */
  listing = "";
  /** A live notification last showed at this performance.now() that none before it was missed. */
  heardAt = Number.NEGATIVE_INFINITY;
  /** Counts when live notifications may have been missed, also those of other parts. */
  gaps = 0;
  /** Created when it is needed: most streams are quiet. */
  #live: LiveBuffer | undefined;
  readonly #client: StreamClient;
  #seq = 0;
  /** NOTIFY was read up to there. Live messages move the position only: whoever may publish them can forge one. */
  #verified = 0;
  /** Check of the notification that moved the position last. The notification itself would stay in memory. */
  #check: string | undefined;
  #streamCreatedAt = 0;
  /** The text stands in each position: making it takes a twentieth of an event. */
  #incarnation = "";
  #isReset = false;
  /** Another part has stored a notification of the user, and the client has got no reset since. */
  #isElsewhere = false;
  #gapsLookedAt = 0;
  #catchingUp = true;
  #ended = false;

  readonly user: string;
  /** Time of the token's `iat`, ms since the epoch. */
  readonly issuedAt: number;

  constructor(
    { user, issuedAt }: Pick<Principal, "user" | "issuedAt">,
    private readonly deps: SessionDeps,
    private readonly endStream: (reason: "erased" | "logged_out") => void,
  ) {
    this.user = user;
    this.issuedAt = issuedAt;
    this.id = connectionId(randomUUID(), user);
    this.feed = deps.feed.of(user);
    this.#client = new StreamClient(user, deps.sentEvents);
  }

  /** Finds the start, and sends nothing. Live notifications must reach {@link take} already. */
  async prepare(lastEventId: string | undefined, tail: FeedState | undefined): Promise<Start> {
    const { lastSeq, createdAt } = tail ?? (await this.feed.state());
    this.#countIn(createdAt);
    const start = lastEventId === undefined ? undefined : await this.#startAfter(parsePosition(lastEventId), lastSeq);
    if (start) observeGateway.resumed(start.reset ? "reset" : "replayed");
    this.#seq = this.#verified = start?.seq ?? lastSeq;
    return start ?? { seq: lastSeq, replay: [] };
  }

  /**
   * Returns the first block, in the same turn as {@link start}: a registration that is lost in between would be left
   * out.
   */
  greeting(retryMs: number, { reset }: Start): string {
    const reason = reset ?? (this.#isReset ? "registration_lost" : undefined);
    if (reason) observeGateway.reset(reason);
    return greetingBlock(this.#position, retryMs, reason);
  }

  async start(sink: EventSink, { replay }: Start): Promise<void> {
    this.#client.connect(sink);
    await this.#sendAll(replay, true);
    this.#verified = this.#seq;
    await this.#goLive(false);
  }

  take(notification: Notification): void {
    const known = this.feed.current() === this.#streamCreatedAt;
    if (this.#ended) return;
    if (known && notification.seq <= this.#seq) return this.#passed(notification);
    if (this.#catchingUp || !known) return this.#buffer.add(notification);
    if (this.#follows(notification)) {
      this.heardAt = performance.now();
      return this.#send(notification);
    }
    this.#buffer.add(notification);
    void this.#catchUp();
  }

  userErased(): void {
    this.endStream("erased");
  }

  userLoggedOut(loggedOutAt: number): void {
    if (isRefused(this.issuedAt, loggedOutAt)) this.endStream("logged_out");
  }

  takeElsewhere(notification: Notification): void {
    this.#client.noteHiding(notification);
    this.#isElsewhere = true;
  }

  /** A live message below the position that was never sent means that a forged message advanced the position. */
  #passed({ seq, content }: Notification): void {
    const isSent = content?.key === undefined || this.#client.hasGot(content.key);
    if (isSent || this.#catchingUp || seq <= this.#verified) return;
    this.#seq = this.#verified;
    void this.#catchUp();
  }

  /** The registration was lost, maybe before the start. */
  registeredAgain(): void {
    if (!this.#client.isConnected) this.#isReset = true;
    else if (!this.#ended) this.#client.reset(this.#position, "registration_lost");
  }

  /**
   * Looks for missed notifications, unless a live one came in the last `heardMs`. If there are none, moves the
   * position to the stream's end of at most `maxAgeMs` ago.
   */
  async recheck({ maxAgeMs, heardMs }: { readonly maxAgeMs: number; readonly heardMs: number }): Promise<void> {
    if (this.#ended || this.#catchingUp) return;
    const { feed, deps } = this;
    const before = this.#seq;
    try {
      const recent = await feed.state(maxAgeMs);
      const { lastSeq, createdAt } = recent.lastSeq < before ? await feed.state() : recent;
      const { gaps } = this;
      if (gaps > this.#gapsLookedAt && (await feed.isElsewhere(this.user))) this.#isElsewhere = true;
      this.#gapsLookedAt = gaps;
      if (this.#catchingUp || this.#ended) return;
      if (createdAt !== this.#streamCreatedAt || lastSeq < before || this.#isElsewhere) {
        this.#startOver("stream_replaced", lastSeq, createdAt);
        return await this.#catchUp();
      }
      // The stream confirms live notifications while NOTIFY still holds them, also if nothing is new.
      const isConfirmed = lastSeq <= this.#seq && this.#verified >= this.#seq;
      if (performance.now() - this.heardAt < heardMs || isConfirmed) return;
      const asked = this.#seq;
      // The leader has all of the user's notifications up to `lastSeq`.
      const last = await feed.lastOf(this.user);
      if (this.#catchingUp || this.#ended) return;
      if (last > this.#seq) return await this.#catchUp();
      // Live notifications that came meanwhile may be newer than the answer, and would look forged.
      if (this.#seq !== asked) return;
      const isForged = last < this.#seq && this.#verified < this.#seq;
      this.#seq = this.#verified = isForged ? this.#verified : Math.max(this.#seq, lastSeq);
      if (isForged) await this.#catchUp();
    } catch (error) {
      deps.log.debug({ error: oneLine(error) }, "a stream was not checked; the next heartbeat checks it");
    }
  }

  heartbeat(): void {
    if (!this.#ended) this.#client.heartbeat(this.#position);
  }

  end(): void {
    this.#ended = true;
  }

  get sent(): number {
    return this.#client.sent;
  }

  get #buffer(): LiveBuffer {
    this.#live ??= new LiveBuffer();
    return this.#live;
  }

  get #position(): StreamPosition {
    const check = this.#seq > this.#verified ? this.#check : undefined;
    return { seq: this.#seq, incarnation: this.#incarnation, listing: this.listing, check };
  }

  async #startAfter(position: StreamPosition | undefined, lastSeq: number): Promise<Start> {
    const resetWith = (reset: ResetReason): Start => ({ seq: lastSeq, reset, replay: [] });
    if (!position) return resetWith("unknown_position");
    const { seq, incarnation, listing, check } = position;
    if (incarnation !== this.#incarnation) return resetWith("stream_replaced");
    if (seq > lastSeq) return resetWith("unknown_position");
    if (listing !== this.listing) return resetWith("registration_lost");
    if (await this.feed.isElsewhere(this.user)) return resetWith("stream_replaced");
    this.#seq = seq;
    // The read begins at 0: a notification that the client has may be stored again after its position.
    const { notifications, fault } = await this.#readHistory(0, check);
    return fault ? resetWith(fault) : { seq, replay: notifications };
  }

  #readHistory(from: number, check?: string): Promise<History> {
    const stopped = (): boolean => this.#ended;
    const { user, feed } = this;
    const buffers = { live: this.#buffer, sentKeys: this.#client.sentKeys };
    return readHistory({ feed, user, ...buffers, position: { ...this.#position, check }, from, stopped });
  }

  async #catchUp(): Promise<void> {
    if (this.#catchingUp) return;
    this.#catchingUp = true;
    await this.#goLive(true);
  }

  async #goLive(readFirst: boolean): Promise<void> {
    try {
      for (let read = readFirst; !this.#ended; read = true) {
        if (read) await this.#readRound();
        await this.#sendBuffered();
        if ((this.#live?.highest ?? 0) <= this.#seq && this.feed.current() === this.#streamCreatedAt) break;
      }
    } catch (error) {
      this.deps.log.debug({ error: oneLine(error) }, "a stream did not catch up; the next heartbeat tries again");
    }
    this.#live = undefined;
    this.#catchingUp = false;
  }

  async #readRound(): Promise<void> {
    const aim = Math.max(this.#seq, this.#live?.highest ?? 0);
    const { lastSeq, createdAt } = await this.feed.state();
    const replaced = createdAt !== this.#streamCreatedAt || lastSeq < aim;
    if (replaced) return this.#startOver("stream_replaced", lastSeq, createdAt);
    const { notifications, reachedEnd, fault } = await this.#readHistory(this.#seq);
    if (fault === "stream_replaced") return;
    if (fault) return this.#startOver(fault, Math.max(lastSeq, this.#seq), createdAt);
    await this.#sendAll(notifications);
    // All notifications of the user up to there are sent, or were removed from the stream.
    if (reachedEnd) this.#seq = Math.max(this.#seq, lastSeq);
    this.#verified = this.#seq;
  }

  async #sendBuffered(): Promise<void> {
    for (let next = this.#live?.first; next && this.#follows(next); next = this.#live?.first) {
      await this.#client.drained();
      if (this.feed.current() !== this.#streamCreatedAt) return;
      this.#live?.shift();
      if (next.seq > this.#seq) this.#send(next);
    }
  }

  #follows({ seq, previous }: Notification): boolean {
    return seq <= this.#seq || (previous !== undefined && previous <= this.#seq);
  }

  async #sendAll(notifications: readonly Notification[], replayed = false): Promise<void> {
    // A replayed drop is judged as a live one: by the relations of now.
    for (const notification of notifications) this.#client.noteHiding(notification);
    for (const notification of notifications) {
      await this.#client.drained();
      if (this.#ended) return;
      this.#send(notification, replayed);
    }
  }

  #send(notification: Notification, replayed = false): void {
    this.#seq = notification.seq;
    this.#check = notification.check;
    this.#client.send(notification, this.#position, replayed);
  }

  #startOver(reason: ResetReason, seq: number, createdAt: number): void {
    this.#seq = this.#verified = seq;
    this.#isElsewhere = false;
    this.#countIn(createdAt);
    this.#client.forgetHidings();
    // The old stream's sequences mean nothing in a new one.
    if (reason === "stream_replaced") this.#live = undefined;
    this.#client.reset(this.#position, reason);
  }

  #countIn(createdAt: number): void {
    this.#streamCreatedAt = createdAt;
    this.#incarnation = incarnationOf(createdAt, this.feed.part);
  }
}
