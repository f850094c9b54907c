import { DAY, HOUR, MINUTE } from "../kernel/time.js";

export const MAX_AHEAD_MS = 5 * MINUTE;

export const CLOCK_SKEW_MS = MINUTE;

/** The stream DROPS keeps events this long: `max_age` in nats/streams/DROPS.json. */
export const LOG_AGE_MS = 7 * DAY;

/** The stream NOTIFY keeps messages this long: an older event notifies nobody. */
export const NOTIFY_WINDOW_MS = 10 * MINUTE;

/** A drop that is older when it is admitted is no news (an import, a late delivery): it notifies nobody. */
export const NEWS_AGE_MS = 6 * HOUR;

/** A home timeline that was not read for longer may be incomplete (see read-page.lua). */
export const MAX_IDLE_MS = 7 * DAY;

export const isTime = (createdAt: number): boolean => Number.isSafeInteger(createdAt) && createdAt >= 0;

/** No timeline takes such a drop. `arrival`: admission of the event, or the upstream's answer, ms since the epoch. */
export const isTooFarAhead = (createdAt: number, arrival: number): boolean => createdAt > arrival + MAX_AHEAD_MS;
