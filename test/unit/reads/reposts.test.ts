import { expect, test } from "@jest/globals";
import fc from "fast-check";
import { compareEntries, type TimelineEntry } from "../../../src/contracts/timelines.js";
import type { BelowFloor, Query } from "../../../src/reads/pages.js";
import { readPageOnce } from "../../../src/reads/reposts.js";
import { isIncomplete, type ShownEntry } from "../../../src/state/index.js";
import { onceIn } from "../../support/reposts-once.js";

const AUTHORS = ["ada", "bob", "cat", "dan"];

interface Home {
  /** Everything that the viewer sees, and what they do not see. */
  entries: readonly TimelineEntry[];
  hidden: ReadonlySet<string>;
  dead: ReadonlySet<string>;
  /** Entries up to this time are with the upstreams only. */
  readonly floor: number;
}

const near = (entries: readonly TimelineEntry[], { direction, above, below, count }: Query): TimelineEntry[] => {
  const sign = direction === "older" ? -1 : 1;
  return entries
    .filter((one) => (!below || compareEntries(one, below) < 0) && (!above || compareEntries(one, above) > 0))
    .sort((a, b) => sign * compareEntries(a, b))
    .slice(0, count);
};

const visibleIn = ({ entries, hidden, dead }: Home): TimelineEntry[] =>
  entries.filter(({ drop }) => !hidden.has(drop) && !dead.has(drop)).sort((a, b) => compareEntries(b, a));

/** A store and upstreams that answer from memory. */
function depsOf(home: Home, repostWindow: number) {
  const below = () => home.entries.filter(({ score, drop }) => score <= home.floor && !home.hidden.has(drop));
  const belowFloor: BelowFloor = {
    older: async (from, { above, count }) => ({
      entries: near(below(), { direction: "older", above, below: from, count }),
    }),
    newer: async ({ above, count }, top) => ({
      entries: near(below(), { direction: "newer", above, below: { score: top, drop: "" }, count }),
    }),
  };
  const read = async ({
    direction,
    from,
    count,
  }: {
    direction: Query["direction"];
    from?: TimelineEntry | undefined;
    count: number;
  }) => {
    const stored = home.entries.filter(({ score }) => home.floor === 0 || score > home.floor);
    const bounds = direction === "older" ? { below: from, above: undefined } : { above: from, below: undefined };
    const hasReposts = stored.some(({ by }) => by?.repostOf !== undefined);
    return {
      ...{ floor: home.floor, entries: near(stored, { direction, ...bounds, count }) },
      ...{ areAlive: false, hidden: home.hidden, hasReposts },
    };
  };
  const fences = {
    retentionStart: () => 0,
    tombstonedAmong: async (drops: readonly string[]) => new Set(drops.filter((drop) => home.dead.has(drop))),
  };
  const store = { read, remove: async () => 0 } as never;
  return { store, fences: fences as never, belowFloor, repostWindow };
}

async function pageOf(home: Home, window: number, query: Query) {
  const page = await readPageOnce(depsOf(home, window), "timeline:home:ada", query);
  if (isIncomplete(page)) throw new Error("the store is complete");
  expect(page.reached).toBeUndefined();
  return page.entries.map(({ drop, by, repostedBy = by?.repostOf ? [by.author] : [] }: ShownEntry) => ({
    drop,
    repostedBy,
  }));
}

/** The page that a naive reader of the whole home makes. Names of the entry that only says that more follow do not count. */
function expectedOf(home: Home, window: number, query: Query) {
  const all = visibleIn(home);
  const byDrop = new Map(all.map((entry) => [entry.drop, entry]));
  const shown = onceIn(all, window);
  const inRange = near(
    shown.map(({ drop }) => byDrop.get(drop) as TimelineEntry),
    query,
  );
  return inRange.map(({ drop }) => shown.find((one) => one.drop === drop));
}

const withoutLastNames = <T extends { drop: string } | undefined>(page: readonly T[], count: number) =>
  page.map((one, index) => (index === count - 1 ? one?.drop : one));

const entry = fc.record({
  score: fc.integer({ min: 1, max: 25 }),
  original: fc.option(fc.nat(6)),
  author: fc.nat(3),
  isHidden: fc.nat(9),
  isDead: fc.nat(9),
});
const change = fc.record({ add: fc.option(entry), remove: fc.nat(), at: fc.nat() });

let drops = 0;
const made = ({
  score,
  original,
  author,
}: {
  score: number;
  original: number | null;
  author: number;
}): TimelineEntry => {
  const by = { author: AUTHORS[author] as string };
  const drop = original === null ? `o${drops % 7}-${drops++}` : `r${drops++}`;
  return { score, drop, by: original === null ? by : { ...by, original: "eve", repostOf: `x${original}` } };
};

// Contract: reposts once.
test("pages in both directions are those of a naive reader, whatever is added and removed between them", async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(entry, { maxLength: 40 }),
      fc.record({ floor: fc.constantFrom(0, 0, 5, 12), window: fc.nat(8), limit: fc.integer({ min: 1, max: 6 }) }),
      fc.array(change, { minLength: 4, maxLength: 12 }),
      async (given, { floor, window, limit }, changes) => {
        const entries = given.map((one, index) =>
          // Some of the originals stand in the home, too.
          one.original === null && index < 7 ? { ...made(one), drop: `x${index}` } : made(one),
        );
        const which = (name: "isHidden" | "isDead") =>
          new Set(entries.filter((_, index) => given[index]?.[name] === 0).map(({ drop }) => drop));
        const home: Home = { entries, hidden: which("isHidden"), dead: which("isDead"), floor };
        const count = limit + 1;
        for (const direction of ["older", "newer"] as const) {
          let cursor: TimelineEntry | undefined = direction === "newer" ? { score: 0, drop: "" } : undefined;
          for (const { add, remove, at } of changes) {
            const bounds =
              direction === "older" ? { below: cursor, above: undefined } : { above: cursor, below: undefined };
            const query: Query = { direction, ...bounds, count };
            const page = await pageOf(home, window, query);
            expect(withoutLastNames(page, count)).toEqual(withoutLastNames(expectedOf(home, window, query), count));
            const all = visibleIn(home);
            const since: Query = { direction: "older", below: undefined, above: all[at % (all.length + 1)], count };
            expect(withoutLastNames(await pageOf(home, window, since), count)).toEqual(
              withoutLastNames(expectedOf(home, window, since), count),
            );
            const last = page[limit - 1]?.drop;
            cursor = home.entries.find(({ drop }) => drop === last) ?? all[at % (all.length + 1)];
            const kept = home.entries.filter((_, index) => index !== remove % (2 * home.entries.length + 1));
            home.entries = add ? [...kept, made(add)] : kept;
            if (direction === "newer") cursor ??= { score: 0, drop: "" };
          }
        }
      },
    ),
    { numRuns: 300 },
  );
});

test("a home that has nothing but reposts of one drop ends a page after a bounded number of reads", async () => {
  const entries = Array.from({ length: 20_000 }, (_, age) => ({
    ...{ score: 100_000 - age, drop: `r${age}` },
    by: { author: `u${age}`, original: "eve", repostOf: "x" },
  }));
  const home: Home = { entries, hidden: new Set(), dead: new Set(), floor: 0 };
  let reads = 0;
  const deps = depsOf(home, 40);
  const { read } = deps.store as unknown as { read: (range: never) => Promise<unknown> };
  const store = {
    read: async (range: never) => {
      reads++;
      return read(range);
    },
  } as never;
  const page = await readPageOnce({ ...deps, store }, "timeline:home:ada", {
    ...{ direction: "older", above: undefined, below: undefined, count: 21 },
  });
  if (isIncomplete(page)) throw new Error("the store is complete");
  expect(page.entries.map(({ drop }) => drop)).toEqual(["r0"]);
  expect(page.reached?.score).toBeLessThan(99_000);
  expect(reads).toBeLessThan(12);
});

/** Entries of the times 1, 2, …; each of those named is a repost of `x`. */
const numbered = (count: number, ...reposts: number[]): TimelineEntry[] =>
  Array.from({ length: count }, (_, index) => ({
    ...{ score: index + 1, drop: `d${index + 1}` },
    by: reposts.includes(index + 1) ? { author: `u${index + 1}`, original: "eve", repostOf: "x" } : { author: "bob" },
  }));

/** Upstreams whose calls run out after `entries` entries, if they are read upward. */
function withFewCalls(deps: ReturnType<typeof depsOf>, entries: number): ReturnType<typeof depsOf> {
  const newer: BelowFloor["newer"] = async (query, top) => {
    const { entries: all } = await deps.belowFloor.newer({ ...query, count: Number.POSITIVE_INFINITY }, top);
    if (all.length <= entries || query.count <= entries) return { entries: all.slice(0, query.count) };
    return { entries: all.slice(0, entries), reached: all[entries - 1] };
  };
  return { ...deps, belowFloor: { ...deps.belowFloor, newer } };
}

const shownBy = async (deps: ReturnType<typeof depsOf>, query: Query) => {
  const page = await readPageOnce(deps, "timeline:home:ada", query);
  if (isIncomplete(page)) throw new Error("the store is complete");
  return { ...page, times: page.entries.map(({ score }) => score) };
};

// Invariant 5.
test("past the cap a page is uncovered if the calls run out before what may cover it is read, and else not", async () => {
  const home: Home = { entries: numbered(30, 5, 9), hidden: new Set(), dead: new Set(), floor: 30 };
  const query: Query = { direction: "older", above: undefined, below: { score: 6, drop: "" }, count: 3 };
  const whole = await shownBy(withFewCalls(depsOf(home, 4), 4), query);
  expect(whole).toMatchObject({ times: [4, 3, 2], isUncovered: false });
  const cut = await shownBy(withFewCalls(depsOf(home, 4), 3), query);
  expect(cut).toMatchObject({ times: [5, 4, 3], isUncovered: true });
});

// Invariant 5.
test("if the calls of an upward page run out, what may be covered is on the next page, and every page goes on", async () => {
  const home: Home = { entries: numbered(30, 4, 7), hidden: new Set(), dead: new Set(), floor: 30 };
  const query: Query = { direction: "newer", above: { score: 0, drop: "" }, below: undefined, count: 11 };
  const first = await shownBy(withFewCalls(depsOf(home, 3), 6), query);
  expect(first).toMatchObject({ times: [1, 2, 3], reached: { score: 3 }, isUncovered: false });
  const next = await shownBy(withFewCalls(depsOf(home, 3), 6), { ...query, above: first.reached });
  expect(next).toMatchObject({ times: [5, 6], reached: { score: 6 } });
  const few = await shownBy(withFewCalls(depsOf(home, 3), 2), query);
  expect(few).toMatchObject({ times: [1, 2], reached: { score: 2 }, isUncovered: true });
});

test("a full page above the floor lacks names, not entries, while the upstreams are away", async () => {
  const home: Home = { entries: numbered(30, 13), hidden: new Set(), dead: new Set(), floor: 10 };
  const away = async () => {
    throw new Error("away");
  };
  const deps = { ...depsOf(home, 8), belowFloor: { older: away, newer: away } };
  const older: Query = { direction: "older", above: undefined, below: { score: 15, drop: "" }, count: 3 };
  expect((await shownBy(deps, older)).times).toEqual([14, 13, 12]);
  const newer: Query = { direction: "newer", above: { score: 12, drop: "d12" }, below: undefined, count: 3 };
  expect((await shownBy(deps, newer)).times).toEqual([13, 14, 15]);
  await expect(shownBy(deps, { ...older, count: 6 })).rejects.toThrow("away");
});
