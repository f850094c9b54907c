import { AppError } from "../../kernel/errors.js";
import { encodeId } from "../../kernel/ids.js";
import { pause, SECOND } from "../../kernel/time.js";
import type { Scripts } from "../../platform/redis/scripts.js";
import { SOURCE_TOKENS_KEY, SOURCE_TURN_KEYS } from "../keys.js";
import { TAKE_TOKEN } from "./read-rate.redis.js";

/** Each method throws AppError `unavailable` while Redis is unavailable. */
export interface TokenBucket {
  /**
   * Takes a token. Users who took the fewest within the hour are first.
   *
   * @throws AppError `unavailable` without a token within a second
   */
  take(user: string, signal: AbortSignal): Promise<void>;
  tryTake(): Promise<boolean>;
  /** Stops giving tokens for a time. A longer stop stays. */
  hold(ms: number): Promise<void>;
  left(): Promise<number>;
}

/** Share of an hour's tokens that may be taken at once. */
const BURST_PART = 1 / 100;
const MAX_WAIT_MS = SECOND;

/** Opens a bucket. Within an hour at most `perHour` tokens and the burst are taken, as long as Redis keeps its data. */
export function createTokenBucket({ run }: Pick<Scripts, "run">, perHour: number): TokenBucket {
  const burst = Math.max(1, Math.floor(perHour * BURST_PART));
  const keys = [SOURCE_TOKENS_KEY, ...SOURCE_TURN_KEYS];
  const ask = async (wanted: 0 | 1, holdMs: number, user = "") => {
    const reply = await run(TAKE_TOKEN, keys, [perHour, burst, wanted, holdMs, "", user]);
    const [wait, tokens] = reply as number[];
    return { wait: wait as number, left: tokens as number };
  };
  return {
    async take(user, signal) {
      const until = performance.now() + MAX_WAIT_MS;
      for (;;) {
        const { wait } = await ask(1, 0, encodeId(user));
        if (wait === 0) return;
        if (performance.now() + wait > until || signal.aborted)
          throw new AppError(
            "unavailable",
            `the next call to this source may be made in ${Math.ceil(wait / SECOND)} s`,
          );
        await pause(wait, signal);
      }
    },
    tryTake: async () => (await ask(1, 0)).wait === 0,
    hold: async (ms) => void (await ask(0, ms)),
    left: async () => (await ask(0, 0)).left,
  };
}
