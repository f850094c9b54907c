import { DAY, HOUR, MINUTE } from "../kernel/time.js";

export const MAX_AHEAD_MS = 5 * MINUTE;

export const CLOCK_SKEW_MS = MINUTE;

/** The stream DROPS keeps events this long: `max_age` in nats/streams/DROPS.json. */
export const LOG_AGE_MS = 7 * DAY;

/** A message that the stream DROPS took before counts as a repetition this long: `duplicate_window` in nats/streams/DROPS.json. */
export const REPETITION_MS = 10 * MINUTE;

/** The stream NOTIFY keeps messages this long: an older event notifies nobody. */
export const NOTIFY_WINDOW_MS = 10 * MINUTE;

/** A drop that was older when it was admitted (an import, a late delivery) is no news: it notifies nobody, and has no lag of ours. */
export const NEWS_AGE_MS = 6 * HOUR;

export const isNews = (createdAt: number, admittedAt: number): boolean => admittedAt - createdAt <= NEWS_AGE_MS;

/** A home timeline that was not read for longer may be incomplete (see read-page.lua). */
export const MAX_IDLE_MS = 7 * DAY;

export const isTime = (createdAt: number): boolean => Number.isSafeInteger(createdAt) && createdAt >= 0;

/** A drop from the future is in no timeline. `arrival`: admission of the event, or the upstream's answer, ms since the epoch. */
export const isTooFarAhead = (createdAt: number, arrival: number): boolean => createdAt > arrival + MAX_AHEAD_MS;
