import { insertEvents } from "../contracts/outbox.js";
import type { FollowChange } from "../gen/avion/users.js";
import { AppError, codeOf } from "../kernel/errors.js";
import type { Db, Queries } from "../platform/db/db.js";
import { SQLSTATE, sqlState } from "../platform/db/errors.js";
import { createSharedWrites, LOCK_TIMEOUT_MS } from "../platform/db/shared-writes.js";
import { graphEvent, type Pair, pairKey, type TracedEdge } from "./edges.js";
import { erasedConflict, isNotErased } from "./erased.sql.js";
import { EVENT, REQUESTED, type Refusal, type SetEdge, setAll, type WantedEdge } from "./set-edges.sql.js";

/**
 * Rows are locked before counts, each in the order of their keys, so that two batches do not block each other.
 * Processes of an earlier version read the revision of a count.
 */
const APPLY = `
WITH bounded AS MATERIALIZED (SELECT set_config('lock_timeout', $10, true)), incoming AS (
  SELECT DISTINCT ON (following_id, follower_id) i.*
  FROM bounded CROSS JOIN unnest($1::text[], $2::text[], $3::bigint[], $4::boolean[],
    $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $11::bigint[])
    AS i (follower_id, following_id, version, active, pair, subject, message_id, body, traceparent, since)
  WHERE ${isNotErased("i.follower_id", "i.following_id")}
  ORDER BY following_id, follower_id, version DESC
), applied AS (
  INSERT INTO users.followers AS f (following_id, follower_id, version, active, delta, changed_at, since)
  SELECT following_id, follower_id, version, active, active::int, users.now_ms(), since FROM incoming
  ORDER BY following_id COLLATE "C", follower_id COLLATE "C"
  ON CONFLICT (following_id, follower_id) DO UPDATE
  SET version = excluded.version, active = excluded.active, delta = excluded.active::int - f.active::int,
    changed_at = users.now_ms(), since = excluded.since
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

/** OFFSET 0 makes a plan that is kept look for single rows: it must not read all that the user follows. */
const FOLLOWED = `
SELECT t.id FROM unnest($2::text[]) AS t (id) CROSS JOIN LATERAL (
  SELECT active FROM users.followings WHERE follower_id = $1 AND following_id = t.id OFFSET 0
) f WHERE active`;

const STANDS = `
SELECT active OR ${REQUESTED} AS stands FROM users.followings WHERE follower_id = $1 AND following_id = $2`;

const STORED_AMONG = `
SELECT t.id FROM unnest($1::text[]) AS t (id)
WHERE EXISTS (SELECT FROM users.followings f WHERE f.follower_id = t.id)
  OR EXISTS (SELECT FROM users.followings f WHERE f.following_id = t.id)
  OR EXISTS (SELECT FROM users.relations r WHERE r.user_id = t.id)
  OR EXISTS (SELECT FROM users.relations r WHERE r.target_id = t.id)
  OR EXISTS (SELECT FROM users.approvals a WHERE a.user_id = t.id)
  OR EXISTS (SELECT FROM users.standings s WHERE s.user_id = t.id AND s.host = '')
  OR EXISTS (SELECT FROM users.erasures e WHERE e.user_id = t.id)`;

const CHANGES = `
SELECT follower_id, following_id, version, active AS following, changed_at
FROM users.followers f
WHERE (changed_at, following_id, follower_id) > ($1, $2, $3) AND changed_at < $4
  AND ${isNotErased("f.follower_id", "f.following_id")}
ORDER BY changed_at, following_id, follower_id LIMIT $5`;

export type ChangePosition = readonly [changedAt: number, followingId: string, followerId: string];

export type EdgeStore = ReturnType<typeof createEdgeStore>;

export function createEdgeStore(db: Db) {
  const setShared = createSharedWrites((edges: readonly WantedEdge[]) => setAll(db, edges));
  return {
    /**
     * `followed` is the name of the request's field for the followed user.
     *
     * @throws AppError `exhausted` above `most`, `conflict` if a block forbids it or a user is erased
     */
    setFollowing: async (edge: WantedEdge, followed = "following_id"): Promise<Omit<SetEdge, "refused">> => {
      for (;;) {
        const set = await setShared(edge);
        if (set?.refused) throw refused(set.refused, "", followed);
        if (set !== undefined) return set;
      }
    },
    /** Connects all pairs or none. @throws AppError `conflict` if a block forbids one of them or a user is erased */
    followMany: async (
      pairs: readonly Pair[],
      { most, traceparent }: Pick<WantedEdge, "most" | "traceparent">,
    ): Promise<Connected | { readonly over: string }> => {
      try {
        const edges = pairs.map((pair) => ({ ...pair, wanted: true, most, traceparent }));
        return await db.transaction((queries) => connectAll(queries, edges));
      } catch (error) {
        const { cause } = error as { cause?: { detail?: string } };
        if (codeOf(error) !== "exhausted" || cause?.detail === undefined) throw error;
        return { over: cause.detail };
      }
    },
    /**
     * Replaces a follow by another follow or by a request, in one step. Resolves to the number of changes.
     *
     * @throws AppError as `setFollowing`
     */
    replace: async (edge: Omit<WantedEdge, "wanted">, replaced: string): Promise<number> => {
      const [added, removed] = [
        { ...edge, wanted: true },
        { ...edge, following_id: replaced, wanted: false },
      ];
      const { changed, pending } = await db.transaction((queries) => connectAll(queries, [added, removed], () => ""));
      return changed + pending;
    },
    apply: async (edges: readonly TracedEdge[], lockMs = LOCK_TIMEOUT_MS.alone): Promise<number | undefined> => {
      const events = edges.map(graphEvent);
      const values = [
        edges.map(({ follower_id }) => follower_id),
        edges.map(({ following_id }) => following_id),
        edges.map(({ version }) => version),
        edges.map(({ following }) => following),
        edges.map(pairKey),
        events.map(({ subject }) => subject),
        events.map(({ messageId }) => messageId),
        events.map(({ body }) => body),
        edges.map(({ traceparent }) => traceparent ?? null),
        String(lockMs),
        edges.map(({ following, changed_at }) => (following ? (changed_at ?? null) : null)),
      ];
      try {
        const [row] = await db.query<{ changed: number }>(APPLY, values);
        return row?.changed ?? 0;
      } catch (error) {
        if (sqlState((error as Error).cause) === SQLSTATE.lockNotAvailable) return undefined;
        throw error;
      }
    },
    followed: async (user: string, others: readonly string[]): Promise<ReadonlySet<string>> =>
      new Set((await db.query<{ id: string }>(FOLLOWED, [user, others])).map(({ id }) => id)),
    /** Resolves to whether a user follows another one, or has asked to. */
    stands: async ({ follower_id, following_id }: Pair): Promise<boolean> =>
      (await db.query<{ stands: boolean }>(STANDS, [follower_id, following_id]))[0]?.stands ?? false,
    /** Returns those of some ids that follows, relations or erasures name. */
    storedAmong: async (ids: readonly string[]): Promise<string[]> =>
      (await db.query<{ id: string }>(STORED_AMONG, [ids])).map(({ id }) => id),
    /** Returns edges after a position that both lists contained before a time, ms of the database's clock. */
    changes: (after: ChangePosition, until: number, limit: number): Promise<FollowChange[]> =>
      db.query<FollowChange>(CHANGES, [...after, until, limit]),
  };
}

const refused = (why: Refusal, prefix = "", followed = "following_id"): AppError =>
  why === "blocked"
    ? new AppError("conflict", `${prefix}${followed}: one of the two users blocks the other`)
    : erasedConflict(prefix + (why === "following_id" ? followed : why));

interface Connected {
  /** Number of edges that were made or ended. */
  readonly changed: number;
  /** Number of requests that were made. */
  readonly pending: number;
}

/** Sets again the edges that another transaction has changed meanwhile, and then sees the reason. */
async function connectAll(
  queries: Queries,
  edges: readonly WantedEdge[],
  prefixOf: (edge: WantedEdge) => string = (edge) => `follows.${edges.indexOf(edge)}.`,
): Promise<Connected> {
  let [changed, pending] = [0, 0];
  for (let open = edges; open.length > 0; ) {
    const set = await setAll(queries, open, LOCK_TIMEOUT_MS.alone);
    for (const [n, edge] of set.entries())
      if (edge?.refused) throw refused(edge.refused, prefixOf(open[n] as WantedEdge));
    changed += set.filter((edge) => edge?.moved).length;
    pending += set.filter((edge) => edge?.changed && edge.pending).length;
    open = open.filter((_, n) => set[n] === undefined);
  }
  return { changed, pending };
}
