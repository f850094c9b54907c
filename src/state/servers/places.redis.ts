import type { Cluster } from "ioredis";
import { allOf } from "../../kernel/concurrency.js";
import { AppError, oneLine } from "../../kernel/errors.js";
import type { Logger } from "../../kernel/logger.js";
import { startLoop } from "../../kernel/loop.js";
import { SECOND } from "../../kernel/time.js";
import { clustersOf, type RedisClient } from "../../platform/redis/clusters.js";
import { PUBLIC_MESSAGE, redisError } from "../../platform/redis/errors.js";
import { Refusal, refusalOf } from "../../platform/refusals.js";
import { PLACE_KEYS } from "../keys.js";

// With another number or order of Clusters, keys are looked up in other Clusters: they are missing there, and the old
// ones would be served again after a change back. So each of several Clusters holds its place, such as "2/3"; a Cluster
// that is the only one holds none.

/**
 * Interval of writing the places: a Cluster that has lost all of its data gets its place again before many processes
 * start.
 */
const KEEP_MS = 15 * SECOND;

const ADVICE =
  "name all Clusters in the order in which they were used; to change their number or order, end all processes and empty each Cluster (FLUSHALL on every master): the contents are built again";

/**
 * Checks the places of Clusters. An empty Cluster takes the place in which it is named, unless `onlyLook`.
 *
 * @throws a Refusal if a Cluster holds data of another place; AppError `unavailable` if one does not answer
 */
export async function checkPlaces(client: RedisClient, { onlyLook = false } = {}): Promise<void> {
  const clusters = clustersOf(client);
  const check = async (cluster: Cluster, index: number): Promise<void> => {
    const fault = await placeFault(cluster, { index, count: clusters.length, onlyLook });
    if (fault !== undefined)
      throw new Refusal(`REDIS_URL: ${fault}`, { publicMessage: PUBLIC_MESSAGE, advice: ADVICE });
  };
  try {
    await allOf(clusters.map(check));
  } catch (error) {
    throw refusalOf(client) ?? redisError(error);
  }
}

const placeOf = (index: number, count: number): string => `${index + 1}/${count}`;

const inWords = (place: string): string => {
  const [number, count] = place.split("/");
  return count === "1" ? "the only one" : `number ${number} of ${count}`;
};

interface Place {
  readonly index: number;
  readonly count: number;
  readonly onlyLook: boolean;
}

async function placeFault(cluster: Cluster, { index, count, onlyLook }: Place): Promise<string | undefined> {
  const place = placeOf(index, count);
  const node = cluster.nodes("master")[0]?.options;
  if (!node) throw new AppError("unavailable", `Redis: Redis Cluster ${index + 1} names no master yet`);
  const named = `the Redis Cluster of ${node.host}:${node.port} is named as ${inWords(place)}, and`;
  // Another process writes the places before its data, so its data is never read without its places.
  const isEmpty = count > 1 && (await holdsNothing(cluster));
  let stored = await readPlaces(cluster);
  if (stored.length === 0 && count > 1) {
    if (!isEmpty) return `${named} holds data without a place among several`;
    if (!onlyLook) await writePlaces(cluster, place);
    stored = await readPlaces(cluster);
  }
  const other = stored.find((name) => name !== place);
  return other === undefined ? undefined : `${named} holds data of ${inWords(other)}`;
}

async function holdsNothing(cluster: Cluster): Promise<boolean> {
  const sizes = await allOf(cluster.nodes("master").map((master) => master.dbsize()));
  return sizes.every((size) => size === 0);
}

async function readPlaces(cluster: Cluster): Promise<string[]> {
  const values = await allOf(PLACE_KEYS.map((key) => cluster.get(key)));
  return values.filter((place) => place !== null);
}

/** Writes a place, unless there is one. */
async function writePlaces(cluster: Cluster, place: string): Promise<void> {
  await allOf(PLACE_KEYS.map((key) => cluster.set(key, place, "NX")));
}

/** Writes again the places that a Cluster has lost with its data. Nothing else tells this Cluster from another one. */
export function keepPlaces(
  client: RedisClient,
  { log, everyMs = KEEP_MS }: { readonly log: Logger; readonly everyMs?: number },
): { close(): void } {
  const clusters = clustersOf(client);
  if (clusters.length <= 1) return { close: () => undefined };
  const loop = startLoop({
    everyMs,
    firstAfterMs: everyMs,
    work: async () => {
      await allOf(clusters.map((cluster, index) => writePlaces(cluster, placeOf(index, clusters.length))));
    },
    failed: (error) => log.debug({ error: oneLine(error) }, "the places of Redis Clusters could not be written"),
  });
  return { close: () => void loop.close() };
}
