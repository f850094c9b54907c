import type { NotificationKindName, UserNotification } from "../contracts/stream-events.js";
import { NOTIFY_WINDOW_MS } from "../contracts/times.js";
import { NotificationKind } from "../gen/avion/notifications.js";
import { mapLimited } from "../kernel/concurrency.js";
import { failpoint } from "../kernel/failpoints.js";
import { encodeId } from "../kernel/ids.js";
import type { Logger } from "../kernel/logger.js";
import { startLoop, warnOnce } from "../kernel/loop.js";
import { coalesce } from "../kernel/sharing.js";
import { SECOND, sharedNow } from "../kernel/time.js";
import type { Erased, State } from "../state/index.js";
import type { DueEvent, Group, GroupStore } from "./groups.sql.js";
import { type JudgeDeps, withoutHidden } from "./judge.js";
import type { Made, Shown } from "./store.sql.js";

export interface TellDeps extends Pick<JudgeDeps, "hidden" | "standings"> {
  readonly groups: GroupStore;
  readonly listenersAmong: State["streams"]["listenersAmong"];
  readonly notifyUser: State["streams"]["notifyUser"];
  readonly erased: Pick<Erased, "among">;
  readonly log: Logger;
}

const EVENTS_AT_ONCE = 64;
const EVENTS_A_CLAIM = 256;
const PENDING_EVERY_MS = SECOND / 4;
const IDLE_EVERY_MS = 2 * SECOND;

/** Returns the text of an id. Ids of the same user sort as texts, too. */
export const idOf = (position: number): string => String(position).padStart(16, "0");

/** Returns ms since the epoch. */
export const createdAt = (position: number): number => Math.floor(position / 1_000);

const isGrouped = ({ kind }: Shown): boolean => kind === NotificationKind.LIKE || kind === NotificationKind.REPOST;

/** Streams leave out what is older; lists have it. `time` is in ms since the epoch. */
const isLate = (time: number): boolean => sharedNow() - time > NOTIFY_WINDOW_MS;

const eventOf = ({ position, kind, actor, drop }: Shown, count = 1): UserNotification => ({
  event: "notification",
  id: idOf(position),
  kind: NotificationKind[kind] as NotificationKindName,
  actor_id: actor,
  ...(drop === "" ? {} : { drop_id: drop }),
  created_at: createdAt(position),
  ...(count > 1 ? { count } : {}),
});

/**
 * Tells listeners of new notifications on their streams. Likes and reposts of one drop share an event a second: the
 * first is sent at once, later ones wait in their group, from which any process sends them. An event is published under
 * an id of its own, so that one that is published again, after a crash, reaches nobody twice.
 */
export function startTelling(deps: TellDeps) {
  const { groups, listenersAmong, notifyUser, erased, log } = deps;
  const tellGroup = async ({ newest, user, kind, drop, telling, count }: DueEvent): Promise<void> => {
    if (newest === undefined || isLate(createdAt(newest.position))) return;
    if ((await erased.among([user, newest.actor])).size > 0) return;
    if ((await withoutHidden(deps, user, [{ kind, actor: newest.actor }])).length === 0) return;
    const id = `notify:group:${encodeId(user)}:${kind}:${encodeId(drop)}:${telling}`;
    await notifyUser(user, eventOf({ ...newest, kind, drop }, count), id);
  };
  const tellDue = coalesce(async () => {
    for (;;) {
      const due = await groups.claim(EVENTS_A_CLAIM);
      if (due.length === 0) break;
      await mapLimited(due, EVENTS_AT_ONCE, tellGroup);
      await failpoint("notification-published", ...due.map(({ drop }) => drop));
      await groups.confirm(due);
    }
  });
  const loop = startLoop({
    work: async () => {
      await tellDue();
      return (await groups.isPending()) ? PENDING_EVERY_MS : IDLE_EVERY_MS;
    },
    everyMs: PENDING_EVERY_MS,
    backoffCapMs: IDLE_EVERY_MS,
    failed: warnOnce(log, "events about likes and reposts wait for a server"),
    closeMs: SECOND,
  });
  return {
    /** Resolves once the listeners are told of what is new, or an event about it is due. */
    tell: async (made: readonly Made[]): Promise<void> => {
      const news = made.filter(({ change }) => !change.isSilent && !isLate(change.at));
      const isListening = await listenersAmong([[...new Set(news.map(({ user }) => user))]]);
      if (isListening === undefined) return;
      const told = news.filter(({ user }) => isListening(user));
      const alone = told.filter((each) => !isGrouped(each));
      await mapLimited(alone, EVENTS_AT_ONCE, (each) =>
        notifyUser(each.user, eventOf(each), `notify:one:${encodeId(each.user)}:${idOf(each.position)}`),
      );
      const shared = new Map(told.filter(isGrouped).map((each): [string, Group] => [groupName(each), each]));
      if (shared.size === 0) return;
      await groups.defer([...shared.values()]);
      await failpoint("notification-deferred", ...[...shared.values()].map(({ drop }) => drop));
      await tellDue();
      loop.wake();
    },
    close: () => loop.close(),
  };
}

const groupName = ({ user, kind, drop }: Group): string => JSON.stringify([user, kind, drop]);
