import type { Db } from "../../platform/db/db.js";
import { dropColumns, maybeSeenBy, type StoredDrop } from "./drops.sql.js";
import { maybeSeenRemote, REMOTE_COLUMNS, type StoredRemoteObject } from "./remote-drops.sql.js";

interface Level {
  /** The drops that are replied to, as replies name them. */
  readonly parents: readonly string[];
  /** For each parent the id of a reply: those after it are read. */
  readonly after: readonly string[];
  /** "" sees only drops for everybody. */
  readonly viewer: string;
}

/** `parent` is the place of the parent in the list, from 1. */
type Child<Row> = Row & { readonly parent: number };
type RemoteDrop = StoredRemoteObject & { readonly drop_id: string };

export function createThreadReads(db: Pick<Db, "query">) {
  const children = async <Row>(sql: string, { parents, after, viewer }: Level, limit: number): Promise<Child<Row>[]> =>
    db.query<Child<Row>>(sql, [parents, after, limit, viewer]);
  return {
    /** Returns the drops above a drop, the nearest first: ids and URIs. */
    above: async (id: string, limit: number): Promise<string[]> =>
      (await db.query<{ id: string }>(ABOVE, [id, limit])).map((row) => row.id),
    /** Returns the first replies, deleted ones too, in the order of their parents and then of their ids. */
    local: (level: Level, limit: number) => children<StoredDrop>(LOCAL, level, limit),
    remote: (level: Level, limit: number) => children<RemoteDrop>(REMOTE, level, limit),
    remoteByKeys: (keys: readonly string[]): Promise<RemoteDrop[]> => db.query<RemoteDrop>(REMOTE_BY_KEYS, [keys]),
  };
}

/** Documents may reply to each other in a circle. */
const ABOVE = `
WITH RECURSIVE up (id, n) AS (
  SELECT $1::text COLLATE "C", 0
  UNION ALL
  SELECT p.reply_to, up.n + 1 FROM up CROSS JOIN LATERAL (
    SELECT d.reply_to FROM posts.drops d WHERE d.drop_id = CASE WHEN up.id !~ ':' THEN up.id::uuid END
    UNION ALL
    SELECT o.reply_to FROM posts.remote_objects o WHERE o.uri = up.id AND o.kind = 1
  ) p WHERE p.reply_to IS NOT NULL AND up.n < $2
)
SELECT id FROM up WHERE n > 0 ORDER BY n`;

/** The conditions are those of two indexes: each parent costs a few reads, however many replies it has. */
const children = (row: string, columns: string, table: string, seen: string): string => {
  const part = (deleted: string): string => `
    (SELECT ${columns} FROM posts.${table} ${row}
     WHERE ${row}.reply_to = p.id AND ${row}.deleted_at ${deleted} AND ${row}.drop_id > p.after AND ${seen}
     ORDER BY ${row}.drop_id LIMIT $3)`;
  return `
SELECT p.n::integer AS parent, c.* FROM unnest($1::text[], $2::uuid[]) WITH ORDINALITY AS p (id, after, n)
CROSS JOIN LATERAL (${part("IS NULL")} UNION ALL ${part("IS NOT NULL")} ORDER BY drop_id LIMIT $3) c
ORDER BY p.n, c.drop_id LIMIT $3`;
};

const LOCAL = children("d", dropColumns(), "drops", maybeSeenBy("$4"));
const REMOTE = children("o", REMOTE_COLUMNS, "remote_objects", maybeSeenRemote("$4"));

const REMOTE_BY_KEYS = `
SELECT ${REMOTE_COLUMNS} FROM posts.remote_objects o WHERE o.drop_id = ANY ($1::uuid[]) AND o.kind = 1`;
