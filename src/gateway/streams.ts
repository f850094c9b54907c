import { allOf, mapLimited } from "../kernel/concurrency.js";
import { AppError, oneLine } from "../kernel/errors.js";
import { encodeId } from "../kernel/ids.js";
import type { Logger } from "../kernel/logger.js";
import { createBatch } from "../kernel/sharing.js";
import { pause, type Range, randomMs, SECOND, sharedNow } from "../kernel/time.js";
import { erasedUser, isRefused, type Standings } from "../state/index.js";
import { loggedOut, suspended } from "./auth.js";
import type { GatewayConfig } from "./config.js";
import type { Feed, PartFeed } from "./feed.nats.js";
import { noList, type OpenList } from "./lists.js";
import { type CloseReason, observeGateway, type SentEvents } from "./observe.js";
import { REGISTRATIONS_A_CALL, type Refused, type StreamRegistry } from "./registry.js";
import type { StreamRequest } from "./routes.http.js";
import { Session } from "./session/session.js";
import type { StreamSession } from "./session/stream-session.js";
import type { SharedStreams } from "./shared/streams.js";

export interface StreamLimits {
  readonly heartbeatMs: Range;
  readonly retryMs: Range;
  /** A client that was refused for a limit waits longer, since nobody leaves within seconds. */
  readonly limitRetryMs: Range;
  /** A stream ends after this, plus or minus a fifth. */
  readonly maxLifeMs: number;
  readonly drainMs: number;
}

const RECHECKS_AT_ONCE = 64;
const RECHECK_TIMEOUT_MS = SECOND;
/** One timer serves the heartbeats and ends of all streams. */
const TICK_MS = 100;
/** New streams and heartbeats use an end of NOTIFY that was read at most this long ago. */
const TAIL_AGE_MS = SECOND;
/** A new stream of a list uses an answer of at most this age, until it is registered. */
const LIST_AGE_MS = SECOND;

interface StreamsDeps {
  readonly feed: Feed;
  readonly registry: StreamRegistry;
  readonly shared: Pick<SharedStreams, "open" | "refuseUnserved">;
  /** @throws AppError `notfound` for what names no list */
  readonly openList: (owner: string, list: string) => OpenList;
  readonly standings: Pick<Standings, "of" | "size" | "changes">;
  readonly sentEvents: SentEvents;
  readonly config: Pick<GatewayConfig, "maxConnections" | "maxConnectionsPerUser">;
  readonly limits: StreamLimits;
  readonly log: Logger;
}

class Stream {
  readonly session: StreamSession;
  sink: ReturnType<StreamRequest["open"]> | undefined;
  unfollow: (() => void) | undefined;
  reason: CloseReason | undefined;
  /** Both times are of performance.now(). */
  endsAt = 0;
  beatAt = 0;
  checking = false;
  /** False: nothing of the stream is registered. */
  isAnnounced = false;
  readonly expiresAt: number;
  readonly isLogged: boolean;
  readonly #traceparent: string | undefined;

  constructor({ principal, timeline, traceparent }: StreamRequest, deps: StreamsDeps, list: OpenList | undefined) {
    this.session =
      timeline === "home" || timeline === "list"
        ? new Session({ ...principal, list }, deps, (reason) => this.end(reason))
        : deps.shared.open(principal, timeline);
    this.isLogged = deps.log.logsAccess();
    this.expiresAt = principal.expiresAt;
    this.#traceparent = traceparent;
  }

  /** Log lines of the stream have these fields. */
  get fields(): object {
    const [, trace_id, span_id] = this.#traceparent?.split("-") ?? [];
    return { user: encodeId(this.session.user), connection: this.session.id, trace_id, span_id };
  }

  /** @throws AppError `gone`, `unauthenticated`, `forbidden`, `notfound` */
  refuseEnded(): void {
    if (this.reason === "list_deleted") throw noList();
    if (this.reason === "erased") throw erasedUser();
    if (this.reason === "suspended") throw suspended();
    if (this.reason === "logged_out") throw loggedOut();
  }

  end(reason: CloseReason): void {
    this.reason ??= reason;
    this.session.end();
    this.sink?.end();
  }
}

export class Streams {
  closing = false;
  /** A stream counts from its admission until its registration is removed. */
  size = 0;
  readonly #perUser = new Map<string, number>();
  readonly #open = new Set<Stream>();
  /** Streams that are admitted and not removed yet. */
  readonly #held = new Set<Stream>();
  readonly #ticking: NodeJS.Timeout;
  /** Changes of standings up to which streams were ended. */
  #judged = 0;
  /** Streams that open together share a call to Redis and a flush. */
  readonly #announce = createBatch(REGISTRATIONS_A_CALL, async (streams: readonly Stream[]): Promise<void> => {
    const { feed, registry } = this.deps;
    for (const stream of streams) stream.isAnnounced = true;
    const sessions = streams.map(({ session }) => session);
    for (const stream of streams)
      if (stream.session instanceof Session) stream.unfollow ??= feed.follow(stream.session.reader, stream.session);
    // Promise.all would leave a registration that follows its removal.
    await allOf([feed.flushed(), registry.register(sessions)]);
  });
  #allGone: (() => void) | undefined;

  constructor(private readonly deps: StreamsDeps) {
    this.#ticking = setInterval(() => this.#tick(), TICK_MS).unref();
  }

  /** Resolves once the stream is open; rejects if it was not opened. */
  async serve(request: StreamRequest): Promise<void> {
    if (this.closing) throw new AppError("unavailable", "the gateway is shutting down");
    if (!this.deps.feed.connected()) throw new AppError("unavailable", "NATS is unavailable");
    const { user } = request.principal;
    if (request.timeline === "local" || request.timeline === "global") this.deps.shared.refuseUnserved();
    const list = request.timeline === "list" ? this.deps.openList(user, request.list) : undefined;
    this.#admit(user);
    const stream = new Stream(request, this.deps, list);
    this.#held.add(stream);
    try {
      await this.#start(stream, request);
    } finally {
      if (!stream.sink) await this.#remove(stream);
    }
  }

  /** Ends the streams of refused users, those that are being opened included. */
  endOf({ erased, logouts }: Refused): void {
    for (const stream of this.#held) {
      const { user, issuedAt } = stream.session;
      if (erased.has(user)) stream.end("erased");
      else if (isRefused(issuedAt, logouts.get(user))) stream.end("logged_out");
    }
  }

  /** Called when live notifications of a part may have been missed. */
  async recheckAll(part: PartFeed): Promise<void> {
    const { feed, log } = this.deps;
    const isConcerned = ({ session }: Stream): boolean => session instanceof Session && session.feed === part;
    for (const { session } of this.#held) if (session instanceof Session && session.feed === part) session.gaps++;
    try {
      await feed.flushed();
      const concerned = [...this.#open].filter(isConcerned);
      await mapLimited(concerned, RECHECKS_AT_ONCE, ({ session }) => session.recheck({ maxAgeMs: 0, heardMs: 0 }));
    } catch (error) {
      log.warn({ error: oneLine(error) }, "event streams were not checked after a gap; their heartbeats check them");
    }
  }

  /** Ends all streams at random times, so that their clients do not reconnect to other processes all at once. */
  async close(graceMs: number): Promise<void> {
    this.closing = true;
    const spread = Math.min(graceMs, this.deps.limits.drainMs);
    for (const stream of this.#open) stream.endsAt = performance.now() + Math.random() * spread;
    if (spread === 0) this.#tick();
    const over = new AbortController();
    if (this.size > 0) {
      const allGone = new Promise<void>((resolve) => {
        this.#allGone = resolve;
      });
      await Promise.race([allGone, pause(graceMs + SECOND, over.signal)]);
    }
    over.abort();
    clearInterval(this.#ticking);
  }

  #admit(user: string): void {
    const { config, limits } = this.deps;
    const open = this.#perUser.get(user) ?? 0;
    const later = { retryAfterMs: randomMs(limits.limitRetryMs) };
    if (open >= config.maxConnectionsPerUser)
      throw new AppError("exhausted", "too many event streams of this user", later);
    if (this.size >= config.maxConnections)
      throw new AppError("unavailable", "this gateway has too many event streams", later);
    this.#perUser.set(user, open + 1);
    this.size++;
  }

  async #start(stream: Stream, request: StreamRequest): Promise<void> {
    const { limits, log } = this.deps;
    const { session } = stream;
    const resumes = request.lastEventId !== undefined;
    const tail = resumes || !(session instanceof Session) ? undefined : await session.feed.state(TAIL_AGE_MS);
    if (request.timeline === "list") {
      // The lists of an erased user are gone, too.
      await this.deps.registry.endRefused(session);
      stream.refuseEnded();
    }
    // No listing is made for a list of somebody else.
    if (session instanceof Session) await session.check(LIST_AGE_MS);
    await this.#announce(stream);
    stream.refuseEnded();
    // Only a question that follows the registration finds a list that was deleted before it.
    if (session instanceof Session) await session.check(0);
    const start = await session.prepare(request.lastEventId, tail);
    if (request.isGone()) return;
    stream.refuseEnded();
    if (this.closing) throw new AppError("unavailable", "the gateway is shutting down");
    const now = performance.now();
    stream.endsAt = now + limits.maxLifeMs * (0.8 + 0.4 * Math.random());
    // The first comes early: a new subscription takes a moment to reach all NATS servers of a cluster.
    stream.beatAt = now + randomMs(limits.heartbeatMs) / 8;
    const sink = request.open(session.greeting(randomMs(limits.retryMs), start), () => void this.#closed(stream));
    stream.sink = sink;
    this.#open.add(stream);
    observeGateway.opened();
    const { seq: position, reset } = start;
    if (stream.isLogged) log.info({ ...stream.fields, resumed: resumes, position, reset }, "an event stream is open");
    void session.start(sink, start);
  }

  async #closed(stream: Stream): Promise<void> {
    const { session, sink } = stream;
    const reason = stream.reason ?? (sink?.slow ? "slow" : "client");
    this.#open.delete(stream);
    observeGateway.closed(reason);
    const seconds = Math.round((sharedNow() - session.createdAt) / SECOND);
    const closed = { reason, seconds, events: session.sent };
    if (stream.isLogged) this.deps.log.info({ ...stream.fields, ...closed }, "an event stream is closed");
    await this.#remove(stream);
  }

  async #remove(stream: Stream): Promise<void> {
    const { session } = stream;
    const { user } = session;
    session.end();
    this.#held.delete(stream);
    stream.unfollow?.();
    if (stream.isAnnounced) await this.deps.registry.remove(session);
    if (stream.reason === "erased") await this.deps.registry.removeUser(session.reader);
    const open = this.#perUser.get(user) ?? 1;
    if (open > 1) this.#perUser.set(user, open - 1);
    else this.#perUser.delete(user);
    if (--this.size === 0) this.#allGone?.();
  }

  /** A standing that ends by itself suspends nobody, so streams are looked at after changes only. */
  #endSuspended(): void {
    const { standings } = this.deps;
    if (standings.changes === this.#judged) return;
    this.#judged = standings.changes;
    for (const stream of this.#held) if (standings.of(stream.session.user) === "suspended") stream.end("suspended");
  }

  #tick(): void {
    this.#endSuspended();
    const [now, time] = [performance.now(), sharedNow()];
    for (const stream of this.#open) {
      stream.sink?.check(now);
      if (time >= stream.expiresAt) stream.end("expired");
      else if (now >= stream.endsAt) stream.end(this.closing ? "drain" : "lifetime");
      else if (now >= stream.beatAt) this.#beat(stream, now);
    }
  }

  /**
   * Checks for missed notifications first, for at most a second. If a live one has made the check unnecessary, the next
   * beat counts from that one, so that a missed notification is found within one beat, not two.
   */
  #beat(stream: Stream, now: number): void {
    const { session } = stream;
    const { heartbeatMs } = this.deps.limits;
    const heardMs = heartbeatMs[0] / 2;
    const beat = (): void => {
      if (!stream.checking) return;
      stream.checking = false;
      const over = performance.now();
      const from = over - session.heardAt < heardMs ? session.heardAt : over;
      stream.beatAt = from + randomMs(heartbeatMs);
      session.heartbeat();
    };
    if (stream.checking) return beat();
    stream.checking = true;
    stream.beatAt = now + RECHECK_TIMEOUT_MS;
    void session.recheck({ maxAgeMs: TAIL_AGE_MS, heardMs }).then(beat);
  }
}
