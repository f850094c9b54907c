import type { UserTier } from "../../contracts/analysis.js";
import { analysesAskedKey, analysisReadsKey } from "../../contracts/keys.js";
import { codeOf } from "../../kernel/errors.js";
import { HOUR, SECOND } from "../../kernel/time.js";
import type { RedisClock } from "../../platform/redis/clock.js";
import { type Scripts, script } from "../../platform/redis/scripts.js";
import { TAKE_TOKEN } from "../sources/token-bucket.redis.js";

const TAKE_SLOT = script("take-slot", import.meta.url);

/** A user may ask for so many analyses within an hour. */
export const HOURLY: Readonly<Record<UserTier, number>> = { DRIFT: 10, LIFT: 60, JET: 120, ORBIT: 600 };

/** A user may read as much within a second, by the cost: far more than a page that polls its analyses needs. */
const READS_A_SECOND = 100;
const READS_AT_ONCE = 1_000;

/** A server that hangs must not hold up an answer. */
const TIMEOUT_MS = SECOND / 4;

export interface Quota {
  /** The request is counted, or was before. */
  readonly counted: boolean;
  readonly limit: number;
  readonly remaining: number;
  /** The oldest counted request leaves the hour by then; at the limit, another one fits then. */
  readonly resetSeconds: number;
}

export type RateLimit = ReturnType<typeof createRateLimit>;

/**
 * Counts requests by their id, over the last hour. While Redis is away, an answer is undefined and nothing is counted.
 */
export function createRateLimit(scripts: Scripts, clock: Pick<RedisClock, "now">) {
  const ask = async (user: string, tier: UserTier, request: string): Promise<Quota> => {
    const key = analysesAskedKey(user);
    const limit = HOURLY[tier];
    const reply = await scripts.run(TAKE_SLOT, [key], [request, limit, HOUR, await clock.now(key)]);
    const [counted, held, ms] = reply as [number, number, number];
    const remaining = Math.max(0, limit - held);
    return { counted: counted === 1, limit, remaining, resetSeconds: Math.ceil(ms / SECOND) };
  };
  const inTime = <T>(work: Promise<T>): Promise<T | undefined> =>
    new Promise((resolve, reject) => {
      const timer = setTimeout(() => resolve(undefined), TIMEOUT_MS);
      const failed = (error: unknown): void => (codeOf(error) === "unavailable" ? resolve(undefined) : reject(error));
      work.then(resolve, failed).finally(() => clearTimeout(timer));
    });
  return {
    take: (user: string, tier: UserTier, request: string) => inTime(ask(user, tier, request)),
    look: (user: string, tier: UserTier) => inTime(ask(user, tier, "")),
    /** Resolves to the seconds to wait; 0 where the user may read. */
    read: async (user: string, cost: number): Promise<number> => {
      const bucket = [READS_A_SECOND * (HOUR / SECOND), READS_AT_ONCE, cost, 0];
      const reply = await inTime(scripts.run(TAKE_TOKEN, [analysisReadsKey(user)], bucket));
      const [waitMs] = (reply ?? [0]) as [number];
      return Math.ceil(waitMs / SECOND);
    },
    /** Takes back the slot of a request that came to nothing. */
    giveBack: (user: string, request: string) =>
      inTime(scripts.command("zrem", (client) => client.zrem(analysesAskedKey(user), request))),
  };
}

/** draft-ietf-httpapi-ratelimit-headers-06, the last one with fields of these names. */
export const quotaHeaders = ({ limit, remaining, resetSeconds }: Quota): Record<string, string> => ({
  "RateLimit-Limit": String(limit),
  "RateLimit-Remaining": String(remaining),
  "RateLimit-Reset": String(resetSeconds),
  "RateLimit-Policy": `${limit};w=${HOUR / SECOND}`,
});
