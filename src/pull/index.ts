import type { RedisClock } from "../platform/redis/clock.js";
import type { Scripts } from "../platform/redis/scripts.js";
import { createRegistry, type Registry } from "./registry.js";
import { createPullStore } from "./store.redis.js";

export type { Registry, Wish } from "./registry.js";
export type { HeldState } from "./store.redis.js";

export const openPulled = (scripts: Scripts, clock: RedisClock, threshold: number): Registry =>
  createRegistry({ store: createPullStore(scripts, clock), threshold });
