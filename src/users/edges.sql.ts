import { insertEvents } from "../contracts/outbox.js";
import { edgeSubject } from "../contracts/subjects.js";
import type { FollowChange } from "../gen/avion/users.js";
import { AppError } from "../kernel/errors.js";
import { createBatch } from "../kernel/sharing.js";
import type { Db } from "../platform/db/db.js";
import { SQLSTATE, sqlState } from "../platform/db/errors.js";
import { graphEvent, type Pair, pairKey, type TracedEdge } from "./edges.js";
import type { Count } from "./reads.sql.js";

/** Over rows named `e`; the owner is the followed user. */
const EVENT = {
  owner: "split_part(e.pair, ':', 2)",
  key: "e.pair",
  subject: "e.subject",
  messageId: "e.message_id",
  body: "e.body",
  traceparent: "e.traceparent",
};

/** Rows before counts, each in the order of their keys, so that two batches do not block each other. */
const APPLY = `
WITH incoming AS (
  SELECT DISTINCT ON (following_id, follower_id) *
  FROM unnest($1::text[], $2::text[], $3::bigint[], $4::boolean[],
    $5::text[], $6::text[], $7::text[], $8::text[], $9::text[])
    AS i (follower_id, following_id, version, active, pair, subject, message_id, body, traceparent)
  ORDER BY following_id, follower_id, version DESC
), applied AS (
  INSERT INTO users.followers AS f (following_id, follower_id, version, active, delta, changed_at)
  SELECT following_id, follower_id, version, active, active::int, users.now_ms() FROM incoming
  ORDER BY following_id COLLATE "C", follower_id COLLATE "C"
  ON CONFLICT (following_id, follower_id) DO UPDATE
  SET version = excluded.version, active = excluded.active, delta = excluded.active::int - f.active::int,
    changed_at = users.now_ms()
  WHERE f.version < excluded.version
  RETURNING f.following_id, f.follower_id, f.delta
), counted AS (
  INSERT INTO users.follower_counts AS c (user_id, followers, delta, revision)
  SELECT following_id, GREATEST(sum(delta), 0), sum(delta), 1 FROM applied GROUP BY following_id ORDER BY following_id
  ON CONFLICT (user_id) DO UPDATE
  SET followers = GREATEST(c.followers + excluded.delta, 0), delta = excluded.delta, revision = c.revision + 1
), event AS (${insertEvents(
  "users",
  EVENT,
  "applied a JOIN incoming e ON (e.following_id, e.follower_id) = (a.following_id, a.follower_id)",
)})
SELECT count(*) AS changed FROM applied`;

/** One statement, so that counts and rows are of one moment. */
const CURRENT = `
SELECT p.following_id AS "user", coalesce(c.followers, 0) AS total, coalesce(c.revision, 0) AS revision,
  coalesce(array_agg(DISTINCT p.follower_id) FILTER (WHERE f.active), '{}') AS present,
  coalesce(array_agg(DISTINCT p.follower_id) FILTER (WHERE f.active IS NOT true), '{}') AS gone
FROM unnest($1::text[], $2::text[]) AS p (follower_id, following_id)
LEFT JOIN users.followers f ON f.following_id = p.following_id AND f.follower_id = p.follower_id
LEFT JOIN users.follower_counts c ON c.user_id = p.following_id
GROUP BY p.following_id, c.followers, c.revision`;

/** The count of a user's followers, and which of those asked about are among them. */
export interface CurrentFollowers extends Count {
  readonly user: string;
  readonly present: readonly string[];
  readonly gone: readonly string[];
}

/** Over rows of follows and unfollows. */
const EDGE_EVENT = {
  ...EVENT,
  messageId: "'edge:' || e.pair || ':' || e.version",
  body: `json_build_object('follower_id', e.follower_id, 'following_id', e.following_id, 'version', e.version,
    'following', e.active, 'changed_at', e.changed_at)`,
};

/** In the order of the keys, so that two of these statements do not block each other; those of a pair as they came. */
const SET_FOLLOWING = `
WITH e AS MATERIALIZED (
  SELECT n, o_changed AS changed, o_version AS version, o_changed_at AS changed_at, follower_id, following_id, active,
    pair, subject, traceparent
  FROM (
    SELECT * FROM unnest($1::text[], $2::text[], $3::boolean[], $4::integer[], $5::text[], $6::text[], $7::text[])
      WITH ORDINALITY AS w (follower_id, following_id, active, most, pair, subject, traceparent, n)
    ORDER BY follower_id COLLATE "C", following_id COLLATE "C", n
  ) wanted CROSS JOIN LATERAL users.change_following(follower_id, following_id, active, most)
), event AS (${insertEvents("users", EDGE_EVENT, "e WHERE changed")})
SELECT changed, version FROM e ORDER BY n`;

/** Follows and unfollows that a statement sets at most. */
const SET_AT_ONCE = 100;

/** Edges before counts, each in the order of their keys, so that two of these statements do not block each other. */
const FOLLOW_MANY = `
WITH wanted AS (
  SELECT DISTINCT ON (follower_id, following_id) *
  FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) AS w (follower_id, following_id, pair, subject)
), edge AS (
  INSERT INTO users.followings AS f (follower_id, following_id, version, active, changed_at)
  SELECT follower_id, following_id, users.now_ms(), true, users.now_ms() FROM wanted
  ORDER BY follower_id COLLATE "C", following_id COLLATE "C"
  ON CONFLICT (follower_id, following_id) DO UPDATE
  SET version = GREATEST(f.version + 1, excluded.version), active = true, changed_at = excluded.changed_at
  WHERE NOT f.active
  RETURNING f.follower_id, f.following_id, f.version, f.changed_at
), counted AS (
  INSERT INTO users.following_counts AS c (user_id, following)
  SELECT follower_id, count(*) FROM edge GROUP BY follower_id ORDER BY follower_id
  ON CONFLICT (user_id) DO UPDATE SET following = c.following + excluded.following
  RETURNING c.user_id, c.following
), e AS (
  SELECT edge.*, true AS active, w.pair, w.subject, $6::text AS traceparent
  FROM edge JOIN wanted w ON (w.follower_id, w.following_id) = (edge.follower_id, edge.following_id)
), event AS (${insertEvents("users", EDGE_EVENT, "e")})
SELECT (SELECT count(*) FROM edge) AS changed, (SELECT min(user_id) FROM counted WHERE following > $5::int) AS over`;

const FOLLOWED = `
SELECT following_id AS id FROM users.followings WHERE follower_id = $1 AND following_id = ANY($2::text[]) AND active`;

const CHANGES = `
SELECT follower_id, following_id, version, active AS following, changed_at
FROM users.followers
WHERE changed_at >= $1 AND changed_at < $2 AND (changed_at, following_id, follower_id) > ($3, $4, $5)
ORDER BY changed_at, following_id, follower_id LIMIT $6`;

export interface WantedEdge extends Pair {
  readonly wanted: boolean;
  readonly most: number;
  readonly traceparent?: string | undefined;
}

export type EdgeStore = ReturnType<typeof createEdgeStore>;

export function createEdgeStore(db: Db) {
  return {
    /**
     * Edges that are set while others are being committed share the next statement and its commit.
     * @throws AppError `exhausted` where more than `most` would be followed
     */
    setFollowing: createBatch(SET_AT_ONCE, async (edges: readonly WantedEdge[]) => {
      const values = [
        edges.map(({ follower }) => follower),
        edges.map(({ following }) => following),
        edges.map(({ wanted }) => wanted),
        edges.map(({ most }) => most),
        edges.map(pairKey),
        edges.map(({ following }) => edgeSubject("calm", following)),
        edges.map(({ traceparent }) => traceparent ?? null),
      ];
      try {
        return await db.query<{ changed: boolean; version: number }>(SET_FOLLOWING, values);
      } catch (error) {
        if (sqlState(error) !== SQLSTATE.raised) throw error;
        const most = edges[0]?.most;
        throw new AppError("exhausted", `following_id: nobody can follow more than ${most}`, { cause: error });
      }
    }),
    /** Connects all pairs, or none where a user would follow more than `most`. */
    followMany: async (
      pairs: readonly Pair[],
      { most, traceparent }: Pick<WantedEdge, "most" | "traceparent">,
    ): Promise<{ readonly changed: number } | { readonly over: string }> => {
      const values = [
        pairs.map(({ follower }) => follower),
        pairs.map(({ following }) => following),
        pairs.map(pairKey),
        pairs.map(({ following }) => edgeSubject("calm", following)),
        most,
        traceparent ?? null,
      ];
      try {
        return await db.transaction(async ({ query }) => {
          const [row] = await query<{ changed: number; over: string | null }>(FOLLOW_MANY, values);
          if (row?.over != null) throw new TooMany(row.over);
          return { changed: row?.changed ?? 0 };
        });
      } catch (error) {
        if (error instanceof TooMany) return { over: error.user };
        throw error;
      }
    },
    /** The newest version of a pair wins. Resolves to the number of changed edges. */
    apply: async (edges: readonly TracedEdge[]): Promise<number> => {
      const events = edges.map(graphEvent);
      const [row] = await db.query<{ changed: number }>(APPLY, [
        edges.map(({ follower }) => follower),
        edges.map(({ following }) => following),
        edges.map(({ version }) => version),
        edges.map(({ active }) => active),
        edges.map(pairKey),
        events.map(({ subject }) => subject),
        events.map(({ messageId }) => messageId),
        events.map(({ body }) => body),
        edges.map(({ traceparent }) => traceparent ?? null),
      ]);
      return row?.changed ?? 0;
    },
    currentFollowers: (pairs: readonly Pair[]): Promise<CurrentFollowers[]> =>
      db.query<CurrentFollowers>(CURRENT, [
        pairs.map(({ follower }) => follower),
        pairs.map(({ following }) => following),
      ]),
    followed: async (user: string, others: readonly string[]): Promise<ReadonlySet<string>> =>
      new Set((await db.query<{ id: string }>(FOLLOWED, [user, others])).map(({ id }) => id)),
    /** By the time at which both lists contained the edge, ms since the epoch by the database's clock. */
    changes: (
      { since, until = Number.MAX_SAFE_INTEGER }: { readonly since: number; readonly until: number | undefined },
      [changedAt, following, follower]: readonly [number, string, string],
      limit: number,
    ): Promise<FollowChange[]> =>
      db.query<FollowChange>(CHANGES, [since, until, changedAt, following, follower, limit]),
  };
}

class TooMany extends Error {
  constructor(readonly user: string) {
    super("too many would be followed");
  }
}
