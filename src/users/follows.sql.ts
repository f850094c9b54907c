import { edgeSubject } from "../contracts/subjects.js";
import { AppError } from "../kernel/errors.js";
import { type Db, SQLSTATE, sqlState } from "../platform/db/db.js";
import { pairKey } from "./edge-message.js";
import type { FollowStore } from "./ports.js";

/** Where the users service's migrations are; they need the outbox's. */
export const USERS_MIGRATIONS = { component: "users", folder: new URL("./migrations/", import.meta.url) };

const SET_FOLLOWING =
  "SELECT o_changed AS changed, o_version AS version FROM users.set_following($1, $2, $3, $4, $5, $6, $7)";

/** Edges before counts, each in the order of their keys, so that no two of these block each other. */
const FOLLOW_MANY = `
WITH wanted AS (
  SELECT DISTINCT ON (follower_id, following_id) *
  FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) AS w (follower_id, following_id, pair, subject)
), edge AS (
  INSERT INTO users.followings AS f (follower_id, following_id, version, active, changed_at)
  SELECT follower_id, following_id, users.now_ms(), true, users.now_ms() FROM wanted
  ORDER BY follower_id COLLATE "C", following_id COLLATE "C"
  ON CONFLICT (follower_id, following_id) DO UPDATE
  SET version = GREATEST(f.version + 1, excluded.version), active = true, changed_at = excluded.changed_at
  WHERE NOT f.active
  RETURNING f.follower_id, f.following_id, f.version, f.changed_at
), counted AS (
  INSERT INTO users.following_counts AS c (user_id, following)
  SELECT follower_id, count(*) FROM edge GROUP BY follower_id ORDER BY follower_id
  ON CONFLICT (user_id) DO UPDATE SET following = c.following + excluded.following
  RETURNING c.user_id, c.following
), announced AS (
  INSERT INTO public.outbox (source, owner, key, subject, message_id, body, traceparent)
  SELECT 'users', split_part(w.pair, ':', 2), w.pair, w.subject, 'edge:' || w.pair || ':' || e.version,
    json_build_object('follower_id', e.follower_id, 'following_id', e.following_id, 'version', e.version,
      'following', true, 'changed_at', e.changed_at),
    $6
  FROM edge e JOIN wanted w ON (w.follower_id, w.following_id) = (e.follower_id, e.following_id)
)
SELECT (SELECT count(*) FROM edge) AS changed, (SELECT min(user_id) FROM counted WHERE following > $5::int) AS over`;

/** The store of whom users follow. */
export function createFollowStore(db: Db): FollowStore {
  return {
    setFollowing: async ({ follower, following, wanted, most, traceparent }) => {
      const subject = edgeSubject("calm", following);
      const values = [
        follower,
        following,
        wanted,
        most,
        pairKey({ follower, following }),
        subject,
        traceparent ?? null,
      ];
      try {
        const [row] = await db.query<{ changed: boolean; version: number }>(SET_FOLLOWING, values);
        return row as { changed: boolean; version: number };
      } catch (error) {
        if (sqlState(error) !== SQLSTATE.raised) throw error;
        throw new AppError("exhausted", `following_id: nobody can follow more than ${most}`, { cause: error });
      }
    },
    followMany: async (pairs, { most, traceparent }) => {
      const values = [
        pairs.map(({ follower }) => follower),
        pairs.map(({ following }) => following),
        pairs.map(pairKey),
        pairs.map(({ following }) => edgeSubject("calm", following)),
        most,
        traceparent ?? null,
      ];
      try {
        return await db.transaction(async ({ query }) => {
          const [row] = await query<{ changed: number; over: string | null }>(FOLLOW_MANY, values);
          if (row?.over != null) throw new Beyond(row.over);
          return { changed: row?.changed ?? 0 };
        });
      } catch (error) {
        if (error instanceof Beyond) return { over: error.user };
        throw error;
      }
    },
  };
}

/** Rolls back what would have made a user follow too many. */
class Beyond extends Error {
  constructor(readonly user: string) {
    super("too many would be followed");
  }
}
