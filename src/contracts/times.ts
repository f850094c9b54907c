import { DAY, MINUTE } from "../kernel/time.js";

/** How far ahead of its arrival a drop may claim to be created. */
export const MAX_AHEAD_MS = 5 * MINUTE;

/** Our processes, Redis and NATS may disagree about the time by so much. */
export const CLOCK_SKEW_MS = MINUTE;

/** The stream NOTIFY keeps messages for ten minutes: an older event notifies nobody. */
export const NOTIFY_WINDOW_MS = 10 * MINUTE;

/** A home timeline that nobody has read for longer is not trusted to be complete (see read-page.lua). */
export const MAX_IDLE_MS = 7 * DAY;

/** A time a drop can have at all: an integer of ms since the epoch. */
export const isTime = (createdAt: number): boolean => Number.isSafeInteger(createdAt) && createdAt >= 0;

/**
 * True for a drop that no timeline takes, whether it comes as an event or in an upstream's answer.
 *
 * @param arrival when the event was admitted or the upstream answered, in ms since the epoch
 */
export const isTooFarAhead = (createdAt: number, arrival: number): boolean => createdAt > arrival + MAX_AHEAD_MS;
