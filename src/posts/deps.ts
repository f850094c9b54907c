import { AppError, invalid } from "../kernel/errors.js";
import type { PageTokens } from "../kernel/paging.js";
import { type Clock, DAY } from "../kernel/time.js";
import type { PostsLimits } from "./limits.js";
import type { PostsStore, StoredDrop } from "./ports.js";
import { type FollowedAmong, requireVisible } from "./visible.js";

/** What somebody did to drops. */
export type PostsChange =
  | "created"
  | "edited"
  | "deleted"
  | "liked"
  | "unliked"
  | "shared"
  | "unshared"
  | "remote-stored"
  | "remote-deleted";

/** What the methods of the service work with. */
export interface PostsDeps {
  readonly store: Pick<PostsStore, "drops" | "reactions" | "remote" | "retention">;
  readonly limits: PostsLimits;
  readonly tokens: PageTokens;
  readonly followedAmong: FollowedAmong;
  /** Drops older than this are dropped; 0: kept for ever. */
  readonly retentionDays: number;
  readonly now: Clock;
  /** Tells the relay of the outbox that something was written. */
  readonly wakeRelay: () => void;
  readonly observe: { changed(change: PostsChange): void };
}

/** @throws AppError `invalid` where drops of this time are not kept, or have gone already */
export async function requireKept(createdAt: number, { now, retentionDays, store }: PostsDeps): Promise<void> {
  const oldest = retentionDays === 0 ? 0 : now() - retentionDays * DAY;
  if (createdAt < oldest || createdAt < (await store.retention.keptSince()))
    throw invalid("created_at", "is older than drops are kept");
}

/** A drop, deleted or not, that a viewer may see, or anybody. @throws AppError `notfound` */
export async function findDrop(
  deps: Pick<PostsDeps, "store" | "followedAmong">,
  dropId: string,
  viewer?: string,
): Promise<StoredDrop> {
  const [drop] = await deps.store.drops.byIds([dropId]);
  if (drop === undefined) throw new AppError("notfound", "drop_id: there is no such drop");
  await requireVisible(deps, viewer, drop);
  return drop;
}
