import { silent } from "../kernel/logger.js";
import { pause, SECOND } from "../kernel/time.js";
import { printableAddress, printableAddresses } from "../kernel/urls.js";
import { clockFault } from "../platform/redis/clock.js";
import { connectRedis, type RedisClient, redisError } from "../platform/redis/connect.js";
import { fieldsOf, readMasters } from "../platform/redis/servers.js";
import { adviceOn, refusalOf } from "../platform/refusals.js";
import { type About, type Check, checked, type Finding, versionFinding } from "./doctor.js";

const OLDEST = "6.2.0";
const TIMEOUT_MS = 3_000;
const NEEDED = ": ZADD LT and ZMSCORE are needed";

const advice = (error: unknown): string => adviceOn(error, "start Redis there, or set REDIS_URL to where it is");

export const redisChecks = (urls: readonly string[], allowEviction: boolean): Check[] => [
  ...urls.map((url) =>
    checked(`Redis ${printableAddress(url)}`, advice, async (server) => {
      const { info, time } = await withRedis([url], false, async (client) => ({
        info: await client.info(),
        time: await client.time(),
      }));
      const fields = fieldsOf(info);
      const field = (name: string): string => fields.get(name) ?? "";
      const [seconds, micros] = time.map(Number) as [number, number];
      return [
        versionFinding(server, field("valkey_version") || field("redis_version"), OLDEST, NEEDED),
        policyFinding(server, field("maxmemory_policy"), allowEviction),
        persistenceFinding(server, field("aof_enabled")),
        clockFinding(server, seconds * SECOND + micros / 1_000),
        ...(urls.length === 1 && field("cluster_enabled") === "1" ? await clusterFindings(urls) : []),
      ];
    }),
  ),
  ...(urls.length > 1 ? [() => clusterFindings(urls)] : []),
];

const clusterFindings = (urls: readonly string[]): Promise<readonly Finding[]> =>
  checked(`Redis Cluster ${printableAddresses(urls)}`, advice, async (cluster) => {
    const masters = await withRedis(urls, true, readMasters);
    const away = masters.filter(({ reachable }) => !reachable).map(({ node }) => node);
    if (away.length === 0) return [cluster.ok(`${masters.length} masters answer`)];
    const advice = "let the nodes announce addresses that this process reaches, and that their certificates hold";
    return [cluster.fault(`does not reach ${away.join(", ")}, which the cluster names`, advice)];
  })();

/** Connects as the service does: to a cluster over the addresses that the nodes name. @throws the first error */
async function withRedis<Result>(
  urls: readonly string[],
  cluster: boolean,
  ask: (client: RedisClient) => Promise<Result>,
): Promise<Result> {
  const client = connectRedis(urls, silent, { cluster });
  const settled = new AbortController();
  let reason: unknown = new Error("does not answer");
  client.on("error", (error: Error & { lastNodeError?: Error }) => {
    reason = refusalOf(client) ?? redisError(error.lastNodeError ?? error);
    settled.abort();
  });
  client.once("ready", () => settled.abort());
  try {
    await pause(TIMEOUT_MS, settled.signal);
    if (client.status !== "ready") throw reason;
    return await ask(client);
  } finally {
    client.disconnect();
  }
}

function policyFinding(server: About, policy: string, allowEviction: boolean): Finding {
  const says = `maxmemory-policy ${policy}`;
  if (policy === "noeviction") return server.ok(says);
  if (policy === "") {
    const advice = "allow INFO memory, and make sure that maxmemory-policy is noeviction";
    return server.warning("does not say its maxmemory-policy", advice);
  }
  const advice = "set maxmemory-policy noeviction: timelines, tombstones and follow versions must not be evicted";
  if (allowEviction) return server.warning(`${says}, as TIMELINE_REDIS_ALLOW_EVICTION allows`, advice);
  return server.fault(says, advice);
}

function persistenceFinding(server: About, aof: string): Finding {
  if (aof === "1") return server.ok("appendonly yes");
  const advice = "set appendonly yes: without it a restart loses the timelines, and each is rebuilt when it is read";
  return server.warning("appendonly no", advice);
}

function clockFinding(server: About, time: number): Finding {
  const fault = clockFault(time, Date.now());
  if (fault === undefined) return server.ok("its clock and that of this machine agree");
  return server.fault(fault, "synchronize the clocks of both machines (chrony, systemd-timesyncd)");
}
