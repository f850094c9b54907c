import { draftIn, insertEvents } from "../contracts/outbox.js";
import { traceHeaders } from "../delivery/telemetry.js";
import { RelationKind } from "../gen/avion/users.js";
import { type Db, NOW, type Queries } from "../platform/db/db.js";
import { LOCK_TIMEOUT_MS } from "../platform/db/shared-writes.js";
import { setAll } from "./edges.sql.js";
import {
  changeOf,
  endOf,
  type RelationRow,
  relationEvent,
  type StoredRelation,
  tooManyRelations,
  type WantedRelation,
} from "./relations.js";

/** The first key of the advisory locks of users is the bytes of "rels". */
const LOCKS = 0x72_65_6c_73;

/** Changes of a user's relations are made one after another: the statements after this one see those before. */
const LOCK = `SELECT set_config('lock_timeout', $1, true), pg_advisory_xact_lock(${LOCKS}, hashtext($2))`;

/** The row is locked against the end of its mute. The version is null where there is none. */
const READ = `
SELECT ${NOW} AS now, r.* FROM (SELECT) one LEFT JOIN LATERAL (
  SELECT version, active, expires_at, reposts_only, created_at FROM users.relations
  WHERE user_id = $1 AND target_id = $2 AND kind = $3 FOR UPDATE
) r ON true`;

const COUNT = `
SELECT count(*) AS held FROM users.relations
WHERE user_id = $1 AND active AND (expires_at = 0 OR expires_at > (SELECT ${NOW}))`;

const WRITE = `
WITH w AS MATERIALIZED (
  SELECT * FROM json_to_recordset($1::json) AS given (user_id text, target_id text, kind smallint, version bigint,
    active boolean, expires_at bigint, reposts_only boolean, created_at bigint, changed_at bigint, event json)
), written AS (
  INSERT INTO users.relations
    (user_id, target_id, kind, version, active, expires_at, reposts_only, created_at, changed_at)
  SELECT user_id, target_id, kind, version, active, expires_at, reposts_only, created_at, changed_at FROM w
  ON CONFLICT (user_id, target_id, kind) DO UPDATE
  SET version = excluded.version, active = excluded.active, expires_at = excluded.expires_at,
    reposts_only = excluded.reposts_only, created_at = excluded.created_at, changed_at = excluded.changed_at
)
${insertEvents("users", draftIn("w.event"), "w")}`;

/**
 * Marks the edges between two users as blocked by the first one, or no longer. The rows' locks order it and follows: it
 * sees a follow that came first, and one that comes later sees the mark. A row that is marked is not pruned.
 */
const MARK_BLOCK = `
INSERT INTO users.followings AS f (follower_id, following_id, version, active, changed_at, blocking, blocked_by)
SELECT e.follower_id, e.following_id, 0, false, ${NOW}, e.own AND $3, NOT e.own AND $3
FROM (VALUES ($1::text, $2::text, true), ($2, $1, false)) AS e (follower_id, following_id, own)
ORDER BY e.follower_id COLLATE "C", e.following_id COLLATE "C"
ON CONFLICT (follower_id, following_id) DO UPDATE
SET blocking = CASE WHEN f.follower_id = $1 THEN $3 ELSE f.blocking END,
  blocked_by = CASE WHEN f.follower_id = $1 THEN f.blocked_by ELSE $3 END,
  changed_at = CASE WHEN f.active THEN f.changed_at ELSE excluded.changed_at END`;

/** One that another transaction has locked is being changed, or is ended there. */
const ENDED = `
SELECT user_id, target_id, version, created_at, ${NOW} AS now FROM users.relations
WHERE active AND expires_at > 0 AND expires_at <= (SELECT ${NOW})
ORDER BY expires_at LIMIT $1 FOR UPDATE SKIP LOCKED`;

interface SetRelation {
  readonly changed: boolean;
  readonly version: number;
  /** A block has ended their follows. */
  readonly unfollowed: readonly string[];
}

export type RelationStore = ReturnType<typeof createRelationStore>;

export function createRelationStore(db: Db) {
  return {
    /** @throws AppError `invalid` for an end that has passed, `exhausted` where a user would have more than `most` */
    set: (wanted: WantedRelation, most: number): Promise<SetRelation> =>
      db.transaction(async (queries) => {
        const { user_id, target_id, kind } = wanted;
        await queries.query(LOCK, [String(LOCK_TIMEOUT_MS.alone), user_id]);
        const [found] = await queries.query<Found>(READ, [user_id, target_id, kind]);
        const { now, ...before } = found as Found;
        const { row, adds } = changeOf(before.version === null ? undefined : before, wanted, now);
        if (row === undefined) return { changed: false, version: before.version ?? 0, unfollowed: [] };
        if (adds && (await countOf(queries, user_id)) >= most) throw tooManyRelations(most);
        await write(queries, [row]);
        const isBlock = kind === RelationKind.BLOCK;
        return { changed: true, version: row.version, unfollowed: isBlock ? await markBlock(queries, row) : [] };
      }),
    /** Ends mutes whose end has come, at most `limit`; resolves to their number. */
    endMutes: (limit: number): Promise<number> =>
      db.transaction(async (queries) => {
        const ended = await queries.query<RelationRow & { readonly now: number }>(ENDED, [limit]);
        if (ended.length > 0)
          await write(
            queries,
            ended.map(({ now, ...mute }) => endOf(mute, now)),
          );
        return ended.length;
      }),
  };
}

type Found = (StoredRelation | { readonly version: null }) & { readonly now: number };

const countOf = async (queries: Queries, user: string): Promise<number> =>
  (await queries.query<{ held: number }>(COUNT, [user]))[0]?.held ?? 0;

async function write(queries: Queries, rows: readonly RelationRow[]): Promise<void> {
  const traceparent = traceHeaders()["traceparent"];
  const given = rows.map((row) => ({ ...row, event: relationEvent(row, traceparent) }));
  await queries.query(WRITE, [JSON.stringify(given)]);
}

/** A block ends the follows between the two users. Resolves to those who follow no longer. */
async function markBlock(queries: Queries, { user_id, target_id, active }: RelationRow): Promise<string[]> {
  await queries.query(MARK_BLOCK, [user_id, target_id, active]);
  if (!active) return [];
  const edge = { wanted: false, most: 0, traceparent: traceHeaders()["traceparent"] };
  const edges = [
    { ...edge, follower_id: user_id, following_id: target_id },
    { ...edge, follower_id: target_id, following_id: user_id },
  ];
  const set = await setAll(queries, edges, LOCK_TIMEOUT_MS.alone);
  return edges.flatMap(({ follower_id }, n) => (set[n]?.changed ? follower_id : []));
}
