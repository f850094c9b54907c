import { randomUUID } from "node:crypto";
import { AppError, oneLine } from "../kernel/errors.js";
import { encodeId } from "../kernel/ids.js";
import type { Logger } from "../kernel/logger.js";
import { pause, SECOND } from "../kernel/time.js";
import { type AuthConfig, createAuthenticate } from "./auth.js";
import { createFeed, type NatsConnection } from "./feed.nats.js";
import { Hub } from "./hub.js";
import { Admission, DEFAULT_LIMITS, type GatewayLimits, timerMs, within } from "./limits.js";
import { type CloseReason, observeGateway } from "./observe.js";
import type { Connection, Feed } from "./ports.js";
import { Registry } from "./registry.js";
import { connectionId, createRegistryStore, type Scripts } from "./registry.redis.js";
import { createRoutes, type Router, type Visit } from "./routes.http.js";
import { Session } from "./session.js";

/** What the gateway is made of; the connections are open, and stay their owner's to close. */
export interface GatewayDeps {
  readonly scripts: Scripts;
  readonly nats: NatsConnection;
  readonly log: Logger;
  readonly podName: string;
  readonly auth: AuthConfig;
  /** Origins whose pages may use the cookie, besides the gateway's own. */
  readonly allowedOrigins?: readonly string[];
  readonly limits?: Partial<GatewayLimits>;
}

/** A running gateway. */
export interface Gateway {
  /** Serves `GET /events/timeline/home`. */
  readonly router: Router;
  /** True while streams can be opened. */
  healthy(): boolean;
  /** How much is held now; all 0 after the last stream is gone. */
  counts(): { readonly streams: number; readonly users: number; readonly registrations: number };
  /** Takes no more streams, ends the open ones spread over up to `graceMs`, and takes their registrations back. */
  close(graceMs: number): Promise<void>;
}

/** Opens the gateway. */
export function createGateway(deps: GatewayDeps): Gateway {
  const limits = { ...DEFAULT_LIMITS, ...deps.limits };
  const { log } = deps;
  observeGateway.started(limits.connections);
  const feed: Feed = createFeed(deps.nats, () => {
    hub
      .recheckAll()
      .catch((error) => log.warn({ error: oneLine(error) }, "streams were not checked; heartbeats do it"));
  });
  const hub = new Hub(feed);
  const registry = new Registry({
    store: createRegistryStore(deps.scripts, {
      podName: deps.podName,
      ttlMs: limits.registrationTtlMs,
      windowMs: limits.windowMs,
    }),
    lastPosition: async () => {
      const { lastSeq, incarnation } = await feed.state();
      return { seq: lastSeq, incarnation };
    },
    renewMs: limits.renewMs,
    sweepMs: limits.sweepMs,
    windowMs: limits.windowMs,
    log,
  });
  const streams = new Streams({ feed, hub, registry, limits, log });
  const router = createRoutes({
    authenticate: createAuthenticate(deps.auth),
    allowedOrigins: new Set(deps.allowedOrigins ?? []),
    maxBufferedBytes: limits.maxBufferedBytes,
    stallMs: limits.stallMs,
    log,
    serve: (visit) => streams.serve(visit),
  });
  return {
    router,
    healthy: () => !streams.closing && feed.connected() && deps.scripts.client.status === "ready",
    counts: () => ({ streams: streams.size, users: hub.size, registrations: registry.size }),
    close: async (graceMs) => {
      await streams.close(graceMs);
      await registry.close();
      feed.close();
    },
  };
}

interface StreamsDeps {
  readonly feed: Feed;
  readonly hub: Hub;
  readonly registry: Registry;
  readonly limits: GatewayLimits;
  readonly log: Logger;
}

/** The open streams of this process. */
class Streams {
  closing = false;
  readonly #admission: Admission;
  /** Every stream, from its admission until its registration is taken back; aborting ends it. */
  readonly #open = new Map<AbortController, Promise<void>>();

  constructor(private readonly deps: StreamsDeps) {
    this.#admission = new Admission(deps.limits);
  }

  get size(): number {
    return this.#admission.size;
  }

  /** Opens a stream, and resolves; it rejects where nothing could be sent. */
  async serve(visit: Visit): Promise<void> {
    if (this.closing) throw new AppError("unavailable", "the gateway is shutting down");
    if (!this.deps.feed.connected()) throw new AppError("unavailable", "NATS is away");
    const leave = this.#admission.enter(visit.principal.user);
    const ending = new AbortController();
    await new Promise<void>((opened, refused) => {
      const running = this.#run(visit, ending, opened)
        .catch(refused)
        .finally(() => {
          leave();
          this.#open.delete(ending);
          opened();
        });
      this.#open.set(ending, running);
    });
  }

  /** Ends all streams in jitter, so that their clients do not come back to the others all at once. */
  async close(graceMs: number): Promise<void> {
    this.closing = true;
    const spread = Math.min(graceMs, this.deps.limits.drainMs);
    const over = new AbortController();
    const ended = [...this.#open].map(async ([ending, running]) => {
      await pause(Math.random() * spread, AbortSignal.any([over.signal, ending.signal]));
      ending.abort("drain" satisfies CloseReason);
      await running;
    });
    // A Redis that is away must not keep the process: registrations run out by themselves.
    await Promise.race([Promise.all(ended), pause(graceMs + SECOND, over.signal)]);
    over.abort();
  }

  async #run(visit: Visit, ending: AbortController, opened: () => void): Promise<void> {
    const { feed, hub, registry, limits, log } = this.deps;
    const { user, expiresAt } = visit.principal;
    const connection: Connection = { id: connectionId(randomUUID(), user), user, createdAt: Date.now() };
    const session = new Session({ user, feed, log });
    try {
      const resumes = (visit.lastEventId ?? "") !== "";
      const goodFrom = await registry.register(connection, resumes, () => session.reset("registration_lost"));
      await hub.join(user, session);
      const start = await session.prepare(visit.lastEventId, goodFrom);
      if (visit.gone.aborted) return;
      if (ending.signal.aborted) throw new AppError("unavailable", "the gateway is shutting down");
      const stream = visit.open(session.greeting(within(limits.retryMs)));
      observeGateway.opened();
      const named = { user: encodeId(user), connection: connection.id };
      log.info({ ...named, resumed: resumes, position: start.seq, reset: start.reset }, "an event stream is open");
      opened();
      void session.start(stream, start);
      const reason = await this.#live({ session, stream, expiresAt, ending });
      const seconds = Math.round((Date.now() - connection.createdAt) / SECOND);
      log.info({ ...named, reason, seconds, events: session.sent }, "an event stream is closed");
    } finally {
      session.end();
      hub.leave(user, session);
      await registry.remove(connection);
    }
  }

  /** Keeps an open stream going until something ends it; resolves to what did. */
  async #live({ session, stream, expiresAt, ending }: Live): Promise<CloseReason> {
    const { limits } = this.deps;
    const end = (reason: CloseReason): void => ending.abort(reason);
    const life = limits.maxLifeMs * (0.8 + 0.4 * Math.random());
    const timers = [
      setTimeout(() => end("expired"), timerMs(expiresAt - Date.now())),
      setTimeout(() => end("lifetime"), timerMs(life)),
    ];
    // In a cluster of NATS servers a new subscription takes a moment to be known everywhere: the first beat comes soon.
    const soon = within(limits.heartbeatMs) / 8;
    const beating = this.#beat(session, soon, ending.signal);
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
    for (let wait = firstMs; !signal.aborted; wait = within(this.deps.limits.heartbeatMs)) {
      await pause(wait, signal);
      if (!signal.aborted) await session.heartbeat();
    }
  }
}

interface Live {
  readonly session: Session;
  readonly stream: ReturnType<Visit["open"]>;
  readonly expiresAt: number;
  readonly ending: AbortController;
}
