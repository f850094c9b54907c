import { expect, test } from "@jest/globals";
import { EventLog } from "../../src/consistency/log.nats.js";
import type { TimelineEvent } from "../../src/contracts/events.js";
import type { Version } from "../../src/contracts/versions.js";
import { AppError, codeOf } from "../../src/kernel/errors.js";
import { silent } from "../../src/kernel/logger.js";
import { createFences, type ReadHistory } from "../../src/state/fences/fences.js";
import type { FenceStore } from "../../src/state/fences/store.redis.js";
import type { Fences } from "../../src/state/fences/types.js";
import { DELETED_PREFIX, edgePart, edgesKey, homeKey, unfollowersKey } from "../../src/state/keys.js";
import { eventually } from "../support/eventually.js";
import { openNats } from "../support/nats.js";
import { adaptersOn } from "../support/redis.js";
import { redisOfFile } from "../support/redis-of-file.js";

const redis = redisOfFile();

const NOW = Date.now();
const open = (readHistory: ReadHistory): Fences =>
  createFences({ store: adaptersOn(redis.scripts, { maxEntries: 10 }).fenceStore, readHistory, log: silent });

const unfollow = { name: "user_unfollowed", payload: { follower_id: "bob", following_id: "ada", version: 5 } } as const;
const deletion = { name: "drop_deleted", payload: { drop_id: "dead" } } as const;

function history() {
  let reads = 0;
  const read: ReadHistory = async function* () {
    reads++;
    yield { event: deletion, time: NOW };
    yield { event: unfollow, time: NOW };
  };
  return { read, reads: () => reads };
}

test.each<[string, (fences: Fences) => Promise<unknown>, unknown]>([
  ["which drops are dead", async (fences) => [...(await fences.tombstonedAmong(["dead", "alive"]))], ["dead"]],
  [
    "an older follow",
    (fences) => fences.changeEdges([{ follower: "bob", following: "ada", version: 4, follows: true }]),
    [{ version: 5, follows: false }],
  ],
  [
    "the tombstones around a new one",
    async (fences) =>
      fences
        .recordTombstones([{ drop: "other", time: NOW }])
        .then(() => redis.raw.zscore("timeline:tombstones", "dead")),
    String(NOW),
  ],
  // Invariant 4.
])("lost fences are refilled before they decide %s", async (_, ask, answer) => {
  const { read, reads } = history();
  const fences = open(read);
  expect(await ask(fences)).toEqual(answer);
  expect(await ask(fences)).toEqual(answer);
  expect(reads()).toBe(1);
  await redis.raw.flushall();
  expect(await ask(fences)).toEqual(answer);
  expect(reads()).toBe(2);
  await redis.raw.del("timeline:tombstones", edgesKey("ada"));
  expect(await ask(fences)).toEqual(answer);
  expect(reads()).toBe(3);
  expect(await redis.raw.exists("timeline:x:refilling")).toBe(0);
});

// Invariant 8.
test.each(["lost", "of a wrong type"])(
  "recent unfollowers and deleted drops of an author that are %s are refilled, also where others were recorded since",
  async (how) => {
    const { read, reads } = history();
    const named: ReadHistory = async function* () {
      for await (const one of read())
        yield one.event.name === "drop_deleted"
          ? { ...one, event: { ...deletion, payload: { drop_id: "dead", user_id: "ada" } } }
          : one;
    };
    const fences = open(named);
    await fences.changeEdges([{ follower: "bob", following: "ada", version: 5, follows: false }]);
    await fences.recordTombstones([{ drop: "dead", author: "ada", time: NOW }]);
    const before = reads();
    for (const key of [unfollowersKey("ada"), `${DELETED_PREFIX}${edgePart("ada")}:ada`]) {
      expect(await redis.raw.del(key)).toBe(1);
      if (how !== "lost") await redis.raw.set(key, "text");
    }
    await fences.changeEdges([{ follower: "eve", following: "ada", version: 6, follows: false }]);
    await fences.recordTombstones([{ drop: "other", author: "ada", time: NOW }]);
    const unfollowers: string[] = [];
    for await (const users of fences.recentUnfollowers("ada", 0)) unfollowers.push(...users);
    expect(unfollowers.sort()).toEqual(["bob", "eve"]);
    await redis.raw.zadd(homeKey("f"), 1, "dead", 1, "other", 1, "alive");
    await fences.removeDeleted(new Map([["ada", ["f"]]]));
    expect(await redis.raw.zrange(homeKey("f"), 0, "-1")).toEqual(["alive"]);
    expect(reads()).toBe(before + 1);
  },
);

test("a question about no drops is answered without Redis", async () => {
  const { read, reads } = history();
  expect([...(await open(read).tombstonedAmong([]))]).toEqual([]);
  expect(reads()).toBe(0);
});

// Invariant 4.
test("one process refills; the others see an outage until it is done, never half-filled fences", async () => {
  let go: () => void = () => undefined;
  let begun: () => void = () => undefined;
  const reading = new Promise<void>((resolve) => {
    begun = resolve;
  });
  const waiting = new Promise<void>((resolve) => {
    go = resolve;
  });
  const one = open(async function* () {
    begun();
    await waiting;
    yield { event: deletion, time: NOW };
  });
  const first = one.tombstonedAmong(["dead"]);
  await reading;
  const { read, reads } = history();
  await expect(open(read).tombstonedAmong(["dead"])).rejects.toMatchObject({ code: "unavailable" });
  await expect(
    open(read).changeEdges([{ follower: "a", following: "b", version: 1, follows: true }]),
  ).rejects.toMatchObject({ code: "unavailable" });
  go();
  expect([...(await first)]).toEqual(["dead"]);
  expect([...(await open(read).tombstonedAmong(["dead"]))]).toEqual(["dead"]);
  expect(reads()).toBe(0);
});

test("after a refill that failed nothing is decided, and the next one starts anew", async () => {
  const failing = open(async function* () {
    yield { event: deletion, time: NOW };
    throw new Error("the log is unavailable");
  });
  await expect(failing.tombstonedAmong(["dead"])).rejects.toThrow("the log is unavailable");
  const { read, reads } = history();
  expect([...(await open(read).tombstonedAmong(["dead"]))]).toEqual(["dead"]);
  expect(reads()).toBe(1);
});

test("fences that are lost again while they are refilled are not declared complete", async () => {
  const { read } = history();
  const twice: ReadHistory = async function* () {
    yield* read();
    if ((await redis.raw.incr("times")) === 1) {
      await redis.raw.flushall();
      await redis.raw.incr("times");
    }
  };
  const fences = open(twice);
  const ask = (): Promise<string[]> => fences.tombstonedAmong(["dead"]).then((dead) => [...dead]);
  const answer = await ask().catch((error: unknown) =>
    codeOf(error) === "unavailable" ? ask() : Promise.reject(error),
  );
  expect(answer).toEqual(["dead"]);
});

test("generations: one name for everybody until it is renewed or lost", async () => {
  const [one, other] = [open(history().read), open(history().read)];
  const names = await Promise.all(
    [one, other, one, other].map((fences) => fences.generations(["ada"]).then((names) => names.get("ada"))),
  );
  expect(new Set(names).size).toBe(1);
  await other.renewGenerations(["ada"]);
  const renewed = await one.generations(["ada"]).then((names) => names.get("ada"));
  expect(renewed).not.toBe(names[0]);
  await redis.raw.flushall();
  expect([names[0], renewed]).not.toContain(await one.generations(["ada"]).then((names) => names.get("ada")));
  expect(await one.generations(["bob"]).then((names) => names.get("bob"))).not.toBe(
    await one.generations(["ada"]).then((names) => names.get("ada")),
  );
});

const edge = (follower: string, following: string, version: Version, follows: boolean) => ({
  ...{ follower, following, version, follows },
});

// Invariant 3.
test("versions beyond 2^53 are compared exactly, also with those stored before", async () => {
  const fences = open(history().read);
  const [older, newer] = ["9223372036854775806", "9223372036854775807"];
  const latest = [{ version: newer, follows: false }];
  await fences.changeEdges([edge("gus", "ada", 5, true)]);
  expect(await fences.changeEdges([edge("gus", "ada", newer, false)])).toEqual(latest);
  for (const version of [older, "9007199254740993", Number.MAX_SAFE_INTEGER, 6])
    expect(await fences.changeEdges([edge("gus", "ada", version, true)])).toEqual(latest);
  expect(await fences.newestEdges([edge("gus", "ada", older, true)])).toEqual(latest);
  const held: unknown[] = [];
  for await (const { follower, version } of fences.allEdges()) if (follower === "gus") held.push(version);
  expect(held).toEqual([newer]);
});

// Invariant 4.
test("whichever key of follow edges is lost, an old follow does not win", async () => {
  const { read, reads } = history();
  const fences = open(read);
  await fences.changeEdges([edge("bob", "ada", 5, false)]);
  const keys = await redis.raw.keys("timeline:x:*");
  expect(keys.length).toBeGreaterThan(1_000);
  for (const key of [edgesKey("ada"), unfollowersKey("ada"), ...keys.slice(0, 30)]) {
    await redis.raw.del(key);
    expect(await fences.changeEdges([edge("bob", "ada", 4, true)])).toEqual([{ version: 5, follows: false }]);
    expect(await fences.unfollowedAmong("ada", ["bob", "eve"])).toEqual(["bob"]);
    const left: string[] = [];
    for await (const page of fences.recentUnfollowers("ada", 0)) left.push(...page);
    expect(left).toEqual(["bob"]);
  }
  // An old follow is noted by nobody: the recent unfollowers that are lost are seen where they are read.
  expect(reads()).toBeGreaterThanOrEqual(2);
});

test("a loss is noticed by the first question, also of recent unfollowers", async () => {
  const { read, reads } = history();
  const fences = open(read);
  await fences.changeEdges([edge("bob", "ada", 5, false)]);
  await redis.raw.del(edgesKey("ada"));
  expect(await fences.unfollowedAmong("ada", ["bob"])).toEqual(["bob"]);
  await redis.raw.del(unfollowersKey("ada"));
  const left: string[] = [];
  for await (const page of fences.recentUnfollowers("ada", 0)) left.push(...page);
  expect([left, reads()]).toEqual([["bob"], 3]);
});

test("a long log is refilled whole, in batches, while no more than a few of them are written at once", async () => {
  const events: TimelineEvent[] = [];
  for (let number = 0; number < 9_000; number++) {
    const payload = { follower_id: `f${number % 4_000}`, following_id: `a${number % 7}`, version: number };
    events.push({ name: number % 3 === 0 ? "user_unfollowed" : "user_followed", payload });
    if (number % 5 === 0) events.push({ name: "drop_deleted", payload: { drop_id: `d${number}` } });
  }
  const { fenceStore } = adaptersOn(redis.scripts, { maxEntries: 10 });
  const writing = new Set<object>();
  let most = 0;
  const store: FenceStore = {
    ...fenceStore,
    async refill(batch) {
      writing.add(batch);
      most = Math.max(most, writing.size);
      await fenceStore.refill(batch);
      writing.delete(batch);
    },
  };
  const readHistory: ReadHistory = async function* () {
    for (const event of events) yield { event, time: NOW };
  };
  const fences = createFences({ store, readHistory, log: silent });
  expect((await fences.tombstonedAmong(["d0", "d8995", "d8996"])).size).toBe(2);
  expect([most > 1, most <= 4]).toEqual([true, true]);
  const newest = new Map<string, boolean>();
  for (const { name, payload } of events) {
    if (name === "user_followed" || name === "user_unfollowed")
      newest.set(`${payload.follower_id} ${payload.following_id}`, name === "user_followed");
  }
  for (const author of ["a0", "a3", "a6"]) {
    const edges = [...newest].filter(([name]) => name.endsWith(` ${author}`));
    const nameOf = ([name]: readonly [string, boolean]): string => name.split(" ")[0] as string;
    const left = edges.filter(([, follows]) => !follows).map(nameOf);
    expect(left.length).toBeGreaterThan(100);
    expect(await fences.unfollowedAmong(author, edges.map(nameOf))).toEqual(left);
  }
});

test("a batch that cannot be written fails the refill; the next one starts anew", async () => {
  const { fenceStore } = adaptersOn(redis.scripts, { maxEntries: 10 });
  let failing = true;
  const store: FenceStore = {
    ...fenceStore,
    refill: async (batch) => {
      if (failing) throw new AppError("unavailable", "Redis is unavailable");
      await fenceStore.refill(batch);
    },
  };
  const fences = createFences({ store, readHistory: history().read, log: silent });
  await expect(fences.unfollowedAmong("ada", ["bob"])).rejects.toMatchObject({ code: "unavailable" });
  failing = false;
  expect(await fences.unfollowedAmong("ada", ["bob"])).toEqual(["bob"]);
});

// Invariant 4.
test("tombstones stay where the clock of a process is a month ahead", async () => {
  const fences = open(history().read);
  await fences.recordTombstones([{ drop: "before", time: NOW }]);
  const { now } = Date;
  Date.now = () => now() + 30 * 86_400_000;
  await fences.recordTombstones([{ drop: "new", time: NOW }]).finally(() => {
    Date.now = now;
  });
  expect([...(await fences.tombstonedAmong(["dead", "before", "new"]))]).toEqual(["dead", "before", "new"]);
});

test("the history holds the deletions and edges of the log, without events that break the contract", async () => {
  const nats = await openNats();
  try {
    const put = (subject: string, body: object | string) =>
      nats.publish({
        subject,
        body: Buffer.from(typeof body === "string" ? body : JSON.stringify(body)),
        id: `${subject}${JSON.stringify(body)}`,
      });
    await put("drops.created", { drop_id: "alive", user_id: "ada", visibility: "public", created_at: 1 });
    await put("drops.deleted", deletion.payload);
    await put("graph.unfollowed", unfollow.payload);
    await put("graph.followed", "no JSON");
    await put("graph.followed", { follower_id: "eve", following_id: "ada", version: 1 });
    const seen: string[] = [];
    for await (const { event, time } of new EventLog(nats.connection).readHistory()) {
      expect(Math.abs(time - Date.now())).toBeLessThan(60_000);
      seen.push(event.name);
    }
    expect(seen.sort()).toEqual(["drop_deleted", "user_followed", "user_unfollowed"]);
    const fences = open(new EventLog(nats.connection).readHistory);
    expect([...(await fences.tombstonedAmong(["dead", "alive"]))]).toEqual(["dead"]);
    expect(await fences.unfollowedAmong("ada", ["bob", "eve"])).toEqual(["bob"]);
  } finally {
    await nats.close();
  }
});

test("a refill holds a short lease and renews it, so that nobody waits long for a process that died", async () => {
  let end: () => void = () => undefined;
  const ended = new Promise<void>((resolve) => {
    end = resolve;
  });
  const fences = open(async function* () {
    await ended;
    yield* [];
  });
  const asked = fences.tombstonedAmong(["dead"]);
  const left = () => redis.raw.pttl("timeline:x:refilling");
  await eventually(async () => (await left()) > 0, "the lease is taken");
  expect(await left()).toBeLessThanOrEqual(10_000);
  let before = await left();
  await eventually(async () => {
    const now = await left();
    const prolonged = now > before;
    before = now;
    return prolonged;
  }, "the lease is prolonged");
  await expect(open(history().read).tombstonedAmong(["dead"])).rejects.toMatchObject({ code: "unavailable" });
  end();
  expect(await asked).toEqual(new Set());
  expect(await redis.raw.exists("timeline:x:refilling")).toBe(0);
});

test("a new Redis warns of no missing fences, one that has lost some does", async () => {
  const said: string[] = [];
  const note = (level: string) => (_: object, text: string) => void said.push(`${level}: ${text}`);
  const log = { ...silent, warn: note("warn"), info: note("info") } as typeof silent;
  const { fenceStore: store } = adaptersOn(redis.scripts, { maxEntries: 10 });
  let empty = true;
  const readHistory: ReadHistory = async function* () {
    if (!empty) yield { event: deletion, time: NOW };
  };
  const fences = createFences({ store, readHistory, log });
  await fences.tombstonedAmong(["dead"]);
  expect(said).toEqual([]);
  empty = false;
  await redis.raw.del("timeline:tombstones");
  await fences.tombstonedAmong(["dead"]);
  expect(said).toEqual([
    "warn: some of the fences (tombstones, follow edges) are missing in Redis; they are refilled from the log",
    "info: fences are refilled from the log",
  ]);
});
