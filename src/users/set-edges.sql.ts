import { ACTIVITY_SUBJECT_OF } from "../contracts/activity.js";
import { insertEvents, withVersion } from "../contracts/outbox.js";
import { edgeSubject } from "../contracts/subjects.js";
import { AppError } from "../kernel/errors.js";
import { NOW, type Queries } from "../platform/db/db.js";
import { SQLSTATE, sqlState } from "../platform/db/errors.js";
import { statementOf } from "../platform/db/shared-writes.js";
import { type Pair, pairKey } from "./edges.js";
import { EDGE_IDS, erasedColumn } from "./erased.sql.js";

/** The expressions read rows named `e`. The owner of an event is the followed user. */
export const EVENT = {
  owner: "split_part(e.pair, ':', 2)",
  key: "e.pair",
  subject: "e.subject",
  messageId: "e.message_id",
  body: "e.body",
  traceparent: "e.traceparent",
};

/** The expression reads a row named `f`. */
export const BLOCKED = "(f.blocking OR f.blocked_by)";

/** A process of the version before leaves the time of a request in the follow that it makes. */
export const REQUESTED = "requested_at IS NOT NULL AND NOT active";

const EDGE_EVENT = {
  ...withVersion({ ...EVENT, messageId: "'edge:' || e.pair" }, "e.version"),
  body: `json_build_object('follower_id', e.follower_id, 'following_id', e.following_id, 'version', e.version,
    'following', e.active, 'changed_at', e.changed_at)`,
};

const REQUEST_EVENT = {
  ...withVersion({ ...EVENT, messageId: "'user_requested:' || e.pair" }, "e.version"),
  subject: `'${ACTIVITY_SUBJECT_OF.user_requested}'`,
  body: `json_strip_nulls(json_build_object('follower_id', e.follower_id, 'following_id', e.following_id,
    'version', e.version, 'active', e.delta = 0 AND e.requested_at IS NOT NULL,
    'created_at', CASE WHEN e.delta = 0 THEN e.requested_at END))`,
};

/**
 * Edges before counts, each in the order of their keys, so that two of these statements do not block each other. If
 * an edge has the wanted state already, or is refused, nothing is written or locked. The version is null if the same
 * change was made meanwhile, or a block came first: a conflicting row is read under its lock, whatever the snapshot has.
 * OFFSET 0 keeps a plan for an empty table from scanning a full one. The rows have distinct pairs: a statement cannot
 * change a row twice. All have the same `most`.
 *
 * A follow that needs approval writes a request; an acceptance is proposed as active with a time of request, and needs
 * one that stands. A row that is no edge before or after has delta 0: it moves no count and no list. A request and its
 * end, also by a follow, have an event for the followed user.
 */
const setEdges = statementOf(
  {
    n: "integer",
    follower_id: "text",
    following_id: "text",
    wanted: "boolean",
    accepts: "boolean",
    most: "integer",
    pair: "text",
    subject: "text",
    traceparent: "text",
  },
  (given) => `
WITH ${given}, looked AS MATERIALIZED (
  SELECT w.*, coalesce(before.active, false) AS was_active, coalesce(before.requested, false) AS was_requested,
    coalesce(before.version, 0) AS version,
    coalesce(${erasedColumn("w", EDGE_IDS)}, CASE WHEN w.wanted AND before.blocked THEN 'blocked' END) AS refused,
    w.wanted AND NOT w.accepts AND coalesce(approval.approves, false) AND NOT coalesce(before.active, false) AS pending
  FROM w LEFT JOIN LATERAL (
    SELECT f.active, f.version, ${BLOCKED} AS blocked, ${REQUESTED} AS requested FROM users.followings f
    WHERE f.follower_id = w.follower_id AND f.following_id = w.following_id OFFSET 0
  ) before ON true LEFT JOIN LATERAL (
    SELECT a.approves FROM users.approvals a WHERE a.user_id = w.following_id OFFSET 0
  ) approval ON true
), compared AS MATERIALIZED (
  SELECT *, refused IS NULL AND CASE
    WHEN NOT wanted THEN was_active OR was_requested
    WHEN accepts THEN was_requested
    WHEN pending THEN NOT was_requested
    ELSE NOT was_active
  END AS differs FROM looked
), asking AS MATERIALIZED (
  SELECT a.follower_id, CASE WHEN a.more + coalesce(c.following, 0) + (
    SELECT count(*) FROM users.followings r WHERE r.follower_id = a.follower_id AND ${REQUESTED}
  ) > a.most THEN users.refuse_following(a.follower_id, a.most)::text END AS refused
  FROM (
    SELECT follower_id, max(most) AS most, sum(CASE WHEN NOT wanted THEN -1 WHEN accepts THEN 0 ELSE 1 END) AS more
    FROM compared WHERE differs GROUP BY follower_id HAVING bool_or(pending)
  ) a LEFT JOIN users.following_counts c ON c.user_id = a.follower_id
), edge AS (
  INSERT INTO users.followings AS f
    (follower_id, following_id, version, active, changed_at, requested_at, delta)
  SELECT follower_id, following_id, ${NOW}, wanted AND NOT pending, ${NOW},
    CASE WHEN pending OR (wanted AND accepts) THEN ${NOW} END, (wanted AND NOT pending)::int
  FROM compared WHERE CASE WHEN differs THEN (SELECT count(refused) FROM asking) = 0 ELSE false END
  ORDER BY follower_id COLLATE "C", following_id COLLATE "C"
  ON CONFLICT (follower_id, following_id) DO UPDATE
  SET version = GREATEST(f.version + 1, excluded.version), active = excluded.active, changed_at = excluded.changed_at,
    requested_at = CASE WHEN excluded.active THEN NULL ELSE excluded.requested_at END,
    delta = excluded.active::int - f.active::int
  WHERE CASE WHEN excluded.active OR excluded.requested_at IS NOT NULL
    THEN NOT (f.active OR ${BLOCKED})
      AND (excluded.requested_at IS NULL OR (f.requested_at IS NOT NULL) = excluded.active)
    ELSE f.active OR f.requested_at IS NOT NULL END
  RETURNING f.follower_id, f.following_id, f.version, f.active, f.changed_at, f.delta, f.requested_at
), counted AS (
  INSERT INTO users.following_counts AS c (user_id, following, delta)
  SELECT follower_id, GREATEST(sum(delta), 0), sum(delta) FROM edge WHERE delta <> 0
  GROUP BY follower_id ORDER BY follower_id
  ON CONFLICT (user_id) DO UPDATE SET following = GREATEST(c.following + excluded.delta, 0), delta = excluded.delta
  RETURNING CASE WHEN c.delta > 0 AND c.following > (SELECT max(most) FROM w)
    THEN users.refuse_following(c.user_id, (SELECT max(most) FROM w)) END
), written AS (
  SELECT edge.*, w.pair, w.subject, w.traceparent, edge.delta = 0 OR w.accepts OR w.was_requested AS asked
  FROM edge JOIN compared w ON (w.follower_id, w.following_id) = (edge.follower_id, edge.following_id)
), event AS (${insertEvents("edges", EDGE_EVENT, "written e WHERE e.delta <> 0")}
), request AS (${insertEvents("requests", REQUEST_EVENT, "written e WHERE e.asked")})
SELECT edge.version IS NOT NULL AS changed, w.refused, w.pending, coalesce(edge.delta <> 0, false) AS moved,
  CASE WHEN w.differs THEN edge.version ELSE w.version END AS version
FROM compared w LEFT JOIN edge ON (edge.follower_id, edge.following_id) = (w.follower_id, w.following_id)
ORDER BY w.n`,
);

export interface WantedEdge extends Pair {
  readonly wanted: boolean;
  /** Makes a request an edge; without a request nothing changes. */
  readonly accepts?: boolean;
  readonly most: number;
  readonly traceparent?: string | undefined;
}

export interface SetEdge {
  readonly changed: boolean;
  readonly version: number;
  /** The follow is a request, which waits for its approval. */
  readonly pending: boolean;
  /** True: an edge was made or ended. A changed request is no edge. */
  readonly moved: boolean;
  readonly refused: Refusal | undefined;
}

/** The reason of a refusal: a block between the two users, or the field that names an erased one. */
export type Refusal = "blocked" | "follower_id" | "following_id";

interface FoundEdge extends Pick<SetEdge, "changed" | "pending" | "moved"> {
  readonly refused: Refusal | null;
  readonly version: number | null;
}

const NOT_WRITTEN: FoundEdge = { changed: false, pending: false, moved: false, version: null, refused: null };

/** Makes one of several different changes of a pair; the others are undefined. @throws AppError `exhausted` */
export async function setAll(
  queries: Queries,
  edges: readonly WantedEdge[],
  lockMs?: number,
): Promise<(SetEdge | undefined)[]> {
  const first = new Map<string, WantedEdge>();
  for (const edge of edges) if (!first.has(pairKey(edge))) first.set(pairKey(edge), edge);
  const rows = [...first].map(
    ([pair, { follower_id, following_id, wanted, accepts = false, most, traceparent }], n) => ({
      n,
      follower_id,
      following_id,
      wanted,
      accepts,
      most,
      pair,
      traceparent,
      subject: edgeSubject("calm", following_id),
    }),
  );
  const { text, values } = setEdges(rows, lockMs);
  const written = await queries.query<FoundEdge>(text, values).catch((error: unknown) => {
    if (sqlState(error) !== SQLSTATE.raised) throw error;
    const message = `following_id: a user can follow at most ${edges[0]?.most} others`;
    throw new AppError("exhausted", message, { cause: error });
  });
  const set = new Map([...first.keys()].map((pair, n) => [pair, written[n]]));
  return edges.map((edge) => {
    const { changed, version, refused, ...state } = set.get(pairKey(edge)) ?? NOT_WRITTEN;
    const leader = first.get(pairKey(edge));
    const isSame = leader?.wanted === edge.wanted && leader.accepts === edge.accepts;
    if (!isSame || (version === null && refused === null)) return undefined;
    const leads = leader === edge;
    const moved = state.moved && leads;
    return { ...state, moved, changed: changed && leads, version: version ?? 0, refused: refused ?? undefined };
  });
}
