import { draftIn, type EventDraft, insertEvents, withVersion } from "../../contracts/outbox.js";
import { DAY } from "../../kernel/time.js";
import { type Db, NOW, PLANNED_EACH_TIME } from "../../platform/db/db.js";
import { inItsMonth } from "../drops/create.sql.js";
import { erasedConflict, notErased } from "../drops/erased.sql.js";
import { dropDeleted } from "../drops/events.js";
import { createdAtOf, lowestId, spanOf } from "../drops/ids.js";
import type { PartitionStore } from "../drops/partitions.sql.js";

interface Share {
  /** The id under which the original has reactions. */
  readonly original: string;
  /** The URI of a remote original. */
  readonly uri?: string | undefined;
  readonly sharer: string;
  readonly repostId: string;
  readonly visibility: number;
  readonly created: EventDraft;
  readonly shared: EventDraft;
}

interface Withdrawal {
  readonly original: string;
  readonly sharer: string;
  /** Undefined withdraws a share that was made before reposts existed. */
  readonly repostId: string | undefined;
  readonly deleted: EventDraft | undefined;
  readonly unshared: EventDraft;
}

interface Shared {
  readonly found: boolean;
  readonly changed: boolean;
  readonly repostId: string | null;
  readonly erased: boolean;
}

export type RepostStore = ReturnType<typeof createRepostStore>;

/** The lock of the share's row orders a share, its repost and their events: counts and reposts cannot drift apart. */
export function createRepostStore(db: Pick<Db, "query">, partitions: Pick<PartitionStore, "make">) {
  const removeFound = async (sql: string, parameters: readonly unknown[]): Promise<number> => {
    const reposts = await db.query<{ drop_id: string; user_id: string }>(sql, parameters, PLANNED_EACH_TIME);
    if (reposts.length === 0) return 0;
    const drafts = reposts.map(({ drop_id, user_id }) => dropDeleted(drop_id, user_id));
    const span = spanOf(reposts.map(({ drop_id }) => drop_id));
    await db.query(REMOVE, [JSON.stringify(drafts), ...span], PLANNED_EACH_TIME);
    return reposts.length;
  };
  return {
    /**
     * Resolves to the existing repost if the drop is shared already. @throws AppError `conflict` for an erased
     * sharer
     */
    share: async ({ original, uri, sharer, repostId, visibility, created, shared }: Share): Promise<Shared> => {
      const values = [original, sharer, repostId, createdAtOf(repostId), created, shared, visibility];
      const sql = uri === undefined ? SHARE.local : SHARE.remote;
      const once = async () => (await db.query<Shared>(sql, values))[0] as Shared;
      const first = await inItsMonth(partitions, repostId, once);
      // A share that was committed while this one waited for it is visible to the next statement only.
      const result = first.found && first.repostId === null ? await once() : first;
      if (result.erased) throw erasedConflict("user_id");
      return result;
    },
    shareOf: async (original: string, sharer: string) => {
      const sql = `SELECT active, repost_id AS "repostId" FROM posts.reactions
        WHERE drop_id = $1 AND kind = 'share' AND actor_id = $2`;
      return (await db.query<{ active: boolean; repostId: string | null }>(sql, [original, sharer]))[0];
    },
    /**
     * Withdraws a share and deletes its repost. Resolves to whether the drop was shared; an erased user shares nothing.
     */
    withdraw: async ({ original, sharer, repostId, deleted, unshared }: Withdrawal): Promise<boolean> => {
      const [row] = await db.query<{ changed: boolean }>(WITHDRAW, [original, sharer, repostId, deleted, unshared]);
      return row?.changed ?? false;
    },
    /** Each of the three functions below deletes at most `limit` reposts, and resolves to their number, or to more. */
    removeOf: (originals: readonly string[], limit: number): Promise<number> => {
      // The clock that made the repost's id may have been behind that of the original's.
      const lowest = lowestId(Math.max(createdAtOf(spanOf(originals)[0]) - DAY, 0));
      return removeFound(REPOSTS_OF, [originals, lowest, limit]);
    },
    removeOfAuthor: (author: string, limit: number): Promise<number> => removeFound(REPOSTS_OF_AUTHOR, [author, limit]),
    removeOlder: (before: number, limit: number): Promise<number> =>
      removeFound(REPOSTS_OF_OLDER, [lowestId(before), limit]),
  };
}

const LOCAL_TARGET = `
  SELECT drop_id, NULL::text AS uri, user_id, visibility FROM posts.drops
  WHERE drop_id = $1 AND deleted_at IS NULL AND ${notErased("$2")} FOR SHARE`;

const REMOTE_TARGET = `
  SELECT drop_id, uri, actor_uri AS user_id, visibility FROM posts.remote_objects
  WHERE drop_id = $1 AND kind = 1 AND deleted_at IS NULL AND ${notErased("$2")} FOR SHARE`;

/** A deletion of the original waits for the lock of `target`: no repost comes after it. */
const share = (target: string): string => `
WITH target AS (${target}), before AS (
  SELECT active, repost_id FROM posts.reactions WHERE drop_id = $1 AND kind = 'share' AND actor_id = $2 FOR UPDATE
), changed AS (
  INSERT INTO posts.reactions AS r (drop_id, kind, actor_id, active, version, changed_at, repost_id)
  SELECT target.drop_id, 'share', $2, true, 1, ${NOW}, $3::uuid FROM target LEFT JOIN before ON true
  ON CONFLICT (drop_id, kind, actor_id) DO UPDATE SET active = true, version = r.version + 1,
    changed_at = excluded.changed_at, repost_id = coalesce(r.repost_id, excluded.repost_id)
  WHERE NOT r.active OR r.repost_id IS NULL
  RETURNING version, repost_id
), made AS (
  INSERT INTO posts.drops
    (drop_id, user_id, visibility, recipients, summary, body, updated_at, changed_at, repost_of, repost_author,
     repost_uri)
  SELECT $3::uuid, $2, greatest(target.visibility, $7::smallint), '{}', '', '', $4::bigint, ${NOW}, target.drop_id, target.user_id, target.uri
  FROM target JOIN changed ON changed.repost_id = $3::uuid
  RETURNING drop_id
), creation AS (
  ${insertEvents("posts", draftIn("$5::json"), "made")}
), engagement AS (
  ${insertEvents("reactions", withVersion(draftIn("$6::json"), "version"), "changed")}
)
SELECT EXISTS (SELECT FROM target) AS found, NOT ${notErased("$2")} AS erased,
  EXISTS (SELECT FROM changed) AND NOT coalesce((SELECT active FROM before), false) AS changed,
  coalesce((SELECT repost_id FROM changed), (SELECT repost_id FROM before)) AS "repostId"`;

const SHARE = { local: share(LOCAL_TARGET), remote: share(REMOTE_TARGET) };

/** A repost is changed after its share is locked, whichever of the two a call names. */
const WITHDRAW = `
WITH share AS (
  SELECT active, repost_id FROM posts.reactions WHERE drop_id = $1 AND kind = 'share' AND actor_id = $2 FOR UPDATE
), changed AS (
  UPDATE posts.reactions r SET active = false, version = r.version + 1, changed_at = ${NOW}, repost_id = NULL
  FROM share
  WHERE r.drop_id = $1 AND r.kind = 'share' AND r.actor_id = $2
    AND (share.active OR share.repost_id IS NOT NULL) AND share.repost_id IS NOT DISTINCT FROM $3::uuid
    AND ${notErased("$2")}
  RETURNING r.version
), engagement AS (
  ${insertEvents("reactions", withVersion(draftIn("$5::json"), "version"), "changed")}
), gone AS (
  UPDATE posts.drops d SET deleted_at = ${NOW}, changed_at = ${NOW}, purged = true
  FROM (SELECT count(*) FROM share) locked
  WHERE d.drop_id = $3::uuid AND d.user_id = $2 AND d.repost_of = $1 AND d.deleted_at IS NULL AND ${notErased("$2")}
  RETURNING d.drop_id
), deletion AS (
  ${insertEvents("posts", draftIn("$4::json"), "gone")}
)
SELECT EXISTS (SELECT FROM changed) AND coalesce((SELECT active FROM share), false) AS changed`;

/** The condition of the index. */
const REPOSTS = "SELECT drop_id, user_id FROM posts.drops WHERE repost_of IS NOT NULL AND deleted_at IS NULL";

const REPOSTS_OF = `${REPOSTS} AND repost_of = ANY ($1::uuid[]) AND drop_id >= $2::uuid LIMIT $3`;
const REPOSTS_OF_AUTHOR = `${REPOSTS} AND repost_author = $1 LIMIT $2`;
const REPOSTS_OF_OLDER = `${REPOSTS} AND repost_of < $1::uuid LIMIT $2`;

/** One of several processes deletes a drop. The parameters are the events as JSON, and the lowest and highest id. */
export const removal = (set: string, owner?: string): string => `
WITH e AS (
  SELECT draft, (draft ->> 'key')::uuid AS drop_id FROM json_array_elements($1::json) AS draft
), picked AS (
  SELECT drop_id FROM posts.drops
  WHERE drop_id = ANY (ARRAY(SELECT e.drop_id FROM e)) AND drop_id BETWEEN $2::uuid AND $3::uuid AND deleted_at IS NULL
  ORDER BY drop_id FOR UPDATE
), gone AS (
  UPDATE posts.drops d SET deleted_at = clock.now, changed_at = clock.now, ${set}
  FROM picked, (SELECT ${NOW} AS now) clock
  WHERE d.drop_id = picked.drop_id AND d.drop_id BETWEEN $2::uuid AND $3::uuid
  RETURNING d.drop_id, d.repost_of
), event AS (
  ${insertEvents("posts", { ...draftIn("e.draft"), ...(owner && { owner }) }, "gone JOIN e USING (drop_id)")}
)
SELECT FROM gone`;

/** The events belong to the original: as many owners as sharers would take as many turns in the outbox. */
const REMOVE = removal("purged = true", "gone.repost_of::text");
