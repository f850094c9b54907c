import { type Db, NOW, PLANNED_EACH_TIME } from "../platform/db/db.js";
import { untilOlderEnded } from "../platform/db/older-transactions.js";
import { NOTHING_LEFT } from "./drops/drops.sql.js";
import { dropDeleted, type ReactionKey } from "./drops/events.js";
import { FIRST_ID, LAST_ID, spanOf } from "./drops/ids.js";
import { isUri } from "./drops/request.js";
import { keysOf, lockedReactions } from "./reactions/reactions.sql.js";
import { removal } from "./reactions/reposts.sql.js";

export const ROWS_AT_ONCE = 1_000;

interface OwnDrop {
  readonly drop_id: string;
  /** The id under which the drop that is replied to has reactions. */
  readonly parent: string | null;
}

/**
 * Each removal changes at most ROWS_AT_ONCE rows, and resolves to the number of rows that matched. Removals may run
 * twice, and concurrently.
 */
export function createErasureStore(db: Db) {
  const changed = async (sql: string, ...values: readonly unknown[]): Promise<number> =>
    (await db.query(sql, values, PLANNED_EACH_TIME)).length;
  /** Reads by an index whatever the statistics say: usually no row matches, and a scan of the table would be slow. */
  const find = <Row>(sql: string, ...values: readonly unknown[]): Promise<Row[]> =>
    db.transaction(async ({ run, query }) => {
      await run("SET LOCAL enable_seqscan = off");
      return query<Row>(sql, values, PLANNED_EACH_TIME);
    });
  const changeFound = async (finding: string, change: string, user: string): Promise<number> => {
    const ids = (await find<{ id: string }>(finding, user, ROWS_AT_ONCE)).map(({ id }) => id);
    if (ids.length > 0) await changed(change, user, ids);
    return ids.length;
  };
  const withdraw = async (reactions: readonly ReactionKey[]): Promise<void> => {
    if (reactions.length > 0) await changed(WITHDRAW, ...keysOf(reactions));
  };
  const tombstone = async (user: string, drops: readonly OwnDrop[]): Promise<void> => {
    const ids = drops.map(({ drop_id }) => drop_id);
    const drafts = ids.map((id) => dropDeleted(id, user));
    await changed(TOMBSTONE, JSON.stringify(drafts), ...spanOf(ids));
  };
  return {
    /** Tells whether a row names the user, but for the user's own object and tombstones of remote drops. */
    isNamed: async (user: string): Promise<boolean> =>
      (await find<{ named: boolean }>(IS_NAMED, user))[0]?.named ?? false,
    mark: async (user: string): Promise<void> => void (await changed(MARK, user)),
    /** Resolves once the rows of writes that began before the marker was set are visible. */
    untilOlderEnded: (stopping: AbortSignal): Promise<void> => untilOlderEnded(db, { stopping }),
    left: async (user: string): Promise<number> => (await find<{ left: number }>(LEFT, user))[0]?.left ?? 0,
    /** Deletes the newest drops below an id, and their rows of replies. `lowest` is undefined if no drop is left. */
    removeDrops: async (user: string, below = LAST_ID) => {
      const drops = await find<OwnDrop>(DROPS, user, below, ROWS_AT_ONCE);
      // A reply whose drop stands is found again after a crash.
      await withdraw(drops.flatMap(replyIn));
      if (drops.length > 0) await tombstone(user, drops);
      return { removed: drops.length, lowest: drops.at(-1)?.drop_id };
    },
    /** Returns deleted drops of a user that are not purged yet, above an id. */
    unpurged: async (user: string, after = FIRST_ID): Promise<string[]> =>
      (await find<{ id: string }>(UNPURGED, user, after, ROWS_AT_ONCE)).map(({ id }) => id),
    removeReactions: async (user: string): Promise<number> => {
      const reactions = await find<ReactionKey>(REACTIONS, user, ROWS_AT_ONCE);
      await withdraw(reactions);
      return reactions.length;
    },
    leaveDrops: (user: string) => changeFound(ADDRESSED, LEAVE_DROPS, user),
    /** Removes the user from mentions, and as the author whom others reply to. */
    leaveMentions: (user: string) => changeFound(MENTIONS, LEAVE_MENTIONS, user),
    leaveRemoteMentions: (user: string) => changeFound(REMOTE_MENTIONS, LEAVE_REMOTE_MENTIONS, user),
    leaveReplies: (user: string) => changeFound(REPLIES, LEAVE_REPLIES, user),
    leaveRemoteDrops: (user: string) => changeFound(ADDRESSED_REMOTE, LEAVE_REMOTE_DROPS, user),
    removeKeys: (user: string) => changed(REMOVE_KEYS, user, ROWS_AT_ONCE),
    isUnpublished: async (user: string): Promise<boolean> =>
      (await find(UNPUBLISHED, user, JSON.stringify(user))).length > 0,
    /**
     * Removes events that name a user among the next ones after an id; resolves to the last id, undefined at the end.
     */
    removeEvents: async (user: string, after: number): Promise<number | undefined> => {
      const values = [user, JSON.stringify(user), after, ROWS_AT_ONCE];
      const [row] = await find<{ last: number | null }>(REMOVE_EVENTS, ...values);
      return row?.last ?? undefined;
    },
    blankDrops: (user: string) => changeFound(DELETED, BLANK_DROPS, user),
    blankReposts: (user: string) => changeFound(DELETED_REPOSTS, BLANK_REPOSTS, user),
  };
}

const replyIn = ({ drop_id, parent }: OwnDrop): ReactionKey[] =>
  parent === null || isUri(parent) ? [] : [{ drop_id: parent, kind: "reply", actor_id: drop_id }];

const MARK = `INSERT INTO posts.erased (user_id, marked_at) VALUES ($1, ${NOW}) ON CONFLICT DO NOTHING`;

/** The conditions are those of the indexes. */
const OWN = "user_id = $1 AND deleted_at IS NULL";
const LIKED = "actor_id = $1 AND active AND kind <> 'reply'";
const WITHDRAWN = "actor_id = $1 AND NOT active AND kind <> 'reply'";
const OWN_DELETED = "user_id = $1 AND deleted_at IS NOT NULL AND user_id <> ''";

const LEFT = `
SELECT (SELECT count(*) FROM posts.drops WHERE ${OWN}) + (SELECT count(*) FROM posts.reactions WHERE ${LIKED})
  + (SELECT count(*) FROM posts.reactions WHERE ${WITHDRAWN}) AS left`;

const DROPS = `
SELECT d.drop_id, coalesce((SELECT o.drop_id::text FROM posts.remote_objects o WHERE o.uri = d.reply_to), d.reply_to) AS parent
FROM (
  SELECT drop_id, reply_to FROM posts.drops WHERE ${OWN} AND drop_id < $2::uuid ORDER BY drop_id DESC LIMIT $3
) d ORDER BY d.drop_id DESC`;

const TOMBSTONE = removal(`${NOTHING_LEFT}, purged = d.repost_of IS NOT NULL`);

const UNPURGED = `
SELECT drop_id AS id FROM posts.drops WHERE ${OWN_DELETED} AND NOT purged AND drop_id > $2::uuid
ORDER BY drop_id LIMIT $3`;

const REACTIONS = `
(SELECT drop_id, kind, actor_id FROM posts.reactions WHERE ${LIKED} LIMIT $2)
UNION ALL
(SELECT drop_id, kind, actor_id FROM posts.reactions WHERE ${WITHDRAWN} LIMIT $2)
LIMIT $2`;

const sum = (kind: string): string => `count(*) FILTER (WHERE kind = '${kind}')`;

/** An event that comes later finds no row to count. Locks are taken in the order in which reactions are counted. */
const WITHDRAW = `
WITH locked AS (${lockedReactions("true")}), gone AS (
  DELETE FROM posts.reactions r USING locked l
  WHERE r.drop_id = l.drop_id AND r.kind = l.kind AND r.actor_id = l.actor_id
    AND r.drop_id BETWEEN $4::uuid AND $5::uuid
  RETURNING r.drop_id, r.kind, r.counted
), sums AS (
  SELECT drop_id, ${sum("like")} AS likes, ${sum("share")} AS shares, ${sum("reply")} AS replies
  FROM gone WHERE counted GROUP BY drop_id ORDER BY drop_id
), counts AS (
  SELECT c.drop_id, sums.likes, sums.shares, sums.replies FROM sums CROSS JOIN LATERAL (
    SELECT drop_id FROM posts.counts c
    WHERE c.drop_id = sums.drop_id AND c.drop_id BETWEEN $4::uuid AND $5::uuid LIMIT 1 FOR UPDATE
  ) c
)
UPDATE posts.counts c SET likes = greatest(c.likes - counts.likes, 0), shares = greatest(c.shares - counts.shares, 0),
  replies = greatest(c.replies - counts.replies, 0)
FROM counts WHERE c.drop_id = counts.drop_id AND c.drop_id BETWEEN $4::uuid AND $5::uuid`;

const DIRECT = "visibility = 4 AND deleted_at IS NULL AND recipients @> ARRAY[$1::text]";
const MENTIONED = "mentions @> ARRAY[$1::text]";
const ADDRESSED = `SELECT drop_id AS id FROM posts.drops WHERE ${DIRECT} LIMIT $2`;
const ADDRESSED_REMOTE = `SELECT uri AS id FROM posts.remote_objects WHERE ${DIRECT} LIMIT $2`;

const IS_NAMED = `SELECT ${[
  `posts.drops WHERE ${OWN}`,
  `posts.drops WHERE ${OWN_DELETED}`,
  `posts.reactions WHERE ${LIKED}`,
  `posts.reactions WHERE ${WITHDRAWN}`,
  `posts.drops WHERE ${DIRECT}`,
  `posts.remote_objects WHERE ${DIRECT}`,
  "posts.drops WHERE repost_author = $1",
  "posts.drops WHERE reply_author = $1",
  `posts.drops WHERE ${MENTIONED}`,
  `posts.remote_objects WHERE ${MENTIONED}`,
  "posts.remote_objects WHERE actor_uri = $1 AND kind = 1 AND deleted_at IS NULL",
  "posts.remote_reactions WHERE actor_uri = $1",
]
  .map((rows) => `EXISTS (SELECT FROM ${rows})`)
  .join(" OR ")} AS named`;

/** Returns an UPDATE of the rows of some ids, which it locks in their order. */
const updating = (table: string, id: string, set: string, condition = "true"): string => `
WITH picked AS (
  SELECT ${id} FROM posts.${table} WHERE ${id} = ANY ($2) AND ${condition} ORDER BY ${id} FOR UPDATE
)
UPDATE posts.${table} t SET ${set} FROM picked WHERE t.${id} = picked.${id}`;

/** A drop without recipients is seen by its author. */
const LEAVE = "recipients = array_remove(t.recipients, $1::text)";
const LEAVE_DROPS = updating("drops", "drop_id", LEAVE);
const LEAVE_REMOTE_DROPS = updating("remote_objects", "uri", LEAVE);

const MENTIONS = `SELECT drop_id AS id FROM posts.drops WHERE ${MENTIONED} LIMIT $2`;
const REMOTE_MENTIONS = `SELECT uri AS id FROM posts.remote_objects WHERE ${MENTIONED} LIMIT $2`;
const LEAVE_MENTION = "mentions = nullif(array_remove(t.mentions, $1::text), '{}')";
const LEAVE_MENTIONS = updating("drops", "drop_id", LEAVE_MENTION);
const LEAVE_REMOTE_MENTIONS = updating("remote_objects", "uri", LEAVE_MENTION);
const REPLIES = "SELECT drop_id AS id FROM posts.drops WHERE reply_author = $1 LIMIT $2";
const LEAVE_REPLIES = updating("drops", "drop_id", "reply_author = NULL", "reply_author = $1");

const REMOVE_KEYS = `
DELETE FROM posts.idempotency WHERE ctid = ANY (ARRAY(
  SELECT ctid FROM posts.idempotency WHERE user_id = $1 LIMIT $2
)) RETURNING 1`;

/**
 * Searches for the id as JSON text first, since few bodies contain it. The deletion of a remote drop names its actor
 * only as the owner.
 */
const NAMES = `(owner = $1 OR (strpos(body, $2) > 0 AND (
  body::jsonb ->> 'user_id' = $1 OR body::jsonb ->> 'repost_author' = $1 OR body::jsonb -> 'recipients' ? $1
  OR body::jsonb ->> 'reply_to_author' = $1 OR body::jsonb ->> 'author_id' = $1 OR body::jsonb -> 'mentions' ? $1
  OR (body::jsonb ->> 'actor_id' = $1 AND body::jsonb ->> 'kind' <> 'reply')
)))`;

/** The condition on the owner is that of the index. */
const UNPUBLISHED = `
SELECT FROM public.outbox WHERE source = 'posts' AND published_at IS NULL AND owner >= '' AND ${NAMES} LIMIT 1`;

/** A reaction that is not counted or told of yet needs no event: its row is gone. */
const REMOVE_EVENTS = `
WITH looked AS MATERIALIZED (
  SELECT id, source, owner, body, published_at FROM public.outbox WHERE id > $3::bigint ORDER BY id LIMIT $4
), gone AS (
  DELETE FROM public.outbox WHERE id = ANY (ARRAY(
    SELECT id FROM looked
    WHERE (source IN ('reactions', 'activity') OR (source = 'posts' AND published_at IS NOT NULL)) AND ${NAMES}
  ))
)
SELECT max(id) AS last FROM looked`;

const DELETED = `SELECT drop_id AS id FROM posts.drops WHERE ${OWN_DELETED} LIMIT $2`;
const BLANK_DROPS = updating("drops", "drop_id", "user_id = ''", "user_id = $1 AND deleted_at IS NOT NULL");

const DELETED_REPOSTS = `
SELECT drop_id AS id FROM posts.drops WHERE repost_author = $1 AND deleted_at IS NOT NULL LIMIT $2`;
const BLANK_REPOSTS = updating("drops", "drop_id", "repost_author = NULL", "repost_author = $1");
