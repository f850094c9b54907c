import { randomUUID } from "node:crypto";
import { mapLimited } from "../kernel/concurrency.js";
import { AppError, oneLine } from "../kernel/errors.js";
import { encodeId } from "../kernel/ids.js";
import type { Logger } from "../kernel/logger.js";
import { pause, SECOND } from "../kernel/time.js";
import type { GatewayConfig } from "./config.js";
import type { Feed } from "./feed.nats.js";
import { type CloseReason, observeGateway } from "./observe.js";
import type { Registry } from "./registry.js";
import { connectionId } from "./registry.redis.js";
import type { StreamRequest } from "./routes.http.js";
import { Session } from "./session.js";

type Range = readonly [from: number, to: number];

export interface StreamLimits {
  readonly heartbeatMs: Range;
  readonly retryMs: Range;
  /** A stream ends after this, plus or minus a fifth. */
  readonly maxLifeMs: number;
  readonly drainMs: number;
}

const MAX_TIMER_MS = 2 ** 31 - 1;
const RECHECKS_AT_ONCE = 64;

interface StreamsDeps {
  readonly feed: Feed;
  readonly registry: Registry;
  readonly config: Pick<GatewayConfig, "maxConnections" | "maxConnectionsPerUser">;
  readonly limits: StreamLimits;
  readonly log: Logger;
}

export class Streams {
  closing = false;
  /** From admission until the registration is removed; aborting the key ends the stream. */
  readonly #open = new Map<AbortController, Promise<void>>();
  readonly #perUser = new Map<string, number>();
  readonly #sessions = new Set<Session>();

  constructor(private readonly deps: StreamsDeps) {}

  get size(): number {
    return this.#open.size;
  }

  /** Resolves once the stream is open; rejects if it was not opened. */
  async serve(request: StreamRequest): Promise<void> {
    if (this.closing) throw new AppError("unavailable", "the gateway is shutting down");
    if (!this.deps.feed.connected()) throw new AppError("unavailable", "NATS is away");
    const { user } = request.principal;
    this.#admit(user);
    const ending = new AbortController();
    await new Promise<void>((opened, refused) => {
      const running = this.#run(request, ending, opened)
        .catch(refused)
        .finally(() => {
          this.#release(user);
          this.#open.delete(ending);
          opened();
        });
      this.#open.set(ending, running);
    });
  }

  async recheckAll(): Promise<void> {
    const { feed, log } = this.deps;
    try {
      await feed.flushed();
      await mapLimited([...this.#sessions], RECHECKS_AT_ONCE, (session) => session.recheck());
    } catch (error) {
      log.warn({ error: oneLine(error) }, "streams were not checked; heartbeats check them");
    }
  }

  /** Ends all streams at random times, so that their clients do not reconnect to other processes all at once. */
  async close(graceMs: number): Promise<void> {
    this.closing = true;
    const spread = Math.min(graceMs, this.deps.limits.drainMs);
    const over = new AbortController();
    const ended = [...this.#open].map(async ([ending, running]) => {
      await pause(Math.random() * spread, AbortSignal.any([over.signal, ending.signal]));
      ending.abort("drain" satisfies CloseReason);
      await running;
    });
    await Promise.race([Promise.all(ended), pause(graceMs + SECOND, over.signal)]);
    over.abort();
  }

  #admit(user: string): void {
    const { maxConnections, maxConnectionsPerUser } = this.deps.config;
    const held = this.#perUser.get(user) ?? 0;
    if (held >= maxConnectionsPerUser) throw new AppError("exhausted", "too many event streams of this user");
    if (this.size >= maxConnections) throw new AppError("unavailable", "too many event streams here");
    this.#perUser.set(user, held + 1);
  }

  #release(user: string): void {
    const held = this.#perUser.get(user) ?? 1;
    if (held > 1) this.#perUser.set(user, held - 1);
    else this.#perUser.delete(user);
  }

  async #run(request: StreamRequest, ending: AbortController, opened: () => void): Promise<void> {
    const { feed, registry, limits, log } = this.deps;
    const { user, expiresAt } = request.principal;
    const connection = { id: connectionId(randomUUID(), user), user, createdAt: Date.now() };
    const session = new Session({ user, feed, log });
    let unfollow: (() => void) | undefined;
    try {
      const resumes = (request.lastEventId ?? "") !== "";
      const resumableFrom = await registry.register(connection, resumes, () => session.reset("registration_lost"));
      unfollow = feed.follow(user, session.take);
      this.#sessions.add(session);
      await feed.flushed();
      const start = await session.prepare(request.lastEventId, resumableFrom);
      if (request.gone.aborted) return;
      if (ending.signal.aborted) throw new AppError("unavailable", "the gateway is shutting down");
      const stream = request.open(session.greeting(randomMs(limits.retryMs)));
      observeGateway.opened();
      const fields = { user: encodeId(user), connection: connection.id };
      log.info({ ...fields, resumed: resumes, position: start.seq, reset: start.reset }, "an event stream is open");
      opened();
      void session.start(stream, start);
      const reason = await this.#untilClosed({ session, stream, expiresAt, ending });
      const seconds = Math.round((Date.now() - connection.createdAt) / SECOND);
      log.info({ ...fields, reason, seconds, events: session.sent }, "an event stream is closed");
    } finally {
      session.end();
      this.#sessions.delete(session);
      unfollow?.();
      await registry.remove(connection);
    }
  }

  async #untilClosed({ session, stream, expiresAt, ending }: OpenStream): Promise<CloseReason> {
    const { limits } = this.deps;
    const end = (reason: CloseReason): void => ending.abort(reason);
    const timers = [
      setTimeout(() => end("expired"), timerMs(expiresAt - Date.now())),
      setTimeout(() => end("lifetime"), timerMs(limits.maxLifeMs * (0.8 + 0.4 * Math.random()))),
    ];
    // The first comes early: a new subscription takes a moment to reach all NATS servers of a cluster.
    const beating = this.#beat(session, randomMs(limits.heartbeatMs) / 8, ending.signal);
    ending.signal.addEventListener("abort", () => stream.end(), { once: true });
    if (ending.signal.aborted) stream.end();
    const { slow } = await stream.closed;
    const reason = ending.signal.aborted ? (ending.signal.reason as CloseReason) : slow ? "slow" : "client";
    session.end();
    end(reason);
    for (const timer of timers) clearTimeout(timer);
    await beating;
    observeGateway.closed(reason);
    return reason;
  }

  async #beat(session: Session, firstMs: number, signal: AbortSignal): Promise<void> {
    for (let wait = firstMs; !signal.aborted; wait = randomMs(this.deps.limits.heartbeatMs)) {
      await pause(wait, signal);
      if (!signal.aborted) await session.heartbeat();
    }
  }
}

interface OpenStream {
  readonly session: Session;
  readonly stream: ReturnType<StreamRequest["open"]>;
  readonly expiresAt: number;
  readonly ending: AbortController;
}

const randomMs = ([from, to]: Range): number => Math.round(from + Math.random() * (to - from));

const timerMs = (ms: number): number => Math.max(0, Math.min(ms, MAX_TIMER_MS));
