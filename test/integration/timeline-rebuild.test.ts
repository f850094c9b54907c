import { expect, test } from "@jest/globals";
import type { TimelineEntry } from "../../src/contracts/timelines.js";
import { createBoundedQueue } from "../../src/kernel/concurrency.js";
import { silent } from "../../src/kernel/logger.js";
import { connectRedis } from "../../src/platform/redis/connect.js";
import { createScripts } from "../../src/platform/redis/scripts.js";
import { createRebuild } from "../../src/reads/rebuild.js";
import { audienceOf } from "../../src/state/entries/writer.redis.js";
import { createFences } from "../../src/state/fences/fences.js";
import { eventually } from "../support/eventually.js";
import { historyOf, rebuildQueue } from "../support/memory-upstreams.js";
import { TcpProxy } from "../support/proxy.js";
import { adaptersOn } from "../support/redis.js";
import { redisOfFile } from "../support/redis-of-file.js";
import { held } from "../support/timeline-keys.js";

const KEY = "timeline:home:ada";
const ADA = audienceOf(["ada"]);
const redis = redisOfFile();

const entry = (drop: string, score: number) => ({ drop, score, by: { author: "eve" } });

/** One process that rebuilds, and the writer beside it. */
function scene(maxEntries = 10) {
  const { store, writer, hidden, fenceStore } = adaptersOn(redis.scripts, { maxEntries });
  const fences = createFences({ store: fenceStore, readHistory: historyOf([]), log: silent });
  const observed: string[] = [];
  const rebuild = createRebuild({
    store,
    fences,
    fillHidden: hidden.fill,
    rebuildQueue,
    log: silent,
    observe: (outcome) => observed.push(outcome),
  });
  return { store, writer, hidden, fences, rebuild, observed };
}

/** A snapshot that is taken anew each time, with something happening while it is taken the first time. */
function snapshots(first: () => Promise<unknown>, ...results: readonly (readonly TimelineEntry[])[]) {
  let taken = 0;
  return {
    taken: () => taken,
    take: async () => {
      const entries = results[Math.min(taken++, results.length - 1)] as readonly TimelineEntry[];
      if (taken === 1) await first();
      return { entries, floor: 0 };
    },
  };
}

test("entries that are not in the snapshot go; entries that fan-out writes meanwhile stay", async () => {
  const { rebuild, writer, observed } = scene();
  await writer.addToHomes([{ audience: ADA, entries: [entry("stale", 1), entry("true", 2)] }]);
  const { take, taken } = snapshots(
    () => writer.addToHomes([{ audience: ADA, entries: [entry("new", 9)] }]),
    [entry("true", 2), entry("missed", 3)],
  );
  await rebuild(KEY, take);
  expect(await held(redis.raw, KEY)).toEqual({
    floor: 0,
    entries: [
      ["new", 9],
      ["missed", 3],
      ["true", 2],
    ],
  });
  expect([taken(), observed]).toEqual([1, ["done"]]);
  expect(await redis.raw.keys("timeline:x:rebuilding:*")).toEqual([]);
});

// Invariant 5.
test("a rebuild of local ends in one round while fan-out writes more drops than local holds, as in a fill of the log", async () => {
  const { rebuild, writer, observed } = scene(10);
  const written = Array.from({ length: 60 }, (_, at) => entry(`d${at}`, 100 + at));
  const { take, taken } = snapshots(async () => {
    for (const one of written) await writer.addShared([{ timelines: ["local"], entry: one }]);
  }, [entry("listed", 150)]);
  await rebuild("timeline:local", take);
  const { entries, floor } = await held(redis.raw, "timeline:local");
  expect(entries.map(([drop]) => drop)).toEqual([
    "d59",
    "d58",
    "d57",
    "d56",
    "d55",
    "d54",
    "d53",
    "d52",
    "d51",
    "listed",
  ]);
  expect([floor, taken(), observed]).toEqual([150, 1, ["done"]]);
});

// Invariant 2.
test("a rebuild held back on its way to Redis brings back nothing that was deleted meanwhile", async () => {
  const proxy = await TcpProxy.open(redis.broker.port);
  const slow = connectRedis([proxy.url("redis")], silent);
  try {
    await eventually(() => slow.status === "ready", "Redis is connected through the proxy");
    const { store, hidden } = adaptersOn(createScripts(slow), { maxEntries: 10 });
    const { writer, fences } = scene();
    const rebuild = createRebuild({
      store,
      fences,
      fillHidden: hidden.fill,
      rebuildQueue,
      log: silent,
      observe: () => undefined,
    });
    // The server's clock and scripts are known from before.
    await rebuild("timeline:home:other", async () => ({ entries: [], floor: 0 }));
    const rebuilding = rebuild(KEY, async () => {
      proxy.set("pause", "toServer");
      return { entries: [entry("doomed", 5)], floor: 0 };
    });
    await expect(rebuilding).rejects.toMatchObject({ code: "unavailable" });
    await fences.recordTombstones([{ drop: "doomed", time: Date.now() }]);
    await writer.removeFromHomes([{ audience: ADA, drops: ["doomed"] }]);
    proxy.set("pass");
    const answers = () =>
      slow.ping().then(
        () => true,
        () => false,
      );
    await eventually(answers, "what was sent before has arrived");
    const { floor, entries } = await held(redis.raw, KEY);
    expect([floor === undefined || floor < 0, entries]).toEqual([true, []]);
  } finally {
    slow.disconnect();
    await proxy.close();
  }
});

test("a complete timeline is not rebuilt", async () => {
  const { rebuild } = scene();
  await redis.raw.zadd(KEY, 0, "~floor");
  const { take, taken } = snapshots(async () => undefined, []);
  await rebuild(KEY, take);
  expect(taken()).toBe(0);
});

test("afresh, a complete timeline is rebuilt too, and keeps neither its entries nor their times", async () => {
  const { rebuild } = scene();
  await redis.raw.zadd(KEY, 0, "~floor", 1, "early", 900, "late", 7, "never");
  const { take } = snapshots(async () => undefined, [entry("early", 10), entry("late", 20), entry("lacking", 30)]);
  await rebuild(KEY, take, { afresh: true });
  expect(await held(redis.raw, KEY)).toEqual({
    floor: 0,
    entries: [
      ["lacking", 30],
      ["late", 20],
      ["early", 10],
    ],
  });
});

test("afresh, a rebuild waits for another process's, and then runs itself", async () => {
  const [one, other] = [scene(), scene()];
  let go: () => void = () => undefined;
  const waiting = new Promise<void>((resolve) => {
    go = resolve;
  });
  const first = snapshots(() => waiting, [entry("first", 1)]);
  const second = snapshots(async () => undefined, [entry("second", 2)]);
  const theirs = one.rebuild(KEY, first.take);
  await eventually(() => first.taken() === 1, "the other has begun");
  const ours = other.rebuild(KEY, second.take, { afresh: true });
  go();
  await Promise.all([theirs, ours]);
  expect((await held(redis.raw, KEY)).entries).toEqual([["second", 2]]);
});

test.each<[string, (at: ReturnType<typeof scene>) => Promise<unknown>]>([
  ["a follow or unfollow comes", ({ writer }) => writer.interruptRebuilds(["ada"])],
  ["the key is lost", () => redis.raw.del(KEY)],
  ["Redis forgets everything", () => redis.raw.flushall()],
  [
    "the timeline is trimmed",
    ({ writer }) =>
      writer.addToHomes([
        { audience: ADA, entries: Array.from({ length: 11 }, (_, index) => entry(`n${index}`, 50 + index)) },
      ]),
  ],
  ["somebody else begins too", ({ store }) => store.beginRebuild(KEY, -1)],
  // Invariant 5.
])("where %s meanwhile, the outdated snapshot is not written and another one is taken", async (_, event) => {
  const at = scene();
  const { take, taken } = snapshots(() => event(at), [entry("outdated", 5)], [entry("true", 100)]);
  await at.rebuild(KEY, take);
  const { entries, floor } = await held(redis.raw, KEY);
  expect(entries.map(([drop]) => drop)).not.toContain("outdated");
  expect(entries[0]).toEqual(["true", 100]);
  expect(floor).toBeGreaterThanOrEqual(0);
  expect([taken(), at.observed]).toEqual([2, ["overtaken", "done"]]);
});

// Invariant 4.
test("a drop deleted while the snapshot is taken does not come back", async () => {
  const { rebuild, writer, fences } = scene();
  const dies = async (): Promise<void> => {
    await fences.recordTombstones([{ drop: "dead", time: Date.now() }]);
    await writer.removeFromHomes([{ audience: ADA, drops: ["dead"] }]);
  };
  await rebuild(KEY, snapshots(dies, [entry("dead", 5), entry("alive", 6)]).take);
  expect(await held(redis.raw, KEY)).toEqual({ floor: 0, entries: [["alive", 6]] });
});

test("two processes that find a timeline lost take one snapshot between them", async () => {
  const [one, other] = [scene(), scene()];
  let go: () => void = () => undefined;
  const waiting = new Promise<void>((resolve) => {
    go = resolve;
  });
  const { take, taken } = snapshots(() => waiting, [entry("true", 1)]);
  const first = one.rebuild(KEY, take);
  await eventually(() => taken() === 1, "the first has begun");
  const second = other.rebuild(KEY, take);
  await eventually(
    () => redis.raw.exists("timeline:x:rebuilding:timeline:home:ada").then((count) => count === 1),
    "it holds the lease",
  );
  go();
  await Promise.all([first, second]);
  expect(taken()).toBe(1);
  expect(await held(redis.raw, KEY)).toEqual({ floor: 0, entries: [["true", 1]] });
});

test("callers of one process share a rebuild", async () => {
  const { rebuild } = scene();
  const { take, taken } = snapshots(async () => undefined, [entry("true", 1)]);
  await Promise.all(Array.from({ length: 10 }, () => rebuild(KEY, take)));
  expect(taken()).toBe(1);
});

test("a rebuild that fails gives the lease back, and the next one takes over", async () => {
  const [one, other] = [scene(), scene()];
  const failing = one.rebuild(KEY, () => Promise.reject(new Error("no upstream")));
  const { take } = snapshots(async () => undefined, [entry("true", 1)]);
  await expect(failing).rejects.toThrow("no upstream");
  expect(one.observed).toEqual(["failed"]);
  await other.rebuild(KEY, take);
  expect(await held(redis.raw, KEY)).toEqual({ floor: 0, entries: [["true", 1]] });
});

test("a process that waits for another one rebuilds itself once that one gives up", async () => {
  const at = scene();
  const other = at.store.rebuildLease(KEY);
  await other.hold();
  const { take, taken } = snapshots(async () => undefined, [entry("true", 1)]);
  const waiting = at.rebuild(KEY, take);
  await at.store.rebuildLease(KEY).release();
  expect(taken()).toBe(0);
  await other.release();
  await waiting;
  expect(taken()).toBe(1);
});

// Invariant 11.
test.each([true, false])(
  "a process that waits for another one's lease polls it a few times, not all the time (afresh: %s)",
  async (afresh) => {
    const at = scene();
    if (afresh) await redis.raw.zadd(KEY, 0, "~floor");
    await redis.raw.set(`timeline:x:rebuilding:${KEY}`, "somebody", "PX", 1_200);
    await redis.raw.config("RESETSTAT");
    const { take, taken } = snapshots(async () => undefined, [entry("true", 1)]);
    await at.rebuild(KEY, take, { afresh });
    expect(taken()).toBe(1);
    const stats = await redis.raw.info("commandstats");
    const calls = [...stats.matchAll(/^cmdstat_(evalsha|set|pttl|zscore):calls=(\d+)/gm)];
    expect(calls.reduce((sum, [, , count]) => sum + Number(count), 0)).toBeLessThan(80);
  },
);

test("homes wait for their turn; local and global, which come from the log, do not wait for homes", async () => {
  const { store, hidden, fences } = scene();
  const one = createBoundedQueue({ atOnce: 1, waiting: 10 });
  const rebuild = createRebuild({
    store,
    fences,
    fillHidden: hidden.fill,
    rebuildQueue: one,
    log: silent,
    observe: () => undefined,
  });
  let go: () => void = () => undefined;
  const waiting = new Promise<void>((resolve) => {
    go = resolve;
  });
  const order: string[] = [];
  const noting = (name: string) => snapshots(async () => void order.push(name), []).take;
  const first = rebuild(KEY, snapshots(() => waiting, []).take);
  const homes = ["bob", "eve"].map((user) => rebuild(`timeline:home:${user}`, noting(user)));
  for (const name of ["local", "global"]) await rebuild(`timeline:${name}`, noting(name));
  expect(order).toEqual(["local", "global"]);
  go();
  await Promise.all([first, ...homes]);
  expect(order).toEqual(["local", "global", "bob", "eve"]);
});

test("the lists of one owner take half of the places, and a home of another user does not wait for them", async () => {
  const { store, hidden, fences } = scene();
  const rebuild = createRebuild({
    ...{ store, fences, fillHidden: hidden.fill, log: silent, observe: () => undefined },
    rebuildQueue: createBoundedQueue({ atOnce: 4, waiting: 100 }),
  });
  let go: () => void = () => undefined;
  const waiting = new Promise<void>((resolve) => {
    go = resolve;
  });
  let begun = 0;
  const take = async () => {
    begun++;
    await waiting;
    return { entries: [], floor: 0 };
  };
  const lists = Array.from({ length: 50 }, (_, n) => rebuild(`timeline:list:l${n}`, take, { owner: KEY }));
  await rebuild("timeline:home:bob", snapshots(async () => undefined, []).take);
  expect(begun).toBe(2);
  go();
  await Promise.all(lists);
  expect(begun).toBe(50);
});

test("a rebuild keeps its lease for as long as it runs", async () => {
  const [one, other] = [scene(), scene()];
  let go: () => void = () => undefined;
  const waiting = new Promise<void>((resolve) => {
    go = resolve;
  });
  const first = snapshots(() => waiting, [entry("true", 1)]);
  const rebuilding = one.rebuild(KEY, first.take);
  await eventually(() => first.taken() === 1, "it has begun");
  // As if the time of the lease were nearly over.
  await redis.raw.pexpire(`timeline:x:rebuilding:${KEY}`, 4_000);
  await eventually(async () => (await other.store.rebuildLeaseLeft(KEY)) > 5_000, "the lease is renewed");
  expect(await other.store.rebuildLease(KEY).hold()).toBe(false);
  go();
  await rebuilding;
  expect(await other.store.rebuildLeaseLeft(KEY)).toBe(0);
});

// Invariant 11.
test("a timeline that changes faster than it is rebuilt is an outage, in bounded rounds", async () => {
  const at = scene();
  let rounds = 0;
  const endless = async () => {
    rounds++;
    await at.writer.interruptRebuilds(["ada"]);
    return { entries: [], floor: 0 };
  };
  await expect(at.rebuild(KEY, endless)).rejects.toMatchObject({ code: "unavailable" });
  expect(rounds).toBe(8);
});
