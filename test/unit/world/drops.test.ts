import { expect, test } from "@jest/globals";
import fc from "fast-check";
import { compareBytes } from "../../../src/kernel/ids.js";
import { World } from "../../../src/world/world.js";

function worldOf(drops: readonly (readonly [drop_id: string, created_at: number])[]): World {
  const world = new World({ now: () => 10_000 });
  for (const [drop_id, created_at] of drops) world.addDrop({ drop_id, created_at, user_id: "ada" });
  return world;
}

const ids = (drops: readonly { drop_id: string }[]) => drops.map((drop) => drop.drop_id);
const some = () =>
  worldOf([
    ["b", 200],
    ["a", 100],
    ["d", 200],
    ["c", 200],
    ["e", 300],
  ]);

test("newest first, by bytes of the id within a millisecond", () => {
  expect(ids(some().dropsByUser("ada"))).toEqual(["e", "d", "c", "b", "a"]);
  // U+FF5E sorts after U+1F600 in UTF-16 and before it in UTF-8.
  expect(
    ids(
      worldOf([
        ["～", 1],
        ["😀", 1],
      ]).dropsByUser("ada"),
    ),
  ).toEqual(["😀", "～"]);
});

test("before alone, max_id alone, and the pair", () => {
  const world = some();
  expect(ids(world.dropsByUser("ada", { before: 200 }))).toEqual(["a"]);
  expect(ids(world.dropsByUser("ada", { before: 201 }))).toEqual(["d", "c", "b", "a"]);
  expect(ids(world.dropsByUser("ada", { max_id: "c" }))).toEqual(["b", "a"]);
  expect(ids(world.dropsByUser("ada", { before: 200, max_id: "d" }))).toEqual(["c", "b", "a"]);
  // The pair needs no such drop, and its time is not the drop's own.
  expect(ids(world.dropsByUser("ada", { before: 200, max_id: "cc" }))).toEqual(["c", "b", "a"]);
  expect(ids(world.dropsByUser("ada", { before: 300, max_id: "a" }))).toEqual(["d", "c", "b", "a"]);
});

test("limits: 0 is 20, at most 1000, negative is refused by name", () => {
  const world = worldOf(Array.from({ length: 1_100 }, (_, index) => [`d${index}`, index] as const));
  expect(world.dropsByUser("ada")).toHaveLength(20);
  expect(world.dropsByUser("ada", { limit: 5_000 })).toHaveLength(1_000);
  expect(() => world.dropsByUser("ada", { limit: -1 })).toThrow(/limit/);
  expect(() => world.dropsByUser("ada", { before: -1 })).toThrow(/before/);
});

test("a deleted drop is gone, but stays a cursor; an unknown one is refused unless dated", () => {
  const world = some();
  world.deleteDrop("c");
  expect(ids(world.dropsByUser("ada"))).toEqual(["e", "d", "b", "a"]);
  expect(ids(world.dropsByUser("ada", { max_id: "c" }))).toEqual(["b", "a"]);
  expect(() => world.dropsByUser("ada", { max_id: "never" })).toThrow(/max_id/);
  expect(ids(world.dropsByUser("ada", { max_id: "018f0000-0000-7000-8000-000000000000" }))).toHaveLength(4);
  expect(world.deleteDrop("c")).toBeUndefined();
  expect(() => world.addDrop({ drop_id: "c", user_id: "ada" })).toThrow(/drop_id/);
});

test("walking by either cursor gives every drop once, whatever the ties", () => {
  const drop = fc.tuple(
    fc.string({ minLength: 1, maxLength: 4, unit: "grapheme" }).filter((id) => id !== "~floor"),
    fc.integer({ min: 1, max: 4 }),
  );
  fc.assert(
    fc.property(
      fc.uniqueArray(drop, { selector: ([id]) => id, maxLength: 30 }),
      fc.integer({ min: 1, max: 5 }),
      fc.boolean(),
      (drops, limit, pair) => {
        const world = worldOf(drops);
        const seen: string[] = [];
        let page = world.dropsByUser("ada", { limit });
        while (page.length > 0 && seen.length < 100) {
          seen.push(...ids(page));
          const last = page.at(-1) as (typeof page)[number];
          page = world.dropsByUser("ada", { limit, max_id: last.drop_id, before: pair ? last.created_at : 0 });
        }
        const expected = [...drops].sort(([a, at], [b, bt]) => bt - at || compareBytes(b, a)).map(([id]) => id);
        expect(seen).toEqual(expected);
      },
    ),
  );
});

test("ids made in a burst are in the order of posting, also when the clock steps back", () => {
  const times = [5_000, 5_000, 4_000, 5_001];
  const world = new World({ now: () => times.shift() ?? 5_001 });
  const made = Array.from({ length: 30 }, () => world.addDrop({ user_id: "ada" }).drop_id);
  expect(ids(world.dropsByUser("ada", { limit: 100 })).reverse()).toEqual(made);
});

test("listDrops: by the time of the last change, deleted ones too, remote ones only when deleted", () => {
  let now = 100;
  const world = new World({ now: () => now });
  for (const drop_id of ["a", "b", "c"]) world.addDrop({ drop_id, created_at: 1, user_id: "ada" });
  world.addDrop({ drop_id: "https://far/1", created_at: 1, user_id: "", remote: true });
  world.addDrop({ drop_id: "https://far/2", created_at: 1, user_id: "far", remote: true });
  now = 200;
  world.deleteDrop("b");
  world.deleteDrop("https://far/2");
  expect(ids(world.listDrops({ since: 100, until: 200 }).items)).toEqual(["a", "c"]);
  expect(world.listDrops({ since: 200, until: 0 }).items).toMatchObject([
    { drop_id: "b", deleted: true },
    { drop_id: "https://far/2", deleted: true },
  ]);
  const first = world.listDrops({ page_size: 1 });
  const second = world.listDrops({ page_size: 10, page_token: first.next_page_token });
  expect(ids([...first.items, ...second.items])).toEqual(["a", "c", "b", "https://far/2"]);
  expect(() => world.listDrops({ page_token: "x" })).toThrow(/page_token/);
});

test("what cannot be a drop is refused by name", () => {
  const world = new World();
  expect(() => world.addDrop({ user_id: "ada", drop_id: "~floor" })).toThrow(/drop_id/);
  expect(() => world.addDrop({ user_id: "" })).toThrow(/user_id/);
  expect(() => world.addDrop({ user_id: "ada", recipients: ["bob"] })).toThrow(/recipients/);
  expect(() => world.addDrop({ user_id: "x".repeat(129) })).toThrow(/user_id/);
});
