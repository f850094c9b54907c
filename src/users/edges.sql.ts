import { insertEvents, withVersion } from "../contracts/outbox.js";
import { edgeSubject } from "../contracts/subjects.js";
import type { FollowChange } from "../gen/avion/users.js";
import { AppError, codeOf } from "../kernel/errors.js";
import { type Db, NOW, type Queries } from "../platform/db/db.js";
import { SQLSTATE, sqlState } from "../platform/db/errors.js";
import { createSharedWrites, LOCK_TIMEOUT_MS, statementOf } from "../platform/db/shared-writes.js";
import { graphEvent, type Pair, pairKey, type TracedEdge } from "./edges.js";
import { EDGE_IDS, erasedColumn, erasedConflict, isNotErased } from "./erased.sql.js";

/** The expressions read rows named `e`. The owner of an event is the followed user. */
const EVENT = {
  owner: "split_part(e.pair, ':', 2)",
  key: "e.pair",
  subject: "e.subject",
  messageId: "e.message_id",
  body: "e.body",
  traceparent: "e.traceparent",
};

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

const BLOCKED = "(f.blocking OR f.blocked_by)";

const EDGE_EVENT = {
  ...withVersion({ ...EVENT, messageId: "'edge:' || e.pair" }, "e.version"),
  body: `json_build_object('follower_id', e.follower_id, 'following_id', e.following_id, 'version', e.version,
    'following', e.active, 'changed_at', e.changed_at)`,
};

/**
 * Edges before counts, each in the order of their keys, so that two of these statements do not block each other. If
 * an edge has the wanted state already, or is refused, nothing is written or locked. The version is null if the same
 * change was made meanwhile, or a block came first: a conflicting row is read under its lock, whatever the snapshot has.
 * OFFSET 0 keeps a plan for an empty table from scanning a full one. The rows have distinct pairs: a statement cannot
 * change a row twice. All have the same `most`.
 */
const setEdges = statementOf(
  {
    n: "integer",
    follower_id: "text",
    following_id: "text",
    wanted: "boolean",
    most: "integer",
    pair: "text",
    subject: "text",
    traceparent: "text",
  },
  (given) => `
WITH ${given}, compared AS MATERIALIZED (
  SELECT w.*, coalesce(before.active, false) AS was_active, coalesce(before.version, 0) AS version,
    coalesce(${erasedColumn("w", EDGE_IDS)}, CASE WHEN w.wanted AND before.blocked THEN 'blocked' END) AS refused
  FROM w LEFT JOIN LATERAL (
    SELECT f.active, f.version, ${BLOCKED} AS blocked FROM users.followings f
    WHERE f.follower_id = w.follower_id AND f.following_id = w.following_id OFFSET 0
  ) before ON true
), edge AS (
  INSERT INTO users.followings AS f (follower_id, following_id, version, active, changed_at)
  SELECT follower_id, following_id, ${NOW}, wanted, ${NOW} FROM compared
  WHERE wanted <> was_active AND CASE WHEN refused IS NULL THEN true ELSE false END
  ORDER BY follower_id COLLATE "C", following_id COLLATE "C"
  ON CONFLICT (follower_id, following_id) DO UPDATE
  SET version = GREATEST(f.version + 1, excluded.version), active = excluded.active, changed_at = excluded.changed_at
  WHERE f.active <> excluded.active AND NOT (excluded.active AND ${BLOCKED})
  RETURNING f.follower_id, f.following_id, f.version, f.active, f.changed_at
), counted AS (
  INSERT INTO users.following_counts AS c (user_id, following, delta)
  SELECT follower_id, GREATEST(sum(delta), 0), sum(delta)
  FROM (SELECT follower_id, CASE WHEN active THEN 1 ELSE -1 END AS delta FROM edge) deltas
  GROUP BY follower_id ORDER BY follower_id
  ON CONFLICT (user_id) DO UPDATE SET following = GREATEST(c.following + excluded.delta, 0), delta = excluded.delta
  RETURNING CASE WHEN c.delta > 0 AND c.following > (SELECT max(most) FROM w)
    THEN users.refuse_following(c.user_id, (SELECT max(most) FROM w)) END
), e AS (
  SELECT edge.*, w.pair, w.subject, w.traceparent
  FROM edge JOIN compared w ON (w.follower_id, w.following_id) = (edge.follower_id, edge.following_id)
), event AS (${insertEvents("edges", EDGE_EVENT, "e")})
SELECT edge.version IS NOT NULL AS changed, w.refused,
  CASE WHEN w.wanted = w.was_active THEN w.version ELSE edge.version END AS version
FROM compared w LEFT JOIN edge ON (edge.follower_id, edge.following_id) = (w.follower_id, w.following_id)
ORDER BY w.n`,
);

/** OFFSET 0 makes a plan that is kept look for single rows: it must not read all that the user follows. */
const FOLLOWED = `
SELECT t.id FROM unnest($2::text[]) AS t (id) CROSS JOIN LATERAL (
  SELECT active FROM users.followings WHERE follower_id = $1 AND following_id = t.id OFFSET 0
) f WHERE active`;

const STORED_AMONG = `
SELECT t.id FROM unnest($1::text[]) AS t (id)
WHERE EXISTS (SELECT FROM users.followings f WHERE f.follower_id = t.id)
  OR EXISTS (SELECT FROM users.followings f WHERE f.following_id = t.id)
  OR EXISTS (SELECT FROM users.relations r WHERE r.user_id = t.id)
  OR EXISTS (SELECT FROM users.relations r WHERE r.target_id = t.id)
  OR EXISTS (SELECT FROM users.erasures e WHERE e.user_id = t.id)`;

const CHANGES = `
SELECT follower_id, following_id, version, active AS following, changed_at
FROM users.followers f
WHERE (changed_at, following_id, follower_id) > ($1, $2, $3) AND changed_at < $4
  AND ${isNotErased("f.follower_id", "f.following_id")}
ORDER BY changed_at, following_id, follower_id LIMIT $5`;

export type ChangePosition = readonly [changedAt: number, followingId: string, followerId: string];

interface WantedEdge extends Pair {
  readonly wanted: boolean;
  readonly most: number;
  readonly traceparent?: string | undefined;
}

interface SetEdge {
  readonly changed: boolean;
  readonly version: number;
  readonly refused: Refusal | undefined;
}

/** A block between the two users forbids the follow, or this one of them is erased. */
type Refusal = "blocked" | "follower_id" | "following_id";

export type EdgeStore = ReturnType<typeof createEdgeStore>;

export function createEdgeStore(db: Db) {
  const setShared = createSharedWrites((edges: readonly WantedEdge[]) => setAll(db, edges));
  return {
    /** @throws AppError `exhausted` above `most`, `conflict` if a block forbids it or a user is erased */
    setFollowing: async (edge: WantedEdge): Promise<Omit<SetEdge, "refused">> => {
      for (;;) {
        const set = await setShared(edge);
        if (set?.refused) throw refused(set.refused);
        if (set !== undefined) return { changed: set.changed, version: set.version };
      }
    },
    /** Connects all pairs or none. @throws AppError `conflict` if a block forbids one of them or a user is erased */
    followMany: async (
      pairs: readonly Pair[],
      { most, traceparent }: Pick<WantedEdge, "most" | "traceparent">,
    ): Promise<{ readonly changed: number } | { readonly over: string }> => {
      try {
        const edges = pairs.map((pair) => ({ ...pair, wanted: true, most, traceparent }));
        return { changed: await db.transaction((queries) => connectAll(queries, edges)) };
      } catch (error) {
        const { cause } = error as { cause?: { detail?: string } };
        if (codeOf(error) !== "exhausted" || cause?.detail === undefined) throw error;
        return { over: cause.detail };
      }
    },
    /** Sets one follow in the place of another one, or neither. @throws AppError as `setFollowing` */
    replace: async (edge: Omit<WantedEdge, "wanted">, replaced: string): Promise<number> => {
      const [added, removed] = [
        { ...edge, wanted: true },
        { ...edge, following_id: replaced, wanted: false },
      ];
      return db.transaction((queries) => connectAll(queries, [added, removed], () => ""));
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
    /** Returns those of some ids that follows, relations or erasures name. */
    storedAmong: async (ids: readonly string[]): Promise<string[]> =>
      (await db.query<{ id: string }>(STORED_AMONG, [ids])).map(({ id }) => id),
    /** Returns edges after a position that both lists contained before a time, ms of the database's clock. */
    changes: (after: ChangePosition, until: number, limit: number): Promise<FollowChange[]> =>
      db.query<FollowChange>(CHANGES, [...after, until, limit]),
  };
}

const refused = (why: Refusal, prefix = ""): AppError =>
  why === "blocked"
    ? new AppError("conflict", `${prefix}following_id: one of the two users blocks the other`)
    : erasedConflict(prefix + why);

/** Sets edges again that another transaction has changed meanwhile: this one sees then why. Resolves to the changed edges. */
async function connectAll(
  queries: Queries,
  edges: readonly WantedEdge[],
  prefixOf: (edge: WantedEdge) => string = (edge) => `follows.${edges.indexOf(edge)}.`,
): Promise<number> {
  let changed = 0;
  for (let open = edges; open.length > 0; ) {
    const set = await setAll(queries, open, LOCK_TIMEOUT_MS.alone);
    for (const [n, edge] of set.entries())
      if (edge?.refused) throw refused(edge.refused, prefixOf(open[n] as WantedEdge));
    changed += set.filter((edge) => edge?.changed).length;
    open = open.filter((_, n) => set[n] === undefined);
  }
  return changed;
}

interface FoundEdge {
  readonly changed: boolean;
  readonly refused: Refusal | null;
  readonly version: number | null;
}

/** A statement makes one of several differing changes: undefined stands for the others. @throws AppError `exhausted` */
export async function setAll(
  queries: Queries,
  edges: readonly WantedEdge[],
  lockMs?: number,
): Promise<(SetEdge | undefined)[]> {
  const first = new Map<string, WantedEdge>();
  for (const edge of edges) if (!first.has(pairKey(edge))) first.set(pairKey(edge), edge);
  const rows = [...first].map(([pair, { follower_id, following_id, wanted, most, traceparent }], n) => ({
    n,
    follower_id,
    following_id,
    wanted,
    most,
    pair,
    traceparent,
    subject: edgeSubject("calm", following_id),
  }));
  const { text, values } = setEdges(rows, lockMs);
  const written = await queries.query<FoundEdge>(text, values).catch((error: unknown) => {
    if (sqlState(error) !== SQLSTATE.raised) throw error;
    const message = `following_id: a user can follow at most ${edges[0]?.most} others`;
    throw new AppError("exhausted", message, { cause: error });
  });
  const set = new Map([...first.keys()].map((pair, n) => [pair, written[n]]));
  return edges.map((edge) => {
    const { changed = false, version = null, refused = null } = set.get(pairKey(edge)) ?? {};
    const leader = first.get(pairKey(edge));
    if (leader?.wanted !== edge.wanted || (version === null && refused === null)) return undefined;
    return { changed: changed && leader === edge, version: version ?? 0, refused: refused ?? undefined };
  });
}
