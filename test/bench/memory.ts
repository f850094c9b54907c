import type { Redis } from "ioredis";
import { silent } from "../../src/kernel/logger.js";
import { connected, connectRedis } from "../../src/platform/redis/connect.js";
import { createScripts } from "../../src/platform/redis/scripts.js";
import type { PulledAuthors } from "../../src/state/big-authors/pulled.js";
import { PageReader } from "../../src/state/entries/page-reader.redis.js";
import { FLOOR_MEMBER, homeKey, TOMBSTONES_KEY } from "../../src/state/keys.js";
import type { Bench } from "./support/bench.js";
import { NOBODY_HIDDEN, storeHidden } from "./support/homes.js";
import { measured } from "./support/measure.js";
import { check, type Parameters, type Result, type Row } from "./support/result.js";

const TIMELINES = 400;
const ENTRIES = 1_000;
const WRITES_EACH = 20;
const READS = 8_000;
const AT_ONCE = 32;
const LIMIT = 50;
const NEWEST_MS = 1_750_000_000_000;
const DEFAULT = 128;

const ABOUT = `Bytes of an entry, and CPU of Redis for a \`ZADD\` of one drop and a page of ${LIMIT}, by the kind of drop ids and the encoding of homes, which
\`zset-max-listpack-entries\` decides. The peer is the default of ${DEFAULT}, a skiplist. \`zset-max-listpack-value\` is 128, so that URIs fit into a listpack.`;

const padded = (number: number, digits: number, radix = 10): string => number.toString(radix).padStart(digits, "0");

/** Ids as services make them; `n` differs for each drop of a timeline. */
const IDS: Readonly<Record<string, (timeline: number, n: number) => string>> = {
  "UUIDv7, 36 bytes": (timeline, n) =>
    `${padded(0x0197a7c8 + n, 8, 16)}-${padded(timeline, 4)}-7${padded(n % 4_096, 3, 16)}-8000-${padded(n, 12, 16)}`,
  "ULID, 26 bytes": (timeline, n) => `01JXYZ${padded(n, 8, 32).toUpperCase()}${padded(timeline, 12)}`,
  "snowflake, 18 digits": (timeline, n) => `11${padded(n, 8)}${padded(timeline, 8)}`,
  "URI, 62 bytes": (timeline, n) => `https://social.example/users/${padded(timeline, 8)}/statuses/${padded(n, 15)}`,
};

const CASES = [
  ...Object.keys(IDS).flatMap((kind) => [DEFAULT, 1_100].map((listpack) => ({ kind, entries: ENTRIES, listpack }))),
  ...[DEFAULT, 512].map((listpack) => ({ kind: "UUIDv7, 36 bytes", entries: 400, listpack })),
];

export async function run({ entries }: Parameters, bench: Bench): Promise<Result> {
  const rows: Row[] = [];
  let base: Row | undefined;
  for (const one of CASES) {
    const row = await measure(bench, { ...one, entries: entries ?? one.entries });
    if (one.listpack === DEFAULT) base = row;
    const peer = { name: `${DEFAULT}`, value: (base as Row).value };
    rows.push({ ...row, peer });
  }
  return { about: ABOUT, rows };
}

type Case = (typeof CASES)[number];

async function measure(bench: Bench, { kind, entries, listpack }: Case): Promise<Row> {
  const { redis, redisServer } = await bench.redis();
  const idOf = IDS[kind] as (typeof IDS)[string];
  await redis.config("SET", "zset-max-listpack-entries", listpack);
  await redis.config("SET", "zset-max-listpack-value", 128);
  await redis.zadd(TOMBSTONES_KEY, 0, FLOOR_MEMBER);
  const users = Array.from({ length: TIMELINES }, (_, timeline) => `user-${timeline}`);
  const keys = users.map(homeKey);
  // Without it a home counts as incomplete.
  await storeHidden(redis, new Map(users.map((user) => [user, []])));
  const before = await usedMemory(redis);
  for (const [timeline, key] of keys.entries()) {
    const drops = Array.from({ length: entries }, (_, n) => [NEWEST_MS + 1_000 * n, idOf(timeline, n)]);
    await redis.zadd(key, 0, FLOOR_MEMBER, ...drops.flat());
  }
  const bytes = ((await usedMemory(redis)) - before) / (TIMELINES * entries);
  const isListpack = (await redis.object("ENCODING", keys[0] as string)) === "listpack";
  check(isListpack === listpack > entries, "the encoding is the one of this size");
  const units = TIMELINES * WRITES_EACH;
  const write = await measured({ processes: { redis: redisServer.pid }, units }, async () => {
    for (let n = entries; n < entries + WRITES_EACH; n++) {
      const writes = redis.pipeline();
      for (const [timeline, key] of keys.entries()) writes.zadd(key, NEWEST_MS + 1_000 * n, idOf(timeline, n));
      await writes.exec();
    }
  });
  const page = await pages(bench, redisServer, keys);
  const cpu = { ZADD: write.cpu["redis"] as number, page };
  const encoding = isListpack ? "listpack" : "skiplist";
  return { name: `${kind}, ${entries} entries, ${encoding}`, value: bytes, unit: "B an entry", cpu };
}

const NOBODY: PulledAuthors = { copy: () => new Map(), refresh: async () => new Map() };

async function usedMemory(redis: Redis): Promise<number> {
  return Number(/used_memory:(\d+)/.exec(await redis.info("memory"))?.[1]);
}

async function pages(
  bench: Bench,
  { url, pid }: { readonly url: string; readonly pid: number },
  keys: readonly string[],
): Promise<number> {
  const client = connectRedis([url], silent);
  bench.defer(() => client.disconnect());
  await connected(client);
  const reader = new PageReader(createScripts(client), { ttlMs: 0, authorStates: NOBODY, ...NOBODY_HIDDEN });
  const { cpu } = await measured({ processes: { redis: pid }, units: READS }, async () => {
    for (let n = 0; n < READS; n += AT_ONCE) {
      const some = Array.from({ length: AT_ONCE }, (_, index) => keys[(n + index) % keys.length] as string);
      const read50 = (key: string) =>
        reader.read({ key, direction: "older", from: undefined, count: LIMIT + 1, page: { drops: LIMIT, since: 0 } });
      for (const { page } of await Promise.all(some.map(read50))) check(page !== undefined, "each page is whole");
    }
  });
  return cpu["redis"] as number;
}
