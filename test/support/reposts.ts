import { v7 } from "uuid";
import type { NewDrop } from "../../src/posts/drops/drops.sql.js";
import { dropCreated } from "../../src/posts/drops/events.js";
import type { PostsHarness } from "./posts.js";

/** What the tables of posts hold about shares, and what the outbox was told. */
export interface Reposts {
  /** Each as "original sharer repost". */
  readonly shares: readonly string[];
  readonly live: readonly string[];
  /** Reposts without exactly one event of their creation, and one of their deletion where they are deleted. */
  readonly mistold: readonly string[];
}

/** Shares of deleted drops are left out: the maintenance removes them. */
const SHARES = `
  SELECT r.drop_id || ' ' || r.actor_id || ' ' || coalesce(r.repost_id::text, 'none') AS name
  FROM posts.reactions r JOIN (
    SELECT drop_id, deleted_at FROM posts.drops UNION ALL SELECT drop_id, deleted_at FROM posts.remote_objects
  ) d ON d.drop_id = r.drop_id AND d.deleted_at IS NULL
  WHERE r.kind = 'share' AND (r.active OR r.repost_id IS NOT NULL) ORDER BY 1`;
const LIVE = `
  SELECT repost_of || ' ' || user_id || ' ' || drop_id AS name FROM posts.drops
  WHERE repost_of IS NOT NULL AND deleted_at IS NULL ORDER BY 1`;
const MISTOLD = `
  SELECT d.drop_id::text AS name FROM posts.drops d LEFT JOIN public.outbox o ON o.key = d.drop_id::text
  WHERE d.repost_of IS NOT NULL GROUP BY d.drop_id, d.deleted_at
  HAVING count(*) FILTER (WHERE o.subject = 'drops.created') <> 1
    OR count(*) FILTER (WHERE o.subject = 'drops.deleted') <> (d.deleted_at IS NOT NULL)::integer`;

export async function repostsIn({ db }: PostsHarness): Promise<Reposts> {
  const names = async (sql: string) => (await db.query<{ name: string }>(sql)).map(({ name }) => name);
  return { shares: await names(SHARES), live: await names(LIVE), mistold: await names(MISTOLD) };
}

/** Stores shares of a drop by "sharer-0", "sharer-1", … with their reposts and events, as ShareDrop would. */
export async function storeReposts({ db }: PostsHarness, original: NewDrop, count: number): Promise<string[]> {
  const reposts = Array.from({ length: count }, (_, n) => ({ drop_id: v7(), user_id: `sharer-${n}` }));
  const of = { repost_of: original.drop_id, repost_author: original.user_id };
  const rows = reposts.map((repost) => ({ ...repost, body: dropCreated({ ...original, ...repost }, of).body }));
  await db.query(
    `WITH w AS (
       SELECT * FROM json_to_recordset($1::json) AS w (drop_id uuid, user_id text, body text)
     ), shared AS (
       INSERT INTO posts.reactions (drop_id, kind, actor_id, active, version, changed_at, repost_id)
       SELECT $2, 'share', user_id, true, 1, 0, drop_id FROM w
     ), told AS (
       INSERT INTO public.outbox (source, owner, key, subject, message_id, body)
       SELECT 'posts', user_id, drop_id::text, 'drops.created', 'drop_created:' || drop_id, body FROM w
     )
     INSERT INTO posts.drops
       (drop_id, user_id, visibility, recipients, summary, body, updated_at, changed_at, repost_of, repost_author)
     SELECT drop_id, user_id, $3, '{}', '', '', 0, 0, $2, $4 FROM w`,
    [JSON.stringify(rows), original.drop_id, original.visibility, original.user_id],
  );
  return reposts.map(({ drop_id }) => drop_id);
}
