import { readFileSync } from "node:fs";
import { afterAll, beforeAll, beforeEach, expect, test } from "@jest/globals";
import fc from "fast-check";
import { AppError } from "../../src/kernel/errors.js";
import type { RedisClock } from "../../src/platform/redis/clock.js";
import type { Scripts } from "../../src/platform/redis/scripts.js";
import { createFenced, type Fenced } from "../../src/state/fenced.redis.js";
import type { Group } from "../../src/state/key-lists.js";
import { bylinesKey } from "../../src/state/keys.js";
import { lua } from "../support/lua.js";
import { asCluster, openRedis, type RedisBench } from "../support/redis.js";

let bench: RedisBench;

beforeAll(async () => {
  bench = await openRedis();
  const lua = readFileSync(new URL("../support/add-entries-one-by-one.lua", import.meta.url), "utf8");
  bench.raw.defineCommand("oneByOne", { lua });
});
afterAll(() => bench.close());
beforeEach(() => bench.raw.flushall());

const LATER = 32_503_680_000_000;
const USERS = ["a", "b", "c", "d"];
const CLOCK = { now: async () => Date.now(), sample: async () => undefined, close: () => undefined } as RedisClock;

interface Limits {
  readonly cap: number;
  readonly low: number;
  readonly ttl: number;
  readonly active: boolean;
}

type Entry = readonly [score: number, drop: string];
type Call = readonly { readonly users: readonly string[]; readonly entries: readonly Entry[] }[];

const entry: fc.Arbitrary<Entry> = fc.tuple(
  fc.integer({ min: 0, max: 12 }),
  fc.constantFrom(...Array.from({ length: 16 }, (_, index) => `d${index}`)),
);
const call: fc.Arbitrary<Call> = fc.array(
  fc.record({
    users: fc.subarray(USERS, { minLength: 1 }),
    entries: fc.array(entry, { minLength: 1, maxLength: 12 }),
  }),
  { minLength: 1, maxLength: 3 },
);
const limits: fc.Arbitrary<Limits> = fc
  .record({ cap: fc.integer({ min: 1, max: 12 }), below: fc.integer({ min: 0, max: 4 }), active: fc.boolean() })
  .map(({ cap, below, active }) => ({ cap, low: Math.max(1, cap - below), ttl: active ? 60_000 : 0, active }));
/** Undefined: no floor stands; negative: a rebuild is under way. */
const floors = fc.array(fc.option(fc.integer({ min: -2, max: 9 }), { nil: undefined }), {
  minLength: USERS.length,
  maxLength: USERS.length,
});

/** A timeline as the model has it: drops by id, and its floor. */
interface Timeline {
  floor: number | undefined;
  readonly drops: Map<string, number>;
}

function addToModel(timeline: Timeline, entries: readonly Entry[], { cap, low, active }: Limits): void {
  if (timeline.floor === undefined && active) return;
  const floor = timeline.floor ?? 0;
  const before = timeline.drops.size;
  for (const [score, drop] of entries) {
    if (floor > 0 && score <= floor) continue;
    timeline.drops.set(drop, Math.min(score, timeline.drops.get(drop) ?? score));
  }
  if (timeline.drops.size === before || timeline.drops.size <= cap) return;
  const ordered = [...timeline.drops].sort(([a, x], [b, y]) => x - y || (a < b ? -1 : 1));
  const cut = ordered.slice(0, ordered.length - low);
  for (const [drop] of cut) timeline.drops.delete(drop);
  if (timeline.floor !== undefined) timeline.floor = floor < 0 ? undefined : Math.max(floor, cut.at(-1)?.[1] ?? 0, 1);
}

async function read(prefix: string): Promise<(Timeline & { readonly expires: boolean })[]> {
  return Promise.all(
    USERS.map(async (user) => {
      const held = await bench.raw.zrange(prefix + user, 0, "-1", "WITHSCORES");
      const drops = new Map<string, number>();
      for (let at = 0; at < held.length; at += 2) drops.set(held[at] as string, Number(held[at + 1]));
      const floor = drops.get("~floor");
      drops.delete("~floor");
      return { floor, drops, expires: (await bench.raw.pttl(prefix + user)) > 0 };
    }),
  );
}

/** Of two drops of the time 0 one is cut off: the floor rises to 1, above the other. */
const TIED_AT_ZERO: [(number | undefined)[], Limits, Call[]] = [
  [undefined, undefined, 0, undefined],
  { cap: 1, low: 1, ttl: 0, active: false },
  [
    [
      {
        users: ["c"],
        entries: [
          [0, "d0"],
          [0, "d6"],
        ],
      },
    ],
    [{ users: ["c"], entries: [[1, "d0"]] }],
  ],
];

test("adding groups of drops ends in the state of the model, and of the script that adds one drop after the other", async () => {
  const run = bench.raw as unknown as { oneByOne(...args: (string | number)[]): Promise<number> };
  await fc.assert(
    fc.asyncProperty(floors, limits, fc.array(call, { minLength: 1, maxLength: 5 }), async (planted, of, calls) => {
      await bench.raw.flushall();
      const model = planted.map((floor): Timeline => ({ floor, drops: new Map() }));
      for (const [index, floor] of planted.entries()) {
        if (floor === undefined) continue;
        for (const prefix of ["new:", "old:"]) await bench.raw.zadd(prefix + USERS[index], floor, "~floor");
      }
      const before = [LATER, of.cap, of.low, of.ttl, of.active ? "1" : "0"];
      const signed = (entries: readonly Entry[]) => entries.flatMap((one) => [...one, "eve"]);
      for (const groups of calls) {
        const args = groups.flatMap(({ users, entries }) => [users.join(","), entries.length, ...signed(entries)]);
        const added = await bench.scripts.run(lua("add-entries"), [], [...before, "homes", "new:", ...args]);
        let expected = 0;
        for (const { users, entries } of groups) {
          expected += await run.oneByOne(0, ...before, "old:", users.join(","), ...entries.flat());
          for (const user of users) addToModel(model[USERS.indexOf(user)] as Timeline, entries, of);
        }
        const written = await read("new:");
        // It counts none of those that a timeline has cut off at once, and none that stand below a floor of 1 at time 0.
        const isKept = ([time, drop]: readonly [number, string], user: string): boolean => {
          const { drops, floor = 0 } = written[USERS.indexOf(user)] as Timeline;
          return drops.get(drop) === time && (floor <= 0 || time > floor);
        };
        const kept = groups.every(({ users, entries }) =>
          users.every((user) => entries.every((one) => isKept(one, user))),
        );
        if (kept) expect(added).toBe(expected);
        else expect(added).toBeLessThanOrEqual(expected as number);
        expect(written).toEqual(await read("old:"));
        expect(written.map(({ floor, drops }) => ({ floor, drops }))).toEqual(model);
      }
    }),
    { numRuns: 200, examples: [TIED_AT_ZERO] },
  );
});

// Invariant 11.
test("however groups are cut into calls, each timeline gets each of its drops once, and no call has more than 1,000 entries", async () => {
  const groups: Group[] = [
    { keys: [names("a", 500), names("b", 120)], items: items(1) },
    { keys: [names("c", 3)], items: items(700) },
    { keys: [names("d", 400)], items: items(30) },
    { keys: [], items: items(2) },
    { keys: [names("e", 2)], items: [] },
  ];
  const sizes: number[] = [];
  const watched: typeof bench.scripts = {
    ...bench.scripts,
    run: (name, keys, args) => {
      let entries = 0;
      for (let at = 7; at < args.length; at += 2 + 3 * Number(args[at + 1]))
        entries += String(args[at]).split(",").length * Number(args[at + 1]);
      sizes.push(entries);
      return bench.scripts.run(name, keys, args);
    },
  };
  const before = [5_000, 4_000, 0, "0", "homes"];
  const call = { script: lua("add-entries"), prefix: "t:", before, groups } as const;
  const fenced = createFenced(watched, CLOCK);
  await fenced.groups(call);
  expect(await heldIn("t:*")).toBe(620 + 3 * 700 + 400 * 30);
  expect([await bench.raw.zcard("t:a499"), await bench.raw.zcard("t:c2"), await bench.raw.zcard("t:d0")]).toEqual([
    ...[1, 700, 30],
  ]);
  expect(Math.max(...sizes)).toBeLessThanOrEqual(1_000);
  expect(sizes.length).toBeLessThan(40);
  const drops = items(30).map(([, drop]) => [drop as string]);
  await fenced.groups({
    ...call,
    script: lua("remove-entries"),
    before: [],
    groups: [{ keys: [names("d", 400)], items: drops }],
  });
  expect(await heldIn("t:d*")).toBe(0);
});

// Invariant 11.
test("of a thousand bylines of drops that have left it, a repost takes at most 48 out of a home", async () => {
  const home = "t:h1";
  await bench.raw.zadd(home, 0, "~floor");
  await bench.raw.hset(bylinesKey(home), Object.fromEntries(items(1_000).map(([, drop]) => [drop, "eve"])));
  const share = async (time: number): Promise<number> => {
    const args = ["h1", 1, time, `repost-${time}`, "bob,eve,,d"];
    await bench.scripts.run(lua("add-entries"), [], [LATER, 900, 800, 60_000, "0", "homes", "t:", ...args]);
    return bench.raw.hlen(bylinesKey(home));
  };
  let [before, most] = [1_000, 0];
  for (let time = 1; time <= 700; time++) {
    const size = await share(time);
    most = Math.max(most, before + 1 - size);
    before = size;
  }
  expect(most).toBeGreaterThan(0);
  expect(most).toBeLessThanOrEqual(48);
  expect(before).toBeLessThan(1_000);
  const kept = await bench.raw.hkeys(bylinesKey(home));
  expect(kept.filter((drop) => drop.startsWith("repost-"))).toHaveLength(700);
});

// Invariant 5.
test("a rebuild under way loses no byline of what it brings, however many come meanwhile", async () => {
  const home = "t:h1";
  await bench.raw.zadd(home, -7, "~floor");
  await bench.raw.hset(bylinesKey(home), Object.fromEntries(items(200).map(([, drop]) => [drop, "eve"])));
  for (let time = 1; time <= 50; time++) {
    const args = ["h1", 1, time, `repost-${time}`, "bob,eve,,d"];
    await bench.scripts.run(lua("add-entries"), [], [LATER, 900, 800, 60_000, "0", "homes", "t:", ...args]);
  }
  expect(await bench.raw.hlen(bylinesKey(home))).toBe(250);
});

// Invariant 2.
test.each<[string, (fenced: Fenced, users: string) => Promise<unknown>]>([
  [
    "each with items of its own",
    (fenced, users) =>
      fenced.groups({
        script: lua("remove-entries"),
        prefix: "t:",
        before: [],
        groups: [{ keys: [users], items: [["d"]] }],
      }),
  ],
  [
    "all alike",
    (fenced, users) =>
      fenced.many({ script: lua("trim-older"), prefix: "t:", tokens: users.split(","), before: [1_000] }),
  ],
])("where the change of one of many keys fails (%s), the others have ended before it rejects", async (_, change) => {
  // As in a cluster of which each node has one of the keys.
  const run: Scripts["run"] = async (name, keys, args) => {
    if (keys[0] === "t:u0") throw new Error("refused");
    return bench.scripts.run(name, keys, args);
  };
  const fenced = createFenced({ ...asCluster(bench.scripts), run }, CLOCK);
  const users = Array.from({ length: 300 }, (_unused, at) => `u${at}`);
  await Promise.all(users.map((user) => bench.raw.zadd(`t:${user}`, 1, "d")));
  await expect(change(fenced, users.join(","))).rejects.toThrow("refused");
  const held = await Promise.all(users.slice(1).map((user) => bench.raw.zscore(`t:${user}`, "d")));
  expect(held.filter((score) => score === null)).toHaveLength(299);
});

test("a home that is written to by several groups is looked at once, and gets each of their drops", async () => {
  const name = fc.integer({ min: 0, max: 9 }).map((index) => `k${index}`);
  const group = fc.record({
    keys: fc.array(fc.uniqueArray(name, { minLength: 1 }), { maxLength: 2 }),
    items: fc.array(entry, { maxLength: 6 }),
  });
  await fc.assert(
    fc.asyncProperty(fc.array(group, { maxLength: 8 }), fc.boolean(), async (groups, isCluster) => {
      const looks: string[] = [];
      const entries: string[] = [];
      const scripts: typeof bench.scripts = {
        ...(isCluster ? asCluster(bench.scripts) : bench.scripts),
        run: async (_, given, args) => {
          for (let at = 7; at < args.length; at += 2 + 2 * Number(args[at + 1])) {
            const keys = String(args[at])
              .split(",")
              .map((key) => `${String(args[6])}${key}`);
            if (isCluster) expect(given).toEqual(keys);
            const items = args.slice(at + 2, at + 2 + 2 * Number(args[at + 1]));
            looks.push(...keys);
            for (let n = 0; n < items.length; n += 2)
              entries.push(...keys.map((key) => [key, items[n], items[n + 1]].join(" ")));
          }
          return 0;
        },
      };
      const packed = groups.map(({ keys, items }) => ({ keys: keys.map((some) => some.join(",")), items }));
      const call = {
        script: lua("add-entries"),
        prefix: "t:",
        before: [10, 9, 0, "0", "homes"],
        groups: packed,
      } as const;
      await createFenced(scripts, CLOCK).groups(call);
      const wanted = groups.flatMap(({ keys, items }) =>
        keys.flat().flatMap((key) => items.map(([score, drop]) => `t:${key} ${score} ${drop}`)),
      );
      expect([...entries].sort()).toEqual([...wanted].sort());
      expect(looks).toHaveLength(new Set(looks).size);
    }),
    { numRuns: 200 },
  );
});

// Invariant 1.
test("in a cluster a home of several audiences gets the drops of all, also where calls yield", async () => {
  const groups = [
    { keys: ["a,b"], items: [[1, "one", "eve"]] },
    { keys: ["a,c"], items: [[2, "two", "eve"]] },
  ];
  const call = { script: lua("add-entries"), prefix: "t:", before: [10, 9, 0, "0", "homes"], groups } as const;
  await createFenced(asCluster(bench.scripts), CLOCK).groups({ ...call, yields: true });
  const held = await Promise.all(["a", "b", "c"].map((key) => bench.raw.zrange(`t:${key}`, 0, "-1")));
  expect(held).toEqual([["one", "two"], ["one"], ["two"]]);
});

// Invariant 8.
test("callers whose groups go together each fail by their own keys only", async () => {
  const run: Scripts["run"] = async (name, keys, args) => {
    if (args.includes("odd")) throw new AppError("failed", "refused");
    return bench.scripts.run(name, keys, args);
  };
  const fenced = createFenced({ ...bench.scripts, run }, CLOCK);
  const write = (key: string, drop: string) =>
    fenced
      .groups({
        script: lua("add-entries"),
        prefix: "t:",
        before: [10, 9, 0, "0", "homes"],
        groups: [{ keys: [key], items: [[1, drop, "eve"]] }],
      })
      .then(
        () => "written",
        (error: AppError) => error.code,
      );
  const outcomes = await Promise.all([write("a", "one"), write("odd", "two"), write("a", "three"), write("b", "four")]);
  expect(outcomes).toEqual(["written", "failed", "written", "written"]);
  expect([await bench.raw.zrange("t:a", 0, "-1"), await bench.raw.zrange("t:b", 0, "-1")]).toEqual([
    ["one", "three"],
    ["four"],
  ]);
});

async function heldIn(pattern: string): Promise<number> {
  const keys = await bench.raw.keys(pattern);
  const sizes = await Promise.all(keys.map((key) => bench.raw.zcard(key)));
  return sizes.reduce((sum, size) => sum + size, 0);
}

const names = (of: string, count: number) => Array.from({ length: count }, (_, index) => of + index).join(",");
const items = (count: number) => Array.from({ length: count }, (_, index) => [index + 1, `d${index}`, "eve"]);
