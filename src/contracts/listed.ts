import { RECENT_KEY } from "./keys.js";
import { NOTIFY_WINDOW_MS } from "./times.js";

/**
 * A user who was seen after this time is listed; ms since the epoch. By the clock of Redis, as the gateway writes it:
 * with two clocks, notifications would not be stored for a user whom the gateway takes for listed.
 */
export const listedSince = async (clock: { now(key: string): Promise<number> }): Promise<number> =>
  (await clock.now(RECENT_KEY)) - NOTIFY_WINDOW_MS;
