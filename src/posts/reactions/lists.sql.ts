import type { DropReaction, Reaction } from "../../gen/avion/posts.js";
import type { Db } from "../../platform/db/db.js";
import type { StoredDrop } from "../drops/drops.sql.js";
import type { ReactionKey } from "../drops/events.js";
import { FIRST_ID } from "../drops/ids.js";
import { REMOTE_REPLY_AUTHOR } from "../drops/remote-drops.sql.js";

type Kind = Exclude<ReactionKey["kind"], "reply">;

export type At = readonly [at: number, id: string];

export interface ReactedDrop
  extends DropReaction,
    Pick<StoredDrop, "user_id" | "visibility" | "recipients" | "mentions" | "reply_to_author"> {
  readonly deleted: boolean;
  /** The id under which the drop has reactions. */
  readonly key: string;
  /** The visibility of the repost that a share has made, null if there is none. */
  readonly share_visibility: number | null;
}

export interface ListedReaction extends Reaction {
  /** The repost that a share has made; null for a like. */
  readonly repost_id: string | null;
  /** The visibility of the repost, null if there is none. */
  readonly visibility: number | null;
}

const NEWEST: At = [Number.MAX_SAFE_INTEGER, ""];
const NEWEST_DROP: At = [Number.MAX_SAFE_INTEGER, FIRST_ID];

export function createListReads(db: Db) {
  return {
    ofDrop: (dropId: string, kind: Kind, [reactedAt, id]: At = NEWEST, limit: number): Promise<ListedReaction[]> =>
      db.query<ListedReaction>(OF_DROP, [dropId, kind, reactedAt, id, limit]),
    ofUser: (userId: string, kind: Kind, [reactedAt, id]: At = NEWEST_DROP, limit: number): Promise<ReactedDrop[]> =>
      db.query<ReactedDrop>(OF_USER, [userId, kind, reactedAt, id, limit]),
  };
}

/** The condition on the kind is that of the index. */
const LISTED = "r.active AND r.kind <> 'reply' AND r.kind = $2";

const REPOST = "LEFT JOIN LATERAL (SELECT visibility FROM posts.drops WHERE drop_id = r.repost_id LIMIT 1) s ON true";

const OF_DROP = `
SELECT r.actor_id AS user_id, r.changed_at AS at, r.repost_id, s.visibility FROM posts.reactions r ${REPOST}
WHERE r.drop_id = $1 AND ${LISTED} AND (r.changed_at, r.actor_id) < ($3::bigint, $4::text COLLATE "C")
ORDER BY r.changed_at DESC, r.actor_id DESC LIMIT $5`;

/** A deleted drop is on the page, too: the next one begins below it. */
const OF_USER = `
SELECT coalesce(o.uri, r.drop_id::text) AS drop_id, r.drop_id AS key, r.changed_at AS at,
  d.drop_id IS NULL AND o.uri IS NULL AS deleted, coalesce(d.user_id, o.actor_uri, '') AS user_id,
  coalesce(d.visibility, o.visibility, 0) AS visibility, coalesce(d.recipients, o.recipients, '{}') AS recipients,
  coalesce(d.mentions, o.mentions, '{}') AS mentions, coalesce(d.reply_author, ${REMOTE_REPLY_AUTHOR}) AS reply_to_author,
  s.visibility AS share_visibility
FROM (
  SELECT r.drop_id, r.changed_at, r.repost_id FROM posts.reactions r
  WHERE r.actor_id = $1 AND ${LISTED} AND (r.changed_at, r.drop_id) < ($3::bigint, $4::uuid)
  ORDER BY r.changed_at DESC, r.drop_id DESC LIMIT $5
) r
${REPOST}
LEFT JOIN LATERAL (
  SELECT d.drop_id, d.user_id, d.visibility, d.recipients, d.mentions, d.reply_author FROM posts.drops d
  WHERE d.drop_id = r.drop_id AND d.deleted_at IS NULL LIMIT 1
) d ON true
LEFT JOIN posts.remote_objects o ON o.drop_id = r.drop_id AND o.deleted_at IS NULL
ORDER BY r.changed_at DESC, r.drop_id DESC`;
