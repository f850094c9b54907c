import type { NatsConnection } from "nats";
import { NOTIFY_WINDOW_MS } from "../contracts/times.js";
import { AppError } from "../kernel/errors.js";
import type { Logger } from "../kernel/logger.js";
import { MINUTE, SECOND } from "../kernel/time.js";
import type { SseLimits } from "../platform/http/sse.js";
import type { HiddenUsers, LogoutsAmong, Standings, State } from "../state/index.js";
import {
  type Claim,
  createAuthenticate,
  createAuthorize,
  createAuthorizeOperator,
  refusingLoggedOut,
  refusingSuspended,
} from "./auth.js";
import type { GatewayConfig } from "./config.js";
import { createFeed } from "./feed.nats.js";
import { followKeys } from "./keys.http.js";
import { createOpenList, type ListSources } from "./lists.js";
import { observeGateway, SentEvents } from "./observe.js";
import { StreamRegistry } from "./registry.js";
import { createRoutes, type StreamRequest } from "./routes.http.js";
import { SharedSource, type SourceDeps } from "./shared/source.nats.js";
import { createSharedStreams } from "./shared/streams.js";
import { type StreamLimits, Streams } from "./streams.js";

export { createNotificationRouter } from "./notifications.http.js";
export { createPositionRouter } from "./positions.http.js";
export { startStreamService } from "./service.nats.js";
export { createTimelineRouter } from "./timelines.http.js";

type Entrance = ReturnType<typeof createEntrance>;

interface GatewayDeps {
  readonly entrance: Entrance;
  readonly state: Pick<State, "streams" | "erased" | "standings" | "isConnected">;
  readonly nats: NatsConnection;
  /** Reads whom a viewer hides. Undefined: only homes have streams here. */
  readonly readHidden?: ((user: string) => Promise<HiddenUsers>) | undefined;
  /** Undefined: lists have no streams here. */
  readonly lists?: Omit<ListSources, "readHidden"> | undefined;
  /** Number of streams that share the notifications. */
  readonly notifyParts: number;
  readonly config: GatewayConfig;
  readonly podName: string;
  readonly log: Logger;
}

export interface GatewayLimits extends StreamLimits, SseLimits {
  readonly renewMs: number;
  readonly registrationTtlMs: number;
  readonly sweepMs: number;
  /** Fan-out stores notifications for users whose last stream ended within this time; NOTIFY keeps them as long. */
  readonly windowMs: number;
}

export const LIMITS: GatewayLimits = {
  maxBufferedBytes: 1024 * 1024,
  stallMs: 30 * SECOND,
  heartbeatMs: [10 * SECOND, 13 * SECOND],
  retryMs: [2 * SECOND, 5 * SECOND],
  limitRetryMs: [30 * SECOND, MINUTE],
  maxLifeMs: 60 * MINUTE,
  renewMs: 10 * SECOND,
  registrationTtlMs: MINUTE,
  sweepMs: MINUTE,
  windowMs: NOTIFY_WINDOW_MS,
  drainMs: 5 * SECOND,
};

/** Answers requests for streams as soon as HTTP is served; until the gateway is open, streams are refused for now. */
export function createEntrance({ config, log }: Pick<GatewayDeps, "config" | "log">, limits: GatewayLimits = LIMITS) {
  const allowedOrigins = new Set(config.allowedOrigins);
  const keys = openKeys({ config, log });
  let logoutsAmong: LogoutsAmong | undefined;
  let standings: Pick<Standings, "of"> | undefined;
  const authenticate = createAuthenticate({ ...config, verify: keys?.verify });
  const authorize = createAuthorize(
    refusingSuspended(
      refusingLoggedOut(authenticate, () => logoutsAmong),
      (user) => standings?.of(user) === "suspended",
    ),
    allowedOrigins,
  );
  let serve = async (_request: StreamRequest): Promise<void> => {
    throw new AppError("unavailable", "the service is starting");
  };
  return {
    authorize,
    handle: createRoutes({ authorize, allowedOrigins, limits, log, serve: (request) => serve(request) }),
    open: (
      next: typeof serve,
      refuse: { readonly logoutsAmong: LogoutsAmong; readonly standings: Standings },
    ): void => {
      serve = next;
      ({ logoutsAmong, standings } = refuse);
    },
    /** Returns the reason if no token can be checked. */
    keysNotReady: () => keys?.notReady(),
    close: () => keys?.close(),
  };
}

function openKeys({ config: { jwksUrl: url }, log }: Pick<GatewayDeps, "config" | "log">) {
  return url === undefined ? undefined : followKeys({ url, log });
}

interface OperatorDeps extends Pick<GatewayDeps, "config" | "log"> {
  readonly streams: Pick<State["streams"], "logoutsAmong">;
  readonly claim: Claim;
}

/** Lets callers through whose token, checked as those of users, has the claim. */
export function openOperators({ claim, streams, ...deps }: OperatorDeps) {
  const keys = openKeys(deps);
  const authenticate = createAuthenticate({ ...deps.config, verify: keys?.verify }, claim);
  return {
    authorize: createAuthorizeOperator(refusingLoggedOut(authenticate, () => streams.logoutsAmong)),
    /** Returns the reason if no token can be checked. */
    notReady: () => keys?.notReady(),
    close: async () => keys?.close(),
  };
}

export type Gateway = ReturnType<typeof createGateway>;

/** Opens the gateway: timelines over Server-Sent Events. Closing it leaves Redis and NATS connected. */
export function createGateway(deps: GatewayDeps, limits: GatewayLimits = LIMITS) {
  const { entrance, state, nats, readHidden, lists, notifyParts, config, podName, log } = deps;
  const { logoutsAmong, now, openRegistry } = state.streams;
  observeGateway.started(config.maxConnections);
  const feed = createFeed(nats, { parts: notifyParts, onGap: (part) => void streams.recheckAll(part) });
  const registry = new StreamRegistry({
    ...limits,
    erased: state.erased,
    logoutsAmong,
    end: (refused) => streams.endOf(refused),
    now,
    store: openRegistry({ podName, ttlMs: limits.registrationTtlMs, windowMs: limits.windowMs }),
    log,
  });
  const { standings } = state;
  const sentEvents = new SentEvents();
  const openSource = (handlers: Omit<SourceDeps, "nats">) => new SharedSource({ nats, ...handlers });
  const shared = createSharedStreams({ openSource, readHidden, standings, sentEvents, log });
  const openList = createOpenList(lists && readHidden && { ...lists, readHidden });
  const streams = new Streams({ feed, registry, shared, openList, standings, sentEvents, config, limits, log });
  entrance.open((request) => streams.serve(request), { logoutsAmong, standings });
  return {
    healthy: (): boolean => !streams.closing && feed.connected() && state.isConnected(),
    /** Every count is 0 once the last stream is gone. */
    counts: () => ({ streams: streams.size, users: feed.users(), registrations: registry.size }),
    /** Refuses new streams, ends the open ones spread over up to `graceMs`, and removes their registrations. */
    close: async (graceMs: number): Promise<void> => {
      await streams.close(graceMs);
      await registry.close();
      await shared.close();
      feed.close();
      await entrance.close();
    },
  };
}
