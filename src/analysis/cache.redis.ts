import type { AnalysisResults, AnalysisType, UserTier } from "../contracts/analysis.js";
import { analysisCacheKey } from "../contracts/keys.js";
import { MINUTE } from "../kernel/time.js";
import type { Scripts } from "../platform/redis/scripts.js";
import { resultsFor } from "./saga.js";

interface Asked {
  readonly did: string;
  readonly type: AnalysisType;
  readonly tier: UserTier;
}

interface Cached {
  /** The time is in ms since the epoch. */
  readonly filled_at: number;
  readonly results: AnalysisResults;
}

/** Everybody shares the results of one account and one day (UTC). @throws AppError `unavailable` while Redis is away */
export interface AnalysisCache {
  find(asked: Asked, now: number): Promise<AnalysisResults | undefined>;
  fill(asked: Asked, results: AnalysisResults, now: number): Promise<void>;
}

/** A user of the tier DRIFT gets results of up to an hour ago, and caches them as long; any other of half an hour. */
const maxAgeMs = (tier: UserTier): number => (tier === "DRIFT" ? 60 : 30) * MINUTE;

const dayOf = (now: number): string => new Date(now).toISOString().slice(0, 10);

export function createAnalysisCache({ command }: Pick<Scripts, "command">): AnalysisCache {
  const read = async (key: string): Promise<Cached | undefined> => {
    const text = await command("get", (client) => client.get(key));
    return text === null ? undefined : (JSON.parse(text) as Cached);
  };
  return {
    async find({ did, type, tier }, now) {
      for (const held of new Set<AnalysisType>([type, "full"])) {
        const cached = await read(analysisCacheKey(did, held, dayOf(now)));
        if (cached && now - cached.filled_at <= maxAgeMs(tier)) return resultsFor(type, cached.results);
      }
      return undefined;
    },
    async fill({ did, type, tier }, results, now) {
      const value: Cached = { filled_at: now, results };
      const key = analysisCacheKey(did, type, dayOf(now));
      await command("set", (client) => client.set(key, JSON.stringify(value), "PX", maxAgeMs(tier)));
    },
  };
}
