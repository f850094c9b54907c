import { HOUR, SECOND } from "../../kernel/time.js";
import type { Scripts } from "../../platform/redis/scripts.js";
import { readsKey } from "../keys.js";
import { script } from "../scripts.redis.js";
import { unlessAway } from "./limits.redis.js";

export const TAKE_TOKEN = script("take-token", import.meta.url);

/** Cost that a user may use a second: far more than a page that polls needs. */
const READS_A_SECOND = 100;
const READS_AT_ONCE = 1_000;

/**
 * Returns a function that counts a read of a user over HTTP. Resolves to the seconds until the user may read; 0: now.
 * While Redis is away nothing is counted.
 */
export const createReadRate =
  (scripts: Scripts) =>
  async (user: string, cost: number): Promise<number> => {
    const bucket = [READS_A_SECOND * (HOUR / SECOND), READS_AT_ONCE, cost, 0];
    const reply = await unlessAway(scripts.run(TAKE_TOKEN, [readsKey(user)], bucket));
    const [waitMs] = (reply ?? [0]) as [number];
    return Math.ceil(waitMs / SECOND);
  };
