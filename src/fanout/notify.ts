import { isListReader } from "../contracts/lists.js";
import { bylineText, listedBylineText } from "../contracts/timelines.js";
import { SECOND, sharedNow } from "../kernel/time.js";
import { isOfSuspended, usersOf, type Viewers } from "../state/index.js";
import { type AudienceChange, bylineOfChange, entryOf, isDeletion, notifies } from "./change.js";
import type { AudienceNotification, FanoutDeps, Notify, Told } from "./deps.js";
import type { AddressedNotification, PublishNotifications } from "./publish.nats.js";

const YOUNG_MS = 10 * SECOND;

/**
 * Prefixes of the ids of messages with which the fan-out of a drop announces its deletion: one attempt may find the
 * drop deleted before another has announced the drop.
 */
const [AFTER_DROP, INSTEAD_OF_DROP] = ["after:", "again:"];

interface NotifyDeps extends Pick<FanoutDeps, "listenersAmong" | "writer" | "relations"> {
  readonly standings: Pick<FanoutDeps["standings"], "of" | "size">;
  readonly erased: Pick<FanoutDeps["erased"], "among">;
  readonly publish: PublishNotifications;
}

/**
 * Notifies audiences. Users whose relations are known are notified before the users service is asked about the others,
 * so that nobody waits for them. Users who stay unknown are told to read the timeline again. Lists are told of all drops
 * of their members, with the bylines by which the gateway judges them for the owner.
 */
export function createNotify({ listenersAmong, writer, relations, standings, erased, publish }: NotifyDeps): Notify {
  const isHidden = ({ by }: AudienceNotification): boolean => by !== undefined && isOfSuspended(standings, by);
  const inHomes = (listening: readonly string[], { notification, isForHomes }: AudienceNotification) => {
    if (!isForHomes || listening.length === 0) return listening;
    return notification.event === "new_drop"
      ? writer.aboveFloorAmong(listening, notification.created_at)
      : writer.holdersAmong(listening, notification.drop_id);
  };
  const viewersAmong = async (users: readonly string[], { by }: AudienceNotification): Promise<Viewers> =>
    users.length === 0 || !by ? { seeing: users, unknown: [] } : relations.viewersAmong(users, by);
  const learned = async (unknown: readonly string[], { by }: AudienceNotification): Promise<Viewers> =>
    by ? relations.learnedAmong(unknown, by) : { seeing: [], unknown };
  const toLists = async (to: AudienceNotification, lists: readonly string[]): Promise<AddressedNotification[]> => {
    if (lists.length === 0) return [];
    const { notification } = to;
    const listedBy = to.listedBy ?? (await writer.listedByline(lists, notification.drop_id));
    const by = listedBy && listedBylineText(listedBy);
    const signed = { ...notification, by } as typeof notification;
    return [addressed({ ...to, notification: signed }, { seeing: lists, unknown: [] })];
  };
  const look = async (to: AudienceNotification, having: readonly string[]) => {
    const lists = having.filter(isListReader);
    const users = lists.length === 0 ? having : having.filter((user) => !isListReader(user));
    const [viewers, told] = await Promise.all([viewersAmong(users, to), toLists(to, lists)]);
    return { viewers, lists, told };
  };
  const addressed = (to: AudienceNotification, viewers: Viewers): AddressedNotification => {
    const { notification, idPrefix = "", trace } = to;
    return { ...viewers, notification, idPrefix, trace };
  };
  return async (all) => {
    if (all.length === 0) return [];
    const isListening = await listenersAmong(all.map(({ users }) => users));
    if (!isListening) return [];
    const listening = all.map((to) => (isHidden(to) ? [] : to.users.filter(isListening)));
    const [gone, ...looks] = await Promise.all([
      erased.among([...new Set(listening.flat())]),
      ...all.map(async (to, index) => look(to, await inHomes(listening[index] ?? [], to))),
    ]);
    const kept = (users: readonly string[]) => users.filter((user) => !gone.has(user));
    const first = all.map((to, index) => ({ to, seeing: kept(looks[index]?.viewers.seeing ?? []) }));
    const toUsers = first.map(({ to, seeing }) => addressed(to, { seeing, unknown: [] }));
    await publish([...toUsers, ...looks.flatMap(({ told }) => told)]);
    const second = await Promise.all(all.map((to, index) => learned(kept(looks[index]?.viewers.unknown ?? []), to)));
    await publish(all.map((to, index) => addressed(to, second[index] as Viewers)));
    return first.flatMap(({ to: { notification, trace }, seeing }, index) => {
      const users = [...seeing, ...(second[index]?.seeing ?? []), ...(looks[index]?.lists ?? [])];
      return users.length === 0 ? [] : { users, notification, trace };
    });
  };
}

/**
 * Notifies audiences. `isTaken`: all homes took the drops, so that none is below a floor. Returns the notified users.
 */
export async function notifyAudiences(
  { notify }: FanoutDeps,
  parts: readonly AudienceChange[],
  isTaken = false,
): Promise<Told[]> {
  return notify(
    parts.filter(notifies).map((part): AudienceNotification => {
      if (isDeletion(part)) return deletionOf(part);
      const { change, audience, trace } = part;
      const { drop_id, created_at, repost_of } = change;
      const by = bylineOfChange(change);
      // A drop this young is below the floor of a home only if the home got its maximum number of newer drops.
      const isYoung = sharedNow() - created_at < YOUNG_MS;
      const isForHomes = !isYoung && (!isTaken || change.pulled);
      const notification = { event: "new_drop", drop_id, created_at, repost_of, by: bylineText(by) } as const;
      return { users: usersOf(audience), notification, isForHomes, by, listedBy: entryOf(change).by, trace };
    }),
  );
}

/**
 * Notifies those who have the drop. Of a pulled author these are all followers, of a reply those who see it. Nobody knows
 * whom the drop was for: a list is told as if it was for followers only.
 */
const deletionOf = ({ change, audience, trace }: AudienceChange): AudienceNotification => {
  const { drop_id, pulled, reply_to_author } = change;
  const by = pulled && reply_to_author !== undefined ? { by: bylineOfChange(change) } : {};
  const notification = { event: "drop_deleted", drop_id } as const;
  const listedBy = pulled ? ({ ...bylineOfChange(change), forFollowers: true } as const) : undefined;
  return { users: usersOf(audience), notification, isForHomes: !pulled, listedBy, trace, ...by };
};

/**
 * Announces deletions again. A deletion may have set its tombstone and notified its holders after the publication read
 * the tombstones and before it announced the drop: these users are told again, after the drop.
 */
export async function notifyAgainOfDeletions({ fences, notify }: FanoutDeps, told: readonly Told[]): Promise<void> {
  if (told.length === 0) return;
  const deleted = await fences.tombstonedAmong([...new Set(told.map(({ notification }) => notification.drop_id))]);
  if (deleted.size === 0) return;
  const late = told.filter(({ notification }) => deleted.has(notification.drop_id));
  await notify(
    late.map(({ users, notification: { drop_id }, trace }) => {
      return { users, notification: { event: "drop_deleted", drop_id }, idPrefix: AFTER_DROP, trace };
    }),
  );
}

/**
 * Notifies those who had the drop until the removal just now. The gateway leaves out events that it has already sent.
 */
export async function notifyOfDeletions({ notify }: FanoutDeps, parts: readonly AudienceChange[]): Promise<void> {
  const dead = parts.filter(notifies);
  if (dead.length > 0) await notify(dead.map((part) => ({ ...deletionOf(part), idPrefix: INSTEAD_OF_DROP })));
}
