import type { Profile } from "../../gen/avion/users.js";
import type { IdPage } from "../../kernel/paging.js";
import type { DropsStore } from "./deps.js";

/**
 * Resolves to the profile of a user, undefined if there is none.
 *
 * @throws AppError `unavailable`, naming the field, while the UserService is unavailable
 */
export type ProfileOf = (field: string, userId: string) => Promise<Profile | undefined>;

/** Resolves to one page of the followers. @throws AppError `unavailable` while the UserService is unavailable */
export type FollowersOf = (userId: string, size: number, token: string) => Promise<IdPage>;

interface LocalUsersDeps {
  readonly store: Pick<DropsStore, "drops">;
  readonly profileOf?: ProfileOf;
}

export interface LocalUser {
  readonly id: string;
  readonly profile: Profile | undefined;
}

/** A local user has a profile or drops. Resolves to undefined if there is no such user. */
export async function findLocalUser(
  { store, profileOf }: LocalUsersDeps,
  field: string,
  id: string,
): Promise<LocalUser | undefined> {
  const profile = await profileOf?.(field, id);
  if (profile !== undefined) return { id, profile };
  const { drops } = await store.drops.byAuthor(id, { below: undefined, limit: 1 });
  return drops.length > 0 ? { id, profile } : undefined;
}
