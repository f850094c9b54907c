import { insertEvents } from "../contracts/outbox.js";
import type { Db } from "../platform/db/db.js";
import { type Edge, graphEvent, type Pair, pairKey } from "./edges.js";
import type { Count } from "./lists.sql.js";

const EVENT = {
  owner: "split_part(i.pair, ':', 2)",
  key: "i.pair",
  subject: "i.subject",
  messageId: "i.message_id",
  body: "i.body",
  traceparent: "i.traceparent",
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
  "applied a JOIN incoming i ON (i.following_id, i.follower_id) = (a.following_id, a.follower_id)",
)})
SELECT count(*) AS changed FROM applied`;

export interface TracedEdge extends Edge {
  readonly traceparent?: string | undefined;
}

/** The newest version of a pair wins. Resolves to the number of changed edges. */
export type ApplyEdges = (edges: readonly TracedEdge[]) => Promise<number>;

export function createApplyBatch(db: Pick<Db, "query">): ApplyEdges {
  return async (edges) => {
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
  };
}

/** One statement, so that counts and rows are of one moment. */
const CURRENT = `
SELECT p.following_id AS following, p.follower_id AS follower, coalesce(f.active, false) AS active,
  coalesce(c.followers, 0) AS total, coalesce(c.revision, 0) AS revision
FROM unnest($1::text[], $2::text[]) AS p (follower_id, following_id)
LEFT JOIN users.followers f ON f.following_id = p.following_id AND f.follower_id = p.follower_id
LEFT JOIN users.follower_counts c ON c.user_id = p.following_id`;

interface CurrentRow {
  readonly following: string;
  readonly follower: string;
  readonly active: boolean;
  readonly total: number;
  readonly revision: number;
}

export interface CurrentFollowers {
  readonly count: Count;
  readonly follows: ReadonlyMap<string, boolean>;
}

export type ReadCurrentFollowers = (pairs: readonly Pair[]) => Promise<ReadonlyMap<string, CurrentFollowers>>;

export function createReadCurrentFollowers(db: Pick<Db, "query">): ReadCurrentFollowers {
  return async (pairs) => {
    const values = [pairs.map(({ follower }) => follower), pairs.map(({ following }) => following)];
    const found = new Map<string, CurrentFollowers & { readonly follows: Map<string, boolean> }>();
    for (const { following, follower, active, total, revision } of await db.query<CurrentRow>(CURRENT, values)) {
      const now = found.get(following) ?? { count: { total, revision }, follows: new Map<string, boolean>() };
      now.follows.set(follower, active);
      found.set(following, now);
    }
    return found;
  };
}
