import { expect, test } from "@jest/globals";
import { DAY, HOUR, MINUTE } from "../../../src/kernel/time.js";
import { type ListDrops, walkListed } from "../../../src/reads/walk-listed.js";

const YEAR = 365 * DAY;
const NOW = Date.now();

type Change = { drop: string; changed: number; score: number };
const changes = (count: number, everyMs: number, before = NOW): Change[] =>
  Array.from({ length: count }, (_, number) => {
    const at = before - number * everyMs - 1;
    return { drop: `d${at}`, changed: at, score: at };
  });

/** An upstream in memory. `asked` has the widths of the windows; `during` runs before each answer. */
function upstream(all: Change[], during: (calls: number) => void = () => undefined) {
  const asked: number[] = [];
  let read = 0;
  const list: ListDrops = async ({ since, until }, most = Number.POSITIVE_INFINITY) => {
    during(asked.push((until || NOW) - since));
    const inside = all.filter(({ changed }) => changed >= since && (until === 0 || changed < until));
    const some = inside.slice(0, most + 1);
    read += some.length;
    return { drops: new Map(some.map(({ drop, score }) => [drop, { drop, score }])), isWhole: inside.length <= most };
  };
  return { list, asked, read: () => read };
}

const untilFull = (full: number, oldest = 0) => ({
  isEnough: async ({ drops }: { drops: ReadonlyMap<string, unknown> }) => drops.size >= full,
  oldest,
});

test("drops are listed from the newest until there are enough, however many are older", async () => {
  const { list, asked, read } = upstream(changes(60_000, 7 * MINUTE));
  const walked = await walkListed(list, untilFull(1_000));
  expect(walked?.drops.size).toBeGreaterThanOrEqual(1_000);
  expect([read() < 6_000, asked.length < 12]).toEqual([true, true]);
  const listed = [...(walked?.drops.values() ?? [])].map((entry) => entry?.score ?? 0);
  expect(Math.min(...listed)).toBeGreaterThanOrEqual(walked?.since ?? 0);
});

// Invariant 5.
test("few drops are listed to the first one, however old it is", async () => {
  const { list, asked } = upstream([...changes(3, HOUR), { drop: "first", changed: NOW - 20 * YEAR, score: 1 }]);
  const walked = await walkListed(list, untilFull(1_000));
  expect([[...(walked?.drops.keys() ?? [])].includes("first"), walked?.since]).toEqual([true, 0]);
  expect(asked.length).toBeLessThan(20);
});

test("what is older than the retention is not asked for", async () => {
  const { list } = upstream([]);
  expect(await walkListed(list, untilFull(1, NOW - DAY))).toMatchObject({ since: 0 });
  const { list: other, asked } = upstream([]);
  await walkListed(other, untilFull(1, NOW - DAY));
  expect(asked.length).toBeLessThan(8);
});

// Invariant 11.
test("an import of very many behind quiet years is read in short windows, and ends the walk at a bound", async () => {
  const { list, read } = upstream([...changes(10, HOUR), ...changes(500_000, 1, NOW - 2 * YEAR)]);
  const walked = await walkListed(list, untilFull(1_000));
  expect(walked?.drops.size).toBe(10);
  expect(walked?.since).toBeGreaterThanOrEqual(NOW - 2 * YEAR - HOUR);
  expect(read()).toBeLessThan(400_000);
});

test("an upstream with too many changes in the newest window leaves the timeline to the log", async () => {
  const { list } = upstream(changes(250_000, 1));
  expect(await walkListed(list, untilFull(1_000))).toBeUndefined();
  expect(await walkListed(async () => undefined, untilFull(1))).toBeUndefined();
});

// Invariant 5.
test("a drop that changes during the walk is listed as it is then", async () => {
  const all = changes(30, HOUR);
  const moved = all[29] as Change;
  const { list } = upstream(all, (calls) => {
    if (calls === 2) moved.changed = NOW + 1;
  });
  expect((await walkListed(list, untilFull(1_000)))?.drops.has(moved.drop)).toBe(true);
});
