import { readFileSync } from "node:fs";
import { afterAll, beforeAll, expect, test } from "@jest/globals";
import fc from "fast-check";
import { type Crossing, history, type Mutate, Scene } from "../support/pulled-history.js";
import { openRedis, type RedisBench } from "../support/redis.js";
import { runs, slowTest } from "../support/suite.js";

const READ_PAGE = readFileSync("src/platform/redis/lua/read-page.lua", "utf8");
const asIs: Mutate = (deps) => deps;

let redis: RedisBench;
beforeAll(async () => {
  redis = await openRedis();
});
afterAll(() => redis.close());

/** Returns the pages of each history with the authors crossing in each of these ways; a mutant is to be seen by some. */
const samePages = (crossings: readonly Crossing[], mutate: Mutate = asIs) =>
  fc.asyncProperty(history, async (steps) => {
    const pages = [];
    for (const crossing of crossings) {
      await redis.raw.flushall();
      pages.push(await new Scene(redis, crossing, mutate).run(steps));
    }
    for (const others of pages) expect(others).toEqual(pages[0]);
  });

test("the same history gives the same pages, entry for entry, whoever is pulled and whenever they cross", async () => {
  await fc.assert(samePages(["off", "pull", "tier", "random"]), { numRuns: runs.slow ? 60 : 10, endOnFailure: true });
}, 300_000);

const MUTANTS = [
  [
    "shows a drop twice that was pushed before its author was pulled",
    "local entry, time = known[ids[i]],",
    "local entry, time = nil,",
  ],
  [
    "trusts an author's timeline below its floor",
    "floor = math.max(floor, own)",
    "if name == '~home' then floor = own end",
  ],
  ["takes an author's timeline without a floor for complete", "if own < 0 then", "if own < 0 and name == '~home' then"],
  [
    "leaves out a drop of a tiered author that has not reached the reader's tier",
    "call('EXISTS', key) == 1",
    "false",
    "tier",
  ],
] as const;

for (const [does, code, mutant, crossing = "random"] of MUTANTS) {
  slowTest(
    `a merge that ${does} is found out`,
    async () => {
      expect(READ_PAGE).toContain(code);
      redis.client.defineCommand("read-page", { lua: READ_PAGE.replace(code, mutant) });
      try {
        const { failed } = await fc.check(samePages([crossing]), { seed: 1, numRuns: 300, endOnFailure: true });
        expect(failed).toBe(true);
      } finally {
        redis.client.defineCommand("read-page", { lua: READ_PAGE });
      }
    },
    300_000,
  );
}

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
