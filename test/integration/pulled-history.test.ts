import { afterAll, beforeAll, expect, test } from "@jest/globals";
import fc from "fast-check";
import { compareEntries } from "../../src/contracts/timelines.js";
import { merge } from "../../src/state/entries/merge.js";
import { type Crossing, history, type Mutate, Scene, withoutPeople } from "../support/pulled-history.js";
import { type Merge, openRedis, type RedisBench } from "../support/redis.js";
import { runs, slowTest } from "../support/suite.js";

const asIs: Mutate = (deps) => deps;

let redis: RedisBench;
beforeAll(async () => {
  redis = await openRedis();
});
afterAll(() => redis.close());

/** Returns the pages of each history with the authors crossing in each of these ways; a mutant is to be seen by some. */
const samePages = (crossings: readonly Crossing[], mutate: Mutate = asIs, merged?: Merge, histories = withoutPeople) =>
  fc.asyncProperty(histories, async (steps) => {
    const pages = [];
    for (const crossing of crossings) {
      await redis.raw.flushall();
      pages.push(await new Scene(redis, crossing, mutate, merged).run(steps));
    }
    for (const others of pages) expect(others).toEqual(pages[0]);
  });

// Invariant 5.
test("the same history gives the same pages, entry for entry, whoever is pulled and whenever they cross", async () => {
  await fc.assert(samePages(["off", "pull", "tier", "random"], asIs, undefined, history), {
    numRuns: runs.slow ? 60 : 10,
    endOnFailure: true,
  });
}, 300_000);

const MUTANTS: readonly (readonly [does: string, merge: Merge, crossing?: Crossing])[] = [
  [
    "shows a drop twice that was pushed before its author was pulled",
    (range, home, parts) => {
      const entries = [home, ...parts.map(({ stored }) => stored)].flatMap((one) => one.entries);
      const sign = range.direction === "older" ? -1 : 1;
      const nearest = entries.sort((a, b) => sign * compareEntries(a, b)).slice(0, range.count);
      return { ...merge(range, home, parts), entries: nearest };
    },
  ],
  [
    "trusts an author's timeline below its floor",
    (range, home, parts) => {
      const merged = merge(range, home, parts);
      return { ...merged, floor: merged.floor === undefined ? undefined : home.floor };
    },
  ],
  [
    "takes an author's timeline without a floor for complete",
    (range, home, parts) => {
      const complete = parts.map((part) => ({ ...part, stored: { ...part.stored, floor: part.stored.floor ?? 0 } }));
      return merge(range, home, complete);
    },
  ],
  [
    "leaves out a drop of a tiered author that has not reached the reader's tier",
    (range, home) => merge(range, home, []),
    "tier",
  ],
];

for (const [does, mutant, crossing = "random"] of MUTANTS) {
  // Invariant 5.
  slowTest(
    `a merge that ${does} is found out`,
    async () => {
      const { failed } = await fc.check(samePages([crossing], asIs, mutant), {
        ...{ seed: 2, numRuns: 1_000, endOnFailure: true },
      });
      expect(failed).toBe(true);
    },
    300_000,
  );
}

// Invariant 5.
slowTest(
  "an unfollow that leaves the set of pulled authors as it is is found out",
  async () => {
    const mutate: Mutate = (deps) => ({
      ...deps,
      authors: { ...deps.authors, removeFromPulls: async () => undefined },
    });
    const { failed } = await fc.check(samePages(["random"], mutate), { seed: 1, numRuns: 300, endOnFailure: true });
    expect(failed).toBe(true);
  },
  300_000,
);

const HIDING_MUTANTS: readonly (readonly [does: string, mutate: Mutate])[] = [
  [
    "a fan-out that asks nobody whether a drop is hidden from them",
    ({ writer, ...deps }) => {
      const unsigned = (all: Parameters<typeof writer.addToHomes>[0]) =>
        all.map((one) => ({ ...one, entries: one.entries.map((entry) => ({ ...entry, by: { author: "" } })) }));
      return { ...deps, writer: { ...writer, addToHomes: (all, yields) => writer.addToHomes(unsigned(all), yields) } };
    },
  ],
  [
    "a suspension that hides nothing that homes have",
    ({ veiled, ...deps }) => ({ ...deps, veiled: { ...veiled, add: async () => undefined } }),
  ],
  [
    "a suspension whose end brings nothing back",
    ({ veiled, ...deps }) => ({ ...deps, veiled: { ...veiled, remove: async () => undefined } }),
  ],
  [
    "a block that leaves the home as it is",
    ({ relations, ...deps }) => ({ ...deps, relations: { ...relations, change: async () => [] } }),
  ],
];

for (const [does, mutate] of HIDING_MUTANTS) {
  // Invariant 5.
  slowTest(
    `${does} is found out`,
    async () => {
      const { failed } = await fc.check(samePages(["random"], mutate, undefined, history), {
        ...{ seed: 2, numRuns: 1_000, endOnFailure: true },
      });
      expect(failed).toBe(true);
    },
    300_000,
  );
}
