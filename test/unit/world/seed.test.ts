import { expect, test } from "@jest/globals";
import { mulberry32 } from "../../../src/world/random.js";
import { BIG_AUTHOR, type SeedOptions, seedWorld } from "../../../src/world/seed.js";
import { World } from "../../../src/world/world.js";

const NOW = 1_750_000_000_000;

function seeded(options: SeedOptions = {}) {
  const world = new World({ now: () => NOW });
  const summary = seedWorld(world, { bigAuthorFollowers: 500, now: NOW, ...options });
  return { world, summary };
}

const picture = (world: World) => ({
  drops: world.listDrops({}).items,
  edges: world.listFollowChanges({ page_size: 5_000 }).items,
  users: world.listUsers({ limit: 5_000 }),
});

test("the numbers of a seed are the generator's own", () => {
  const random = mulberry32(1);
  expect([random(), random()]).toEqual([0.6270739405881613, 0.002735721180215478]);
});

test("the same seed makes the same world, another one another", () => {
  expect(picture(seeded({ seed: 7 }).world)).toEqual(picture(seeded({ seed: 7 }).world));
  expect(picture(seeded({ seed: 7 }).world)).not.toEqual(picture(seeded({ seed: 8 }).world));
});

test("the tail is long: a few are followed by many, most by few", () => {
  const { world } = seeded();
  const counts = world
    .listUsers({ limit: 300 })
    .filter((user) => user.user_id !== BIG_AUTHOR)
    .map((user) => user.followers)
    .sort((a, b) => b - a);
  const sum = (list: number[]) => list.reduce((a, b) => a + b, 0);
  expect(sum(counts.slice(0, 30))).toBeGreaterThan(sum(counts) * 0.4);
  expect(counts[150]).toBeLessThan((counts[0] as number) / 10);
});

test("the big author has exactly the followers asked for, ids are readable", () => {
  const { world, summary } = seeded();
  expect(world.summary(BIG_AUTHOR).followers).toBe(500);
  expect(summary.users).toBe(world.size.users);
  for (const id of ["ada", "grace", "user-0231", "fan-00001"]) expect(world.hasUser(id)).toBe(true);
  const { total_count } = world.followersOf(BIG_AUTHOR);
  expect(total_count).toBe(500);
});

test("history is in the past and has all visibilities", () => {
  const drops = seeded().world.listDrops({}).items;
  expect(drops.every((drop) => drop.created_at < NOW && drop.changed_at === drop.created_at)).toBe(true);
  expect(new Set(drops.map((drop) => drop.visibility)).size).toBe(4);
});

test("20,000 followers take less than a second, and progress is told", () => {
  const told: number[] = [];
  const start = performance.now();
  const { summary } = seeded({ bigAuthorFollowers: 20_000, onProgress: ({ done, total }) => told.push(done / total) });
  expect(performance.now() - start).toBeLessThan(1_000);
  expect(summary.edges).toBeGreaterThan(20_000);
  expect(told.at(-1)).toBe(1);
  expect(told.length).toBeGreaterThan(10);
});
