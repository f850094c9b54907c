import { draftIn, insertEvents } from "../contracts/outbox.js";
import { RelationKind } from "../gen/avion/users.js";
import { type Db, NOW, type Queries } from "../platform/db/db.js";
import { LOCK_TIMEOUT_MS } from "../platform/db/shared-writes.js";
import { traceHeaders } from "../telemetry/spans.js";
import { erasedColumn, erasedConflict, isNotErased, RELATION_IDS } from "./erased.sql.js";
import {
  changeOf,
  endOf,
  type RelationRow,
  relationEvent,
  type StoredRelation,
  tooManyRelations,
  type WantedRelation,
} from "./relations.js";
import { setAll } from "./set-edges.sql.js";

/** The first key of the advisory locks of users is the bytes of "rels". */
const LOCKS = 0x72_65_6c_73;

/** Changes of a user's relations are made one after another: the statements after this one see those before. */
const LOCK = `SELECT set_config('lock_timeout', $1, true), pg_advisory_xact_lock(${LOCKS}, hashtext($2))`;

/** The row is locked against the end of its mute. The version is null if there is none. */
const READ = `
SELECT ${NOW} AS now, ${erasedColumn("one", RELATION_IDS)} AS erased, r.*
FROM (SELECT $1::text AS user_id, $2::text AS target_id) one LEFT JOIN LATERAL (
  SELECT version, active, expires_at, reposts_only, created_at FROM users.relations
  WHERE user_id = $1 AND target_id = $2 AND kind = $3 FOR UPDATE
) r ON true`;

const COUNT = `
SELECT count(*) AS held FROM users.relations
WHERE user_id = $1 AND active AND (expires_at = 0 OR expires_at > (SELECT ${NOW}))`;

/** A row that names an erased user is left out: the transaction may have read before the erasure. */
const WRITE = `
WITH w AS MATERIALIZED (
  SELECT * FROM json_to_recordset($1::json) AS given (user_id text, target_id text, kind smallint, version bigint,
    active boolean, expires_at bigint, reposts_only boolean, created_at bigint, changed_at bigint, event json)
  WHERE ${isNotErased("given.user_id", "given.target_id")}
), written AS (
  INSERT INTO users.relations
    (user_id, target_id, kind, version, active, expires_at, reposts_only, created_at, changed_at)
  SELECT user_id, target_id, kind, version, active, expires_at, reposts_only, created_at, changed_at FROM w
  ON CONFLICT (user_id, target_id, kind) DO UPDATE
  SET version = excluded.version, active = excluded.active, expires_at = excluded.expires_at,
    reposts_only = excluded.reposts_only, created_at = excluded.created_at, changed_at = excluded.changed_at
)
${insertEvents("users", draftIn("w.event"), "w")} RETURNING 1`;

/**
 * The rows' locks order a block and follows: it sees a follow that came first, and one that comes later sees the mark.
 * A row that is marked is not pruned.
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

/** SKIP LOCKED: another transaction that has locked a mute changes or ends it. */
const ENDED = `
SELECT user_id, target_id, version, created_at, ${NOW} AS now FROM users.relations r
WHERE active AND expires_at > 0 AND expires_at <= (SELECT ${NOW}) AND ${isNotErased("r.user_id", "r.target_id")}
ORDER BY expires_at LIMIT $1 FOR UPDATE SKIP LOCKED`;

interface SetRelation {
  readonly changed: boolean;
  readonly version: number;
  /** A block has ended the follows of these. */
  readonly unfollowed: readonly string[];
}

export type RelationStore = ReturnType<typeof createRelationStore>;

export function createRelationStore(db: Db) {
  return {
    /**
     * @throws AppError `invalid` for an end that has passed, `exhausted` if a user would have more than `most`,
     * `conflict` if a user is erased
     */
    set: async (wanted: WantedRelation, most: number): Promise<SetRelation> => {
      for (;;) {
        const set = await db.transaction((queries) => setOnce(queries, wanted, most));
        if (set !== undefined) return set;
      }
    },
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

/** Resolves to undefined if an erasure came between. */
async function setOnce(queries: Queries, wanted: WantedRelation, most: number): Promise<SetRelation | undefined> {
  const { user_id, target_id, kind } = wanted;
  await queries.query(LOCK, [String(LOCK_TIMEOUT_MS.alone), user_id]);
  const [state] = await queries.query<PairState>(READ, [user_id, target_id, kind]);
  const { now, erased, ...before } = state as PairState;
  if (erased !== null) throw erasedConflict(erased);
  const { row, adds } = changeOf(before.version === null ? undefined : before, wanted, now);
  if (row === undefined) return { changed: false, version: before.version ?? 0, unfollowed: [] };
  if (adds && (await countOf(queries, user_id)) >= most) throw tooManyRelations(most);
  if ((await write(queries, [row])) === 0) return undefined;
  const isBlock = kind === RelationKind.BLOCK;
  return { changed: true, version: row.version, unfollowed: isBlock ? await markBlock(queries, row) : [] };
}

type PairState = (StoredRelation | { readonly version: null }) & {
  readonly now: number;
  readonly erased: string | null;
};

const countOf = async (queries: Queries, user: string): Promise<number> =>
  (await queries.query<{ held: number }>(COUNT, [user]))[0]?.held ?? 0;

async function write(queries: Queries, rows: readonly RelationRow[]): Promise<number> {
  const traceparent = traceHeaders()["traceparent"];
  const given = rows.map((row) => ({ ...row, event: relationEvent(row, traceparent) }));
  return (await queries.query(WRITE, [JSON.stringify(given)])).length;
}

/** A block ends the follows between the two users. Resolves to the users whose follow has ended. */
async function markBlock(queries: Queries, { user_id, target_id, active }: RelationRow): Promise<string[]> {
  await queries.query(MARK_BLOCK, [user_id, target_id, active]);
  if (!active) return [];
  const edge = { wanted: false, most: 0, traceparent: traceHeaders()["traceparent"] };
  const edges = [
    { ...edge, follower_id: user_id, following_id: target_id },
    { ...edge, follower_id: target_id, following_id: user_id },
  ];
  const set = await setAll(queries, edges, LOCK_TIMEOUT_MS.alone);
  return edges.flatMap(({ follower_id }, n) => (set[n]?.moved ? follower_id : []));
}
