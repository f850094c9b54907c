import { randomUUID } from "node:crypto";
import { pause, SECOND } from "../../kernel/time.js";
import { ConfigError } from "../../kernel/variables.js";
import type { ServerIdentity } from "../../state/index.js";
import type { EventLog } from "../log.nats.js";

interface BindingDeps {
  readonly identity: Pick<ServerIdentity, "read">;
  readonly eventLog: Pick<EventLog, "readRedis" | "bindRedis" | "isAtWork">;
  /** True for the role fanout, which alone may change streams. */
  readonly mayBind: boolean;
}

/**
 * Maximum wait. A Redis that has lost its record gets it again within a second from the process at work that writes it.
 */
const PATIENCE_MS = 15 * SECOND;
const LOOK_MS = SECOND / 4;

const TOGETHER = "REDIS_URL, NATS_URL: a log belongs to one Redis, since each process takes a part of its events";
const REMEDY = "Let both name servers of one environment.";

const otherRedis = (bound: string, ownName: string): ConfigError =>
  new ConfigError([
    `${TOGETHER}. This log belongs to the Redis ${bound}, and this Redis is ${ownName}. ${REMEDY} ` +
      "If this Redis is to replace the other one, end all processes and empty it (FLUSHALL): its contents are built again",
  ]);

const emptyRedis = (bound: string): ConfigError =>
  new ConfigError([
    `${TOGETHER}. This log belongs to the Redis ${bound}, whose processes are at work, and this Redis is an empty one. ` +
      `${REMEDY} If this Redis is to replace the other one, end all processes first`,
  ]);

/**
 * Finds the name of the Redis that this log belongs to. An empty Redis or a new log gets the name from the other one:
 * it was lost, or replaced. Resolves to undefined if neither has a name, and this process may not write one.
 *
 * @throws ConfigError if they do not belong together
 */
export async function findRedisOfLog({ identity, eventLog, mayBind }: BindingDeps): Promise<string | undefined> {
  const until = performance.now() + PATIENCE_MS;
  for (;;) {
    const { redis, log } = await identity.read();
    const [ownName, bound] = [log?.redis, await eventLog.readRedis()];
    if (ownName !== undefined && bound !== undefined && ownName !== bound) throw otherRedis(bound, ownName);
    if (redis === "none" && bound !== undefined && (await eventLog.isAtWork())) {
      if (performance.now() > until) throw emptyRedis(bound);
      await pause(LOOK_MS);
      continue;
    }
    if (bound !== undefined || !mayBind) return bound ?? ownName;
    await eventLog.bindRedis(ownName ?? randomUUID());
    // Two processes that bind it at the same time both read the name that came last.
    await pause(SECOND);
  }
}

/**
 * Checks the binding without changing it.
 *
 * @throws ConfigError if both have a name, and not the same
 */
export async function checkRedisOfLog({ identity, eventLog }: Omit<BindingDeps, "mayBind">): Promise<void> {
  const ownName = (await identity.read()).log?.redis;
  const bound = await eventLog.readRedis();
  if (ownName !== undefined && bound !== undefined && ownName !== bound) throw otherRedis(bound, ownName);
}
