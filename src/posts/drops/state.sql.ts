import type { Counts } from "../../gen/avion/posts.js";
import type { Db } from "../../platform/db/db.js";
import { spanOf } from "./ids.js";

/** The drop_id is the id under which the drop has reactions. */
export interface StoredState extends Counts {
  readonly liked: boolean;
  readonly repost_id: string;
}

export function createStateReads(db: Pick<Db, "query">) {
  return {
    /** The viewer "" has done nothing. */
    states: (keys: readonly string[], viewer: string): Promise<StoredState[]> =>
      db.query<StoredState>(STATES, [keys, viewer, ...spanOf(keys)]),
  };
}

/** Looks each drop up by the primary keys, however many like or share it. */
const STATES = `
SELECT k.drop_id, coalesce(c.likes, 0) AS likes, coalesce(c.shares, 0) AS shares, coalesce(c.replies, 0) AS replies,
  coalesce(r.liked, false) AS liked, coalesce(r.repost_id, '') AS repost_id
FROM unnest($1::uuid[]) AS k (drop_id)
LEFT JOIN LATERAL (
  SELECT likes, shares, replies FROM posts.counts c
  WHERE c.drop_id = k.drop_id AND c.drop_id BETWEEN $3::uuid AND $4::uuid LIMIT 1
) c ON true
LEFT JOIN LATERAL (
  SELECT bool_or(r.kind = 'like') AS liked, max(r.repost_id::text) AS repost_id FROM posts.reactions r
  WHERE r.drop_id = k.drop_id AND r.kind IN ('like', 'share') AND r.actor_id = $2 AND r.active
    AND r.drop_id BETWEEN $3::uuid AND $4::uuid
) r ON true`;
