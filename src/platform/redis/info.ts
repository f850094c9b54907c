import { Cluster, type Redis } from "ioredis";
import { oneLine } from "../../kernel/errors.js";
import type { RedisClient } from "./connect.js";

/** What a Redis server says of itself (`INFO`), by field. */
export type ServerInfo = ReadonlyMap<string, string>;

/** One server that should answer: the only one, or a master of a cluster. */
export interface MasterInfo {
  /** host:port */
  readonly node: string;
  readonly reachable: boolean;
  /** Undefined where it does not answer, or where we may not ask. */
  readonly info: ServerInfo | undefined;
}

/** Asks every master by itself; one that is away does not keep the others from answering. */
export function readMasters(client: RedisClient): Promise<MasterInfo[]> {
  const masters = client instanceof Cluster ? mastersOf(client) : [[addressOf(client), client] as const];
  return Promise.all(masters.map(([node, server]) => ask(node, server)));
}

/** By the slots, since the client forgets a node as soon as its connection ends. Before the slots are known: all it has. */
function mastersOf(cluster: Cluster): (readonly [string, Redis | undefined])[] {
  const connected = new Map(cluster.nodes("all").map((server) => [addressOf(server), server]));
  const owners = new Set(cluster.slots.flatMap((nodes) => nodes?.[0] ?? []));
  return [...(owners.size > 0 ? owners : connected.keys())].map((node) => [node, connected.get(node)]);
}

const addressOf = ({ options }: Redis): string => `${options.host}:${options.port}`;

async function ask(node: string, server: Redis | undefined): Promise<MasterInfo> {
  if (server === undefined) return { node, reachable: false, info: undefined };
  try {
    return { node, reachable: true, info: fieldsOf(await server.info()) };
  } catch (error) {
    // A server that only forbids the question is there.
    return { node, reachable: oneLine(error).startsWith("NOPERM"), info: undefined };
  }
}

function fieldsOf(info: string): ServerInfo {
  const lines = info.split("\r\n").filter((line) => line.includes(":"));
  return new Map(lines.map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 1)]));
}
