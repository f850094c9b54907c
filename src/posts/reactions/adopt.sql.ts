import type { Db } from "../../platform/db/db.js";
import { createdAtOf, monthOf } from "../drops/ids.js";
import type { PartitionStore } from "../drops/partitions.sql.js";

/** A remote drop that others may not count yet, or still count though it is deleted. */
export interface Unlinked {
  readonly uri: string;
  /** Null if an earlier version has stored it: its document is then read here. */
  readonly drop_id: string | null;
  readonly reply_to: string | null;
  readonly created_at: number;
  readonly visibility: number;
  readonly deleted: boolean;
  readonly document: string;
}

/** Finds remote drops that are not linked yet, and the ids under which remote drops have reactions. */
export function createAdoption(db: Db, partitions: Pick<PartitionStore, "make">) {
  const made = new Set<string>();
  return {
    unlinked: (limit: number, uris?: readonly string[]): Promise<Unlinked[]> =>
      uris === undefined ? db.query(unlinked("true"), [limit]) : db.query(unlinked("uri = ANY ($2)"), [limit, uris]),
    /** Returns deleted drops of an actor that others still count. */
    unlinkedOf: (actorUri: string, limit: number): Promise<Unlinked[]> =>
      db.query(unlinked("actor_uri = $2 AND deleted_at IS NOT NULL AND linked <> 2"), [limit, actorUri]),
    adopt: async (drops: readonly { uri: string; drop_id: string; reply_to: string | null }[]): Promise<void> =>
      void (await db.query(ADOPT, [JSON.stringify(drops)])),
    /** Returns the ids under which remote drops, deleted or not, have reactions. */
    keys: async (uris: readonly string[]): Promise<ReadonlyMap<string, string>> => {
      const rows = await db.query<{ uri: string; drop_id: string }>(KEYS, [uris]);
      return new Map(rows.map(({ uri, drop_id }) => [uri, drop_id]));
    },
    /** Makes the month of a remote drop before anything else is stored about it. */
    ensureMonth: async (key: string): Promise<void> => {
      const month = monthOf(createdAtOf(key));
      if (made.has(month.name)) return;
      await partitions.make(month);
      made.add(month.name);
    },
  };
}

const unlinked = (condition: string): string => `
SELECT uri, drop_id, reply_to, created_at, visibility, deleted_at IS NOT NULL AS deleted,
  CASE WHEN drop_id IS NULL THEN document ELSE '' END AS document
FROM posts.remote_objects
WHERE kind = 1 AND linked <> CASE WHEN deleted_at IS NULL THEN 1 ELSE 2 END AND ${condition} ORDER BY uri LIMIT $1`;

const ADOPT = `
WITH a AS (
  SELECT uri COLLATE "C" AS uri, drop_id, reply_to FROM json_to_recordset($1::json) AS a (uri text, drop_id uuid, reply_to text)
), picked AS (
  SELECT uri FROM posts.remote_objects WHERE uri = ANY (ARRAY(SELECT uri FROM a)) AND drop_id IS NULL
  ORDER BY uri FOR UPDATE
)
UPDATE posts.remote_objects o SET drop_id = a.drop_id, reply_to = a.reply_to
FROM picked JOIN a ON a.uri = picked.uri WHERE o.uri = picked.uri`;

const KEYS = "SELECT uri, drop_id FROM posts.remote_objects WHERE uri = ANY ($1::text[]) AND drop_id IS NOT NULL";
