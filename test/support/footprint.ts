import { readdir, readFile } from "node:fs/promises";
import { Redis } from "ioredis";
import { mapLimited } from "../../src/kernel/concurrency.js";
import { deletedDropKey } from "../../src/state/keys.js";
import type { Rehearsal } from "./rehearsal.js";

/** What a service holds at one time, by its name: bytes of memory, open handles, keys. */
export type Footprint = Readonly<Record<string, number>>;

const PAGE_BYTES = 4_096;
/** The id of a drop is the last part of the key; a star would be encoded. */
const DELETED_DROPS = deletedDropKey("id").replace(/id$/, "*");

/** Reads the memory and the handles of each process, and counts keys of Redis. It needs the files of Linux in /proc. */
export async function footprintOf({ processes, servers, streams }: Rehearsal): Promise<Footprint> {
  const found: Record<string, number> = {};
  for (const [name, { pid }] of processes) {
    found[`memory of ${name}`] = PAGE_BYTES * Number((await readFile(`/proc/${pid}/statm`, "utf8")).split(" ")[1]);
    found[`handles of ${name}`] = (await readdir(`/proc/${pid}/fd`)).length;
  }
  const sizes = await mapLimited(servers.redis.masters, 1, ({ url }) => keysOf(url));
  found["keys of Redis"] = sizes.reduce((sum, size) => sum + size, 0);
  found["messages of NOTIFY"] = await streams.count("NOTIFY");
  return found;
}

/** Counts the keys but those that deleted drops leave: these live a day, so that they grow in number all day. */
async function keysOf(url: string): Promise<number> {
  const link = new Redis(url);
  try {
    let count = await link.dbsize();
    for await (const keys of link.scanStream({ match: DELETED_DROPS, count: 1_000 })) count -= keys.length;
    return count;
  } finally {
    link.disconnect();
  }
}

const mean = (numbers: readonly number[]): number => numbers.reduce((sum, one) => sum + one, 0) / numbers.length;

/** Returns by how much the mean of the last third exceeds that of the second, for all that has grown by more than `most`. */
export function grownIn(footprints: readonly Footprint[], most: number): Footprint {
  const third = Math.floor(footprints.length / 3);
  const ratioOf = (name: string): number => {
    const numbers = footprints.map((one) => one[name] ?? 0);
    return mean(numbers.slice(-third)) / mean(numbers.slice(-2 * third, -third));
  };
  const names = Object.keys(footprints[0] ?? {});
  return Object.fromEntries(names.map((name) => [name, ratioOf(name)] as const).filter(([, ratio]) => ratio > most));
}
