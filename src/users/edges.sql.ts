import { insertEvents } from "../contracts/outbox.js";
import { edgeSubject } from "../contracts/subjects.js";
import type { FollowChange } from "../gen/avion/users.js";
import { AppError, codeOf } from "../kernel/errors.js";
import { SECOND } from "../kernel/time.js";
import { type Db, NOW } from "../platform/db/db.js";
import { SQLSTATE, sqlState } from "../platform/db/errors.js";
import { createSharedWrites, givenRows } from "../platform/db/shared-writes.js";
import { graphEvent, type Pair, pairKey, type TracedEdge } from "./edges.js";
import type { Count } from "./reads.sql.js";

/** The expressions read rows named `e`. The owner is the followed user. */
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
WITH bounded AS MATERIALIZED (SELECT set_config('lock_timeout', $10, true)), incoming AS (
  SELECT DISTINCT ON (following_id, follower_id) i.*
  FROM bounded CROSS JOIN unnest($1::text[], $2::text[], $3::bigint[], $4::boolean[],
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

/** One statement, so that counts and rows are consistent. */
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

/** The expressions read rows of follows and unfollows. */
const EDGE_EVENT = {
  ...EVENT,
  messageId: "'edge:' || e.pair || ':' || e.version",
  body: `json_build_object('follower_id', e.follower_id, 'following_id', e.following_id, 'version', e.version,
    'following', e.active, 'changed_at', e.changed_at)`,
};

/** The rows of a statement have distinct pairs: a statement cannot change a row twice. */
const givenEdges = givenRows({
  n: "integer",
  follower_id: "text",
  following_id: "text",
  active: "boolean",
  pair: "text",
  subject: "text",
  traceparent: "text",
});

/**
 * Edges before counts, each in the order of their keys, so that two of these statements do not block each other. Where
 * an edge is so already nothing is written or locked. The version is null where the same change was made meanwhile.
 * OFFSET 0 keeps a plan for an empty table from scanning a full one.
 */
const setFollowing = (given: string, most: number): string => `
WITH ${given}, wanted AS MATERIALIZED (
  SELECT w.*, coalesce(before.active, false) AS was_active, coalesce(before.version, 0) AS version
  FROM w LEFT JOIN LATERAL (
    SELECT f.active, f.version FROM users.followings f
    WHERE f.follower_id = w.follower_id AND f.following_id = w.following_id OFFSET 0
  ) before ON true
), edge AS (
  INSERT INTO users.followings AS f (follower_id, following_id, version, active, changed_at)
  SELECT follower_id, following_id, ${NOW}, active, ${NOW} FROM wanted WHERE active <> was_active
  ORDER BY follower_id COLLATE "C", following_id COLLATE "C"
  ON CONFLICT (follower_id, following_id) DO UPDATE
  SET version = GREATEST(f.version + 1, excluded.version), active = excluded.active, changed_at = excluded.changed_at
  WHERE f.active <> excluded.active
  RETURNING f.follower_id, f.following_id, f.version, f.active, f.changed_at
), counted AS (
  INSERT INTO users.following_counts AS c (user_id, following, delta)
  SELECT follower_id, GREATEST(sum(delta), 0), sum(delta)
  FROM (SELECT follower_id, CASE WHEN active THEN 1 ELSE -1 END AS delta FROM edge) deltas
  GROUP BY follower_id ORDER BY follower_id
  ON CONFLICT (user_id) DO UPDATE SET following = GREATEST(c.following + excluded.delta, 0), delta = excluded.delta
  RETURNING CASE WHEN c.delta > 0 AND c.following > ${most} THEN users.refuse_following(c.user_id, ${most}) END
), e AS (
  SELECT edge.*, w.pair, w.subject, w.traceparent
  FROM edge JOIN wanted w ON (w.follower_id, w.following_id) = (edge.follower_id, edge.following_id)
), event AS (${insertEvents("edges", EDGE_EVENT, "e")})
SELECT edge.version IS NOT NULL AS changed,
  CASE WHEN w.active = w.was_active THEN w.version ELSE edge.version END AS version
FROM wanted w LEFT JOIN edge ON (edge.follower_id, edge.following_id) = (w.follower_id, w.following_id)
ORDER BY w.n`;

const FOLLOWED = `
SELECT following_id AS id FROM users.followings WHERE follower_id = $1 AND following_id = ANY($2::text[]) AND active`;

const CHANGES = `
SELECT follower_id, following_id, version, active AS following, changed_at
FROM users.followers
WHERE changed_at >= $1 AND changed_at < $2 AND (changed_at, following_id, follower_id) > ($3, $4, $5)
ORDER BY changed_at, following_id, follower_id LIMIT $6`;

interface WantedEdge extends Pair {
  readonly wanted: boolean;
  /** All edges of a process have the same limit. */
  readonly most: number;
  readonly traceparent?: string | undefined;
}

interface SetEdge {
  readonly changed: boolean;
  readonly version: number;
}

export type EdgeStore = ReturnType<typeof createEdgeStore>;

export function createEdgeStore(db: Db) {
  const setShared = createSharedWrites((edges: readonly WantedEdge[]) => setAll(db, edges, edges.length > 1));
  return {
    /**
     * Edges that are set while others are being committed share the next statement and its commit.
     * @throws AppError `exhausted` where more than `most` would be followed
     */
    setFollowing: async (edge: WantedEdge): Promise<SetEdge> => {
      for (;;) {
        const set = await setShared(edge);
        if (set !== undefined) return set;
      }
    },
    /** Connects all pairs, or none where a user would follow more than `most`. Resolves to the number of changed edges. */
    followMany: async (
      pairs: readonly Pair[],
      { most, traceparent }: Pick<WantedEdge, "most" | "traceparent">,
    ): Promise<{ readonly changed: number } | { readonly over: string }> => {
      try {
        const edges = pairs.map((pair) => ({ ...pair, wanted: true, most, traceparent }));
        const set = await setAll(db, edges, false);
        return { changed: set.filter((one) => one?.changed).length };
      } catch (error) {
        const { cause } = error as { cause?: { detail?: string } };
        if (codeOf(error) !== "exhausted" || cause?.detail === undefined) throw error;
        return { over: cause.detail };
      }
    },
    /**
     * The newest version of a pair wins. Resolves to the number of changed edges, or to undefined where a row stays
     * locked.
     */
    apply: async (edges: readonly TracedEdge[], lockMs = 5 * SECOND): Promise<number | undefined> => {
      const events = edges.map(graphEvent);
      const values = [
        edges.map(({ follower }) => follower),
        edges.map(({ following }) => following),
        edges.map(({ version }) => version),
        edges.map(({ active }) => active),
        edges.map(pairKey),
        events.map(({ subject }) => subject),
        events.map(({ messageId }) => messageId),
        events.map(({ body }) => body),
        edges.map(({ traceparent }) => traceparent ?? null),
        String(lockMs),
      ];
      try {
        const [row] = await db.query<{ changed: number }>(APPLY, values);
        return row?.changed ?? 0;
      } catch (error) {
        if (sqlState((error as Error).cause) === SQLSTATE.lockNotAvailable) return undefined;
        throw error;
      }
    },
    currentFollowers: (pairs: readonly Pair[]): Promise<CurrentFollowers[]> =>
      db.query<CurrentFollowers>(CURRENT, [
        pairs.map(({ follower }) => follower),
        pairs.map(({ following }) => following),
      ]),
    followed: async (user: string, others: readonly string[]): Promise<ReadonlySet<string>> =>
      new Set((await db.query<{ id: string }>(FOLLOWED, [user, others])).map(({ id }) => id)),
    /**
     * Edges are sorted by the time at which both lists contained them, in ms since the epoch by the database's clock.
     */
    changes: (
      { since, until = Number.MAX_SAFE_INTEGER }: { readonly since: number; readonly until: number | undefined },
      [changedAt, following, follower]: readonly [number, string, string],
      limit: number,
    ): Promise<FollowChange[]> =>
      db.query<FollowChange>(CHANGES, [since, until, changedAt, following, follower, limit]),
  };
}

/**
 * Resolves to undefined where another change of the pair came first: a statement makes one of several differing
 * changes.
 */
async function setAll(db: Db, edges: readonly WantedEdge[], shared: boolean): Promise<(SetEdge | undefined)[]> {
  const first = new Map<string, WantedEdge>();
  for (const edge of edges) if (!first.has(pairKey(edge))) first.set(pairKey(edge), edge);
  const rows = [...first].map(([pair, { follower, following, wanted, traceparent }], n) => ({
    ...{ n, follower_id: follower, following_id: following, active: wanted, pair, traceparent },
    subject: edgeSubject("calm", following),
  }));
  const most = edges[0]?.most ?? 0;
  const { parts, values } = givenEdges(rows, shared);
  const text = setFollowing(parts, most);
  const found = await db.query<{ changed: boolean; version: number | null }>(text, values).catch((error: unknown) => {
    if (sqlState(error) !== SQLSTATE.raised) throw error;
    const message = `following_id: a user can follow at most ${most} others`;
    throw new AppError("exhausted", message, { cause: error });
  });
  const set = new Map(rows.map(({ pair }, n) => [pair, found[n]]));
  return edges.map((edge) => {
    const { changed = false, version = null } = set.get(pairKey(edge)) ?? {};
    const leader = first.get(pairKey(edge));
    if (version === null || leader?.wanted !== edge.wanted) return undefined;
    return { changed: changed && leader === edge, version };
  });
}
