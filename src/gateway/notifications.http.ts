import type { RequestHandler, Router } from "express";
import {
  NOTIFICATIONS_PATH,
  NOTIFICATIONS_QUERY,
  type NotificationsPage,
  READ_MARK,
} from "../contracts/notification-pages.js";
import { NOTIFICATION_KINDS } from "../contracts/stream-events.js";
import { NotificationKind, type Notification as Told } from "../gen/avion/notifications.js";
import { type ApiDeps, allowOnly, callerOf, createApi, inRequest, understood } from "../platform/http/api.js";
import { readJson } from "../platform/http/body.js";
import type { Notifications } from "../upstreams/notifications.grpc.js";
import { observeGateway } from "./observe.js";

interface NotificationRouteDeps extends Omit<ApiDeps, "refused"> {
  readonly notifications: Notifications;
  /** Paths of links begin with it. */
  readonly pathPrefix: string;
}

/** A page, and a count, read rows and judge them; a mark is one row. */
const PAGE_COST = 10;
const COUNT_COST = 5;
const MAX_BODY_BYTES = 16 * 1_024;

/** Serves the caller's notifications over HTTP, as the role notifications reads them. */
export function createNotificationRouter({ notifications, pathPrefix, ...deps }: NotificationRouteDeps): Router {
  const api = createApi({ ...deps, refused: observeGateway.notificationsRefused });
  observeGateway.notificationsServed();
  api.get(
    NOTIFICATIONS_PATH,
    async ({ user }, { query: given }, response) => {
      const { limit, kinds, max_id = "" } = understood(NOTIFICATIONS_QUERY, given, "query");
      const asked = { user_id: user, limit, kinds: kinds.map((kind) => NotificationKind[kind]), max_id };
      const { notifications: all, ...page } = await notifications.list(asked);
      const query = `limit=${limit}${kinds.length === 0 ? "" : `&kinds=${kinds.join(",")}`}`;
      const next = `${pathPrefix}${NOTIFICATIONS_PATH}?${query}&max_id=${encodeURIComponent(page.next_max_id)}`;
      if (page.has_more) response.set("Link", `<${next}>; rel="next"`);
      return { notifications: all.flatMap(presented), ...page } satisfies NotificationsPage;
    },
    PAGE_COST,
  );
  api.get(`${NOTIFICATIONS_PATH}/unread`, ({ user }) => notifications.unread(user), COUNT_COST);
  const read: RequestHandler = async (request, response) => {
    const caller = callerOf(response);
    await api.read(caller, 1);
    const { up_to_id } = understood(READ_MARK, await readJson(request, MAX_BODY_BYTES), "body");
    const work = () => notifications.markRead({ user_id: caller.user, up_to_id });
    response.json(await inRequest(request, request.path, work));
  };
  api.router.route(`${NOTIFICATIONS_PATH}/read`).post(api.known, read).all(allowOnly("POST"));
  return api.complete();
}

/** A kind of a later version is left out. */
function presented({ kind: number, drop_id, ...told }: Told): NotificationsPage["notifications"] {
  const kind = NOTIFICATION_KINDS.find((name) => NotificationKind[name] === number);
  return kind === undefined ? [] : [{ ...told, kind, ...(drop_id !== "" && { drop_id }) }];
}
