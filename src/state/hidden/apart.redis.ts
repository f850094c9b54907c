import type { DropPage, TimelineEntry } from "../../contracts/timelines.js";
import type { Counts } from "../../gen/avion/posts.js";
import type { Scripts } from "../../platform/redis/scripts.js";
import { homeKey, repostedKey } from "../keys.js";
import type { ChangeSources } from "./changes.redis.js";

interface ApartDeps {
  readonly command: Scripts["command"];
  readonly readAuthorDrops: (author: string, below: TimelineEntry | undefined, reader: string) => Promise<DropPage>;
  /** Reads counts of at most 200 drops. */
  readonly counts: (user: string, drops: readonly string[]) => Promise<readonly Counts[]>;
}

/**
 * Returns a function that resolves to true if a home certainly has no drop of the target, which can be checked for a
 * user with few drops, of which nobody has shared or answered one. All other users count as users whom the home may show.
 */
export const createIsApart =
  ({ command, readAuthorDrops, counts }: ApartDeps): ChangeSources["isApart"] =>
  async (user, target) => {
    const { drops, next } = await readAuthorDrops(target, undefined, user);
    if (next && drops.length > 0 && (await readAuthorDrops(target, next, user)).drops.length > 0) return false;
    if (drops.length === 0) return next === undefined;
    const ids = drops.map(({ drop_id }) => drop_id);
    const scores = await command("zmscore", (client) => client.zmscore(homeKey(user), ...ids));
    if (scores.some((score) => score !== null)) return false;
    if ((await command("exists", (client) => client.exists(repostedKey(target)))) > 0) return false;
    const counted = new Map((await counts(target, ids)).map((count) => [count.drop_id, count.shares + count.replies]));
    return ids.every((drop) => counted.get(drop) === 0);
  };
