import {
  type HiddenUser,
  type Relation,
  type RelationChange,
  type RelationEntry,
  RelationKind,
} from "../gen/avion/users.js";
import { type Db, NOW } from "../platform/db/db.js";
import type { DatedPosition } from "./reads.sql.js";
import type { StoredKind } from "./relations.js";

const { BLOCK } = RelationKind;

/** A mute that has ended counts as none. */
const STANDING = `active AND (expires_at = 0 OR expires_at > (SELECT ${NOW}))`;

/**
 * Each fact about the user $1 and one of $2 is a row. OFFSET 0 makes the plan look for one row by its whole key: one that
 * is kept must not read all rows of a user, and compare each with all of $2.
 */
const FACTS = `
WITH t AS (SELECT unnest($2::text[]) AS id)
SELECT id, CASE WHEN active THEN 'following' ELSE 'requested' END AS fact, 0::bigint AS expires_at, false AS reposts_only
FROM t CROSS JOIN LATERAL (
  SELECT active, requested_at FROM users.followings WHERE follower_id = $1 AND following_id = id OFFSET 0
) f WHERE active OR requested_at IS NOT NULL
UNION ALL SELECT id, 'followed_by', 0, false FROM t
CROSS JOIN LATERAL (SELECT active FROM users.followings WHERE follower_id = id AND following_id = $1 OFFSET 0) f
WHERE active
UNION ALL SELECT id, 'blocked_by', 0, false FROM t
CROSS JOIN LATERAL (
  SELECT active FROM users.relations WHERE user_id = id AND target_id = $1 AND kind = ${BLOCK} OFFSET 0
) r WHERE active
UNION ALL SELECT id, CASE kind WHEN ${BLOCK} THEN 'blocking' ELSE 'muting' END, expires_at, reposts_only FROM t
CROSS JOIN LATERAL (SELECT * FROM users.relations WHERE user_id = $1 AND target_id = id OFFSET 0) r WHERE ${STANDING}`;

const LISTED = `
SELECT target_id, created_at, expires_at, reposts_only FROM users.relations
WHERE user_id = $1 AND kind = $2 AND (created_at, target_id) < ($3, $4) AND ${STANDING}
ORDER BY created_at DESC, target_id DESC LIMIT $5`;

/** The user has at most two rows about a target, and the target one about the user. A block hides more than a mute. */
const hiddenOf = (user: string): string => `
SELECT DISTINCT ON (target_id) target_id, blocked, expires_at, reposts_only FROM (
  (SELECT target_id, kind = ${BLOCK} AS blocked, expires_at, reposts_only FROM users.relations
   WHERE user_id = ${user} AND target_id > $2 AND ${STANDING} ORDER BY target_id LIMIT 2 * $3::int)
  UNION ALL
  (SELECT user_id, true, 0, false FROM users.relations
   WHERE target_id = ${user} AND user_id > $2 AND kind = ${BLOCK} AND active ORDER BY user_id LIMIT $3::int)
) AS hidden
ORDER BY target_id, blocked DESC LIMIT $3::int`;

const HIDDEN = hiddenOf("$1");

const HIDDEN_OF_MANY = `
SELECT id AS user_id, hidden.* FROM unnest($1::text[]) AS asked (id) CROSS JOIN LATERAL (${hiddenOf("id")}) AS hidden`;

const CHANGES = `
SELECT user_id, target_id, kind, version, active, expires_at, reposts_only, changed_at FROM users.relations
WHERE (changed_at, user_id, target_id, kind) > ($1, $2, $3, $4) AND changed_at < $5
ORDER BY changed_at, user_id, target_id, kind LIMIT $6`;

export type RelationPosition = readonly [changedAt: number, userId: string, targetId: string, kind: number];

interface Fact {
  readonly id: string;
  readonly fact: "following" | "requested" | "followed_by" | "blocking" | "blocked_by" | "muting";
  readonly expires_at: number;
  readonly reposts_only: boolean;
}

export type RelationReads = ReturnType<typeof createRelationReads>;

export function createRelationReads(db: Pick<Db, "query">) {
  return {
    between: async (user: string, targets: readonly string[]): Promise<Relation[]> => {
      const relations = new Map(targets.map((target_id) => [target_id, { ...NONE, target_id }]));
      for (const { id, fact, expires_at, reposts_only } of await db.query<Fact>(FACTS, [user, targets])) {
        const relation = relations.get(id) as Relation;
        relation[fact] = true;
        if (fact === "muting")
          Object.assign(relation, { mute_expires_at: expires_at, mute_reposts_only: reposts_only });
      }
      return targets.map((target) => relations.get(target) as Relation);
    },
    list: (user: string, kind: StoredKind, after: DatedPosition, limit: number): Promise<RelationEntry[]> =>
      db.query<RelationEntry>(LISTED, [user, kind, ...after, limit]),
    /** The targets are sorted by their bytes; "" is the start. */
    hidden: (user: string, after: string, limit: number): Promise<HiddenUser[]> =>
      db.query<HiddenUser>(HIDDEN, [user, after, limit]),
    /** At most `limit` targets of each user. */
    hiddenOfMany: (users: readonly string[], limit: number): Promise<(HiddenUser & { readonly user_id: string })[]> =>
      db.query(HIDDEN_OF_MANY, [users, "", limit]),
    /** The times are those of the database's clock, in ms. */
    changes: (after: RelationPosition, until: number, limit: number): Promise<RelationChange[]> =>
      db.query<RelationChange>(CHANGES, [...after, until, limit]),
  };
}

const NONE: Omit<Relation, "target_id"> = {
  following: false,
  followed_by: false,
  blocking: false,
  blocked_by: false,
  muting: false,
  mute_reposts_only: false,
  mute_expires_at: 0,
  requested: false,
};
