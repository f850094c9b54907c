import { MOST_READ_KEY } from "../contracts/keys.js";
import { decodeId, encodeId } from "../kernel/ids.js";
import { DAY, MINUTE, sharedNow } from "../kernel/time.js";
import type { Scripts } from "../platform/redis/scripts.js";

/** Of a home. */
export interface FirstPage {
  readonly user: string;
  readonly limit: number;
}

export type MostRead = ReturnType<typeof createMostRead>;

/** Told apart between two calls of `store`. */
const COUNTED = 10_000;
const KEPT = 1_000;
/** More reads of a page in a minute rank as so many. */
const MOST_READS = 999_999;

/** The first pages that were read more than once in a minute, of all processes: the latest minute first. */
export function createMostRead({ command }: Scripts) {
  const counts = new Map<string, number>();
  return {
    note({ user, limit }: FirstPage): void {
      const page = `${limit} ${encodeId(user)}`;
      const count = counts.get(page) ?? 0;
      if (count > 0 || counts.size < COUNTED) counts.set(page, count + 1);
    },
    /** Stores what was noted since the last call. */
    async store(): Promise<void> {
      const often = [...counts].filter(([, count]) => count > 1).sort(([, a], [, b]) => b - a);
      counts.clear();
      if (often.length === 0) return;
      const minute = Math.floor(sharedNow() / MINUTE) * (MOST_READS + 1);
      const ranked = often.slice(0, KEPT).map(([page, count]) => [minute + Math.min(count, MOST_READS), page] as const);
      await command("zadd", (client) => client.zadd(MOST_READ_KEY, ...ranked.flat()));
      await command("zremrangebyrank", (client) => client.zremrangebyrank(MOST_READ_KEY, 0, -1 - KEPT));
      await command("pexpire", (client) => client.pexpire(MOST_READ_KEY, DAY));
    },
    async list(): Promise<FirstPage[]> {
      const pages = await command("zrevrange", (client) => client.zrevrange(MOST_READ_KEY, 0, -1));
      return pages.map((page) => {
        const [limit, token] = page.split(" ") as [string, string];
        return { user: decodeId(token), limit: Number(limit) };
      });
    },
  };
}
