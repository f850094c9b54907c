import type { RedisClock } from "../platform/redis/clock.js";
import type { Scripts } from "../platform/redis/scripts.js";
import { createRegistry, type Registry } from "./registry.js";
import { createPullStore } from "./store.redis.js";

export type { ModeChoice, Registry } from "./registry.js";
export type { StoredState } from "./store.redis.js";

interface Configured {
  readonly tierThreshold: number;
  readonly pullThreshold: number;
  readonly pullPressure: number;
}

export const openPulled = (
  scripts: Scripts,
  clock: RedisClock,
  { tierThreshold: tier, pullThreshold: pull, pullPressure: pressure }: Configured,
): Registry => createRegistry({ store: createPullStore(scripts, clock), thresholds: { tier, pull, pressure } });
