import type { Db } from "../../platform/db/db.js";
import { dropColumns, maybeSeenBy, type StoredDrop } from "./drops.sql.js";
import { LAST_ID } from "./ids.js";
import type { Chunk } from "./pages.js";

interface UserDrops {
  readonly userId: string;
  /** "" sees only drops for everybody. */
  readonly viewer: string;
  readonly replies: boolean;
  readonly reposts: boolean;
}

/** Maximum number of drops of an author that one statement filters for the list. */
const MAX_SCANNED = 5_000;

export function createUserDrops(db: Db) {
  return {
    /** The last drop may be one that the list does not show, if MAX_SCANNED of them stand in a row. */
    userDrops: async (
      { userId, viewer, replies, reposts }: UserDrops,
      [below]: [string] = [LAST_ID],
      limit: number,
    ): Promise<Chunk<StoredDrop, [string]>> => {
      const parameters = [userId, below, viewer, replies, limit, reposts];
      const rows = await db.query<StoredDrop & { readonly row: number }>(USER_DROPS, parameters);
      const last = rows.at(-1);
      const mayGoOn = last !== undefined && (rows.length === limit || last.row === MAX_SCANNED);
      return { rows, next: mayGoOn ? [last.drop_id] : undefined };
    },
  };
}

const USER_DROPS = `
SELECT ${dropColumns()}, d.row::integer FROM (
  SELECT d.*, row_number() OVER (ORDER BY d.drop_id DESC) AS row FROM posts.drops d
  WHERE d.user_id = $1 AND d.deleted_at IS NULL AND d.drop_id < $2::uuid
  ORDER BY d.drop_id DESC LIMIT ${MAX_SCANNED}
) d
WHERE d.row = ${MAX_SCANNED} OR (
  ($4::boolean OR d.reply_to IS NULL) AND ($6::boolean OR d.repost_of IS NULL) AND ${maybeSeenBy("$3")}
)
ORDER BY d.drop_id DESC LIMIT $5`;
