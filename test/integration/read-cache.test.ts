import { setImmediate as nextTurn } from "node:timers/promises";
import { afterAll, beforeAll, beforeEach, expect } from "@jest/globals";
import { GetTimelineResponse } from "../../src/gen/avion/timeline.js";
import { silent } from "../../src/kernel/logger.js";
import { MINUTE } from "../../src/kernel/time.js";
import type { RedisClient } from "../../src/platform/redis/clusters.js";
import type { Scripts } from "../../src/platform/redis/scripts.js";
import { type Entries, type Query, readPage } from "../../src/reads/pages.js";
import type { PulledAuthor } from "../../src/state/big-authors/pulled.js";
import type { TimelineStore } from "../../src/state/entries/store.redis.js";
import { isIncomplete } from "../../src/state/entries/stored.js";
import { createFences } from "../../src/state/fences/fences.js";
import type { Fences } from "../../src/state/fences/types.js";
import { hiddenKeyOfHome, homeKey, renewalKey } from "../../src/state/keys.js";
import { becomes, eventually } from "../support/eventually.js";
import { historyOf } from "../support/memory-upstreams.js";
import { TcpProxy } from "../support/proxy.js";
import { below, oneOf, type Random, seeded } from "../support/random.js";
import { type CacheBench, type CacheOptions, openReader } from "../support/read-cache.js";
import { adaptersOn, openRedis, type RedisBench } from "../support/redis.js";
import { slowTest, quickTest as test } from "../support/suite.js";

const MAX = 100;
const HOMES = ["ada", "bob", "cy"].map((user) => `timeline:home:${user}`);
const AUTHORS = ["big", "huge"];
const AUTHOR_KEYS = AUTHORS.map((author) => `timeline:author:${author}`);
const SHARED = "timeline:local";
const READ_BESIDE = [...HOMES, SHARED, "timeline:global"];
const KEYS = [...HOMES, ...AUTHOR_KEYS, SHARED];
const pullsOf = (home: string): string => `timeline:x:pulls:{${home}}`;
const registry = new Map<string, PulledAuthor>();

let redis: RedisBench;
/** The connections of a process that reads; those of `redis` write. */
let client: RedisClient;
let scripts: Scripts;
/** Between the server and the connection that announcements come over. */
let proxy: TcpProxy;

beforeAll(async () => {
  redis = await openRedis();
  proxy = await TcpProxy.open(Number(new URL(redis.broker.url).port));
});
afterAll(async () => {
  await proxy.close();
  await redis.close();
});
beforeEach(() => afresh());

async function afresh(): Promise<void> {
  const multi = redis.raw.multi().flushall().zadd("timeline:tombstones", 0, "~floor");
  for (const home of HOMES) multi.hset(hiddenKeyOfHome(home), "~state", "complete");
  await multi.exec();
}

type Asked = Query & { readonly key: string };

const first = (key: string, count = 4): Asked => ({
  ...{ key, direction: "older", above: undefined, below: undefined, count },
});

/** The drops that a reader is shown; undefined where the timeline must be rebuilt. */
async function shown(store: TimelineStore, fences: Fences, { key, ...query }: Asked): Promise<unknown> {
  const page = await readPage({ store, fences }, key, query);
  if (isIncomplete(page)) return undefined;
  const { entries } = page;
  if (!Buffer.isBuffer(entries)) return (entries as Entries).slice(0, query.count - 1).map(({ drop }) => drop);
  return GetTimelineResponse.decode(entries).drop_ids;
}

const fencesOn = (of: Scripts) =>
  createFences({ store: adaptersOn(of, { maxEntries: MAX }).fenceStore, readHistory: historyOf([]), log: silent });

/** Reads again while the connection that was cut is not back. */
async function patiently<T>(read: () => Promise<T>): Promise<T> {
  const answers: T[] = [];
  const answered = async (): Promise<boolean> =>
    answers.push(
      ...(await read().then(
        (one) => [one],
        () => [],
      )),
    ) > 0;
  await eventually(answered, "the reader is answered");
  return answers[0] as T;
}

interface Step {
  readonly name: string;
  readonly change: () => Promise<unknown>;
}

/** A change of Redis as fan-out, deletions, follows, crossings, expiry and operators make it. */
function stepOf(random: Random): Step {
  const { raw } = redis;
  const key = oneOf(random, KEYS);
  const home = oneOf(random, HOMES);
  const drop = `d${below(random, 30)}`;
  const author = oneOf(random, AUTHORS);
  const fences = fencesOn(redis.scripts);
  const steps: readonly Step[] = [
    { name: `add ${drop} to ${key}`, change: () => raw.zadd(key, 100 + below(random, 50), drop) },
    { name: `remove ${drop} from ${key}`, change: () => raw.zrem(key, drop) },
    { name: `delete ${drop}`, change: () => fences.recordTombstones([{ drop, time: Date.now() }]) },
    { name: `complete ${key}`, change: () => raw.zadd(key, below(random, 2) * 90, "~floor") },
    { name: `complete ${home}`, change: () => raw.zadd(home, 0, "~floor") },
    { name: `follow ${author} in ${home}`, change: () => raw.sadd(pullsOf(home), "~complete", author) },
    { name: `unfollow ${author} in ${home}`, change: () => raw.srem(pullsOf(home), author) },
    { name: `${author} is pulled`, change: () => turn(author, "pulled") },
    { name: `${author} is tiered`, change: () => turn(author, "tiered") },
    { name: `${author} is pushed`, change: () => turn(author, "pushed") },
  ];
  const rare: readonly Step[] = [
    { name: `lose ${key}`, change: () => raw.del(key) },
    {
      name: `let ${key} expire`,
      change: async () => {
        // A read under way may renew it.
        await becomes(async () => {
          await raw.pexpire(key, 1);
          expect(await raw.exists(key)).toBe(0);
        });
      },
    },
    { name: `rename ${key}`, change: () => raw.rename(key, oneOf(random, KEYS)).catch(() => undefined) },
    { name: "lose everything", change: loseEverything },
    { name: "cut the reader's connection", change: () => cut("reader") },
    { name: "cut the listener's connection", change: () => cut("listener") },
    { name: "hold announcements back", change: async () => heldBack(() => raw.zadd(key, 200, drop)) },
    {
      name: "hold announcements of a deletion back",
      change: async () => heldBack(() => fences.recordTombstones([{ drop, time: 1 }])),
    },
    { name: "the process stands still", change: async () => standStill(20, () => raw.zadd(key, 200, drop)) },
  ];
  return below(random, 12) === 0 ? oneOf(random, rare) : oneOf(random, steps);
}

/** The registry, too: what processes have of it is what Redis has. */
async function loseEverything(): Promise<void> {
  await afresh();
  registry.clear();
}

async function turn(author: string, state: "pulled" | "tiered" | "pushed"): Promise<void> {
  if (state === "pushed") {
    registry.delete(author);
    return void (await redis.raw.hdel("timeline:x:pulled", author));
  }
  registry.set(author, { state, by: "hand", since: 0 });
  await redis.raw.hset("timeline:x:pulled", author, `${state}:hand:0`, "~version", 1);
}

async function cut(whose: "reader" | "listener"): Promise<void> {
  if (whose === "listener") return void (await redis.raw.call("CLIENT", "KILL", "TYPE", "pubsub"));
  const id = await client.client("ID");
  await redis.raw.call("CLIENT", "KILL", "ID", id);
}

/** Announcements arrive some time after the change is made. */
async function heldBack(change: () => Promise<unknown>): Promise<void> {
  proxy.set("pause", "toClient");
  await change();
  setTimeout(() => proxy.set("pass", "toClient"), 50);
}

/** Announcements wait in the sockets of a process whose event loop is blocked. */
async function standStill(ms: number, change: () => Promise<unknown>): Promise<void> {
  const changed = change();
  const until = performance.now() + ms;
  while (performance.now() < until);
  await changed;
}

/** Compares what a cached reader is shown with what Redis has, after each step of a history. */
async function followHistory(seed: number, { cache }: CacheBench): Promise<void> {
  const random = seeded(seed);
  const pulled = { copy: () => registry, refresh: async () => registry };
  for (const author of AUTHORS) registry.set(author, { state: "pulled", by: "hand", since: 0 });
  const cached = adaptersOn(scripts, { maxEntries: MAX, cache }, pulled).store;
  const plain = adaptersOn(redis.scripts, { maxEntries: MAX }, pulled).store;
  const [fences, plainFences] = [fencesOn(scripts), fencesOn(redis.scripts)];
  const askedOf = (): Asked => {
    const key = oneOf(random, [...HOMES, SHARED]);
    // No drop: one at another time than its own is no position that anybody was given.
    const position = { score: 100 + below(random, 50), drop: `d${below(random, 30)}-` };
    if (below(random, 3) > 0) return first(key);
    return below(random, 2) === 0
      ? { ...first(key), below: position }
      : { ...first(key), direction: "newer", above: position };
  };
  await redis.raw.zadd("timeline:tombstones", 0, "~floor");
  for (const key of KEYS) await redis.raw.zadd(key, 0, "~floor", 120, "d0", 130, "d1");
  for (let at = 0; at < 400; at++) {
    // Else most of a history would be over before a connection that was cut is back.
    if (at % 10 === 0) await eventually(() => cache.isOn(KEYS[0] as string), "changes are followed again");
    const { name, change } = stepOf(random);
    const some = Array.from({ length: 3 }, askedOf);
    // Reads under way while the change is made: they may see it or not, and may be held.
    const before = some.map((asked) => shown(cached, fences, asked).catch(() => undefined));
    await change();
    for (const asked of some) {
      // First: a read of Redis removes what it hides.
      const seen = await patiently(() => shown(cached, fences, asked));
      const expected = await shown(plain, plainFences, asked);
      expect({ at, name, asked, seen }).toEqual({ at, name, asked, seen: expected });
    }
    await Promise.all(before);
  }
}

async function withReader(options: CacheOptions, run: (held: CacheBench) => Promise<void>): Promise<void> {
  const reader = await openReader(redis.broker.url, proxy.url("redis"), options);
  ({ client, scripts } = reader);
  try {
    await run(reader.held);
  } finally {
    await reader.close();
  }
}

// Invariant 4.
test.each([1, 2, 3, 4, 1_004, 2_004])(
  "history %i: a cached page is what Redis has, whatever changes, expires or is cut off",
  (seed) =>
    withReader({}, async (held) => {
      await followHistory(seed, held);
      expect(held.cache.events.hit).toBeGreaterThan(100);
    }),
);

/** Reads first pages until `isOver`; each is compared with the deletions that were recorded when its read began. */
async function readBeside({ cache }: CacheBench, deleted: readonly string[], isOver: () => boolean): Promise<number[]> {
  const { store } = adaptersOn(scripts, { maxEntries: MAX, cache });
  const fences = fencesOn(scripts);
  const readAll = async (key: string): Promise<number> => {
    for (let reads = 0; ; reads++) {
      await nextTurn();
      if (isOver()) return reads;
      const dead = new Set(deleted);
      const drops = (await shown(store, fences, first(key))) as string[];
      expect({ key, dead: drops.filter((drop) => dead.has(drop)) }).toEqual({ key, dead: [] });
    }
  };
  return Promise.all(READ_BESIDE.map(readAll));
}

// Invariant 4.
test.each([1, 2, 3, 4])(
  "history %i: a page read beside deletions shows no drop whose tombstone stood when the read began",
  (seed) =>
    withReader({}, async (held) => {
      const random = seeded(seed);
      const { raw } = redis;
      await raw.zadd("timeline:tombstones", 0, "~floor");
      for (const key of READ_BESIDE) await raw.zadd(key, 0, "~floor");
      const newest: string[] = [];
      const post = async (): Promise<void> => {
        const drop = `d${newest.length}`;
        newest.unshift(drop);
        for (const key of READ_BESIDE) await raw.zadd(key, 100 + newest.length, drop);
      };
      for (let posted = 0; posted < 40; posted++) await post();
      const deleted: string[] = [];
      let isOver = false;
      const reads = readBeside(held, deleted, () => isOver);
      const deletions = async (): Promise<void> => {
        for (let at = 0; at < 100; at++) {
          const drop = oneOf(random, newest.filter((one) => !deleted.includes(one)).slice(0, 4));
          await fencesOn(redis.scripts).recordTombstones([{ drop, time: Date.now() }]);
          deleted.push(drop);
          if (below(random, 2) === 0) for (const key of READ_BESIDE) await raw.zrem(key, drop);
          await post();
        }
      };
      await deletions().finally(() => {
        isOver = true;
      });
      for (const count of await reads) expect(count).toBeGreaterThan(10);
    }),
);

// Invariant 4.
test("a page is not cached whose authors are no longer followed, since others took their room while it was read", () =>
  withReader({ maxBytes: 20_000 }, async ({ cache }) => {
    const { raw } = redis;
    const [ada, bob] = HOMES as [string, string];
    const [big, huge] = AUTHOR_KEYS as [string, string];
    const pulled = { copy: () => registry, refresh: async () => registry };
    const { store } = adaptersOn(scripts, { maxEntries: MAX, cache }, pulled);
    const read = (home: string) => shown(store, fencesOn(scripts), first(home));
    for (const author of AUTHORS) await turn(author, "pulled");
    for (const key of [...HOMES, big, huge, "timeline:tombstones"]) await raw.zadd(key, 0, "~floor");
    await raw.sadd(pullsOf(ada), "~complete", ...AUTHORS);
    await raw.sadd(pullsOf(bob), "~complete", "big");
    // The drops of one of them fit, and not those of both.
    for (const key of [big, huge])
      await raw.zadd(key, ...Array.from({ length: MAX }, (_, n) => [n + 1, `${key}-${n}`]).flat());
    for (const home of [ada, ada, bob, ada]) await read(home);
    await raw.zadd(big, 1_000, "new");
    expect(await read(ada)).toEqual(["new", `${huge}-99`, `${big}-99`]);
  }));

// Invariant 5.
test.each(["one server", "a cluster"])("a page of a home that a block renews soon is not cached: %s", (where) =>
  withReader({}, async ({ cache }) => {
    const { raw } = redis;
    const home = homeKey("ada");
    const tombstones = { upToDate: async () => ({ mayHave: () => false }) };
    const of = where === "a cluster" ? { ...scripts, isCluster: true } : scripts;
    const { store } = adaptersOn(of, { maxEntries: MAX, cache, tombstones });
    const read = () => shown(store, fencesOn(scripts), first(home));
    for (const drops of [["d1"], []]) {
      await raw.del(home);
      await raw.zadd(home, 0, "~floor", ...drops.flatMap((drop) => [101, drop]));
      await raw.set(renewalKey("ada"), Date.now() + MINUTE);
      for (let times = 0; times < 3; times++) expect(await read()).toEqual(drops);
      await raw.set(renewalKey("ada"), Date.now() - 1);
      expect(await read()).toBeUndefined();
    }
  }),
);

// Invariant 5.
test("a Redis that takes no writes answers the homes beside one that a block renews now, and calls that one incomplete", async () => {
  const { raw } = redis;
  const { store } = adaptersOn(redis.scripts, { maxEntries: MAX });
  const keys = [homeKey("ada"), homeKey("bob")];
  for (const key of keys) await raw.zadd(key, 0, "~floor", 101, "d1");
  const read = () => Promise.all(keys.map((key) => shown(store, fencesOn(redis.scripts), first(key))));
  await read();
  await raw.set(renewalKey("ada"), Date.now() - 1);
  await raw.config("SET", "min-replicas-to-write", "1");
  try {
    expect(await read()).toEqual([undefined, ["d1"]]);
  } finally {
    await raw.config("SET", "min-replicas-to-write", "0");
  }
});

const historiesFail = (options: CacheOptions, mutate: (held: CacheBench) => void = () => undefined): Promise<void> =>
  withReader(options, async (held) => {
    mutate(held);
    const histories = async (): Promise<void> => {
      for (let seed = 1; seed <= 4; seed++) {
        await afresh();
        await followHistory(seed, held);
      }
    };
    await expect(histories()).rejects.toThrow("toEqual");
  });

// Invariant 4.
slowTest("mutant: pages are answered without a question to Redis", () => historiesFail({ upToDate: async () => true }));

// Invariant 4.
slowTest("mutant: deletions are not heard of", () => historiesFail({}, ({ ignoreDeletions }) => ignoreDeletions()));
