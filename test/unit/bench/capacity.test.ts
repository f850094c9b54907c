import { readFileSync } from "node:fs";
import { expect, test } from "@jest/globals";
import fc from "fast-check";
import { MOST_CLUSTERS } from "../../../src/kernel/urls.js";
import { bytesKept, CHOSEN, limitsOf, nodesOf, requestsOf, settingsOf } from "../../bench/support/capacity.js";
import { CAPACITY_PAGE, withTables } from "../../bench/support/capacity-page.js";
import { drawPopulation } from "../../bench/support/population.js";
import { drawReaders } from "../../bench/support/readers.js";
import { CANDIDATES, type Load, loadOf } from "../../bench/support/scene.js";
import { strategyAt } from "../../bench/support/strategies.js";
import { readUnitCosts } from "../../bench/support/unit-costs.js";

const costs = readUnitCosts();

function loadFor(users: number): Load {
  const population = drawPopulation({ users, seed: 1, draws: 20_000, rates: "alike" });
  const readers = drawReaders(population, { readers: 200, seed: 1 });
  const thresholds = [...CANDIDATES, Number.POSITIVE_INFINITY];
  return loadOf({ population, readers, strategies: thresholds.map((one) => strategyAt(one, population, readers)) });
}

test("the tables of docs/capacity.md are those that the stored runs give", () => {
  const page = readFileSync(CAPACITY_PAGE, "utf8");
  expect(withTables(page)).toBe(page);
  expect(page).not.toContain("no table");
  expect(page.match(/<!-- table: \w+ -->\n\|/g)).toHaveLength(9);
});

test("twice the users make twice the requests and bytes", () => {
  const [one, two] = [loadFor(1_000_000), loadFor(1_000_000)];
  const double: Load = { ...two, users: 2 * two.users, push: { ...two.push, pushed: 2 * two.push.pushed } };
  const [less, more] = [requestsOf(one), requestsOf(double)];
  for (const what of ["drops", "reads", "entries", "streams", "notifications"] as const)
    expect(more[what]).toBeCloseTo(2 * less[what]);
  const [fewer, further] = [bytesKept(one, costs), bytesKept(double, costs)];
  for (const what of ["homes", "dropsAYear", "follows", "log", "notify"] as const)
    expect(further[what] / fewer[what]).toBeCloseTo(2);
});

test("more users never need fewer nodes", () => {
  fc.assert(
    fc.property(fc.integer({ min: 10_000, max: 1_000_000 }), fc.integer({ min: 2, max: 50 }), (users, times) => {
      const [few, many] = [nodesOf(loadFor(users), costs), nodesOf(loadFor(users * times), costs)];
      for (const what of ["byMemory", "workers", "apis", "gateways", "posts", "databases", "nats"] as const)
        expect(many[what]).toBeGreaterThanOrEqual(few[what]);
    }),
    { numRuns: 10 },
  );
});

test("at the users of a limit the load is the limit, and limits come in their order", () => {
  const load = loadFor(1_000_000);
  const limits = limitsOf(load, costs);
  expect(limits.map(({ users }) => users)).toEqual(limits.map(({ users }) => users).toSorted((a, b) => a - b));
  const memory = limits.find(({ what }) => what === `Redis, ${MOST_CLUSTERS} Clusters, memory`);
  const full = bytesKept({ ...load, users: memory?.users ?? 0 }, costs).homes;
  expect(full / (MOST_CLUSTERS * CHOSEN.masters.value * CHOSEN.redisBytes.value)).toBeCloseTo(1);
  const database = limits.find(({ what }) => what === "PostgreSQL of `posts`, CPU");
  expect(requestsOf({ ...load, users: database?.users ?? 0 }).drops / (database?.limit ?? 1)).toBeCloseTo(1);
});

test("fewer entries need less memory, and fewer homes less memory and CPU", () => {
  const [, push, small, active] = settingsOf(loadFor(10_000_000), costs);
  expect((small?.bytes ?? 0) / (push?.bytes ?? 1)).toBeCloseTo(0.4);
  expect(small?.cores).toBe(push?.cores);
  expect((active?.bytes ?? 0) / (small?.bytes ?? 1)).toBeCloseTo(0.5);
  expect(active?.byCpu).toBeLessThan(small?.byCpu ?? 0);
});

test("a stored run that lacks a row is named", () => {
  expect(() => readUnitCosts(() => ({ rows: [] }))).toThrow(
    'test/bench/results/fanout.json has no row "audience 100, single"',
  );
});
