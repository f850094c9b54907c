import type { Logger } from "../../kernel/logger.js";
import { startLoop } from "../../kernel/loop.js";
import { SECOND } from "../../kernel/time.js";
import { ConfigError } from "../../kernel/variables.js";
import type { RedisClient } from "./clusters.js";
import { readMasters } from "./servers.js";

const LOOK_MS = 5 * SECOND;

export type EvictionWatch = Awaited<ReturnType<typeof watchEviction>>;

/**
 * An evicted tombstone or follow version would bring deleted data back. Reads `maxmemory-policy` of every master every 5 s.
 *
 * @throws ConfigError if one evicts now and must not
 */
export async function watchEviction(
  client: RedisClient,
  { allowed, log }: { readonly allowed: boolean; readonly log: Logger },
) {
  let lastNotice: string | undefined;
  let fault: string | undefined;
  const look = async (): Promise<void> => {
    const nodes = (await readMasters(client)).filter(({ reachable }) => reachable);
    const policies = nodes.map(({ node, info }) => ({ node, policy: info?.get("maxmemory_policy") }));
    const unknown = policies.filter(({ policy }) => policy === undefined).map(({ node }) => node);
    const evicting = policies
      .filter(({ policy }) => policy !== undefined && policy !== "noeviction")
      .map(({ node, policy }) => `${node} has maxmemory-policy ${policy}`);
    fault = evicting.length > 0 && !allowed ? `Redis evicts keys: ${evicting.join(", ")}` : undefined;
    const warning =
      evicting.length > 0
        ? `Redis may evict keys, as TIMELINE_REDIS_ALLOW_EVICTION allows: ${evicting.join(", ")}`
        : `Redis does not say its maxmemory-policy, which must be noeviction: ${unknown.join(", ")}`;
    const notice = fault ?? (evicting.length + unknown.length > 0 ? warning : undefined);
    if (notice !== undefined && notice !== lastNotice)
      log[fault ? "error" : "warn"]({}, fault ? `${notice}; it must be noeviction` : notice);
    lastNotice = notice;
  };
  await look();
  if (fault !== undefined)
    throw new ConfigError([
      `REDIS_URL: ${fault}; set maxmemory-policy noeviction there, or TIMELINE_REDIS_ALLOW_EVICTION=true here`,
    ]);
  const loop = startLoop({ everyMs: LOOK_MS, firstAfterMs: LOOK_MS, work: look });
  return { fault: (): string | undefined => fault, close: () => void loop.close() };
}
