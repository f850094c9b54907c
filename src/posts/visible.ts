import { Visibility } from "../gen/avion/posts.js";
import { AppError } from "../kernel/errors.js";
import type { NewDrop } from "./ports.js";

/** What decides who may see a drop. */
type Seen = Pick<NewDrop, "userId" | "visibility" | "recipients">;

/** Which of some people a person follows. @throws AppError `unavailable` where that cannot be found out just now */
export type FollowedAmong = (follower: string, people: readonly string[]) => Promise<ReadonlySet<string>>;

interface FollowDeps {
  readonly followedAmong: FollowedAmong;
}

/** True where everybody may see a drop. */
export const isForEverybody = ({ visibility }: Pick<Seen, "visibility">): boolean =>
  visibility === Visibility.PUBLIC || visibility === Visibility.UNLISTED;

/** Those of some drops that a viewer may see; all of them where nobody is named. */
export async function visibleTo<Drop extends Seen>(
  { followedAmong }: FollowDeps,
  viewer: string | undefined,
  drops: readonly Drop[],
): Promise<readonly Drop[]> {
  if (viewer === undefined) return drops;
  const isOpen = (drop: Drop): boolean =>
    isForEverybody(drop) ||
    drop.userId === viewer ||
    (drop.visibility === Visibility.DIRECT && drop.recipients.includes(viewer));
  const isForFollowers = (drop: Drop): boolean => !isOpen(drop) && drop.visibility === Visibility.FOLLOWERS;
  const authors = [...new Set(drops.filter(isForFollowers).map(({ userId }) => userId))];
  const followed = authors.length === 0 ? new Set<string>() : await followedAmong(viewer, authors);
  return drops.filter((drop) => isOpen(drop) || (isForFollowers(drop) && followed.has(drop.userId)));
}

/** @throws AppError `notfound`, in the words of a drop that is not there */
export async function requireVisible(deps: FollowDeps, viewer: string | undefined, drop: Seen): Promise<void> {
  const [visible] = await visibleTo(deps, viewer, [drop]);
  if (visible === undefined) throw new AppError("notfound", "drop_id: there is no such drop");
}
