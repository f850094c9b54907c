import { MINUTE } from "../kernel/time.js";

/** How far ahead of its arrival a drop may claim to be created. */
export const MAX_AHEAD_MS = 5 * MINUTE;

/** A time a drop can have at all: an integer of ms since the epoch. */
export const isTime = (createdAt: number): boolean => Number.isSafeInteger(createdAt) && createdAt >= 0;

/**
 * True for a drop that no timeline takes, wherever it comes from: as an event, or out of an upstream's answer.
 *
 * @param arrival when the event was admitted or the upstream answered, in ms since the epoch
 */
export const isTooFarAhead = (createdAt: number, arrival: number): boolean => createdAt > arrival + MAX_AHEAD_MS;
