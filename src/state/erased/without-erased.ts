import type { DropCreated, DropEvent, EdgeEvent, RelationEvent, StandingEvent } from "../../contracts/events.js";
import type { Erased } from "./erasures.js";

type Among = Pick<Erased, "among">;

/** Drops events that name an erased user. */
export async function withoutErased<One>(
  { among }: Among,
  all: readonly One[],
  usersOf: (event: One) => readonly string[],
): Promise<readonly One[]> {
  if (all.length === 0) return all;
  const gone = await among([...new Set(all.flatMap(usersOf))]);
  return gone.size === 0 ? all : all.filter((each) => !usersOf(each).some((user) => gone.has(user)));
}

export const usersOfEdge = ({ payload }: EdgeEvent): readonly string[] => [payload.follower_id, payload.following_id];
export const usersOfRelation = ({ payload }: RelationEvent): readonly string[] => [payload.user_id, payload.target_id];
export const usersOfStanding = ({ payload: { user_id } }: StandingEvent): readonly string[] =>
  user_id === undefined ? [] : [user_id];
/** Returns the author of a drop, and of a repost also the author of its original. */
export const authorsOf = ({
  user_id,
  repost_author,
}: Pick<DropCreated, "user_id" | "repost_author">): readonly string[] =>
  repost_author === undefined ? [user_id] : [user_id, repost_author];

interface WithDrop {
  readonly event: DropEvent;
  /** Erased author of a deletion, whose event does not name the author any more. */
  readonly erasedAuthor?: string | undefined;
}

/**
 * Drops events that name an erased user: they become undefined. Erased recipients are left out, and
 * a reply to an erased user names nobody. A deletion is applied
 * without its erased author, whose erasure removes the drops from homes itself: nobody is notified.
 */
export async function dropsWithoutErased<Drop extends WithDrop>(
  { among }: Among,
  drops: readonly Drop[],
): Promise<readonly (Drop | undefined)[]> {
  const users = new Set<string>();
  for (const { event } of drops) for (const user of namedBy(event)) users.add(user);
  const gone = await among([...users]);
  return gone.size === 0 ? drops : drops.map((drop) => withoutThem(drop, gone));
}

const NONE: readonly string[] = [];

function namedBy({ payload }: DropEvent): readonly string[] {
  const { user_id, repost_author, reply_to_author, recipients = NONE } = payload as Partial<DropCreated>;
  if (repost_author === undefined && reply_to_author === undefined && recipients.length === 0)
    return user_id === undefined ? NONE : [user_id];
  return [user_id, repost_author, reply_to_author, ...recipients].filter((user) => user !== undefined);
}

function withoutThem<Drop extends WithDrop>(drop: Drop, gone: ReadonlySet<string>): Drop | undefined {
  const { name, payload } = drop.event;
  const { user_id = "", repost_author = "", reply_to_author = "", recipients } = payload as Partial<DropCreated>;
  if (name === "drop_deleted") {
    if (!gone.has(user_id)) return drop;
    return { ...drop, event: { name, payload: { ...payload, user_id: undefined } }, erasedAuthor: user_id };
  }
  if (gone.has(user_id) || gone.has(repost_author)) return undefined;
  if (!gone.has(reply_to_author) && !recipients?.some((user) => gone.has(user))) return drop;
  const others = recipients?.filter((user) => !gone.has(user));
  const parent = gone.has(reply_to_author) ? { reply_to_author: undefined } : {};
  return { ...drop, event: { name, payload: { ...payload, ...parent, recipients: others } } as DropEvent };
}
