import type { Db } from "../platform/db/db.js";
import type { Count, DatedEdge, EdgeStore, ListName, ListStore } from "./ports.js";

const IDS: Readonly<Record<ListName, string>> = {
  following: `
SELECT following_id AS id FROM users.followings
WHERE follower_id = $1 AND following_id > $2 AND active ORDER BY following_id LIMIT $3`,
  followers: `
SELECT follower_id AS id FROM users.followers
WHERE following_id = $1 AND follower_id > $2 AND active ORDER BY follower_id LIMIT $3`,
};

const COUNT: Readonly<Record<ListName, string>> = {
  following: "SELECT following AS total, 0 AS revision FROM users.following_counts WHERE user_id = $1",
  followers: "SELECT followers AS total, revision FROM users.follower_counts WHERE user_id = $1",
};

/** Reads both lists from the database. */
export function createListStore(db: Pick<Db, "query">): ListStore {
  return {
    ids: async (list, user, after, limit) =>
      (await db.query<{ id: string }>(IDS[list], [user, after, limit])).map(({ id }) => id),
    count: async (list, user) => (await db.query<Count>(COUNT[list], [user]))[0] ?? { total: 0, revision: 0 },
  };
}

const FOLLOWED = `
SELECT following_id AS id FROM users.followings WHERE follower_id = $1 AND following_id = ANY($2::text[]) AND active`;

const CHANGES = `
SELECT follower_id AS follower, following_id AS following, version, active, changed_at AS "changedAt"
FROM users.followers
WHERE changed_at >= $1 AND changed_at < $2 AND (changed_at, following_id, follower_id) > ($3, $4, $5)
ORDER BY changed_at, following_id, follower_id LIMIT $6`;

/** Reads edges from the database. */
export function createEdgeStore(db: Pick<Db, "query">): EdgeStore {
  return {
    followed: async (user, others) =>
      new Set((await db.query<{ id: string }>(FOLLOWED, [user, others])).map(({ id }) => id)),
    changes: ({ since, until = Number.MAX_SAFE_INTEGER }, after, limit) => {
      const [changedAt, following, follower] = after ?? [0, "", ""];
      return db.query<DatedEdge>(CHANGES, [since, until, changedAt, following, follower, limit]);
    },
  };
}
