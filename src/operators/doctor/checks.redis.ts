import { silent } from "../../kernel/logger.js";
import { pause, SECOND } from "../../kernel/time.js";
import {
  namedClusters,
  namesSentinels,
  parseSentinelUrl,
  printableAddress,
  printableAddresses,
} from "../../kernel/urls.js";
import { clockFault } from "../../platform/redis/clock.js";
import type { RedisClient } from "../../platform/redis/clusters.js";
import { connectRedis, tlsOf } from "../../platform/redis/connect.js";
import { redisError } from "../../platform/redis/errors.js";
import { openSentinel } from "../../platform/redis/sentinel.js";
import { fieldsOf, readMasters, type ServerInfo } from "../../platform/redis/servers.js";
import { adviceOn, refusalOf } from "../../platform/refusals.js";
import { checkPlaces, checkRights, fillAsText, readFill, writeFault } from "../../state/index.js";
import { type About, about, type Check, checked, type Finding, versionFinding } from "./doctor.js";

const OLDEST = "6.2.0";
const TIMEOUT_MS = 3_000;
const WRITES = "let it take writes: name the master rather than a replica, or give it memory, disk or replicas";
const NEEDED = ": ZADD LT and ZMSCORE are needed";

const START = "start Redis there, or set REDIS_URL to where it is";
const CORRECT = "it answers: let it do what it refuses, or correct REDIS_URL";
const hasAnswered = ({ cause }: Error): boolean => cause instanceof Error && cause.name === "ReplyError";
const advice = (error: unknown): string => adviceOn(error, hasAnswered(error as Error) ? CORRECT : START);
const sentinelAdvice = (error: unknown): string =>
  adviceOn(error, "start the sentinel there, or set REDIS_URL to where it is");

export function redisChecks(urls: readonly string[], allowEviction: boolean): Check[] {
  if (namesSentinels(urls)) {
    const what = `Redis ${parseSentinelUrl(urls[0] as string).name}`;
    return [...urls.map(sentinelCheck), serverCheck({ what, urls, allowEviction }, failoverFindings)];
  }
  const clusters = namedClusters(urls);
  const nodeFindings = (_: About, fields: ServerInfo) =>
    urls.length === 1 && fields.get("cluster_enabled") === "1" ? clusterFindings(urls) : [];
  return [
    ...urls.map((url) =>
      serverCheck({ what: `Redis ${printableAddress(url)}`, urls: [url], allowEviction }, nodeFindings),
    ),
    ...(urls.length > 1 ? clusters.map((cluster) => () => clusterFindings(cluster)) : []),
    ...(clusters.length > 1 ? [placesCheck(urls)] : []),
  ];
}

const placesCheck = (urls: readonly string[]): Check =>
  checked(`Redis Clusters ${printableAddresses(urls)}`, advice, async (clusters) => {
    await withRedis(urls, true, (client) => checkPlaces(client, { onlyLook: true }));
    return [clusters.ok("no Cluster holds data of another number or order of Clusters")];
  });

interface Checked {
  readonly what: string;
  readonly urls: readonly string[];
  readonly allowEviction: boolean;
}

type MoreFindings = (server: About, fields: ServerInfo) => readonly Finding[] | Promise<readonly Finding[]>;

const serverCheck = ({ what, urls, allowEviction }: Checked, more: MoreFindings): Check =>
  checked(what, advice, async (server) => {
    const { info, time, refused } = await withRedis(urls, false, async (client) => {
      await checkRights(client);
      return { info: await client.info(), time: await client.time(), refused: await writeFault(client) };
    });
    const fields = fieldsOf(info);
    const field = (name: string): string => fields.get(name) ?? "";
    const [seconds, micros] = time.map(Number) as [number, number];
    return [
      versionFinding(server, field("valkey_version") || field("redis_version"), OLDEST, NEEDED),
      server.ok("permits all commands, keys and channels of the service"),
      refused === undefined ? server.ok("takes writes") : server.fault(`takes no writes: ${refused}`, WRITES),
      policyFinding(server, field("maxmemory_policy"), allowEviction),
      persistenceFinding(server, field("aof_enabled")),
      clockFinding(server, seconds * SECOND + micros / 1_000),
      ...(await more(server, fields)),
    ];
  });

const sentinelCheck = (url: string): Check =>
  checked(`Redis Sentinel ${printableAddress(url)}`, sentinelAdvice, async (about) => {
    const sentinel = openSentinel(url, tlsOf(url).tls);
    try {
      const { host, port } = await sentinel.master();
      const named = about.ok(`names ${host}:${port} as ${sentinel.name}`);
      const advice = "bring back sentinels: a master that fails is not replaced";
      return await sentinel.quorum().then(
        () => [named],
        (error: Error) => [named, about.warning(error.message, advice)],
      );
    } finally {
      sentinel.close();
    }
  });

function failoverFindings(server: About, fields: ServerInfo): Finding[] {
  const replicas = Number(fields.get("connected_slaves") ?? 0);
  const alone = "add a replica: without one no failover is possible";
  const unguarded =
    "set min-replicas-to-write 1 and min-replicas-max-lag 10: a master that is cut off takes writes, which are lost";
  return [
    replicas > 0 ? server.ok(`has replicas: ${replicas}`) : server.warning("has no replica", alone),
    ...(fields.has("min_slaves_good_slaves") ? [] : [server.warning("min-replicas-to-write 0", unguarded)]),
  ];
}

/** Says how far the log is filled; without a fill, or a Redis that answers, there is nothing to say. */
export function fillCheck(urls: readonly string[]): Check {
  const log = about("log DROPS");
  const isClustered = async (): Promise<boolean> =>
    !namesSentinels(urls) &&
    (urls.length > 1 ||
      (await withRedis(urls, false, (client) => client.info("cluster"))).includes("cluster_enabled:1"));
  return async () => {
    const read = async () => withRedis(urls, await isClustered(), readFill);
    const fill = await read().catch(() => undefined);
    return fill ? [log.ok(fillAsText(fill))] : [];
  };
}

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
  // A server that loads its data answers, and so does a replica, which the service would leave for another one.
  const single = { cluster, enableReadyCheck: false, reconnectOnError: () => false };
  const client = connectRedis(urls, silent, cluster ? { cluster } : single);
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
    return await ask(client).catch((error: unknown) => Promise.reject(redisError(error)));
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
