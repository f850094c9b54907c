import type { SecureContextOptions } from "node:tls";
import { Cluster, Redis, type RedisOptions } from "ioredis";
import type { Logger } from "../../kernel/logger.js";
import { pause, SECOND } from "../../kernel/time.js";
import {
  databaseOf,
  namedClusters,
  namesCluster,
  namesSentinels,
  parseSentinelUrl,
  parseServerUrl,
  printableAddresses,
} from "../../kernel/urls.js";
import { rereading } from "../files.js";
import { isTlsFault, noteRefusal, Refusal } from "../refusals.js";
import { TLS_FILES } from "../tls.js";
import { Clusters, clustersOf, type RedisClient } from "./clusters.js";
import { redisError } from "./errors.js";
import { followMaster } from "./sentinel.js";
import { failUnanswered, reportRefreshes } from "./wire.js";

export const COMMAND_TIMEOUT_MS = 2 * SECOND;

// A command without a reply fails and is never sent again: it could write after its work went to another process.
const STRICT = {
  enableOfflineQueue: false,
  autoResendUnfulfilledCommands: false,
  maxRetriesPerRequest: 0,
  commandTimeout: COMMAND_TIMEOUT_MS,
  connectTimeout: 5 * SECOND,
  // The timeout counts only while commands wait. TCP alone keeps a silent connection for a quarter of an hour.
  socketTimeout: 5 * SECOND,
  retryStrategy: (times: number) => Math.min(100 * times, 2 * SECOND),
} as const;

const LEAVE_REPLICA_MS = 5 * SECOND;

interface ClientOptions extends RedisOptions {
  /** One URL names a node of a Redis Cluster, as its server says (`servesCluster`). */
  readonly cluster?: boolean;
}

/**
 * Reconnects for ever; commands fail while Redis is unavailable. Several URLs name the nodes of a Redis Cluster or of
 * several (`namedClusters`), or the sentinels of a master. The other `options` are those of a single server.
 */
export function connectRedis(
  urls: readonly string[],
  log: Logger,
  { cluster = namesCluster(urls), ...options }: ClientOptions = {},
): RedisClient {
  const parts = namedClusters(urls);
  if (cluster && parts.length > 1) return openClusters(parts, log);
  const client = cluster
    ? openCluster(urls)
    : new Redis({ ...STRICT, reconnectOnError: leavesReplica(), ...serverOf(urls), ...options });
  watch(client, log);
  return client;
}

function openClusters(parts: readonly (readonly string[])[], log: Logger): Clusters {
  const opened = parts.map((urls) => ({ urls, part: openCluster(urls) }));
  const client = new Clusters(opened.map(({ part }) => part));
  for (const { urls, part } of opened)
    watch(part, log, { owner: client, name: `Redis Cluster ${printableAddresses(urls)}` });
  return client;
}

/** A master that was demoted keeps its connections; a new one may lead to its successor, unless there is none. */
function leavesReplica(): (error: Error) => 1 | false {
  let leftAt = Number.NEGATIVE_INFINITY;
  return ({ message }) => {
    if (!/\bREADONLY\b/.test(message) || performance.now() - leftAt < LEAVE_REPLICA_MS) return false;
    leftAt = performance.now();
    return 1;
  };
}

/** Waits a moment for the first connection. */
export async function connected(client: RedisClient): Promise<void> {
  if (client.status === "ready") return;
  const settled = new AbortController();
  client.once("ready", () => settled.abort());
  await pause(SECOND / 4, settled.signal);
}

/**
 * Waits for Redis. The caller subscribes again at each connection: the client would not report a refusal of that. In a cluster every node hands on what is published at any: one is
 * subscribed to at a time, also one that only `beside` has learned of. Of several Clusters that is the first one. The
 * client's own subscriber of a cluster does not report interruptions.
 */
export function connectSubscriber(urls: readonly string[], log: Logger, beside?: RedisClient): Redis {
  // Sentinels name the only server.
  const [firstNamed = urls] = namedClusters(urls);
  const named = namesSentinels(urls) ? [] : firstNamed.map(addressOf);
  const [cluster] = beside ? clustersOf(beside) : [];
  const client: Redis = new Redis({
    ...serverOf(urls),
    enableOfflineQueue: true,
    maxRetriesPerRequest: null,
    autoResubscribe: false,
    retryStrategy: (times) => {
      const others = cluster?.nodes("all").map(({ options: { host, port } }) => ({ host, port })) ?? [];
      const nodes = [...named, ...others];
      Object.assign(client.options, nodes[times % nodes.length]);
      return STRICT.retryStrategy(times);
    },
  });
  endUnanswered(client);
  watch(client, log);
  return client;
}

/** Opens a connection to the same server that takes messages of RESP2, connects for ever, and subscribes to nothing by itself. */
export function listenerBeside(server: Redis): Redis {
  const { enableOfflineQueue, retryStrategy } = STRICT;
  const ofPubSub = { protocol: 2, autoResubscribe: false, lazyConnect: false } as const;
  const listener = server.duplicate({ enableOfflineQueue, retryStrategy, ...ofPubSub });
  listener.on("error", () => undefined);
  return listener;
}

/** A client that is not ready waits forever for the answers of a server. */
function endUnanswered(client: Redis): void {
  let timer: NodeJS.Timeout | undefined;
  const settled = (): void => clearTimeout(timer);
  client.on("connect", () => {
    settled();
    timer = setTimeout(() => client.disconnect(true), STRICT.connectTimeout);
  });
  client.on("ready", settled).on("close", settled);
}

/** The certificate of a server over TLS is verified. */
function serverOf(urls: readonly string[]): RedisOptions {
  const [url = ""] = urls;
  if (namesSentinels(urls)) {
    const { name } = parseSentinelUrl(url);
    return { name, db: databaseOf(urls), ...wayIn(url), Connector: followMaster(urls) };
  }
  return { ...addressOf(url), db: databaseOf(urls), ...wayIn(url) };
}

function addressOf(url: string) {
  const { host, port } = parseServerUrl(url);
  return { host, port };
}

function wayIn(url: string): RedisOptions {
  const { user, password } = parseServerUrl(url);
  return {
    ...(user ? { username: user } : {}),
    ...(password ? { password } : {}),
    ...tlsOf(url),
  };
}

/** The configuration adds the files to the URL. The client asks for their contents at each connection. */
export function tlsOf(url: string): { readonly tls?: SecureContextOptions } {
  const { protocol, searchParams } = new URL(url);
  if (!protocol.startsWith("rediss")) return {};
  const tls = {};
  for (const name of Object.keys(TLS_FILES)) {
    const file = searchParams.get(name);
    if (file !== null) Object.defineProperty(tls, name, { get: rereading(file), enumerable: true });
  }
  return { tls };
}

function openCluster(urls: readonly string[]): Cluster {
  const cluster = new Cluster(urls.map(addressOf), {
    // Certificates hold names. The client would look the names up, and then compare the certificates with addresses.
    dnsLookup: (host, callback) => callback(null, host),
    enableOfflineQueue: STRICT.enableOfflineQueue,
    // A master that fails is replaced within the cluster's node timeout (15 s by default).
    retryDelayOnFailover: 200,
    maxRedirections: 16,
    clusterRetryStrategy: STRICT.retryStrategy,
    redisOptions: { ...STRICT, ...wayIn(urls[0] as string) },
  });
  cluster.on("+node", (node: Redis) => {
    failUnanswered(node);
    reportRefreshes(cluster, node);
  });
  return cluster;
}

/** Notes refusals for the client `owner`. */
function watch(client: RedisClient, log: Logger, { owner = client, name = "Redis" } = {}): void {
  let away = false;
  let fault: Error | undefined;
  client.on("node error", (error: Error) => {
    if (isTlsFault(error)) fault = error;
  });
  client.on("error", (error: Error & { lastNodeError?: Error }) => {
    const reason = redisError(fault ?? error.lastNodeError ?? error, name);
    fault = undefined;
    if (reason instanceof Refusal) noteRefusal(owner, reason, log);
    else if (!away) log.warn({ error: (error.lastNodeError ?? error).message }, `${name} is unavailable; work waits`);
    away = true;
  });
  client.on("ready", () => {
    if (away) log.info({}, `${name} is available again`);
    away = false;
    noteRefusal(owner, undefined, log);
  });
}
