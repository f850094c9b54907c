import { Cluster, type Redis } from "ioredis";
import { redisError } from "./errors.js";
import type { Scripts } from "./scripts.js";

/** One server that holds data: the only one, or a master of a cluster. */
export interface DataNode {
  /** Names the process: a restart has another. */
  readonly runId: string;
  /** One step through all keys that begin with `prefix`; the cursor "0" begins and ends. */
  scan(cursor: string, prefix: string, count: number): Promise<{ next: string; keys: readonly string[] }>;
}

const RUN_ID = /run_id:(\w+)/;

/** All servers that hold data, in the order of their run ids. Everything rejects as other commands do. */
export async function dataNodes({ client }: Scripts): Promise<DataNode[]> {
  const servers = client instanceof Cluster ? client.nodes("master") : [client];
  const nodes = await Promise.all(servers.map(nodeOf));
  return nodes.sort((a, b) => (a.runId < b.runId ? -1 : 1));
}

async function nodeOf(server: Redis): Promise<DataNode> {
  const info = await asking(() => server.info("server"));
  return {
    runId: RUN_ID.exec(info)?.[1] ?? "",
    scan: (cursor, prefix, count) =>
      asking(async () => {
        const [next, keys] = await server.scan(cursor, "MATCH", `${prefix}*`, "COUNT", count);
        return { next, keys };
      }),
  };
}

async function asking<T>(ask: () => Promise<T>): Promise<T> {
  try {
    return await ask();
  } catch (error) {
    throw redisError(error);
  }
}
