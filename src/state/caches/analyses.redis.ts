import {
  ANALYSIS_TYPES,
  type AnalysisRequest,
  type AnalysisResults,
  type AnalysisType,
  resultsFor,
  type UserTier,
} from "../../contracts/analysis.js";
import { encodeId } from "../../kernel/ids.js";
import { DAY, MINUTE, sharedNow } from "../../kernel/time.js";
import type { Scripts } from "../../platform/redis/scripts.js";
import { analysesAskedKey, analysisCacheKey, readsKey, SOURCE_TURN_KEYS } from "../keys.js";

type Asked = Pick<AnalysisRequest, "did" | "type" | "tier">;

interface Cached {
  /** Time of the fill, in ms since the epoch. */
  readonly filled_at: number;
  readonly results: AnalysisResults;
}

export type AnalysisCache = ReturnType<typeof createAnalysisCache>;

/**
 * Returns the maximum age of results. Users of the tier DRIFT get results of up to an hour ago and cache them as long;
 * others half an hour.
 */
const maxAgeMs = (tier: UserTier): number => (tier === "DRIFT" ? 60 : 30) * MINUTE;

const dayOf = (now: number): string => new Date(now).toISOString().slice(0, 10);

/**
 * Caches results of one account and one day (UTC), for all users.
 *
 * @throws AppError `unavailable` while Redis is away
 */
export function createAnalysisCache({ command }: Pick<Scripts, "command">) {
  return {
    async find({ did, type, tier }: Asked, now: number): Promise<AnalysisResults | undefined> {
      for (const cachedType of new Set<AnalysisType>([type, "full"])) {
        const text = await command("get", (client) => client.get(analysisCacheKey(did, cachedType, dayOf(now))));
        const cached = text === null ? undefined : (JSON.parse(text) as Cached);
        if (cached && now - cached.filled_at <= maxAgeMs(tier)) return resultsFor(type, cached.results);
      }
      return undefined;
    },
    async fill({ did, type, tier }: Asked, results: AnalysisResults, now: number): Promise<void> {
      const value: Cached = { filled_at: now, results };
      const key = analysisCacheKey(did, type, dayOf(now));
      await command("set", (client) => client.set(key, JSON.stringify(value), "PX", maxAgeMs(tier)));
    },
  };
}

/** Removes a user's keys of the role and the gateway. Results are cached for an hour. */
export const createRemoveKeys =
  ({ command }: Pick<Scripts, "command">) =>
  async (user: string): Promise<void> => {
    const days = [sharedNow() - DAY, sharedNow()].map(dayOf);
    const cached = days.flatMap((day) => ANALYSIS_TYPES.map((type) => analysisCacheKey(user, type, day)));
    const keys = [...cached, analysesAskedKey(user), readsKey(user)];
    await Promise.all([
      ...keys.map((key) => command("del", (client) => client.del(key))),
      ...SOURCE_TURN_KEYS.map((key) => command("zrem", (client) => client.zrem(key, encodeId(user)))),
    ]);
  };
