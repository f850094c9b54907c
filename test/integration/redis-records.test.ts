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

test("change edges: the newest version is in force, of one version the unfollow", async () => {
  await bench.raw.hset(PART, "~floor", "1");
  expect(await edge(3, true)).toEqual(["3", "1"]);
  expect(await edge(2, false)).toEqual(["3", "1"]);
  expect(await edge(3, false)).toEqual(["3", "0"]);
  expect(await edge(3, true)).toEqual(["3", "0"]);
  expect(await edge(10, true)).toEqual(["10", "1"]);
  expect(await edge(Number.MAX_SAFE_INTEGER, false)).toEqual(["9007199254740991", "0"]);
  expect(await edge(Number.MAX_SAFE_INTEGER - 1, true)).toEqual(["9007199254740991", "0"]);
});

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

test("change edges: a look finds the newest and records nothing", async () => {
  const look = async (version: number, follows: boolean) =>
    (await changeEdges([["b", "a", version, follows]], { how: "look" }))[0];
  expect(await look(3, false)).toEqual(["", ""]);
  await bench.raw.hset(PART, "~floor", "1");
  await edge(3, true);
  const before = await bench.raw.hgetall(PART);
  expect([await look(2, false), await look(3, false), await look(4, false)]).toEqual([
    ["3", "1"],
    ["3", "0"],
    ["4", "0"],
  ]);
  expect([await bench.raw.hgetall(PART), await bench.raw.exists("l:{1}:b")]).toEqual([before, 0]);
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

// Invariant 3.
test("mark chunk: done once all that was planned is, in whatever order it is reported", async () => {
  expect(await mark("", "c1")).toEqual([]);
  expect(await mark("", "c1")).toEqual([]);
  expect(await mark("70", "c1", "c2", "c3")).toEqual([]);
  expect(await mark("", "c3")).toEqual([]);
  const done = (await mark("", "c2")) as string[];
  expect(done.filter((_, at) => at % 2 === 0).sort()).toEqual(["c1", "c2", "c3", "~recipients"]);
  expect(done[done.indexOf("~recipients") + 1]).toBe("70");
  expect(Date.now() - Number(done[done.indexOf("c1") + 1])).toBeLessThan(60_000);
  expect(await mark("", "c2")).toEqual(done);
  expect(await mark("70", "c1", "c2", "c3")).toEqual(done);
  expect(await bench.raw.pttl("timeline:x:fanout:e:d")).toBeGreaterThan(50_000);
});

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

test("mark chunk: a fan-out to nobody is done when it is planned", async () => {
  expect(await mark("0")).toEqual(["~recipients", "0"]);
});

test("read lately: homes with a floor and much time to live left", async () => {
  await bench.raw.zadd("timeline:home:ada", 5, "~floor");
  await bench.raw.zadd("timeline:home:bob", 5, "~floor");
  await bench.raw.zadd("timeline:home:eve", 5, "never read");
  await bench.raw.zadd("timeline:home:zoe", 5, "~floor");
  await bench.raw.pexpire("timeline:home:ada", 60_000);
  await bench.raw.pexpire("timeline:home:bob", 20_000);
  await bench.raw.pexpire("timeline:home:eve", 60_000);
  const look = (...args: string[]) => bench.scripts.run(lua("read-lately"), [], [30_000, "timeline:home:", ...args]);
  expect(await look("ada,bob,eve,nobody,zoe")).toEqual([1, 0, 0, 0, 1]);
});

test("note attempt: counts names, tells who never reported back, and every note extends the life of the count", async () => {
  const note = (name: string, state: "begun" | "failed", ttl = 60_000) =>
    bench.scripts.run(lua("note-attempt"), [], [ttl, "timeline:x:attempts:S:1:2", name, state]);
  expect([await note("a", "begun", 1_000), await note("a", "begun", 1_000), await note("b", "begun", 1_000)]).toEqual([
    [[1, 0, 0]],
    [[1, 0, 0]],
    [[1, 1, 1]],
  ]);
  expect([await note("a", "failed"), await note("b", "begun"), await note("c", "begun")]).toEqual([
    [[2, 1, 1]],
    [[2, 0, 0]],
    [[2, 1, 1]],
  ]);
  expect(await bench.raw.pttl("timeline:x:attempts:S:1:2")).toBeGreaterThan(50_000);
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
