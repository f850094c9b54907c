import { type Drop, Visibility } from "../../gen/avion/posts.js";
import { compareBytes, isUuid } from "../../kernel/ids.js";
import { createBatch } from "../../kernel/sharing.js";
import { SECOND } from "../../kernel/time.js";
import { type Db, PLANNED_EACH_TIME } from "../../platform/db/db.js";
import { dropColumns, maybeSeenBy, type Position, type StoredDrop } from "./drops.sql.js";
import { createdAtOf, LAST_ID, lowestId, spanOf } from "./ids.js";

type ChangedDrop = Drop & { readonly changed_at: number };

interface AuthorPage {
  readonly below: Position | undefined;
  readonly limit: number;
  /** The reader sees the direct drops to or by this user. "" sees none, undefined sees all, with their recipients. */
  readonly reader?: string | undefined;
}

interface AuthorDrops {
  readonly drops: Drop[];
  readonly end: boolean;
}

/** Maximum number of drops that a page is filtered from. Beyond it two indexes lead past direct drops to others. */
const MAX_SCANNED = 2_000;

const DROPS_AT_ONCE = 100;
/** Maximum time for which a read holds up others. */
const OVERTAKEN_AFTER_MS = SECOND / 4;

export function createDropReads(db: Db) {
  const byIds = (ids: readonly string[]): Promise<StoredDrop[]> => db.query<StoredDrop>(BY_IDS, [ids, ...spanOf(ids)]);
  const byEachId = async (ids: readonly string[]): Promise<(StoredDrop | undefined)[]> => {
    const drops = new Map((await byIds(ids)).map((drop) => [drop.drop_id, drop]));
    return ids.map((id) => drops.get(id));
  };
  return {
    byIds,
    /** Reads of single drops that are asked for together share a statement. */
    byId: createBatch(DROPS_AT_ONCE, byEachId, OVERTAKEN_AFTER_MS),
    revisions: (dropId: string, below: number, limit: number): Promise<StoredDrop[]> =>
      db.query<StoredDrop>(REVISIONS, [dropId, below, limit]),
    /**
     * Returns replies that are for everybody; with a viewer also all replies for followers, direct ones to the viewer,
     * and the viewer's own.
     */
    replies: (
      { replyTo, after, viewer }: { replyTo: string; after: string; viewer: string },
      limit: number,
    ): Promise<StoredDrop[]> => db.query<StoredDrop>(REPLIES, [replyTo, after, limit, viewer]),
    byAuthor: async (userId: string, { below, limit, reader }: AuthorPage): Promise<AuthorDrops> => {
      const { bound, exact, id } = boundOf(below);
      const read = async (
        sql: string,
        more: readonly string[],
        planned?: typeof PLANNED_EACH_TIME,
      ): Promise<AuthorDrops> => {
        const drops = (await db.query<Drop>(sql, [userId, bound, exact, id, limit, ...more], planned)).map(dated);
        return { drops, end: drops.length < limit };
      };
      if (reader === undefined) return read(BY_AUTHOR, []);
      if (reader === "") return read(SHOWN, []);
      if (reader === userId) return read(BY_ITSELF, [reader]);
      const parameters = [userId, bound, exact, id, limit, reader];
      const scanned = await db.query<Drop & { readonly at: number }>(SCANNED, parameters);
      if (scanned.at(-1)?.at === MAX_SCANNED) return read(SEEN_BY_READER, [reader], PLANNED_EACH_TIME);
      return { drops: scanned.map(({ at: _, ...drop }) => dated(drop)), end: scanned.length < limit };
    },
    changes: async ([changedAt, id]: readonly [changedAt: number, id: string], until: number, limit: number) => {
      // Every URI is beyond every UUID.
      const uuid = id === "" || isUuid(id) ? id || lowestId(0) : LAST_ID;
      return (await db.query<ChangedDrop>(CHANGES, [changedAt, uuid, id, until, limit])).map(dated);
    },
  };
}

/** The time of a drop of this server is in its id. */
const dated = <Row extends Drop>(row: Row): Row => ({
  ...row,
  created_at: row.created_at || createdAtOf(row.drop_id),
});

/** The drops are below `bound`. From `exact` on, in the position's own millisecond, ids are compared as text. */
function boundOf(below: Position | undefined): { bound: string; exact: string; id: string } {
  if (below === undefined) return { bound: LAST_ID, exact: LAST_ID, id: "" };
  const [lowest, beyond] = [lowestId(below.createdAt), lowestId(below.createdAt + 1)];
  if (compareBytes(below.id, lowest) <= 0) return { bound: lowest, exact: lowest, id: "" };
  const within = isUuid(below.id) && compareBytes(below.id, beyond) < 0;
  return { bound: within ? below.id : beyond, exact: lowest, id: below.id };
}

/** The drops and people that a drop of a timeline names, besides its author and recipients. */
const NAMES = "repost_of, repost_author, reply_to, reply_to_author, mentions";
const NAMED = `
  coalesce(d.repost_uri, d.repost_of::text, '') AS repost_of, coalesce(d.repost_author, '') AS repost_author,
  coalesce(d.reply_to, '') AS reply_to, coalesce(d.reply_author, '') AS reply_to_author,
  coalesce(d.mentions, '{}') AS mentions`;

const BY_IDS = `
SELECT ${dropColumns()} FROM posts.drops d
WHERE d.drop_id = ANY($1::uuid[]) AND d.drop_id BETWEEN $2::uuid AND $3::uuid`;

const REVISIONS = `
SELECT * FROM (
  SELECT ${dropColumns()} FROM posts.drops d WHERE d.drop_id = $1 AND d.deleted_at IS NULL AND d.revision < $2::bigint
  UNION ALL
  (SELECT ${dropColumns("r")} FROM posts.drops d JOIN posts.revisions r ON r.drop_id = d.drop_id
   WHERE d.drop_id = $1 AND r.drop_id = $1 AND d.deleted_at IS NULL AND r.revision < $2::bigint
   ORDER BY r.revision DESC LIMIT $3)
) versions
ORDER BY revision DESC LIMIT $3`;

const REPLIES = `
SELECT ${dropColumns()} FROM posts.drops d
WHERE d.reply_to = $1 AND d.deleted_at IS NULL AND d.drop_id > $2::uuid AND ${maybeSeenBy("$4")}
ORDER BY d.drop_id LIMIT $3`;

const BELOW = `d.drop_id < $2::uuid AND (d.drop_id < $3::uuid OR d.drop_id::text COLLATE "C" < $4)`;

const READER_AMONG = "CASE WHEN $6::text = ANY (d.recipients) THEN ARRAY[$6::text] ELSE '{}' END AS recipients";

const byAuthor = (recipients: string, condition = ""): string => `
SELECT d.drop_id, d.user_id, d.visibility, 0::bigint AS created_at, false AS deleted, ${recipients}, ${NAMED}
FROM posts.drops d
WHERE d.user_id = $1 AND d.deleted_at IS NULL ${condition} AND ${BELOW}
ORDER BY d.drop_id DESC LIMIT $5`;

const BY_AUTHOR = byAuthor("d.recipients");
const BY_ITSELF = byAuthor(READER_AMONG);
/** The condition is that of the index `drops_author_shown`. */
const SHOWN = byAuthor("'{}'::text[] AS recipients", `AND d.visibility <> ${Visibility.DIRECT}`);

/** Ends with a row whose `at` is MAX_SCANNED, if it looked through that many. */
const SCANNED = `
SELECT drop_id, user_id, visibility, 0::bigint AS created_at, false AS deleted, at::integer, recipients, ${NAMES}
FROM (
  SELECT d.drop_id, d.user_id, d.visibility, ${READER_AMONG}, ${NAMED},
    row_number() OVER (ORDER BY d.drop_id DESC) AS at
  FROM posts.drops d
  WHERE d.user_id = $1 AND d.deleted_at IS NULL AND ${BELOW}
  ORDER BY d.drop_id DESC LIMIT ${MAX_SCANNED}
) scanned
WHERE visibility <> ${Visibility.DIRECT} OR recipients <> '{}' OR at = ${MAX_SCANNED}
ORDER BY drop_id DESC LIMIT $5`;

/**
 * A materialized part is planned by itself: with the order, the limit or the bound a plan may walk all drops instead.
 */
const SEEN_BY_READER = `
WITH addressed AS MATERIALIZED (
  SELECT d.drop_id, d.user_id = $1 AND $6::text = ANY (d.recipients) AS is_theirs, ${NAMED} FROM posts.drops d
  WHERE posts.addressed(d.user_id, d.recipients) @> ARRAY[$1::text || ' ' || $6::text]
    AND d.visibility = ${Visibility.DIRECT} AND d.deleted_at IS NULL
)
SELECT * FROM (
  (${SHOWN})
  UNION ALL
  (SELECT drop_id, $1::text, ${Visibility.DIRECT}::smallint, 0::bigint, false, ARRAY[$6::text], ${NAMES}
   FROM addressed d WHERE is_theirs AND ${BELOW} ORDER BY drop_id DESC LIMIT $5)
) seen
ORDER BY drop_id DESC LIMIT $5`;

const CHANGES = `
SELECT * FROM (
  (SELECT d.drop_id::text COLLATE "C" AS drop_id, d.user_id, d.visibility, d.recipients, 0::bigint AS created_at,
     d.changed_at, d.deleted_at IS NOT NULL AS deleted, ${NAMED}
   FROM posts.drops d
   WHERE (d.changed_at, d.drop_id) > ($1::bigint, $2::uuid) AND d.changed_at < $4::bigint
   ORDER BY d.changed_at, d.drop_id LIMIT $5)
  UNION ALL
  (SELECT uri, actor_uri, 1::smallint, '{}'::text[], created_at, deleted_at, true, '', '', '', '', '{}'::text[]
   FROM posts.remote_objects
   WHERE kind = 1 AND deleted_at IS NOT NULL AND (deleted_at, uri) > ($1::bigint, $3::text) AND deleted_at < $4::bigint
   ORDER BY deleted_at, uri LIMIT $5)
) changes
ORDER BY changed_at, drop_id LIMIT $5`;
