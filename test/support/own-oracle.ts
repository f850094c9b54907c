import { Visibility } from "../../src/gen/avion/posts.js";
import type { KnownDrop } from "./busy-world.js";
import { ListModel, type ModelDrop } from "./list-model.js";
import { APPROVER, type OwnHistory, type OwnList, PEOPLE, STEADY } from "./own-history.js";

/** Whether a stream tells of a drop: a change of relations or members at about the same time lets it do so or not. */
export type Told = "yes" | "maybe" | "no";

/** Of a reply: the author of its parent, who may have deleted it. */
const parentOf = ({ world }: OwnHistory, { reply_to }: KnownDrop): string | undefined =>
  (world.drops.get(reply_to) ?? world.deleted.get(reply_to))?.user_id;

/**
 * Returns the notifications that a list must show, and all that it may show, in the words of `inWords`. What somebody did
 * about whom the user hid at that time is left out for good, which the record does not say.
 */
export function notificationsOf(history: OwnHistory, user: string) {
  const { world, requests, mentions } = history;
  const [sure, possible]: [string[], string[]] = [[], []];
  const add = (kind: string, actor: string, ...drop: string[]): void => {
    if (actor === user || history.hides(user, actor)) return;
    const words = [kind, actor, ...drop].join(" ");
    possible.push(words);
    if (history.hidingOverTime(user, actor) === "never") sure.push(words);
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
  return { sure, possible };
}

/** Returns the ids that pages of a list must show, newest first. */
export function shownOn(history: OwnHistory, { owner, members }: OwnList): string[] {
  const model = new ListModel(owner);
  for (const member of members) model.members.add(member);
  for (const followed of history.world.follows.get(owner) ?? []) model.followed.add(followed);
  for (const other of PEOPLE) if (history.hides(owner, other)) model.hidden.add(other);
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

/** Says whether people who are named by a drop let a stream of the viewer tell of it. */
function seesAll(history: OwnHistory, viewer: string, named: readonly (string | undefined)[]): Told {
  const hidings = named.map((other) => other && other !== viewer && history.hidingOverTime(viewer, other));
  if (hidings.includes("always")) return "no";
  return hidings.some((hiding) => hiding === "now" || hiding === "once") ? "maybe" : "yes";
}

/** Says whether streams of local and global tell this viewer of the drop. */
export function toldOnLocal(history: OwnHistory, viewer: string, drop: KnownDrop): Told {
  const { user_id, visibility, repost_of } = drop;
  if (visibility !== Visibility.PUBLIC || repost_of !== "") return "no";
  if (![undefined, user_id].includes(parentOf(history, drop))) return "no";
  return seesAll(history, viewer, [user_id]);
}

/**
 * Says whether the stream of a list tells its owner of the drop. Only members and follows that stay as they are from the
 * beginning to the end make it sure.
 */
export function toldOnList(history: OwnHistory, { owner, formerly, stream }: OwnList, drop: KnownDrop): Told {
  const { user_id: author, visibility, recipients, repost_of } = drop;
  if (!formerly.has(author)) return "no";
  const { drops, deleted } = history.world;
  const { FOLLOWERS, DIRECT } = Visibility;
  const isOwn = author === owner;
  if (visibility === DIRECT && !isOwn && !recipients.includes(owner)) return "no";
  const isForFollowers = visibility === FOLLOWERS || visibility === DIRECT;
  if (isForFollowers && !isOwn && !history.everFollowed.has(`${owner} ${author}`)) return "no";
  const original = repost_of === "" ? undefined : (drops.get(repost_of) ?? deleted.get(repost_of))?.user_id;
  const parent = repost_of === "" && visibility !== DIRECT ? parentOf(history, drop) : undefined;
  const answered = parent === author || parent === owner ? undefined : parent;
  if (answered !== undefined && !isOwn && !formerly.has(answered)) return "no";
  const sees = isOwn ? "maybe" : seesAll(history, owner, [author, original, answered]);
  const isSteady = STEADY.includes(author) || (stream === "of fixed members" && !isForFollowers);
  const staysAnswered = answered === undefined || stream === "of fixed members" || STEADY.includes(answered);
  return sees === "yes" && !(isSteady && staysAnswered) ? "maybe" : sees;
}
