import type { Db } from "../platform/db/db.js";
import type { Edge } from "./edges.js";

export type ListName = "following" | "followers";

/** The revision rises with each change of the total; 0 where none is kept. */
export interface Count {
  readonly total: number;
  readonly revision: number;
}

/** An edge with the time at which both lists contained it, ms since the epoch by the database's clock. */
export interface DatedEdge extends Edge {
  readonly changedAt: number;
}

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

export type ListStore = ReturnType<typeof createListStore>;

export function createListStore(db: Pick<Db, "query">) {
  return {
    /** Ids after `after` ("": from the start) by their bytes. */
    ids: async (list: ListName, user: string, after: string, limit: number): Promise<string[]> =>
      (await db.query<{ id: string }>(IDS[list], [user, after, limit])).map(({ id }) => id),
    count: async (list: ListName, user: string): Promise<Count> =>
      (await db.query<Count>(COUNT[list], [user]))[0] ?? { total: 0, revision: 0 },
  };
}

const FOLLOWED = `
SELECT following_id AS id FROM users.followings WHERE follower_id = $1 AND following_id = ANY($2::text[]) AND active`;

const CHANGES = `
SELECT follower_id AS follower, following_id AS following, version, active, changed_at AS "changedAt"
FROM users.followers
WHERE changed_at >= $1 AND changed_at < $2 AND (changed_at, following_id, follower_id) > ($3, $4, $5)
ORDER BY changed_at, following_id, follower_id LIMIT $6`;

export type EdgeStore = ReturnType<typeof createEdgeStore>;

export function createEdgeStore(db: Pick<Db, "query">) {
  return {
    followed: async (user: string, others: readonly string[]): Promise<ReadonlySet<string>> =>
      new Set((await db.query<{ id: string }>(FOLLOWED, [user, others])).map(({ id }) => id)),
    changes: (
      { since, until = Number.MAX_SAFE_INTEGER }: { readonly since: number; readonly until: number | undefined },
      after: readonly [changedAt: number, following: string, follower: string] | undefined,
      limit: number,
    ): Promise<DatedEdge[]> => {
      const [changedAt, following, follower] = after ?? [0, "", ""];
      return db.query<DatedEdge>(CHANGES, [since, until, changedAt, following, follower, limit]);
    },
  };
}
