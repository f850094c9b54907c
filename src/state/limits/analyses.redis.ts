import type { UserTier } from "../../contracts/analysis.js";
import { HOUR, SECOND } from "../../kernel/time.js";
import type { Scripts } from "../../platform/redis/scripts.js";
import { analysesAskedKey } from "../keys.js";
import { release, reserve, unlessAway } from "./limits.redis.js";

export const HOURLY: Readonly<Record<UserTier, number>> = { DRIFT: 10, LIFT: 60, JET: 120, ORBIT: 600 };

export interface Quota {
  /** True if the request is counted, or was counted earlier. */
  readonly counted: boolean;
  readonly limit: number;
  readonly remaining: number;
  /** Time until the oldest counted request leaves the hour. At the limit, another request fits then. */
  readonly resetSeconds: number;
}

export type RateLimit = ReturnType<typeof createRateLimit>;

/**
 * Counts requests of an hour. Answers are undefined while Redis is away. `now` is in ms since the epoch; default: the
 * clock of Redis.
 */
export function createRateLimit(scripts: Scripts, now?: () => number) {
  const ask = async (user: string, tier: UserTier, request: string): Promise<Quota> => {
    const window = { key: analysesAskedKey(user), most: HOURLY[tier], withinMs: HOUR };
    const { reserved, seen } = await reserve(scripts, [window], request, now?.());
    const [{ used, waitMs } = { used: 0, waitMs: 0 }] = seen;
    const remaining = Math.max(0, window.most - used);
    return { counted: reserved, limit: window.most, remaining, resetSeconds: Math.ceil(waitMs / SECOND) };
  };
  return {
    take: (user: string, tier: UserTier, request: string) => unlessAway(ask(user, tier, request)),
    look: (user: string, tier: UserTier) => unlessAway(ask(user, tier, "")),
    /** Releases the reservation of a request that was not made. */
    giveBack: (user: string, request: string) =>
      unlessAway(release(scripts, [{ key: analysesAskedKey(user) }], request)),
  };
}

/** Headers of draft-ietf-httpapi-ratelimit-headers-06, the last one with fields of these names. */
export const quotaHeaders = ({ limit, remaining, resetSeconds }: Quota): Record<string, string> => ({
  "RateLimit-Limit": String(limit),
  "RateLimit-Remaining": String(remaining),
  "RateLimit-Reset": String(resetSeconds),
  "RateLimit-Policy": `${limit};w=${HOUR / SECOND}`,
});
