import { expect, test } from "@jest/globals";
import { lua } from "../support/lua.js";
import { redisOfFile } from "../support/redis-of-file.js";
import { held } from "../support/timeline-keys.js";

const bench = redisOfFile();

const TOMBSTONES = "timeline:tombstones";
const KEPT_MS = 60_000;
const NOW = Date.now();
const [OLD, AGED] = [NOW - 3 * KEPT_MS, NOW - 2 * KEPT_MS];
const recordTombstones = (...entries: (readonly [number, string])[]) =>
  bench.scripts.run(lua("record-tombstones"), [TOMBSTONES], [KEPT_MS, "", ...entries.flat()]);

test("record-tombstones: says whether the tombstones are complete, and forgets nothing while they are not", async () => {
  expect(await recordTombstones([OLD, "a"], [NOW, "b"])).toBe(0);
  expect((await held(bench.raw, TOMBSTONES)).entries).toEqual([
    ["b", NOW],
    ["a", OLD],
  ]);
  await bench.raw.zadd(TOMBSTONES, 5, "~floor");
  expect(await recordTombstones([NOW + 1, "c"], [AGED, "b"], [NOW - KEPT_MS / 2, "kept"])).toBe(1);
  const { floor, entries } = await held(bench.raw, TOMBSTONES);
  expect(entries).toEqual([
    ["c", NOW + 1],
    ["kept", NOW - KEPT_MS / 2],
  ]);
  expect(floor).toBeGreaterThan(AGED);
  expect(floor).toBeLessThan(NOW);
});

test("record-tombstones: the floor never falls, and recording nothing is a look", async () => {
  await bench.raw.zadd(TOMBSTONES, NOW + KEPT_MS, "~floor");
  expect(await recordTombstones()).toBe(1);
  expect((await held(bench.raw, TOMBSTONES)).floor).toBe(NOW + KEPT_MS);
});

type Edge = readonly [author: string, follower: string, version: number, follows: boolean];
const PART = "k:{1}";
const changeEdges = (edges: readonly Edge[], { how = "record" }: { readonly how?: string } = {}) =>
  bench.scripts.run(
    lua("change-edges"),
    [],
    [
      ...["k:", "l:", 60_000, how],
      ...edges.flatMap(([author, follower, version, follows]) => [
        "{1}",
        author,
        follower,
        version,
        follows ? "1" : "0",
      ]),
    ],
  ) as Promise<(readonly [version: string, state: string])[]>;

const edge = async (version: number, follows: boolean) => (await changeEdges([["b", "a", version, follows]]))[0];

test("change edges: a part that was lost decides nothing and remembers nothing, unless it is being refilled", async () => {
  expect(await edge(3, true)).toEqual(["", ""]);
  expect(await bench.raw.exists(PART)).toBe(0);
  await bench.raw.hset(PART, "~floor", "-7");
  expect(await edge(3, false)).toEqual(["", ""]);
  expect(
    await changeEdges(
      [
        ["b", "a", 4, false],
        ["b", "c", 1, true],
      ],
      { how: "refill" },
    ),
  ).toEqual([
    ["4", "0"],
    ["1", "1"],
  ]);
  expect(await bench.raw.hget(PART, "~floor")).toBe("-7");
  await bench.raw.hset(PART, "~floor", "1");
  expect(await edge(3, true)).toEqual(["4", "0"]);
});

test("change edges: what is too old goes as others change, and nothing else does", async () => {
  const old = Array.from({ length: 300 }, (_, number) => [`b:old${number}`, "1:1:1000"]).flat();
  await bench.raw.hset(PART, "~floor", "1", ...old);
  const young = Array.from({ length: 1_500 }, (_, number): Edge => ["b", `new${number}`, 1, true]);
  await changeEdges(young);
  const fields = await bench.raw.hkeys(PART);
  expect(fields.filter((field) => field.startsWith("b:old"))).toEqual([]);
  expect(fields.filter((field) => field.startsWith("b:new"))).toHaveLength(young.length);
  expect(await bench.raw.hget(PART, "~floor")).toBe("1");
});

const parts = (step: "begin" | "finish", mark: number, ...names: string[]) =>
  bench.scripts.run(lua("mark-edges"), [], [Date.now() + 60_000, step, mark, "k:", names.join(",")]);

test("mark-edges: complete parts stay, lost parts get the mark, and only parts with the mark are finished", async () => {
  await bench.raw.hset("k:{1}", "~floor", "1");
  expect(await parts("begin", -7, "{1}", "{2}", "{3}")).toBe(2);
  await bench.raw.del("k:{3}");
  expect(await parts("finish", -7, "{1}", "{2}", "{3}")).toBe(1);
  expect(await bench.raw.hget("k:{2}", "~floor")).toBe("1");
  expect(await bench.raw.exists("k:{3}")).toBe(0);
  expect(await parts("begin", -8, "{1}", "{2}", "{3}")).toBe(1);
  expect(await parts("finish", -7, "{3}")).toBe(0);
});

const mark = (recipients: string, ...chunks: string[]) =>
  bench.scripts.run(lua("mark-chunk"), ["timeline:x:fanout:e:d"], [60_000, recipients, ...chunks]);

test("mark chunk: of 1,000 chunks the last one finishes it, and few read the others, also beside the version before", async () => {
  const chunks = Array.from({ length: 1_000 }, (_, at) => `c${at}`);
  await mark("", "c0");
  expect(await mark("70", ...chunks)).toEqual([]);
  await bench.raw.config("RESETSTAT");
  // The version before marks a chunk by this alone.
  const before = (chunk: string) => bench.raw.hset("timeline:x:fanout:e:d", chunk, "5");
  for (const [at, chunk] of chunks.slice(0, -1).entries()) {
    if (at % 3 === 1) await before(chunk);
    else expect(await mark("", chunk)).toEqual([]);
  }
  const reads = Number(/cmdstat_hgetall:calls=(\d+)/.exec(await bench.raw.info("commandstats"))?.[1] ?? 0);
  // The chunk that is found open is any of those left, which halves them each time.
  expect(reads).toBeLessThan(50);
  const done = (await mark("", "c999")) as string[];
  expect(done.filter((_, at) => at % 2 === 0).sort()).toEqual([...chunks, "~recipients"].sort());
});

// Invariant 11.
test("note removed: notes what the timeline held, for a while, and removes it if that is asked for", async () => {
  const [timeline, taken] = ["timeline:home:ada", "timeline:x:taken:{timeline:home:ada}"] as const;
  const take = (how: "remove" | "note", ...drops: readonly string[]) =>
    bench.scripts.run(lua("note-removed"), [timeline, taken], [60_000, how, ...drops]);
  await bench.raw.zadd(timeline, 0, "~floor", 6, "a", 7, "b");
  expect(await take("remove", "elsewhere")).toBe(0);
  expect(await bench.raw.exists(taken)).toBe(0);
  await bench.raw.zadd(taken, Date.now() - 61_000, "long ago", Date.now() - 30_000, "lately");
  expect([await take("note", "a", "elsewhere"), await take("remove", "b")]).toEqual([1, 1]);
  expect(await bench.raw.zrange(taken, "0", "-1")).toEqual(["lately", "a", "b"]);
  expect(await bench.raw.zrange(timeline, "0", "-1")).toEqual(["~floor", "a"]);
  expect(await bench.raw.pttl(taken)).toBeGreaterThan(50_000);
});
