import { createAnalysisApi } from "../analysis/index.js";
import {
  createEntrance,
  createGateway,
  createNotificationRouter,
  createPositionRouter,
  createTimelineRouter,
  LIMITS,
} from "../gateway/index.js";
import type { Logger } from "../kernel/logger.js";
import { SECOND } from "../kernel/time.js";
import { prefixOf } from "../kernel/urls.js";
import type { Db } from "../platform/db/db.js";
import type { HttpServer } from "../platform/http/serve.js";
import { createRewardStore } from "../rewards/index.js";
import { refuseErased } from "../state/index.js";
import { connectNotifications } from "../upstreams/notifications.grpc.js";
import { connectTimelines } from "../upstreams/timelines.grpc.js";
import { connectPosts, connectUsers } from "../upstreams/upstreams.grpc.js";
import type { Config } from "./config/config.js";
import { missingUpstreams } from "./connections.js";
import type { RoleDeps, RunningRole } from "./role.js";

export interface GatewayRoleDeps extends RoleDeps {
  readonly db: Db | undefined;
  readonly http: HttpServer;
  readonly entrance: ReturnType<typeof openEntrance>;
}

/** The entrance opens before the connections: who asks for a stream meanwhile comes back. */
export function openEntrance({ gateway }: Config, http: HttpServer, log: Logger) {
  const entrance = createEntrance({ config: gateway, log });
  http.handle(entrance.handle);
  return entrance;
}

/** A stream of local, global or a list waits at most this long until it is known whom its viewer hides; then it asks again. */
const HIDDEN_MS = 5 * SECOND;

export async function startGatewayRole(deps: GatewayRoleDeps): Promise<RunningRole> {
  const { config, connections, db, http, entrance, wraps, log } = deps;
  if (config.gateway.allowUnsafeTokens)
    log.warn({}, "TIMELINE_JWT_ALLOW_UNSAFE is set: tokens that others made may be accepted");
  const { timelineServiceAddr, userServiceAddr, postServiceAddr, notificationServiceAddr, tls } = config.upstreams;
  const users = userServiceAddr ? connectUsers(userServiceAddr, tls, log) : undefined;
  const hidden = users && connections.state.openHidden(users);
  const readHidden = hidden && ((user: string) => hidden.known(user, Date.now() + HIDDEN_MS));
  const judgesReplies = config.storedTimelines.homeReplies === "followed";
  const lists = users && { listReader: users.listReader, judgesReplies };
  const { notifyParts } = config.nats;
  const gateway = createGateway(
    { ...connections, entrance, readHidden, lists, log, notifyParts, config: config.gateway },
    { ...LIMITS, ...wraps?.limits?.gateway },
  );
  const upstreams = missingUpstreams(config.upstreams).length > 0 ? undefined : connections.upstreams("gateway");
  const { authorize } = entrance;
  const { allowedOrigins } = config.gateway;
  const pathPrefix = prefixOf(config.posts.publicUrl);
  const timelines = timelineServiceAddr ? connectTimelines(timelineServiceAddr, tls) : undefined;
  const posts = timelines && postServiceAddr ? connectPosts(postServiceAddr, tls, log) : undefined;
  const notifications = notificationServiceAddr ? connectNotifications(notificationServiceAddr, tls) : undefined;
  const callers = {
    authorize,
    allowedOrigins: new Set(allowedOrigins),
    pathPrefix,
    refuseCaller: refuseErased(connections.state.erased),
    takeRead: connections.state.limits.takeRead,
    log,
  };
  http.use(
    createAnalysisApi({
      ...connections,
      authorize,
      allowedOrigins,
      upstreams,
      servesTimelines: timelines !== undefined,
      servesNotifications: notifications !== undefined,
      pathPrefix,
      channelPrefix: config.redis.channelPrefix,
      connected: () => connections.topology.connected,
      db,
      rewards: db && createRewardStore(db),
      log,
    }),
  );
  if (timelines) http.use(createTimelineRouter({ ...callers, readPage: timelines.read, readDrops: posts?.shownDrops }));
  if (timelines) http.use(createPositionRouter({ ...callers, positions: timelines.positions }));
  if (notifications) http.use(createNotificationRouter({ ...callers, notifications }));
  return {
    notReady: () => {
      const keys = entrance.keysNotReady();
      return gateway.healthy() ? keys && `gateway: ${keys}` : "gateway: Redis or NATS is unavailable";
    },
    close: async (graceMs) => {
      http.stopListening();
      await gateway.close(graceMs);
      users?.close();
      timelines?.close();
      posts?.close();
      notifications?.close();
    },
  };
}
