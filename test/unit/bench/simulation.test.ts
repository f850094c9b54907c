import { describe, expect, test } from "@jest/globals";
import fc from "fast-check";
import { above, drawPopulation, EDGES, logFollowersOf } from "../../bench/support/population.js";
import { PUBLISHED } from "../../bench/support/published.js";
import { drawReaders } from "../../bench/support/readers.js";
import { breakEven, bytesOf, coresOf, strategyAt } from "../../bench/support/strategies.js";

const RUNS = { numRuns: 20 };

const scenes = fc.record({
  users: fc.integer({ min: 500, max: 5_000 }),
  seed: fc.integer(),
  rates: fc.constantFrom(undefined, "alike" as const),
});
const sceneOf = ({ users, seed, rates }: { users: number; seed: number; rates?: "alike" | undefined }) => {
  const population = drawPopulation({ users, seed, ...(rates && { rates }) });
  return { population, readers: drawReaders(population, { readers: 100, seed, most: 200 }) };
};
const thresholds = [...EDGES, Number.POSITIVE_INFINITY];
const near = (value: number) => (expected: number) => Math.abs(value - expected) <= 1e-6 * Math.max(1, expected);

test("the same seed draws the same numbers", () => {
  fc.assert(
    fc.property(scenes, (scene) => expect(sceneOf(scene)).toEqual(sceneOf(scene))),
    { numRuns: 10 },
  );
});

test("another seed draws other numbers", () => {
  const [first, second] = [1, 2].map((seed) => drawPopulation({ users: 1_000, seed }));
  expect(first?.cells).not.toEqual(second?.cells);
});

test("cells hold every user once, and their drops are the published rate", () => {
  fc.assert(
    fc.property(scenes, (scene) => {
      const { population } = sceneOf(scene);
      const all = above(0, population);
      expect(all.authors).toBeCloseTo(scene.users);
      expect(all.drops).toBeCloseTo((PUBLISHED.drops.value / PUBLISHED.users.value) * scene.users);
      expect(population.most).toBeLessThanOrEqual(Math.max(1, PUBLISHED.most.value * scene.users));
      for (const { above: few, upTo, authors, followers } of population.cells) {
        expect(followers).toBeGreaterThanOrEqual(few * authors);
        expect(followers).toBeLessThanOrEqual(authors === 0 ? 0 : upTo * authors);
      }
    }),
    RUNS,
  );
});

test("push writes followers x rate, pull writes each drop once beside the author's own home", () => {
  fc.assert(
    fc.property(scenes, (scene) => {
      const { population, readers } = sceneOf(scene);
      const all = above(0, population);
      const push = strategyAt(Number.POSITIVE_INFINITY, population, readers);
      expect(near(push.pushed)(all.entries + all.drops)).toBe(true);
      expect([push.pulled, push.merged.max, push.pulledAuthors]).toEqual([0, 0, 0]);
      const pull = strategyAt(0, population, readers);
      expect(near(pull.pushed)(all.drops)).toBe(true);
      expect(near(pull.pulled)(all.drops)).toBe(true);
      expect(near(pull.entriesADrop)(2)).toBe(true);
    }),
    RUNS,
  );
});

test("a hybrid lies between push and pull, and a lower threshold writes less and merges more", () => {
  fc.assert(
    fc.property(scenes, (scene) => {
      const { population, readers } = sceneOf(scene);
      const all = thresholds.map((threshold) => strategyAt(threshold, population, readers));
      for (const [at, hybrid] of all.slice(1).entries()) {
        const lower = all[at] as typeof hybrid;
        expect(lower.pushed).toBeLessThanOrEqual(hybrid.pushed * (1 + 1e-9));
        expect(lower.pulled).toBeGreaterThanOrEqual(hybrid.pulled);
        for (const what of ["perRead", "mean", "p50", "p99", "max"] as const)
          expect(lower.merged[what]).toBeGreaterThanOrEqual(hybrid.merged[what]);
      }
    }),
    RUNS,
  );
});

describe("readers", () => {
  test("follow as many in all as authors have followers", () => {
    const population = drawPopulation({ users: 1_000_000, seed: 3 });
    const readers = drawReaders(population, { readers: 20_000, seed: 4 });
    const followers = above(0, population).followers / population.users;
    expect(readers.get(0)?.mean).toBeGreaterThan(0.97 * followers);
    expect(readers.get(0)?.mean).toBeLessThan(1.03 * followers);
    // Nobody is followed twice: the biggest authors have less followers than independent draws give them.
    const big = above(10_000, population).followers / population.users;
    expect(readers.get(10_000)?.mean).toBeGreaterThan(0.9 * big);
    expect(readers.get(10_000)?.mean).toBeLessThanOrEqual(1.03 * big);
  });

  test("follow nobody twice", () => {
    const population = drawPopulation({ users: 100, seed: 5 });
    const readers = drawReaders(population, { readers: 50, seed: 6 });
    for (const threshold of EDGES)
      expect(readers.get(threshold)?.max).toBeLessThanOrEqual(above(threshold, population).authors);
  });
});

test("followers fall with the share of those who have as many, through the published percentiles", () => {
  const shares = fc.double({ min: 1e-9, max: 1, noNaN: true });
  fc.assert(
    fc.property(shares, shares, (one, other) => {
      const [fewer, more] = [Math.max(one, other), Math.min(one, other)];
      expect(logFollowersOf(fewer)).toBeLessThanOrEqual(logFollowersOf(more) + 1e-9);
    }),
  );
  const followersOf = (share: number) => Math.exp(logFollowersOf(share));
  expect(followersOf(0.5)).toBeCloseTo(PUBLISHED.median.value);
  expect(followersOf(0.04)).toBeCloseTo(PUBLISHED.percentile96.value);
  expect(followersOf(0.01)).toBeCloseTo(PUBLISHED.percentile99.value);
  expect(followersOf(0.01) / followersOf(0.1)).toBeGreaterThan(1);
});

test("below the break-even rate pushing an author takes less CPU than pulling, above it more", () => {
  const { population, readers } = sceneOf({ users: 5_000, seed: 7, rates: "alike" });
  const alike = above(0, population).drops / above(0, population).followers;
  expect(alike).toBeGreaterThan(0);
  fc.assert(
    fc.property(fc.double({ min: 0.1, max: 1_000, noNaN: true }), (author) => {
      const costs = { entry: 9, page: 0, author };
      const [push, pull] = [Number.POSITIVE_INFINITY, 0].map((threshold) =>
        coresOf(strategyAt(threshold, population, readers), population.users, costs),
      );
      const rate = (86_400 * above(0, population).entries) / above(0, population).followers;
      const limit = breakEven(population, readers, costs);
      // Each drop is written once more where it is pulled, which the rate leaves out.
      if (rate < 0.9 * limit) expect(push?.all).toBeLessThan(pull?.all ?? 0);
      if (rate > 1.1 * limit) expect(push?.all).toBeGreaterThan(pull?.all ?? 0);
    }),
  );
});

test("pulling adds memory: authors' timelines and the readers' pulls, while homes stay full", () => {
  const { population, readers } = sceneOf({ users: 5_000, seed: 8 });
  const bytes = { entry: 100, pullsMember: 50 };
  const push = bytesOf(strategyAt(Number.POSITIVE_INFINITY, population, readers), population, bytes);
  const hybrid = bytesOf(strategyAt(100, population, readers), population, bytes);
  expect(push).toEqual({ homes: 5_000 * 1_000 * 100, authors: 0, pulls: 0 });
  expect(hybrid.homes).toBe(push.homes);
  expect(hybrid.authors).toBeGreaterThan(0);
  expect(hybrid.pulls).toBeGreaterThan(0);
});
