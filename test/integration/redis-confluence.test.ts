import { expect, test } from "@jest/globals";
import fc from "fast-check";
import { lua } from "../support/lua.js";
import { redisOfFile } from "../support/redis-of-file.js";
import { held } from "../support/timeline-keys.js";

const bench = redisOfFile();

const HOME = "timeline:home:a";
const change = fc.record({ version: fc.integer({ min: 0, max: 6 }), follows: fc.boolean() });
const entry = fc.record({ drop: fc.constantFrom("d1", "d2", "d3", "d4"), score: fc.integer({ min: 0, max: 5 }) });

/** A list, and the same with repetitions in another order. */
const toldTwice = <T>(item: fc.Arbitrary<T>) =>
  fc
    .array(item, { minLength: 1, maxLength: 12 })
    .chain((items) =>
      fc.tuple(fc.constant(items), fc.shuffledSubarray([...items, ...items], { minLength: items.length })),
    )
    .filter(([items, again]) => items.every((one) => again.includes(one)));

test("edge versions: in any order and however often told, the newest is in force, of one version the unfollow", async () => {
  await fc.assert(
    fc.asyncProperty(toldTwice(change), async ([changes, told]) => {
      await bench.raw.del("k:{1}", "l:{1}:b");
      await bench.raw.hset("k:{1}", "~floor", "1");
      let last: unknown;
      for (const { version, follows } of told)
        last = await bench.scripts.run(
          lua("change-edges"),
          [],
          ["k:", "l:", 60_000, "record", "{1}", "b", "a", version, follows ? "1" : "0"],
        );
      const newest = Math.max(...changes.map(({ version }) => version));
      const left = changes.some(({ version, follows }) => version === newest && !follows);
      expect(last).toEqual([[String(newest), left ? "0" : "1"]]);
    }),
    { numRuns: 150 },
  );
});

test("entries: in any order and however often written, of each drop the smallest time stays", async () => {
  await fc.assert(
    fc.asyncProperty(toldTwice(entry), async ([entries, told]) => {
      await bench.raw.del(HOME);
      for (const { drop, score } of told)
        await bench.scripts.run(
          lua("add-entries"),
          [],
          [...[Date.now() + 60_000, 100, 95, 0, "0", "homes", "", HOME, 1, score, drop, "eve"]],
        );
      const smallest = new Map<string, number>();
      for (const { drop, score } of entries) smallest.set(drop, Math.min(score, smallest.get(drop) ?? score));
      expect(new Map((await held(bench.raw, HOME)).entries)).toEqual(smallest);
    }),
    { numRuns: 150 },
  );
});
