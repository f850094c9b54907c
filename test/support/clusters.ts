import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { Redis } from "ioredis";
import { connect, type JetStreamManager } from "nats";
import { type Broker, startNats, startRedis } from "../../src/sandbox/brokers/index.js";
import { privateNats, privateRedis, useRedisWithTls } from "./brokers.js";
import type { Pair } from "./certificates.js";
import { eventually } from "./eventually.js";
import { newPort } from "./ports.js";
import { type NodeRoutes, nodeRoutesOf, type Routes, routesOf } from "./routes.js";

const RANGES = [
  [0, 5460],
  [5461, 10922],
  [10923, 16383],
] as const;

/** Returns the place of the master that has the slot until it is moved. */
export const ownerAtFirst = (slot: number): number => RANGES.findIndex(([, last]) => slot <= last);

/** Time a master may be silent before a replica takes over, in ms. */
const NODE_TIMEOUT_MS = 2_000;

/** A Redis Cluster of three masters, each with a replica where asked for. */
export interface RedisCluster {
  readonly masters: readonly Broker[];
  readonly replicas: readonly Broker[];
  /** For REDIS_URL. */
  readonly urls: string;
  /** Where it has TLS: one a node. */
  readonly tlsUrls: readonly string[];
  /** Where it can be divided: cuts a node off from all others, but not from clients, and heals all. */
  readonly routes: NodeRoutes | undefined;
  /** Starts a node that was killed, at its former place. */
  restart(node: Broker): Promise<void>;
  stop(): Promise<void>;
}

/** Starts it, and waits until every node sees the whole. */
export async function startRedisCluster(options: {
  readonly replicas: boolean;
  /** Nodes are named `localhost`, also by themselves, and show this certificate; `tlsUrls` name them. */
  readonly tls?: Pair & { readonly ca: string };
  /** Further arguments of each node. */
  readonly extraArgs?: readonly string[];
  /** Nodes reach each other, and clients reach them, through proxies. */
  readonly divisible?: boolean;
  /** The files of the first master are there. */
  readonly firstDir?: string;
}): Promise<RedisCluster> {
  const { tls, extraArgs = [], firstDir } = options;
  const routes = options.divisible ? await nodeRoutesOf(2 * RANGES.length) : undefined;
  if (tls) useRedisWithTls();
  const args = ["--cluster-enabled", "yes", "--cluster-node-timeout", String(NODE_TIMEOUT_MS), ...extraArgs];
  const startNode = async (index: number) => {
    // The usual one, 10,000 above the other port, may be that of an outgoing connection.
    const [busPort, tlsPort] = [await newPort(), await newPort()];
    const network = [...(tls ? tlsArgs(tls, tlsPort) : []), ...(routes?.argsOf(index) ?? [])];
    const extraArgs = [...args, "--cluster-port", String(busPort), ...network];
    const broker =
      index === 0 && firstDir !== undefined
        ? await startRedis({ dir: firstDir, extraArgs, appendonly: true })
        : await privateRedis({ extraArgs, appendonly: true });
    routes?.lead(index, broker.port, busPort);
    return { broker, busPort, tlsPort, extraArgs };
  };
  const started = await Promise.all(RANGES.map((_, index) => startNode(index)));
  const masters = started.map(({ broker }) => broker);
  const standby = options.replicas ? await Promise.all(RANGES.map((_, index) => startNode(RANGES.length + index))) : [];
  const replicas = standby.map(({ broker }) => broker);
  const nodes = [...masters, ...replicas];
  const links = nodes.map(({ url }) => new Redis(url));
  for (const [index, range] of RANGES.entries()) await links[index]?.call("CLUSTER", "ADDSLOTSRANGE", ...range);
  const [first] = started;
  const ports = routes?.portsOf(0) ?? [tls ? first?.tlsPort : first?.broker.port, first?.busPort];
  const meet = ["MEET", "127.0.0.1", ...ports.map(String)];
  for (const link of links) await link.call("CLUSTER", ...meet);
  const say = async (fact: RegExp): Promise<boolean> =>
    (await Promise.all(links.map((link) => link.call("CLUSTER", "INFO")))).every((info) => fact.test(String(info)));
  await eventually(() => say(new RegExp(`cluster_known_nodes:${nodes.length}\\b`)), "every node knows the others");
  for (const [index] of replicas.entries()) {
    const id = String(await links[index]?.call("CLUSTER", "MYID"));
    await links[RANGES.length + index]?.call("CLUSTER", "REPLICATE", id);
  }
  await eventually(() => say(/cluster_state:ok/), "the cluster is whole");
  if (options.replicas) await eventually(() => replicating(links.slice(RANGES.length)), "the replicas are in step");
  for (const link of links) link.disconnect();
  const restarted: Broker[] = [];
  return {
    masters,
    replicas,
    routes,
    urls: nodes.map(({ url }) => url).join(","),
    tlsUrls: tls ? started.map(({ tlsPort }) => `rediss://localhost:${tlsPort}`) : [],
    restart: async (node) => {
      const extraArgs = [...started, ...standby].find(({ broker }) => broker === node)?.extraArgs ?? [];
      restarted.push(await startRedis({ dir: node.dir, port: node.port, extraArgs, appendonly: true }));
    },
    stop: async () => {
      await stopAll(restarted, nodes);
      await routes?.close();
    },
  };
}

/** Redis Clusters without replicas, which share the keys. */
export interface RedisClusters {
  readonly clusters: readonly RedisCluster[];
  /** For REDIS_URL. */
  readonly urls: string;
  stop(): Promise<void>;
}

export async function startRedisClusters(count: number): Promise<RedisClusters> {
  const starting = Array.from({ length: count }, () => startRedisCluster({ replicas: false }));
  const clusters = await Promise.all(starting);
  return {
    clusters,
    urls: clusters.map(({ urls }) => urls).join(";"),
    stop: async () => void (await Promise.all(clusters.map((cluster) => cluster.stop()))),
  };
}

/** The folders of the first processes are removed with them, so that the later ones end before. */
async function stopAll(restarted: readonly Broker[], first: readonly Broker[]): Promise<void> {
  await Promise.all(restarted.map((server) => server.stop()));
  await Promise.all(first.map((server) => server.stop()));
}

const tlsArgs = ({ ca, cert, key }: Pair & { readonly ca: string }, port: number): string[] => [
  ...["--tls-port", String(port), "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", ca],
  ...["--tls-auth-clients", "no", "--tls-cluster", "yes", "--tls-replication", "yes"],
  ...["--cluster-announce-hostname", "localhost", "--cluster-preferred-endpoint-type", "hostname"],
];

async function replicating(replicas: readonly Redis[]): Promise<boolean> {
  const infos = await Promise.all(replicas.map((replica) => replica.info("replication")));
  return infos.every((info) => /master_link_status:up/.test(info));
}

/**
 * Moves a slot with all its keys from one master to another, as `redis-cli --cluster reshard` does. It ends once every
 * master knows the newest epoch: a target that does not may claim its next slot under an older epoch than its source has,
 * and then loses the slot and its keys again. Returns how many keys were moved.
 */
export async function moveSlot({ masters }: RedisCluster, slot: number, from: Broker, to: Broker): Promise<number> {
  const links = new Map([...new Set([to, from, ...masters])].map((master) => [master, new Redis(master.url)]));
  const [target, source] = [links.get(to) as Redis, links.get(from) as Redis];
  try {
    const ids = await Promise.all([source.call("CLUSTER", "MYID"), target.call("CLUSTER", "MYID")]);
    const [sourceId, targetId] = ids.map(String) as [string, string];
    await target.call("CLUSTER", "SETSLOT", slot, "IMPORTING", sourceId);
    await source.call("CLUSTER", "SETSLOT", slot, "MIGRATING", targetId);
    let moved = 0;
    for (;;) {
      const keys = (await source.call("CLUSTER", "GETKEYSINSLOT", slot, 100)) as string[];
      if (keys.length === 0) break;
      await source.call("MIGRATE", "127.0.0.1", to.port, "", 0, 5_000, "KEYS", ...keys);
      moved += keys.length;
    }
    for (const link of links.values()) await link.call("CLUSTER", "SETSLOT", slot, "NODE", targetId);
    await eventually(() => haveOneEpoch([...links.values()]), "every master knows the newest epoch");
    return moved;
  } finally {
    for (const link of links.values()) link.disconnect();
  }
}

async function haveOneEpoch(masters: readonly Redis[]): Promise<boolean> {
  const infos = await Promise.all(masters.map((master) => master.call("CLUSTER", "INFO")));
  return new Set(infos.map((info) => /cluster_current_epoch:(\d+)/.exec(String(info))?.[1])).size === 1;
}

/** Three nats-servers with one JetStream. */
export interface NatsCluster extends Pick<Routes, "isolate" | "heal"> {
  readonly servers: readonly Broker[];
  /** For NATS_URL. */
  readonly urls: string;
  /** The server that leads a stream, by those that a test asks; undefined where none does. */
  leaderOf(stream: string, asked?: JetStreamManager): Promise<Broker | undefined>;
  /** Makes a server the leader of a stream. */
  lead(stream: string, server: Broker): Promise<void>;
  /** Starts a server that was killed, at its former place. */
  restart(server: Broker): Promise<void>;
  stop(): Promise<void>;
}

/**
 * Starts it, and waits until JetStream answers. Routes between servers go through proxies. The first server has its files
 * in `firstDir` where that is given, and reserves room for streams whether the disk has it or not.
 */
export async function startNatsCluster({ firstDir }: { readonly firstDir?: string } = {}): Promise<NatsCluster> {
  const names = ["n1", "n2", "n3"];
  const routes = await routesOf(names.length);
  const config = firstDir === undefined ? undefined : join(firstDir, "nats.conf");
  if (config !== undefined) await writeFile(config, "jetstream { max_file_store: 1TB }");
  const argsOf = (index: number) => [
    ...(index === 0 && config !== undefined ? ["-c", config] : []),
    ...["-n", names[index] as string, "-cluster_name", "timeline"],
    ...routes.argsOf(index),
  ];
  const startOne = (_: unknown, index: number): Promise<Broker> => {
    const extraArgs = argsOf(index);
    return index === 0 && firstDir !== undefined ? startNats({ dir: firstDir, extraArgs }) : privateNats({ extraArgs });
  };
  const servers = await Promise.all(names.map(startOne));
  const restarted: Broker[] = [];
  const connection = await connect({ servers: servers.map(({ url }) => url), maxReconnectAttempts: -1 });
  const manager = await connection.jetstreamManager({ checkAPI: false });
  await eventually(
    () =>
      manager
        .getAccountInfo()
        .then(() => true)
        .catch(() => false),
    "JetStream has a leader",
    30_000,
  );
  const leaderOf: NatsCluster["leaderOf"] = async (stream, asked = manager) => {
    const { cluster } = await asked.streams.info(stream);
    return servers[names.indexOf(cluster?.leader ?? "")];
  };
  return {
    servers,
    ...{ isolate: routes.isolate, heal: routes.heal, leaderOf },
    urls: servers.map(({ url }) => url).join(","),
    lead: (stream, server) =>
      eventually(
        async () => {
          if ((await leaderOf(stream).catch(() => undefined)) === server) return true;
          // The server chooses who follows.
          await connection.request(`$JS.API.STREAM.LEADER.STEPDOWN.${stream}`).catch(() => undefined);
          return false;
        },
        `the server leads ${stream}`,
        60_000,
      ),
    async restart(server) {
      const { dir, port } = server;
      restarted.push(await startNats({ dir, port, extraArgs: argsOf(servers.indexOf(server)) }));
    },
    async stop() {
      await connection.close();
      await stopAll(restarted, servers);
      await routes.close();
    },
  };
}
