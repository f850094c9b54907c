/** The bound of single writes: the same rows into the same tables, by one statement that looks for nothing. */
import { type Db, NOW } from "../../../src/platform/db/db.js";
import { createDropIds } from "../../../src/posts/drops/ids.js";

const eventOf = (source: string, from: number): string =>
  `INSERT INTO public.outbox (source, owner, key, subject, message_id, body)
   VALUES ('${source}', ${Array.from({ length: 5 }, (_, n) => `$${from + n}`).join(", ")})`;

const DROP = `WITH made AS (
  INSERT INTO posts.drops (drop_id, user_id, summary, body, visibility, recipients, updated_at, changed_at)
  VALUES ($1, $2, '', $3, 1, '{}', $4, ${NOW})
) ${eventOf("posts", 5)}`;

const FOLLOW = `WITH edge AS (
  INSERT INTO users.followings (follower_id, following_id, version, active, changed_at) VALUES ($1, $2, $3, true, ${NOW})
), counted AS (
  INSERT INTO users.following_counts (user_id, following, delta) VALUES ($1, 1, 1)
) ${eventOf("users", 4)}`;

export function createBareWrites(db: Db, body: string) {
  const nextId = createDropIds();
  let edges = 0;
  return {
    drop: async (n: number): Promise<void> => {
      const id = nextId(Date.now());
      const user = `user${n % 100}`;
      const event = JSON.stringify({ drop_id: id, user_id: user, visibility: "public", created_at: Date.now() });
      await db.query(DROP, [id, user, body, Date.now(), user, id, "drops.created", `drop_created:${id}`, event]);
    },
    follow: async (): Promise<void> => {
      const [follower, followed] = [`bare${++edges}`, `a${edges % 97}`];
      const [pair, version] = [`${follower}:${followed}`, Date.now()];
      const edge = { follower_id: follower, following_id: followed, version, following: true, changed_at: version };
      const event = [followed, pair, `edges.calm.${followed}`, `edge:${pair}:${version}`, JSON.stringify(edge)];
      await db.query(FOLLOW, [follower, followed, version, ...event]);
    },
  };
}
