import { type Cluster, Redis } from "ioredis";
import { oneLine } from "../../kernel/errors.js";
import { clustersOf, mastersOf, type RedisClient } from "./clusters.js";
import { redisError } from "./errors.js";
import type { Scripts } from "./scripts.js";

export type DataNode = Awaited<ReturnType<typeof nodeOf>>;

/** Nodes are in the order of run ids. */
export async function dataNodes({ client }: Scripts): Promise<DataNode[]> {
  const nodes = await Promise.all(mastersOf(client).map(nodeOf));
  return nodes.sort((a, b) => (a.runId < b.runId ? -1 : 1));
}

async function nodeOf(server: Redis) {
  const info = fieldsOf(await answered(() => server.info("server")));
  return {
    /** A restarted server has another. */
    runId: info.get("run_id") ?? "",
    /** The number of keys. */
    size: () => answered(() => server.dbsize()),
    /** One step through the keys that begin with `prefix`; the cursor "0" begins and ends. */
    scan: (cursor: string, prefix: string, count: number) =>
      answered(async () => {
        const [next, keys] = await server.scan(cursor, "MATCH", `${prefix}*`, "COUNT", count);
        return { next, keys };
      }),
  };
}

async function answered<T>(ask: () => Promise<T>): Promise<T> {
  try {
    return await ask();
  } catch (error) {
    throw redisError(error);
  }
}

/** True if a server is a node of a Redis Cluster: it answers for some of the keys only. False if it forbids the question. */
export async function servesCluster({ client }: Pick<Scripts, "client">): Promise<boolean> {
  if (clustersOf(client).length > 0) return true;
  const info = await answered(() => client.info("cluster")).catch((error: Error) => {
    if (error.message.includes("NOPERM")) return "";
    throw error;
  });
  return fieldsOf(info).get("cluster_enabled") === "1";
}

/** True if a failover leaves the former master running, which takes writes until each client has left it. */
export const hasSentinels = (client: RedisClient): boolean =>
  client instanceof Redis && client.options.name !== undefined;

export type ServerInfo = ReadonlyMap<string, string>;

export interface MasterInfo {
  /** The node is host:port, or the name that sentinels have for it. */
  readonly node: string;
  readonly reachable: boolean;
  /** The info is undefined if the server does not answer, or forbids the question. */
  readonly info: ServerInfo | undefined;
}

export function readMasters(client: RedisClient): Promise<MasterInfo[]> {
  const masters =
    client instanceof Redis ? [[addressOf(client), client] as const] : clustersOf(client).flatMap(slotOwners);
  return Promise.all(masters.map(([node, server]) => infoOf(node, server)));
}

/** The client forgets a node when its connection ends; the slots still name it. */
function slotOwners(cluster: Cluster): (readonly [string, Redis | undefined])[] {
  const connected = new Map(cluster.nodes("all").map((server) => [addressOf(server), server]));
  const owners = new Set(cluster.slots.flatMap((nodes) => nodes?.[0] ?? []));
  return [...(owners.size > 0 ? owners : connected.keys())].map((node) => [node, connected.get(node)]);
}

/** A master that sentinels follow goes by its name, which a failover does not change. */
const addressOf = ({ options }: Redis): string => options.name ?? `${options.host}:${options.port}`;

async function infoOf(node: string, server: Redis | undefined): Promise<MasterInfo> {
  if (server === undefined) return { node, reachable: false, info: undefined };
  try {
    return { node, reachable: true, info: fieldsOf(await server.info()) };
  } catch (error) {
    // A server that only forbids the question is reachable.
    return { node, reachable: oneLine(error).startsWith("NOPERM"), info: undefined };
  }
}

export function fieldsOf(info: string): ServerInfo {
  const lines = info.split("\r\n").filter((line) => line.includes(":"));
  return new Map(lines.map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 1)]));
}
