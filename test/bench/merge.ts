import type { Redis } from "ioredis";
import { silent } from "../../src/kernel/logger.js";
import { connected, connectRedis } from "../../src/platform/redis/connect.js";
import { createScripts } from "../../src/platform/redis/scripts.js";
import { PULLS_COMPLETE, type PulledAuthors, type PullRegistry } from "../../src/state/big-authors/pulled.js";
import { PageReader } from "../../src/state/entries/page-reader.redis.js";
import { authorKey, FLOOR_MEMBER, homeKey, PULLED_KEY, pullsKey, TOMBSTONES_KEY } from "../../src/state/keys.js";
import { openCache } from "../support/read-cache.js";
import type { Bench } from "./support/bench.js";
import { NOBODY_HIDDEN, storeHidden } from "./support/homes.js";
import { measured } from "./support/measure.js";
import { check, type Parameters, type Result, type Row } from "./support/result.js";

const READERS = 200;
const AUTHORS = 200;
const ENTRIES = 1_000;
const LIMIT = 50;
const AT_ONCE = 32;
const CACHE_BYTES = 64 * 2 ** 20;
const NEWEST_MS = 1_750_000_000_000;
/** Between the drops of a home, and of an author, who writes less often than all whom a reader follows. */
const HOME_MS = 60_000;
const AUTHOR_MS = 20 * HOME_MS;

const ABOUT = `First pages of ${LIMIT}, ${AT_ONCE} at once, that merge a home of ${ENTRIES} drops with the timelines of the pulled authors whom the reader follows, ${ENTRIES} drops each.
"Cached": the process that asks has cached the newest drops of the authors, and merges them itself.`;

const authorOf = (number: number): string => `author-${number}`;
const readerOf = (pulls: number, number: number): string => `reader-${pulls}-${number}`;

export async function run({ authors, users: readers = READERS }: Parameters, bench: Bench): Promise<Result> {
  const { redis, redisServer } = await bench.redis();
  const client = connectRedis([redisServer.url], silent);
  bench.defer(() => client.disconnect());
  await connected(client);
  await redis.zadd(TOMBSTONES_KEY, 0, FLOOR_MEMBER);
  for (let number = 0; number < AUTHORS; number++)
    await fill(redis, authorKey(authorOf(number)), { everyMs: AUTHOR_MS, late: number });
  const scripts = createScripts(client);
  const rows: Row[] = [];
  let alone = Number.NaN;
  const cached = await openCache({ scripts, url: redisServer.url }, { maxBytes: CACHE_BYTES });
  bench.defer(() => cached.close());
  for (const pulls of authors === undefined ? [undefined, 0, 20, AUTHORS] : [undefined, authors]) {
    const users = Array.from({ length: readers }, (_, number) => readerOf(pulls ?? -1, number));
    for (const [number, user] of users.entries()) await follow(redis, user, { number, pulls });
    // Without it a home counts as incomplete.
    await storeHidden(redis, new Map(users.map((user) => [user, []])));
    const options = { ttlMs: 0, authorStates: registryOf(pulls) };
    for (const cache of pulls ? [undefined, cached.cache] : [undefined]) {
      const reader = new PageReader(scripts, { ...options, ...NOBODY_HIDDEN, cache });
      const row = await measure((range) => reader.read(range), users, redisServer.pid as number);
      if (pulls === undefined) alone = row.value;
      const peer = { name: "nobody pulled", value: alone };
      const name = pulls === undefined ? "nobody pulled" : `${pulls} pulled authors${cache ? ", cached" : ""}`;
      rows.push({ ...row, name, peer });
    }
  }
  return { about: ABOUT, rows };
}

async function fill(redis: Redis, key: string, { everyMs, late }: { readonly everyMs: number; readonly late: number }) {
  const drops = Array.from({ length: ENTRIES }, (_, age) => [
    NEWEST_MS - late * 1_000 - age * everyMs,
    `0197a7c8-${String(late).padStart(4, "0")}-7000-8000-${String(age).padStart(12, "0")}`,
  ]);
  await redis.zadd(key, 0, FLOOR_MEMBER, ...drops.flat());
}

async function follow(
  redis: Redis,
  user: string,
  { number, pulls = 0 }: { number: number; pulls: number | undefined },
) {
  await fill(redis, homeKey(user), { everyMs: HOME_MS, late: AUTHORS + number });
  const followed = Array.from({ length: pulls }, (_, author) => authorOf((number + author) % AUTHORS));
  await redis.sadd(pullsKey(user), PULLS_COMPLETE, ...followed);
  for (const author of followed) await redis.hset(PULLED_KEY, "~version", 1, author, "pulled:hand:0");
}

function registryOf(pulls: number | undefined): PulledAuthors {
  const all: PullRegistry = new Map(
    Array.from({ length: AUTHORS }, (_, author) => [authorOf(author), { state: "pulled", by: "hand", since: 0 }]),
  );
  const registry: PullRegistry = pulls === undefined ? new Map() : all;
  return { copy: () => registry, refresh: async () => registry };
}

type Read = PageReader["read"];

async function measure(
  read: Read,
  users: readonly string[],
  redisPid: number,
): Promise<Pick<Row, "value" | "unit" | "cpu">> {
  const turns = 5;
  // Each turn asks for other pages: none is cached as a whole.
  const turn = async (number: number): Promise<void> => {
    const page = { drops: LIMIT - number, since: 0 };
    for (let at = 0; at < users.length; at += AT_ONCE) {
      const some = users.slice(at, at + AT_ONCE).map((user) => homeKey(user));
      const first = (key: string) => read({ key, direction: "older", from: undefined, count: LIMIT + 1, page });
      for (const stored of await Promise.all(some.map(first))) check(stored.page !== undefined, "each page is whole");
    }
  };
  await turn(turns);
  const units = turns * users.length;
  const { cpu, seconds } = await measured({ processes: { redis: redisPid, reader: process.pid }, units }, async () => {
    for (let number = 0; number < turns; number++) await turn(number);
  });
  return { value: (1e6 * seconds) / units, unit: "µs", cpu };
}
