import { randomUUID } from "node:crypto";
import { codeOf, oneLine } from "../../kernel/errors.js";
import type { Logger } from "../../kernel/logger.js";
import { backoff, pause, SECOND, sharedNow } from "../../kernel/time.js";
import { connectionId, isRefused, type Standings } from "../../state/index.js";
import type { Principal } from "../auth.js";
import type { Feed, FeedState, Follower, PartFeed } from "../feed.nats.js";
import type { OpenList } from "../lists.js";
import { DROP_EVENTS, greetingBlock, type Notification } from "../notification.js";
import { type CloseReason, observeGateway, type SentEvents } from "../observe.js";
import { CatchUp, type Start } from "./catch-up.js";
import { type EventSink, StreamClient } from "./client.js";
import { Position } from "./position.js";
import { SessionState } from "./state.js";
import type { StreamSession } from "./stream-session.js";

interface SessionDeps {
  readonly feed: Feed;
  readonly sentEvents: SentEvents;
  readonly standings: Pick<Standings, "of" | "size">;
  readonly log: Logger;
}

/** Delay of a new question about a list after one without an answer. */
const AGAIN_MS = SECOND;
const AGAIN_AT_MOST_MS = 30 * SECOND;

type OfUser = Pick<Principal, "user" | "issuedAt"> & { readonly list?: OpenList | undefined };

/**
 * One stream of one user, of the home or of a list; state.ts describes its states. If NOTIFY lacks something that the
 * client has not got, or was replaced, the client gets a `reset`, and goes on at its end.
 *
 * While the number of parts is changed, processes with another number store notifications of the user in other parts.
 * These cannot be put in order with those of the user's part: the client gets a `reset` in place of them.
 */
export class Session implements StreamSession, Follower {
  readonly id: string;
  readonly user: string;
  /** The user, or the reader of the list: NOTIFY and the registry know the stream by this name. */
  readonly reader: string;
  /** Time of the token's `iat`, ms since the epoch. */
  readonly issuedAt: number;
  /** The reader's part of NOTIFY. */
  readonly feed: PartFeed;
  readonly createdAt = sharedNow();
  readonly isListener = true;
  /** Listing of the reader, as the last registration returned it. */
  listing = "";
  /** Time of performance.now() at which a live notification last showed that none before it was missed. */
  heardAt = Number.NEGATIVE_INFINITY;
  /** Counts when live notifications may have been missed, also those of other parts. */
  gaps = 0;
  #gapsLookedAt = 0;
  /** A stream that looks for its list again ends an earlier look. */
  #looks = 0;
  readonly #state = new SessionState();
  readonly #position: Position;
  readonly #client: StreamClient;
  readonly #catchUp: CatchUp;

  readonly #list: OpenList | undefined;

  constructor(
    { user, issuedAt, list }: OfUser,
    private readonly deps: SessionDeps,
    private readonly endStream: (reason: CloseReason) => void,
  ) {
    this.user = user;
    this.issuedAt = issuedAt;
    this.#list = list;
    this.reader = list?.reader ?? user;
    this.id = connectionId(randomUUID(), this.reader);
    this.feed = deps.feed.of(this.reader);
    this.#position = new Position(this);
    const judge = list && ((notification: Notification) => this.#isShown(notification, list));
    this.#client = new StreamClient(this.reader, this.#position, { ...deps, judge });
    this.#catchUp = new CatchUp(this.#client, this.feed, this.#state, deps.log);
  }

  get sent(): number {
    return this.#client.sent;
  }

  /** Resolves if the user has the list of the stream, or the stream is of the home. @throws as {@link OpenList.check} */
  async check(maxAgeMs: number): Promise<void> {
    await this.#list?.check(maxAgeMs);
  }

  /** Finds the start, and sends nothing. Live notifications must reach {@link take} already. */
  async prepare(lastEventId: string | undefined, tail: FeedState | undefined): Promise<Start> {
    const { lastSeq, createdAt } = tail ?? (await this.feed.state());
    this.#position.countIn(createdAt);
    const start = lastEventId === undefined ? undefined : await this.#catchUp.startAfter(lastEventId, lastSeq);
    if (start) observeGateway.resumed(start.reset ? "reset" : "replayed");
    this.#position.settle(start?.seq ?? lastSeq);
    return start ?? { seq: lastSeq, replay: [] };
  }

  /** Returns the first block, in the turn of {@link start}: a registration that is lost in between would be left out. */
  greeting(retryMs: number, { reset }: Start): string {
    const reason = reset ?? (this.#state.current === "relisted" ? "registration_lost" : undefined);
    if (reason) observeGateway.reset(reason);
    return greetingBlock(this.#position, retryMs, reason);
  }

  async start(sink: EventSink, { replay }: Start): Promise<void> {
    this.#state.on("open");
    this.#client.connect(sink);
    await this.#catchUp.goLive(replay);
  }

  take(notification: Notification): void {
    const { current } = this.#state;
    const { isCurrent, seq } = this.#position;
    if (current === "ended") return;
    if (isCurrent && notification.seq <= seq) return this.#passed(notification);
    if (current !== "live" || !isCurrent) return this.#catchUp.buffer.add(notification);
    if (this.#position.reaches(notification)) {
      this.heardAt = performance.now();
      if (this.#client.isJudged) return void this.#catchUp.sendJudged(notification);
      return this.#client.send(notification, false);
    }
    this.#catchUp.buffer.add(notification);
    void this.#catchUp.closeGap();
  }

  /** A live message below the position that was never sent means that a forged message advanced the position. */
  #passed({ seq, content }: Notification): void {
    const { verified } = this.#position;
    if (this.#state.current !== "live" || seq <= verified) return;
    if (content?.key === undefined || this.#client.hasGot(content.key)) return;
    this.#position.settle(verified);
    void this.#catchUp.closeGap();
  }

  takeElsewhere(notification: Notification): void {
    this.#client.noteHiding(notification);
    this.#client.lacksElsewhere = true;
  }

  userErased(): void {
    this.endStream("erased");
  }

  userLoggedOut(loggedOutAt: number): void {
    if (isRefused(this.issuedAt, loggedOutAt)) this.endStream("logged_out");
  }

  async registeredAgain(): Promise<boolean> {
    this.#state.on("relist");
    const { current } = this.#state;
    if (current === "catchingUp" || current === "live") this.#client.reset("registration_lost");
    const list = await this.#lookForList();
    if (list === "unknown") void this.#lookAgain();
    return list !== "gone";
  }

  /** A deletion of a list removes the listing of its streams. The stream ends if its list is gone. */
  async #lookForList(): Promise<"there" | "gone" | "unknown"> {
    try {
      await this.check(0);
      return "there";
    } catch (error) {
      return this.#endIfGone(error) ? "gone" : "unknown";
    }
  }

  /** The registration is not lost again, so no later renewal looks for the list. */
  async #lookAgain(): Promise<void> {
    const look = ++this.#looks;
    for (let attempt = 1; this.#looks === look; attempt++) {
      await pause(backoff(attempt, AGAIN_MS, AGAIN_AT_MOST_MS));
      if (this.#state.current === "ended" || (await this.#lookForList()) !== "unknown") return;
    }
  }

  /** Returns true for an error that tells that the list is gone. */
  #endIfGone(error: unknown): boolean {
    const isGone = codeOf(error) === "notfound";
    if (isGone) this.endStream("list_deleted");
    else
      this.deps.log.debug(
        { error: oneLine(error) },
        "the users service does not answer about a list; it is asked again",
      );
    return isGone;
  }

  /**
   * Resolves to true if the owner of the list sees the notification, to false if the stream ends before that is known. A
   * deletion, and a notification without a byline, is sent if the stream has sent the drop.
   */
  async #isShown(notification: Notification, list: OpenList): Promise<boolean> {
    const { event = "", by, key = "" } = notification.content ?? {};
    if (!DROP_EVENTS.includes(event)) return true;
    const hasDrop = () => this.#client.hasGot(`new_drop\n${key.split("\n")[1]}`);
    if (by === undefined || (event === "drop_deleted" && hasDrop())) return hasDrop();
    while (this.#state.current !== "ended") {
      try {
        return await list.shows(by, notification);
      } catch (error) {
        this.#endIfGone(error);
      }
      await pause(AGAIN_MS);
    }
    return false;
  }

  /**
   * Looks for missed notifications, unless a live one came in the last `heardMs`. If there are none, moves the
   * position to the stream's end of at most `maxAgeMs` ago.
   */
  async recheck({ maxAgeMs, heardMs }: { readonly maxAgeMs: number; readonly heardMs: number }): Promise<void> {
    if (this.#state.current !== "live") return;
    const position = this.#position;
    const before = position.seq;
    const unchecked = (error: unknown): undefined => {
      this.deps.log.debug({ error: oneLine(error) }, "a stream was not checked; the next heartbeat checks it");
    };
    const end = await this.#readEnd(before, maxAgeMs).catch(unchecked);
    if (!end || this.#state.current !== "live") return;
    const { lastSeq, createdAt } = end;
    if (!position.countsIn(createdAt) || lastSeq < before || this.#client.lacksElsewhere) {
      this.#catchUp.startOver("stream_replaced", lastSeq, createdAt);
      return this.#catchUp.closeGap();
    }
    const asked = position.seq;
    // The stream confirms live notifications while NOTIFY still holds them, also if nothing is new.
    const isConfirmed = lastSeq <= asked && position.verified >= asked;
    if (performance.now() - this.heardAt < heardMs || isConfirmed) return;
    // The leader has all of the user's notifications up to `lastSeq`.
    const last = await this.feed.lastOf(this.reader).catch(unchecked);
    if (last === undefined || this.#state.current !== "live") return;
    if (last > position.seq) return this.#catchUp.closeGap();
    // Live notifications that came meanwhile may be newer than the answer, and would look forged.
    if (position.seq !== asked) return;
    const isForged = last < asked && position.verified < asked;
    position.settle(isForged ? position.verified : Math.max(asked, lastSeq));
    if (isForged) await this.#catchUp.closeGap();
  }

  /** Returns the end of NOTIFY. Looks for notifications in other parts, too, if live ones may have been missed. */
  async #readEnd(before: number, maxAgeMs: number): Promise<FeedState> {
    const { feed, reader } = this;
    const recent = await feed.state(maxAgeMs);
    const end = recent.lastSeq < before ? await feed.state() : recent;
    const { gaps } = this;
    if (gaps > this.#gapsLookedAt && (await feed.isElsewhere(reader))) this.#client.lacksElsewhere = true;
    this.#gapsLookedAt = gaps;
    return end;
  }

  heartbeat(): void {
    if (this.#state.current !== "ended") this.#client.heartbeat();
  }

  end(): void {
    this.#state.on("end");
  }
}
