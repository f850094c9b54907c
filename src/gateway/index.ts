import type { Router } from "express";
import type { NatsConnection } from "nats";
import { NOTIFY_WINDOW_MS } from "../contracts/times.js";
import type { Logger } from "../kernel/logger.js";
import { MINUTE, SECOND } from "../kernel/time.js";
import type { Scripts } from "../platform/redis/scripts.js";
import { type AuthConfig, createAuthenticate } from "./auth.js";
import { createFeed } from "./feed.nats.js";
import { observeGateway } from "./observe.js";
import { Registry } from "./registry.js";
import { createRegistryStore } from "./registry.redis.js";
import { createRoutes } from "./routes.http.js";
import { type StreamLimits, Streams } from "./streams.js";

/** The connections are open, and their owner closes them. */
export interface GatewayDeps {
  readonly scripts: Scripts;
  readonly nats: NatsConnection;
  readonly log: Logger;
  readonly podName: string;
  readonly auth: AuthConfig;
  /** Origins whose pages may use the cookie, besides the gateway's own. */
  readonly allowedOrigins?: readonly string[];
  readonly limits: Pick<GatewayLimits, "connections" | "connectionsPerUser"> & Partial<GatewayLimits>;
}

interface GatewayLimits extends StreamLimits {
  /** Bytes that may wait for a client before it is cut off. */
  readonly maxBufferedBytes: number;
  /** A client that leaves anything waiting for so long is cut off. */
  readonly stallMs: number;
  readonly renewMs: number;
  readonly registrationTtlMs: number;
  readonly sweepMs: number;
  /** How long after their last stream users get notifications stored: fan-out's window, and NOTIFY's age. */
  readonly windowMs: number;
}

export const DEFAULT_LIMITS = {
  maxBufferedBytes: 1024 * 1024,
  stallMs: 30 * SECOND,
  heartbeatMs: [10 * SECOND, 13 * SECOND],
  retryMs: [2 * SECOND, 5 * SECOND],
  maxLifeMs: 60 * MINUTE,
  renewMs: 10 * SECOND,
  registrationTtlMs: MINUTE,
  sweepMs: MINUTE,
  windowMs: NOTIFY_WINDOW_MS,
  drainMs: 5 * SECOND,
} as const;

export interface Gateway {
  /** Serves `GET /events/timeline/home`. */
  readonly router: Router;
  /** True while streams can be opened. */
  healthy(): boolean;
  /** All 0 after the last stream is gone. */
  counts(): { readonly streams: number; readonly users: number; readonly registrations: number };
  /** Refuses new streams, ends the open ones spread over up to `graceMs`, and removes their registrations. */
  close(graceMs: number): Promise<void>;
}

/** Opens the gateway: timelines over Server-Sent Events. */
export function createGateway(deps: GatewayDeps): Gateway {
  const { scripts, log } = deps;
  const limits = { ...DEFAULT_LIMITS, ...deps.limits };
  observeGateway.started(limits.connections);
  const feed = createFeed(deps.nats, () => void streams.recheckAll());
  const registry = new Registry({
    ...limits,
    store: createRegistryStore(scripts, {
      podName: deps.podName,
      ttlMs: limits.registrationTtlMs,
      windowMs: limits.windowMs,
    }),
    lastPosition: async () => {
      const { lastSeq, incarnation } = await feed.state();
      return { seq: lastSeq, incarnation };
    },
    log,
  });
  const streams = new Streams({ feed, registry, limits, log });
  const router = createRoutes({
    authenticate: createAuthenticate(deps.auth),
    allowedOrigins: new Set(deps.allowedOrigins ?? []),
    limits,
    log,
    serve: (request) => streams.serve(request),
  });
  return {
    router,
    healthy: () => !streams.closing && feed.connected() && scripts.client.status === "ready",
    counts: () => ({ streams: streams.size, users: feed.users(), registrations: registry.size }),
    close: async (graceMs) => {
      await streams.close(graceMs);
      await registry.close();
      feed.close();
    },
  };
}
