import type { Relation } from "../../gen/avion/users.js";

/** The user who asks, and the field of the request that errors name. */
export interface Asking {
  readonly field: "viewer_id" | "user_id" | "actor_uri";
  readonly user: string;
}

/** Resolves to undefined if the UserService has no relations. @throws AppError `unavailable` while it is */
export type RelationsTo = (
  asking: Asking,
  people: readonly string[],
) => Promise<ReadonlyMap<string, Relation> | undefined>;

/** Resolves to those of `people` that a person follows. @throws AppError `unavailable` while the UserService is */
export type FollowedAmong = (follower: string, people: readonly string[]) => Promise<ReadonlySet<string>>;

export interface RelationsDeps {
  readonly relationsTo?: RelationsTo | undefined;
  /** Default: nobody is. */
  readonly isSuspended?: ((user: string) => boolean) | undefined;
}

export const isBlocked = (relation: Relation | undefined): boolean =>
  relation !== undefined && (relation.blocking || relation.blocked_by);

/** A mute of reposts hides no person. */
export const isHidden = (relation: Relation | undefined): boolean =>
  relation !== undefined && (isBlocked(relation) || (relation.muting && !relation.mute_reposts_only));

/** Asks for the relations to all of these people in one call, without the user who asks. */
export async function relationsOf(
  { relationsTo }: RelationsDeps,
  asking: Asking,
  people: readonly string[],
): Promise<ReadonlyMap<string, Relation> | undefined> {
  const others = [...new Set(people)].filter((person) => person !== "" && person !== asking.user);
  return others.length === 0 ? new Map() : relationsTo?.(asking, others);
}

/** Returns dependencies for one call: each person is asked about once. Errors name `field` if it is set. */
export function askingOnce<Deps extends RelationsDeps>(deps: Deps, field?: Asking["field"]): Deps {
  const { relationsTo } = deps;
  if (relationsTo === undefined) return deps;
  const known = new Map<string, Relation>();
  const ask: RelationsTo = async (asking, people) => {
    const unknown = people.filter((person) => !known.has(person));
    const answers =
      unknown.length === 0 ? known : await relationsTo({ ...asking, field: field ?? asking.field }, unknown);
    for (const [person, relation] of answers ?? []) known.set(person, relation);
    return answers && known;
  };
  return { ...deps, relationsTo: ask };
}
