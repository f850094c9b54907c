import type { Lease } from "../kernel/lease.js";
import { createLease } from "../platform/redis/lease.js";
import type { Scripts } from "../platform/redis/scripts.js";
import { AUDIT_LEASE_KEY, CROSSING_LEASE_KEY, REPLAY_LEASE_KEY, TRIM_LEASE_KEY } from "./keys.js";

const KEYS = {
  audit: AUDIT_LEASE_KEY,
  crossing: CROSSING_LEASE_KEY,
  replay: REPLAY_LEASE_KEY,
  trimming: TRIM_LEASE_KEY,
} as const;

export type Work = keyof typeof KEYS;

/** Opens the lease of work that one process does at a time. */
export const openLease = (scripts: Scripts, work: Work): Lease => createLease(scripts, KEYS[work]);
