import type { Logger } from "../../kernel/logger.js";
import { SECOND } from "../../kernel/time.js";
import { ConfigError } from "../../kernel/variables.js";
import type { RedisClient } from "./connect.js";
import { readMasters } from "./servers.js";

const LOOK_MS = 5 * SECOND;

/** An evicted tombstone or follow version would bring deleted data back. */
export interface EvictionWatch {
  fault(): string | undefined;
  close(): void;
}

/** Reads `maxmemory-policy` of every master every 5 s. @throws ConfigError where one evicts now and must not */
export async function watchEviction(
  client: RedisClient,
  { allowed, log, everyMs = LOOK_MS }: { readonly allowed: boolean; readonly log: Logger; readonly everyMs?: number },
): Promise<EvictionWatch> {
  let said = "";
  let fault: string | undefined;
  const say = (what: string, level: "warn" | "error"): void => {
    if (what !== "" && what !== said) log[level]({}, what);
    said = what;
  };
  const look = async (): Promise<void> => {
    const { evicting, unknown } = await readPolicies(client);
    fault = evicting.length > 0 && !allowed ? `Redis evicts keys: ${evicting.join(", ")}` : undefined;
    if (fault) say(`${fault}; it must be noeviction`, "error");
    else if (evicting.length > 0)
      say(`Redis may evict keys, as TIMELINE_REDIS_ALLOW_EVICTION allows: ${evicting.join(", ")}`, "warn");
    else if (unknown.length > 0)
      say(`Redis does not say its maxmemory-policy, which must be noeviction: ${unknown.join(", ")}`, "warn");
    else say("", "warn");
  };
  await look();
  if (fault !== undefined)
    throw new ConfigError([
      `REDIS_URL: ${fault}; set maxmemory-policy noeviction there, or TIMELINE_REDIS_ALLOW_EVICTION=true here`,
    ]);
  const timer = setInterval(() => void look().catch(() => undefined), everyMs);
  timer.unref();
  return { fault: () => fault, close: () => clearInterval(timer) };
}

async function readPolicies(client: RedisClient): Promise<{ evicting: string[]; unknown: string[] }> {
  const evicting: string[] = [];
  const unknown: string[] = [];
  for (const { node, reachable, info } of await readMasters(client)) {
    const policy = info?.get("maxmemory_policy");
    if (policy === undefined) unknown.push(...(reachable ? [node] : []));
    else if (policy !== "noeviction") evicting.push(`${node} has maxmemory-policy ${policy}`);
  }
  return { evicting, unknown };
}
