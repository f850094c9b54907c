import { randomUUID } from "node:crypto";
import { pause, SECOND } from "../../kernel/time.js";
import { ConfigError } from "../../kernel/variables.js";
import type { ServerIdentity } from "../../state/servers/server-identity.redis.js";
import type { EventLog } from "../log.nats.js";

interface BindingDeps {
  readonly identity: Pick<ServerIdentity, "read">;
  readonly eventLog: Pick<EventLog, "readRedis" | "bindRedis" | "isAtWork">;
  /** Only the role fanout may change streams. */
  readonly mayBind: boolean;
}

/** A Redis that has lost its record gets it again within a second from the process at work that writes it. */
const PATIENCE_MS = 15 * SECOND;
const LOOK_MS = SECOND / 4;

const TOGETHER = "REDIS_URL, NATS_URL: a log belongs to one Redis, since each process takes a part of its events";
const REMEDY = "Let both name servers of one environment.";

const otherRedis = (bound: string, own: string): ConfigError =>
  new ConfigError([
    `${TOGETHER}. This log belongs to the Redis ${bound}, and this Redis is ${own}. ${REMEDY} ` +
      "If this Redis is to replace the other one, end all processes and empty it (FLUSHALL): its contents are built again",
  ]);

const emptyRedis = (bound: string): ConfigError =>
  new ConfigError([
    `${TOGETHER}. This log belongs to the Redis ${bound}, whose processes are at work, and this Redis is an empty one. ` +
      `${REMEDY} If this Redis is to replace the other one, end all processes first`,
  ]);

/**
 * Finds the name of the Redis that this log belongs to. What lacks the name, an empty Redis or a new log, gets that of the
 * other: one of them was lost, or replaced. Resolves to undefined where neither has one, and this process may not give one.
 *
 * @throws ConfigError where they do not belong together
 */
export async function findRedisOfLog({ identity, eventLog, mayBind }: BindingDeps): Promise<string | undefined> {
  const until = performance.now() + PATIENCE_MS;
  for (;;) {
    const { redis, log } = await identity.read();
    const [own, bound] = [log?.redis, await eventLog.readRedis()];
    if (own !== undefined && bound !== undefined && own !== bound) throw otherRedis(bound, own);
    if (redis === "none" && bound !== undefined && (await eventLog.isAtWork())) {
      if (performance.now() > until) throw emptyRedis(bound);
      await pause(LOOK_MS);
      continue;
    }
    if (bound !== undefined || !mayBind) return bound ?? own;
    await eventLog.bindRedis(own ?? randomUUID());
    // Two processes that bind it at once both find the name that came last.
    await pause(SECOND);
  }
}

/** Serves a process that changes nothing of this. @throws ConfigError where both have a name, and not the same */
export async function checkRedisOfLog({ identity, eventLog }: Omit<BindingDeps, "mayBind">): Promise<void> {
  const own = (await identity.read()).log?.redis;
  const bound = await eventLog.readRedis();
  if (own !== undefined && bound !== undefined && own !== bound) throw otherRedis(bound, own);
}
