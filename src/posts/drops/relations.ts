import type { Relation } from "../../gen/avion/users.js";

/** Errors name this field of the request. */
export interface Asking {
  readonly field: "viewer_id" | "user_id" | "actor_uri";
  readonly user: string;
}

/** Undefined stands for a UserService without relations. @throws AppError `unavailable` while they are not known */
export type RelationsTo = (
  asking: Asking,
  people: readonly string[],
) => Promise<ReadonlyMap<string, Relation> | undefined>;

/** Resolves to those of `people` that a person follows. @throws AppError `unavailable` while that is not known */
export type FollowedAmong = (follower: string, people: readonly string[]) => Promise<ReadonlySet<string>>;

export interface RelationsDeps {
  readonly relationsTo?: RelationsTo | undefined;
}

export const isBlocked = (relation: Relation | undefined): boolean =>
  relation !== undefined && (relation.blocking || relation.blocked_by);

/** A mute of reposts hides no person. */
export const isHidden = (relation: Relation | undefined): boolean =>
  relation !== undefined && (isBlocked(relation) || (relation.muting && !relation.mute_reposts_only));

/** Asks one question about all of these people; nobody is asked about themselves. */
export async function relationsOf(
  { relationsTo }: RelationsDeps,
  asking: Asking,
  people: readonly string[],
): Promise<ReadonlyMap<string, Relation> | undefined> {
  const others = [...new Set(people)].filter((person) => person !== "" && person !== asking.user);
  return others.length === 0 ? new Map() : relationsTo?.(asking, others);
}

/** Makes the dependencies of one call, which asks about each person once, and may name the user by another field. */
export function askingOnce<Deps extends RelationsDeps>(deps: Deps, field?: Asking["field"]): Deps {
  const { relationsTo } = deps;
  if (relationsTo === undefined) return deps;
  const known = new Map<string, Relation>();
  const ask: RelationsTo = async (asking, people) => {
    const unknown = people.filter((person) => !known.has(person));
    const found =
      unknown.length === 0 ? known : await relationsTo({ ...asking, field: field ?? asking.field }, unknown);
    for (const [person, relation] of found ?? []) known.set(person, relation);
    return found && known;
  };
  return { ...deps, relationsTo: ask };
}
