import { RemoteKind, Visibility } from "../../gen/avion/posts.js";
import type { DropsDeps } from "./deps.js";
import type { NewDrop, StoredDrop } from "./drops.sql.js";
import { type Asking, isBlocked, type RelationsDeps, relationsOf } from "./relations.js";
import type { StoredRemoteObject } from "./remote-drops.sql.js";
import { isUri } from "./request.js";

export const isForEverybody = ({ visibility }: Pick<NewDrop, "visibility">): boolean =>
  visibility === Visibility.PUBLIC || visibility === Visibility.UNLISTED;

interface OfPeople extends Pick<NewDrop, "user_id"> {
  readonly repost_author?: string;
}

const peopleOf = ({ user_id, repost_author = "" }: OfPeople): string[] => [user_id, repost_author];

/** The suspended are hidden from everybody: their drops, reposts, reposts of theirs and replies to theirs. */
const isOfSuspended = (
  { isSuspended }: RelationsDeps,
  drop: OfPeople & { readonly reply_to_author?: string | null },
): boolean =>
  isSuspended !== undefined && [...peopleOf(drop), drop.reply_to_author ?? ""].some((person) => isSuspended(person));

/** Tells whether a user and one of a drop's people block each other, or one of these people is suspended. */
export async function isBetweenBlocked(deps: RelationsDeps, asking: Asking, drop: OfPeople): Promise<boolean> {
  if (isOfSuspended(deps, drop)) return true;
  const relations = await relationsOf(deps, asking, peopleOf(drop));
  return peopleOf(drop).some((person) => isBlocked(relations?.get(person)));
}

/** Returns a remote object in the form in which its visibility is judged: actors and servers are for everybody. */
export const judged = <Object extends StoredRemoteObject>(object: Object): Object & { readonly user_id: string } =>
  object.kind === RemoteKind.DROP
    ? { ...object, user_id: object.actor_uri }
    : { ...object, user_id: "", visibility: Visibility.PUBLIC };

type Audience = Pick<NewDrop, "visibility" | "recipients"> &
  Partial<Pick<NewDrop, "mentions" | "reply_to_author">> &
  OfPeople;

interface MaybeRepost {
  readonly repost_of?: string;
  readonly deleted_at?: number | null;
}

interface WithOriginal {
  readonly original?: StoredDrop;
  readonly remote_original?: StoredRemoteObject;
}

export type ShownDrop = StoredDrop & WithOriginal;

/**
 * A viewer (unset: anybody) sees a repost with its original. The repost is gone with its original, and hidden if that
 * is.
 */
export async function visibleTo<Drop extends Audience & MaybeRepost>(
  deps: DropsDeps,
  viewer: string | undefined,
  drops: readonly Drop[],
): Promise<readonly (Drop & WithOriginal)[]> {
  const originalOf = ({ repost_of = "", deleted_at = null }: Drop): string => (deleted_at === null ? repost_of : "");
  const ids = new Set(drops.map(originalOf).filter((id) => id !== ""));
  if (ids.size === 0) return visibleAlone(deps, viewer, drops);
  const originals = await originalsOf(deps, [...ids]);
  const visible = new Set(await visibleAlone<Audience>(deps, viewer, [...drops, ...originals]));
  const byId = new Map(
    originals.filter((original) => visible.has(original)).map((original) => [idOf(original), original]),
  );
  return drops
    .filter((drop) => visible.has(drop))
    .flatMap((drop) => {
      if (originalOf(drop) === "") return drop;
      const original = byId.get(originalOf(drop));
      if (original === undefined) return [];
      return { ...drop, ...("uri" in original ? { remote_original: original } : { original }) };
    });
}

type Original = StoredDrop | (StoredRemoteObject & { readonly user_id: string });

const idOf = (original: Original): string => ("uri" in original ? original.uri : original.drop_id);

async function originalsOf({ store }: DropsDeps, ids: readonly string[]): Promise<Original[]> {
  const [local, uris] = [ids.filter((id) => !isUri(id)), ids.filter(isUri)];
  const [drops, remote] = await Promise.all([
    local.length === 0 ? [] : store.drops.byIds(local),
    uris.length === 0 ? [] : store.remote.dropsByUris(uris),
  ]);
  return [...drops, ...remote.map(judged)].filter(({ deleted_at }) => deleted_at === null);
}

/** A drop for followers is also for the author of its parent, and for whom it mentions. */
const isNamedBy = ({ mentions = [], reply_to_author }: Audience, viewer: string): boolean =>
  reply_to_author === viewer || mentions.includes(viewer);

/** Returns the drops whose own audience includes the viewer, and none of whose people is blocked or suspended. */
async function visibleAlone<Drop extends Audience>(
  deps: DropsDeps,
  viewer: string | undefined,
  all: readonly Drop[],
): Promise<readonly Drop[]> {
  const drops = all.filter((drop) => !isOfSuspended(deps, drop));
  if (viewer === undefined) return drops;
  const isOpen = (drop: Drop): boolean =>
    isForEverybody(drop) ||
    drop.user_id === viewer ||
    (drop.visibility === Visibility.DIRECT && drop.recipients.includes(viewer)) ||
    (drop.visibility === Visibility.FOLLOWERS && isNamedBy(drop, viewer));
  // A remote drop may have no actor, whom nobody follows.
  const isForFollowers = (drop: Drop): boolean =>
    !isOpen(drop) && drop.visibility === Visibility.FOLLOWERS && drop.user_id !== "";
  const addressed = drops.filter((drop) => isOpen(drop) || isForFollowers(drop));
  const asking = { field: "viewer_id", user: viewer } as const;
  const relations = await relationsOf(deps, asking, addressed.flatMap(peopleOf));
  const authors = [...new Set(addressed.filter(isForFollowers).map(({ user_id }) => user_id))];
  const followed = relations || authors.length === 0 ? undefined : await deps.followedAmong(viewer, authors);
  return addressed.filter((drop) => {
    if (peopleOf(drop).some((person) => isBlocked(relations?.get(person)))) return false;
    return isOpen(drop) || (relations ? relations.get(drop.user_id)?.following : followed?.has(drop.user_id));
  });
}

/** Works as {@link visibleTo} for a list that, without a viewer, is for everybody. */
export const shownTo: typeof visibleTo = async (deps, viewer, drops) => {
  if (viewer !== undefined) return visibleTo(deps, viewer, drops);
  const shown = await visibleTo(deps, viewer, drops.filter(isForEverybody));
  return shown.filter((drop) =>
    [drop.original, drop.remote_original].every((original) => original === undefined || isForEverybody(original)),
  );
};

export const isBlockedFrom = async (deps: DropsDeps, viewer: string | undefined, userId: string): Promise<boolean> =>
  viewer === undefined
    ? isOfSuspended(deps, { user_id: userId })
    : isBetweenBlocked(deps, { field: "viewer_id", user: viewer }, { user_id: userId });

export const isVisible = async (
  deps: DropsDeps,
  viewer: string | undefined,
  object: StoredRemoteObject,
): Promise<boolean> => (await visibleTo(deps, viewer, [judged(object)])).length > 0;
