import {
  type GetUnreadResponse,
  type ListNotificationsRequest,
  type ListNotificationsResponse,
  type MarkReadRequest,
  type MarkReadResponse,
  NotificationServiceService,
} from "../gen/avion/notifications.js";
import type { TlsFiles } from "../platform/tls.js";
import { connectUpstream, createCallUpstream } from "./call.grpc.js";
import { asRefusal } from "./timelines.grpc.js";

/** Each call rejects with AppError `invalid` naming the field, `exhausted`, `unavailable`, `failed`. */
export interface Notifications {
  readonly list: (request: ListNotificationsRequest) => Promise<ListNotificationsResponse>;
  readonly unread: (user: string) => Promise<GetUnreadResponse>;
  readonly markRead: (request: MarkReadRequest) => Promise<MarkReadResponse>;
}

/** Connects to a NotificationService at the first call, and reconnects by itself. */
export function connectNotifications(address: string, tls: TlsFiles) {
  const client = connectUpstream(address, tls);
  const { open } = createCallUpstream(client);
  const about = <Request extends { readonly user_id: string }, Answer>(
    call: (request: Request, about: { readonly subject: string }) => Promise<Answer>,
  ) => {
    return (request: Request): Promise<Answer> =>
      call(request, { subject: request.user_id }).catch((error: unknown) => {
        throw asRefusal(error);
      });
  };
  const unread = about(open(NotificationServiceService.getUnread));
  const calls: Notifications = {
    list: about(open(NotificationServiceService.listNotifications)),
    unread: (user_id) => unread({ user_id }),
    markRead: about(open(NotificationServiceService.markRead)),
  };
  return { ...calls, close: (): void => client.close() };
}
