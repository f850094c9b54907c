import { silent } from "../../src/kernel/logger.js";
import type { Scripts } from "../../src/platform/redis/scripts.js";
import { readCommandConfig } from "../../src/roles/config/config.js";
import { openRedisState, openState, type RedisState, type State } from "../../src/state/index.js";
import type { NatsBench } from "./nats.js";
import { clockOn } from "./redis.js";

/** The parts of the state that need Redis alone. */
export const redisStateOn = (scripts: Scripts): RedisState => openRedisState(scripts, clockOn(scripts));

/** The whole state as a process opens it, with the variables of its environment. The log has no history. */
export const stateOn = (
  scripts: Scripts,
  { connection, publish }: Pick<NatsBench, "connection" | "publish">,
  env: NodeJS.ProcessEnv = {},
): State =>
  openState({
    ...{ scripts, clock: clockOn(scripts), state: redisStateOn(scripts), nats: connection, publish, log: silent },
    readHistory: async function* () {},
    readRetentionStart: async () => undefined,
    config: readCommandConfig(env),
  });
