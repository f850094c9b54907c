import { DEFAULT_LIMIT, MAX_LIMIT } from "../contracts/timeline-pages.js";
import type * as wire from "../gen/avion/notifications.js";
import { NotificationKind } from "../gen/avion/notifications.js";
import type { BoundedQueue } from "../kernel/concurrency.js";
import { invalid } from "../kernel/errors.js";
import { readId } from "../kernel/fields.js";
import { encodeId } from "../kernel/ids.js";
import type { State } from "../state/index.js";
import { type JudgeDeps, withoutHidden } from "./judge.js";
import type { NotificationStore, Shown } from "./store.sql.js";
import { createdAt, idOf } from "./tell.js";

export interface ServiceDeps extends Pick<JudgeDeps, "hidden" | "standings"> {
  readonly store: Pick<NotificationStore, "list" | "readUpTo" | "markRead">;
  readonly notifyUser: State["streams"]["notifyUser"];
  readonly bounded: BoundedQueue;
}

interface Call {
  /** ms since the epoch */
  readonly deadline: number;
}

const MAX_UNREAD = 100;
const ROWS_A_READ = 200;
const NEWEST = Number.MAX_SAFE_INTEGER;
const KINDS = Object.values(NotificationKind).filter((kind) => typeof kind === "number" && kind > 0);

// Each method throws an AppError: `invalid` naming the field, `unavailable` while the database, Redis or the users service
// is unavailable.

export function createMethods(deps: ServiceDeps) {
  const { store, bounded, notifyUser } = deps;
  /** Yields what the user may see, newest first. */
  async function* shown(user: string, kinds: readonly NotificationKind[], below: number, { deadline }: Call) {
    for (let next = below; ; ) {
      const rows = await bounded(() => store.list(user, { kinds, below: next, limit: ROWS_A_READ }), user);
      yield* await withoutHidden(deps, user, rows, deadline);
      const last = rows.at(-1);
      if (last === undefined || rows.length < ROWS_A_READ) return;
      next = last.position;
    }
  }
  return {
    async listNotifications(
      request: wire.ListNotificationsRequest,
      call: Call,
    ): Promise<wire.ListNotificationsResponse> {
      const user = readId("user_id", request.user_id);
      const { kinds, max_id } = request;
      const limit = readLimit(request.limit);
      for (const kind of kinds) if (!KINDS.includes(kind)) throw invalid("kinds", "has an unknown kind");
      const below = max_id === "" ? NEWEST : readPosition("max_id", max_id);
      const page: Shown[] = [];
      for await (const each of shown(user, kinds, below, call)) if (page.push(each) > limit) break;
      const kept = page.slice(0, limit);
      const last = kept.at(-1);
      return {
        notifications: kept.map(asMessage),
        has_more: page.length > limit,
        next_max_id: last === undefined ? max_id : idOf(last.position),
      };
    },

    async getUnread({ user_id }: wire.GetUnreadRequest, call: Call): Promise<wire.GetUnreadResponse> {
      const user = readId("user_id", user_id);
      const readUpTo = await bounded(() => store.readUpTo(user), user);
      let [count, newest] = [0, ""];
      for await (const { position } of shown(user, [], NEWEST, call)) {
        newest ||= idOf(position);
        if (position <= readUpTo || ++count === MAX_UNREAD) break;
      }
      return { count, newest_id: newest };
    },

    async markRead({ user_id, up_to_id }: wire.MarkReadRequest): Promise<wire.MarkReadResponse> {
      const user = readId("user_id", user_id);
      const asked = readPosition("up_to_id", up_to_id);
      const { changed, upTo } = await bounded(() => store.markRead(user, asked), user);
      // A call that is repeated after a crash tells of the same mark again, under the same message id.
      if (upTo !== undefined) {
        const id = idOf(upTo);
        await notifyUser(user, { event: "notifications_read", up_to_id: id }, `notify:read:${encodeId(user)}:${id}`);
      }
      return { changed };
    },
  };
}

function readLimit(limit: number): number {
  if (limit < 0 || limit > MAX_LIMIT)
    throw invalid("limit", `must be between 1 and ${MAX_LIMIT}, or 0 for ${DEFAULT_LIMIT}`);
  return limit || DEFAULT_LIMIT;
}

function readPosition(field: string, id: string): number {
  if (!/^\d{16}$/.test(id)) throw invalid(field, "is no id of a notification");
  return Math.min(Number(id), NEWEST);
}

const asMessage = ({ position, kind, actor, drop }: Shown): wire.Notification => ({
  id: idOf(position),
  kind,
  actor_id: actor,
  drop_id: drop,
  created_at: createdAt(position),
});
