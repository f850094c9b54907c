import { actorErased } from "./events.js";
import type { PostsStore } from "./store.sql.js";

/** Resolves to false where the UserService cannot erase users, or there is none. */
export type EraseUser = (userId: string) => Promise<boolean>;

export interface DeletedActorsDeps {
  readonly store: Pick<PostsStore, "remote">;
  /** Without it nobody is erased here. */
  readonly eraseUser?: EraseUser | undefined;
}

/**
 * Has deleted actors (unset: any) erased, which all parts then forget. Resolves to their number. @throws AppError
 * `unavailable` while the UserService is
 */
export async function eraseDeletedActors(deps: DeletedActorsDeps, limit: number, uri?: string): Promise<number> {
  const { eraseUser, store } = deps;
  if (eraseUser === undefined) return 0;
  const { remote } = store;
  const due = await remote.erasuresDue(limit, uri);
  for (const actor of due) {
    if (await eraseUser(actor)) await remote.erasureAsked(actor);
    else await remote.announceErasure(actor, actorErased(actor));
  }
  return due.length;
}
