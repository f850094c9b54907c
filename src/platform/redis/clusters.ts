import slotOf from "cluster-key-slot";
import { Cluster, type Command, type NodeRole, Redis } from "ioredis";
import { spread } from "../../kernel/ids.js";

export type RedisClient = Redis | Cluster;

export const mastersOf = (client: RedisClient): Redis[] =>
  client instanceof Redis ? [client] : client.nodes("master");

/** The number is the same for each Redis Cluster. */
const SLOTS = 16_384;

const FORWARDED = ["+node", "-node", "node error", "error", "close", "reconnecting"] as const;

/**
 * Several Redis Clusters look like one that has the nodes of all. A key is in one of them. The first one takes commands
 * without a key, also PUBLISH.
 */
export class Clusters extends Cluster {
  constructor(readonly parts: readonly Cluster[]) {
    // It has no connections of its own.
    super([], { lazyConnect: true });
    let wasReady = false;
    const all = (status: Cluster["status"]): boolean => parts.every((part) => part.status === status);
    const anyIs = (status: Cluster["status"]): boolean => parts.some((part) => part.status === status);
    // As with a node, a Cluster that goes away later leaves the others at work.
    Object.defineProperty(this, "status", {
      get: (): Cluster["status"] => {
        if (all("end")) return "end";
        return anyIs("ready") && (wasReady || all("ready")) ? "ready" : "connecting";
      },
    });
    this.on("error", () => undefined);
    for (const part of parts) {
      for (const event of FORWARDED) part.on(event, (...args) => this.emit(event, ...args));
      part.on("ready", () => {
        wasReady ||= all("ready");
        if (all("ready")) this.emit("ready");
      });
      part.on("end", () => all("end") && this.emit("end"));
    }
  }

  override sendCommand(command: Command): unknown {
    const [key] = command.getKeys();
    const index = key === undefined ? 0 : clusterOf(String(key), this.parts.length);
    return this.parts[index]?.sendCommand(command);
  }

  override nodes(role?: NodeRole): Redis[] {
    return this.parts.flatMap((part) => part.nodes(role));
  }

  override disconnect(reconnect?: boolean): void {
    for (const part of this.parts) part.disconnect(reconnect);
  }

  override async quit(): Promise<"OK"> {
    await Promise.all(this.parts.map((part) => part.quit()));
    return "OK";
  }
}

/**
 * Returns which of `count` Clusters has the key, from 0. Keys with the same hash tag are in the same one. The hash is not
 * that of the slot, so that each Cluster has keys in all of its slots. It must never change.
 */
export function clusterOf(key: string, count: number): number {
  if (count === 1) return 0;
  // The last step of MurmurHash3: FNV-1a alone leaves texts that differ in their last letter close together.
  let hash = spread(tagOf(key));
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return ((hash ^ (hash >>> 16)) >>> 0) % count;
}

/** Redis hashes only what is between the first braces, unless that is nothing. */
function tagOf(key: string): string {
  const begin = key.indexOf("{") + 1;
  const end = key.indexOf("}", begin);
  return begin > 0 && end > begin ? key.slice(begin, end) : key;
}

/** Returns no Cluster for a single server. */
export function clustersOf(client: RedisClient): readonly Cluster[] {
  if (client instanceof Clusters) return client.parts;
  return client instanceof Cluster ? [client] : [];
}

export interface Nodes {
  readonly isCluster: boolean;
  /** The number of Redis Clusters that the keys are spread over; 0: a single server has them. */
  readonly clusters: number;
  /** Each Cluster has slots of its own: keys of one slot are in one Cluster. */
  slotOf(key: string): number;
  /** Returns the name of the node that holds the slot, as far as the client knows. */
  nodeAt(slot: number): string;
  /** Returns the name of the node that holds the key, as far as the client knows; "" for a single server. */
  nodeOf(key: string): string;
  /** Returns the connection to the node of this name; undefined if there is none. */
  serverAt(node: string): Redis | undefined;
}

/** @param client is no single server */
export function nodesOf(client: Cluster): Nodes {
  const clusters = clustersOf(client);
  const count = clusters.length;
  const slot = (key: string): number => clusterOf(key, count) * SLOTS + slotOf(key);
  const nodeAt = (index: number): string => clusters[Math.floor(index / SLOTS)]?.slots[index % SLOTS]?.[0] ?? "";
  const nodeOf = (key: string): string => nodeAt(slot(key));
  return { isCluster: true, clusters: count, slotOf: slot, nodeAt, nodeOf, serverAt: createServerAt(client) };
}

/** Looking through thousands of nodes would take each call to one of them long. */
function createServerAt(client: Cluster): Nodes["serverAt"] {
  const servers = new Map<string, Redis>();
  return (node) => {
    const known = servers.get(node);
    if (known && known.status !== "end") return known;
    const server = client.nodes("all").find(({ options }) => `${options.host}:${options.port}` === node);
    if (server) servers.set(node, server);
    else servers.delete(node);
    return server;
  };
}
