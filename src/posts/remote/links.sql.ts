import { draftIn, type EventDraft, insertEvents, withVersion } from "../../contracts/outbox.js";
import { type Db, NOW, PLANNED_EACH_TIME } from "../../platform/db/db.js";
import type { ReactionKey } from "../drops/events.js";
import { isUri } from "../drops/request.js";
import type { Unlinked } from "../reactions/adopt.sql.js";
import { keysOf, lockedReactions } from "../reactions/reactions.sql.js";

export interface ReplyDraft {
  /** A drop id, or the URI of a remote drop. */
  readonly reply: string;
  readonly event: EventDraft;
}

interface Parent {
  /** A drop id, or the URI of a remote drop. */
  readonly id: string;
  /** The id under which the parent has reactions. */
  readonly key: string;
}

export function createLinkStore(db: Db) {
  const names = async (sql: string, ...values: readonly unknown[]): Promise<string[]> =>
    (await db.query<{ name: string }>(sql, values, PLANNED_EACH_TIME)).map(({ name }) => name);
  return {
    /** Returns those of some remote drops that something replies to, or that reactions wait for. */
    parentsAmong: (uris: readonly string[]): Promise<string[]> => names(PARENTS_AMONG, uris),
    /** Returns replies to a remote drop that do not count yet. */
    uncounted: ({ id, key }: Parent, limit: number): Promise<string[]> => names(UNCOUNTED, id, key, limit),
    /** Counts replies, unless one of the two drops is deleted. All replies are local, or all are remote. */
    attach: async ({ id, key }: Parent, replies: readonly ReplyDraft[]): Promise<number> => {
      const sql = isUri(replies[0]?.reply ?? "") ? (isUri(id) ? ATTACH.remote : ATTACH.toLocal) : ATTACH.local;
      return (await db.query(sql, [id, key, JSON.stringify(replies)])).length;
    },
    detach: async (replies: readonly (ReactionKey & { readonly event: EventDraft })[]): Promise<void> => {
      await db.query(DETACH, [...keysOf(replies), JSON.stringify(replies)], PLANNED_EACH_TIME);
    },
    forgetCounts: async (keys: readonly string[]): Promise<void> => void (await db.query(FORGET_COUNTS, [keys])),
    done: async (drops: readonly Pick<Unlinked, "uri" | "deleted">[]): Promise<void> => {
      const named = (deleted: boolean) => drops.filter((drop) => drop.deleted === deleted).map(({ uri }) => uri);
      await db.query(DONE, [named(false), named(true)]);
    },
  };
}

const PARENTS_AMONG = `
SELECT asked.name FROM unnest($1::text[]) AS asked (name)
WHERE EXISTS (SELECT FROM posts.remote_objects o WHERE o.reply_to = asked.name AND o.deleted_at IS NULL)
  OR EXISTS (SELECT FROM posts.drops d WHERE d.reply_to = asked.name AND d.deleted_at IS NULL)
  OR EXISTS (SELECT FROM posts.remote_reactions r WHERE r.object = asked.name AND r.deleted_at IS NULL AND r.linked <> 1)`;

const isUncounted = (reply: string): string => `NOT EXISTS (
  SELECT FROM posts.reactions r WHERE r.drop_id = $2 AND r.kind = 'reply' AND r.actor_id = ${reply}
)`;

/** Only public and unlisted replies count. */
const UNCOUNTED = `
(SELECT o.uri AS name FROM posts.remote_objects o
 WHERE o.reply_to = $1 AND o.deleted_at IS NULL AND o.visibility <= 2 AND ${isUncounted("o.uri")} LIMIT $3)
UNION ALL
(SELECT d.drop_id::text FROM posts.drops d
 WHERE d.reply_to = $1 AND d.deleted_at IS NULL AND d.visibility <= 2 AND ${isUncounted("d.drop_id::text")} LIMIT $3)
LIMIT $3`;

/** Remote drops are locked in the order of their URIs, whichever of them is the parent. */
const lockedRemote = (uris: string): string => `
  SELECT uri, drop_id FROM posts.remote_objects
  WHERE uri = ANY (ARRAY(${uris})) AND kind = 1 AND deleted_at IS NULL ORDER BY uri FOR SHARE`;

const REPLIES = `SELECT reply COLLATE "C" FROM c`;

const attach = (locked: string): string => `
WITH c AS (
  SELECT reply, event FROM json_to_recordset($3::json) AS c (reply text, event json)
), ${locked}, made AS (
  INSERT INTO posts.reactions (drop_id, kind, actor_id, active, version, changed_at)
  SELECT target.drop_id, 'reply', c.reply, true, 1, ${NOW} FROM c JOIN replies USING (reply) CROSS JOIN target
  WHERE target.drop_id = $2::uuid
  ON CONFLICT DO NOTHING RETURNING actor_id, version
), event AS (
  ${insertEvents("reactions", withVersion(draftIn("c.event"), "version"), "made JOIN c ON c.reply = made.actor_id")}
)
SELECT actor_id FROM made`;

const LOCAL_TARGET = `target AS (
  SELECT drop_id FROM posts.drops WHERE drop_id = $1::uuid AND deleted_at IS NULL AND repost_of IS NULL FOR SHARE
)`;

const ATTACH = {
  toLocal: attach(`
    locked AS (${lockedRemote(REPLIES)}), replies AS (SELECT uri AS reply FROM locked), ${LOCAL_TARGET}`),
  remote: attach(`
    locked AS (${lockedRemote(`${REPLIES} UNION SELECT $1::text COLLATE "C"`)}),
    replies AS (SELECT uri AS reply FROM locked), target AS (SELECT drop_id FROM locked WHERE uri = $1::text)`),
  local: attach(`
    locked AS (${lockedRemote('SELECT $1::text COLLATE "C"')}), target AS (SELECT drop_id FROM locked),
    replies AS (
      SELECT drop_id::text AS reply FROM posts.drops
      WHERE drop_id = ANY (ARRAY(SELECT reply::uuid FROM c)) AND deleted_at IS NULL ORDER BY drop_id FOR SHARE
    )`),
};

const DETACH = `
WITH locked AS (${lockedReactions("r.active")}), gone AS (
  UPDATE posts.reactions r SET active = false, version = r.version + 1, changed_at = ${NOW} FROM locked l
  WHERE r.drop_id = l.drop_id AND r.kind = l.kind AND r.actor_id = l.actor_id AND r.active
    AND r.drop_id BETWEEN $4::uuid AND $5::uuid
  RETURNING r.drop_id, r.actor_id, r.version
), d AS (
  SELECT drop_id, actor_id, event FROM json_to_recordset($6::json) AS d (drop_id uuid, actor_id text, event json)
)
${insertEvents("reactions", withVersion(draftIn("d.event"), "version"), "gone JOIN d USING (drop_id, actor_id)")}`;

const FORGET_COUNTS = "DELETE FROM posts.counts WHERE drop_id = ANY ($1::uuid[])";

const DONE = `
WITH picked AS (
  SELECT uri, deleted_at FROM posts.remote_objects
  WHERE (uri = ANY ($1::text[]) AND deleted_at IS NULL) OR (uri = ANY ($2::text[]) AND deleted_at IS NOT NULL)
  ORDER BY uri FOR UPDATE
)
UPDATE posts.remote_objects o SET linked = CASE WHEN picked.deleted_at IS NULL THEN 1 ELSE 2 END
FROM picked WHERE o.uri = picked.uri`;
