import type { RedisClock } from "../../platform/redis/clock.js";
import type { Scripts } from "../../platform/redis/scripts.js";
import { type AuthorRegistry, createAuthorRegistry } from "./registry.js";
import { createPullStore } from "./store.redis.js";

export type { AuthorRegistry, ModeChoice } from "./registry.js";
export { authorAsJson, type StoredState } from "./store.redis.js";

export interface FanoutThresholds {
  readonly tierThreshold: number;
  readonly pullThreshold: number;
  readonly pullPressure: number;
}

export const openPulled = (
  scripts: Scripts,
  clock: RedisClock,
  { tierThreshold: tier, pullThreshold: pull, pullPressure: pressure }: FanoutThresholds,
): AuthorRegistry =>
  createAuthorRegistry({ store: createPullStore(scripts, clock), thresholds: { tier, pull, pressure } });
