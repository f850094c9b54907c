import { Visibility } from "../../src/gen/avion/posts.js";
import type { KnownDrop } from "./busy-world.js";
import { ListModel, type ModelDrop } from "./list-model.js";
import { APPROVER, HIDDEN, OWNERS, type OwnHistory, type OwnList } from "./own-history.js";

export const isHiddenFrom = (user: string, other: string): boolean => user === OWNERS[0] && other === HIDDEN;

/** Of a reply: the author of its parent, who may have deleted it. */
const parentOf = ({ world }: OwnHistory, { reply_to }: KnownDrop): string | undefined =>
  (world.drops.get(reply_to) ?? world.deleted.get(reply_to))?.user_id;

/** Returns the notifications that a list must show, in the words of `inWords`, sorted. */
export function notificationsOf(history: OwnHistory, user: string): string[] {
  const { world, requests, mentions } = history;
  const words: string[] = [];
  const add = (kind: string, actor: string, ...drop: string[]): void => {
    if (actor !== user && !isHiddenFrom(user, actor)) words.push([kind, actor, ...drop].join(" "));
  };
  for (const [follower, followed] of world.follows) if (followed.has(user)) add("FOLLOW", follower);
  if (user === APPROVER) for (const follower of requests) add("FOLLOW_REQUEST", follower);
  for (const drop of world.dropsOf(user)) {
    if (!history.isAlive(drop) || drop.repost_of !== "") continue;
    for (const liker of world.likes.get(drop.drop_id) ?? []) add("LIKE", liker, drop.drop_id);
  }
  for (const drop of world.drops.values()) {
    if (!history.isAlive(drop)) continue;
    const { drop_id, user_id, visibility, recipients, repost_of } = drop;
    if (repost_of !== "") {
      if (world.drops.get(repost_of)?.user_id === user) add("REPOST", user_id, repost_of);
      continue;
    }
    if (visibility === Visibility.DIRECT && !recipients.includes(user)) continue;
    if (parentOf(history, drop) === user) add("REPLY", user_id, drop_id);
    else if (mentions.get(drop_id)?.includes(user)) add("MENTION", user_id, drop_id);
  }
  return words.sort();
}

/** Returns the ids that pages of a list must show, newest first. */
export function shownOn(history: OwnHistory, { owner, members }: OwnList): string[] {
  const model = new ListModel(owner);
  for (const member of members) model.members.add(member);
  for (const followed of history.world.follows.get(owner) ?? []) model.followed.add(followed);
  if (owner === OWNERS[0]) model.hidden.add(HIDDEN);
  const modelOf = (drop: KnownDrop): ModelDrop => {
    const { drop_id, created_at, user_id: author, visibility, recipients, repost_of } = drop;
    const original = history.world.drops.get(repost_of);
    const parent = repost_of === "" && visibility !== Visibility.DIRECT ? parentOf(history, drop) : undefined;
    return { drop_id, created_at, author, visibility, recipients, parent, original: original && modelOf(original) };
  };
  for (const drop of history.world.drops.values())
    if (history.isAlive(drop)) model.drops.set(drop.drop_id, modelOf(drop));
  return model.shown();
}

/** Returns true if streams of local and global tell this viewer of the drop. */
export function isToldOnLocal(history: OwnHistory, viewer: string, drop: KnownDrop): boolean {
  const { user_id, visibility, repost_of } = drop;
  if (visibility !== Visibility.PUBLIC || repost_of !== "" || isHiddenFrom(viewer, user_id)) return false;
  return [undefined, user_id].includes(parentOf(history, drop));
}
