import { actorErased } from "../drops/events.js";
import type { createRemoteWrites } from "./remote.sql.js";

/**
 * Asks the UserService to erase a user. With `onlyIfKnown` a user whom it does not know is only refused from then on.
 * Resolves to false if the event of the erasure has to be published here: the UserService cannot erase users, or there
 * is none.
 */
export type EraseUser = (userId: string, onlyIfKnown: boolean) => Promise<boolean>;

export interface ErasureMarks {
  readonly mark: (user: string) => Promise<void>;
  /** Tells whether a row names the user, but for the user's own object and tombstones of remote drops. */
  readonly isNamed: (user: string) => Promise<boolean>;
}

export interface DeletedActorsDeps {
  readonly store: { readonly remote: ReturnType<typeof createRemoteWrites>; readonly erasure: ErasureMarks };
  /** Without it nobody is erased here. */
  readonly eraseUser?: EraseUser | undefined;
}

/**
 * Starts the erasure of deleted actors (unset: any), after which all parts forget them. A stranger, whom no row names
 * here or in the UserService, costs a tombstone and two markers. Resolves to their number.
 *
 * @throws AppError `unavailable` while the UserService is unavailable
 */
export async function eraseDeletedActors(deps: DeletedActorsDeps, limit: number, uri?: string): Promise<number> {
  const { eraseUser, store } = deps;
  if (eraseUser === undefined) return 0;
  const { remote, erasure } = store;
  const due = await remote.erasuresDue(limit, uri);
  for (const actor of due) {
    await erasure.mark(actor);
    const isNamed = await erasure.isNamed(actor);
    if (await eraseUser(actor, !isNamed)) await remote.erasureAsked(actor);
    else await remote.announceErasure(actor, actorErased(actor));
  }
  return due.length;
}
