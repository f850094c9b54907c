import { setTimeout as latency } from "node:timers/promises";
import { expect, test } from "@jest/globals";
import { edgeJobSubject } from "../../src/contracts/subjects.js";
import type { Delivery } from "../../src/delivery/handler.js";
import { AppError } from "../../src/kernel/errors.js";
import { TOMBSTONES_KEY } from "../../src/state/keys.js";
import { contextWith, deliveryOf, headersWith } from "../support/deliveries.js";
import { eventually } from "../support/eventually.js";
import { DROP, followers, handle, logged, openFanout } from "../support/fanout.js";
import { dropPageOf } from "../support/memory-upstreams.js";
import { redisOfFile } from "../support/redis-of-file.js";
import { created, deleted, followed, unfollowed } from "../support/timeline-events.js";
import { held, homeKey } from "../support/timeline-keys.js";
import { World } from "../support/world.js";

const redis = redisOfFile();
const idsOf = async (key: string) => (await held(redis.raw, key)).entries.map(([id]) => id);

// Invariant 8.
test("in a batch of edges, an author whose drops do not come holds up no other, and is left to be handled alone", async () => {
  const world = new World();
  for (const author of ["ada", "slow", "broken"]) {
    world.post({ ...DROP, drop_id: `of-${author}`, user_id: author });
    world.follow("rik", author);
  }
  let answer = (): void => undefined;
  const bench = openFanout(redis, world, {
    change: (deps) => ({
      ...deps,
      readAuthorDrops: async (author, below, of) => {
        if (author === "broken") throw new AppError("failed", "no answer");
        if (author === "slow") await new Promise<void>((resolve) => (answer = resolve));
        return deps.readAuthorDrops(author, below, of);
      },
    }),
  });
  const edges = ["ada", "slow", "broken"].map((author) => logged(followed("rik", author, 1), Date.now()));
  const left = await bench.handlers.graph.batch(edges, contextWith());
  expect(left).toEqual(edges.slice(1));
  expect(await idsOf(homeKey("rik"))).toEqual(["of-ada"]);
  answer();
});

// Invariant 4.
test("a batch of edges that fails has ended for all authors: it writes nothing after what the next handling writes", async () => {
  const world = new World();
  for (let at = 1; at <= 250; at++) world.post({ ...DROP, drop_id: `d${at}`, created_at: 1_000 * at });
  world.post({ ...DROP, drop_id: "of-broken", user_id: "broken" });
  const fans = Array.from({ length: 100 }, (_, at) => `fan${at}`);
  for (const fan of fans) world.follow(fan, "ada");
  let failed = (): void => undefined;
  const failing = new Promise<void>((resolve) => (failed = resolve));
  let isRead = false;
  const bench = openFanout(redis, world, {
    change: (deps) => ({
      ...deps,
      readAuthorDrops: async (author, below, of) => {
        if (author === "broken" && below) {
          failed();
          throw new AppError("failed", "no answer");
        }
        if (author === "ada" && below) await failing;
        for (let turn = 0; turn < 10; turn++) await new Promise(setImmediate);
        const page = await deps.readAuthorDrops(author, below, of);
        isRead ||= author === "ada" && page.drops.length === 0;
        return page;
      },
    }),
  });
  const events = [followed("rik", "broken", 1), ...fans.map((fan) => followed(fan, "ada", 1))];
  const edges = events.map((event) => logged(event, Date.now()));
  await expect(bench.handlers.graph.batch(edges, contextWith())).rejects.toThrow("no answer");
  expect(isRead).toBe(true);
  await handle(bench, unfollowed("fan0", "ada", 2));
  expect(await idsOf(homeKey("fan0"))).toEqual([]);
});

test("where the pages of many authors do not come, the upstream is slow: their edges stay together", async () => {
  const world = new World();
  const authors = Array.from({ length: 20 }, (_, at) => `author${at}`);
  for (const author of authors) world.post({ ...DROP, drop_id: `of-${author}`, user_id: author });
  const bench = openFanout(redis, world, {
    change: (deps) => ({
      ...deps,
      readAuthorDrops: async (author, below, of) => {
        if (below === undefined) await latency(800);
        return deps.readAuthorDrops(author, below, of);
      },
    }),
  });
  const edges = authors.map((author) => logged(followed("rik", author, 1), Date.now()));
  expect(await bench.handlers.graph.batch(edges, contextWith())).toEqual([]);
  expect(await idsOf(homeKey("rik"))).toHaveLength(authors.length);
});

test("follows and unfollows of one author share its pages: each home takes what is above its floor and for its owner", async () => {
  const world = new World();
  for (let at = 1; at <= 250; at++) world.post({ ...DROP, drop_id: `d${at}`, created_at: 1_000 * at });
  world.post({ ...DROP, drop_id: "for-f1", visibility: "direct", recipients: ["f1"], created_at: 260_000 });
  const pages: string[] = [];
  const bench = openFanout(redis, world, {
    change: (deps) => ({
      ...deps,
      readAuthorDrops: (author, below, of) => {
        pages.push(author);
        return deps.readAuthorDrops(author, below, of);
      },
    }),
  });
  for (const [home, floor] of Object.entries({ f0: 0, f1: 249_000, left: 0 }))
    await redis.raw.zadd(homeKey(home), floor, "~floor", 300_000, "other");
  await redis.raw.zadd(homeKey("left"), 1_000, "d1", 250_000, "d250");
  const edges = [
    ...["f0", "f1"].map((user) => followed(user, "ada", 1)),
    unfollowed("left", "ada", 1),
    unfollowed("empty", "ada", 1),
  ].map((event) => logged(event, Date.now()));
  expect(await bench.handlers.graph.batch(edges, contextWith())).toEqual([]);
  expect((await idsOf(homeKey("f0"))).toSorted()).toEqual(
    [...Array.from({ length: 250 }, (_, at) => `d${at + 1}`), "other"].toSorted(),
  );
  expect(await idsOf(homeKey("f1"))).toEqual(["other", "for-f1", "d250"]);
  expect(await idsOf(homeKey("left"))).toEqual(["other"]);
  // Three pages of at most 100 drops, and one that is empty.
  expect(pages.length).toBe(4);
});

test("edges of a user with more than 100 in a batch become jobs of 250, and others are applied; in any order the newest wins", async () => {
  const world = new World();
  for (const author of ["ada", "star"]) world.post({ ...DROP, drop_id: `of-${author}`, user_id: author });
  const bench = openFanout(redis, world);
  const fans = Array.from({ length: 300 }, (_, at) => `fan${at}`);
  const edges = [
    ...fans.map((fan) => followed(fan, "star", 1)),
    unfollowed("fan7", "star", 2),
    ...fans.slice(0, 100).map((fan) => followed(fan, "ada", 1)),
  ].map((event, at) => logged(event, 1_000_000 - at));
  expect(await bench.handlers.graph.batch(edges, contextWith())).toEqual([]);
  expect(bench.edgeJobs.map((job) => [job.following_id, job.admitted_at, job.edges.length])).toEqual([
    ["star", 999_751, 250],
    ["star", 999_700, 51],
  ]);
  expect([await idsOf(homeKey("fan0")), await idsOf(homeKey("fan200"))]).toEqual([["of-ada"], []]);
  const jobs = bench.edgeJobs.map((job) =>
    deliveryOf({ stream: "FANOUT", subject: edgeJobSubject(job.admitted_at), json: job }),
  );
  const [first, second] = [openFanout(redis, world), openFanout(redis, world)];
  await second.handlers.hotGraph.single(jobs[1] as Delivery, contextWith());
  expect(await first.handlers.hotGraph.batch(jobs.slice(0, 1), contextWith())).toEqual([]);
  const shown = await Promise.all(fans.map(async (fan) => (await idsOf(homeKey(fan))).includes("of-star")));
  expect(fans.filter((_, at) => !shown[at])).toEqual(["fan7"]);
});

// Invariant 1.
test("a job of edges that is redriven is handled alone, once a loss of Redis would have its events applied again", async () => {
  const world = new World();
  world.post({ ...DROP, drop_id: "of-star", user_id: "star" });
  const covered: number[] = [];
  const bench = openFanout(redis, world, {
    change: (deps) => ({ ...deps, untilCovered: async (admittedAt) => void covered.push(admittedAt) }),
  });
  const job = { following_id: "star", admitted_at: 5_000, edges: [{ follower_id: "rik", version: 1, follows: true }] };
  const redriven = {
    ...deliveryOf({ stream: "FANOUT", subject: edgeJobSubject(job.admitted_at), json: job }),
    headers: headersWith({ "Dlq-Redrive-Count": "1" }),
  };
  expect(await bench.handlers.hotGraph.batch([redriven], contextWith())).toEqual([redriven]);
  expect(await idsOf(homeKey("rik"))).toEqual([]);
  await bench.handlers.hotGraph.single(redriven, contextWith());
  expect([covered, await idsOf(homeKey("rik"))]).toEqual([[5_000], ["of-star"]]);
});

// Invariant 1.
test("a job that is redriven is handled alone, once a loss of Redis would have its event applied again", async () => {
  const covered: number[] = [];
  const bench = openFanout(redis, followers(3), {
    pageSize: 2,
    change: (deps) => ({ ...deps, untilCovered: async (admittedAt) => void covered.push(admittedAt) }),
  });
  await handle(bench, created({ ...DROP, created_at: 1_000 }), 5_000);
  const [first, second] = bench.jobs.map((job) =>
    deliveryOf({ stream: "FANOUT", subject: "fanout.job.add.1", json: job }),
  );
  const redriven = { ...(second as Delivery), headers: headersWith({ "Dlq-Redrive-Count": "1" }) };
  expect(await bench.handlers.jobs.batch([first as Delivery, redriven], contextWith())).toEqual([redriven]);
  expect([covered, await idsOf(homeKey("f0")), await idsOf(homeKey("f2"))]).toEqual([[], ["d1"], []]);
  await bench.handlers.jobs.single(first as Delivery, contextWith());
  expect(covered).toEqual([]);
  await bench.handlers.jobs.single(redriven, contextWith());
  expect([covered, await idsOf(homeKey("f2")), bench.completed.length]).toEqual([[5_000], ["d1"], 1]);
});

// Invariant 4.
test("a batch of edges fails where the job of a hot user is not stored, after the writes of its other edges have ended", async () => {
  const world = new World();
  world.post(DROP);
  let release = (): void => undefined;
  const isHeld = new Promise<void>((resolve) => (release = resolve));
  let writes = false;
  const bench = openFanout(redis, world, {
    change: (deps) => ({
      ...deps,
      queueEdges: () => Promise.reject(new AppError("unavailable", "full")),
      writer: {
        ...deps.writer,
        addToHomes: async (...of) => {
          writes = true;
          await isHeld;
          return deps.writer.addToHomes(...of);
        },
      },
    }),
  });
  const stars = Array.from({ length: 101 }, (_, at) => followed(`fan${at}`, "star", 1));
  const edges = [followed("rik", "ada", 1), ...stars].map((event) => logged(event, Date.now()));
  const ends: string[] = [];
  const batch = bench.handlers.graph.batch(edges, contextWith()).finally(() => ends.push("batch"));
  batch.catch(() => undefined);
  await eventually(() => writes, "the few edges are written");
  ends.push("write");
  release();
  await expect(batch).rejects.toMatchObject({ code: "unavailable" });
  expect([ends, await idsOf(homeKey("rik"))]).toEqual([["write", "batch"], ["d1"]]);
});

// Invariant 2.
test("a batch applies drops whose followers are known, and leaves the others, direct drops and redriven ones", async () => {
  const world = followers(2);
  world.follow("f1", "eve");
  const bench = openFanout(redis, world);
  await handle(bench, created({ ...DROP, drop_id: "first" }));
  const known = ["d1", "d2"].map((drop_id) => logged(created({ ...DROP, drop_id }), Date.now()));
  const unknown = logged(created({ ...DROP, drop_id: "e1", user_id: "eve" }), Date.now());
  const direct = logged(created({ ...DROP, drop_id: "direct", visibility: "direct", recipients: ["f0"] }), Date.now());
  const redriven = {
    ...logged(created({ ...DROP, drop_id: "again" }), Date.now()),
    headers: headersWith({ "Dlq-Redrive-Count": "1" }),
  };
  const gone = logged(deleted("d2", "ada"), Date.now());
  const batch = [...known, unknown, direct, redriven, gone];
  expect(await bench.handlers.drops.batch(batch, contextWith())).toEqual([unknown, direct, redriven]);
  expect(await idsOf(homeKey("f0"))).toEqual(["first", "d1"]);
  expect(bench.completed.map(({ event, drop_id }) => [event, drop_id])).toEqual([
    ["drop_created", "first"],
    ["drop_created", "d1"],
    ["drop_created", "d2"],
    ["drop_deleted", "d2"],
  ]);
});

// Invariant 4.
test("deletions hide their drops and let the next batch begin while others are removed, and then share a removal", async () => {
  const removals: string[][] = [];
  let planned = 0;
  let release = (): void => undefined;
  const released = new Promise<void>((resolve) => (release = resolve));
  const bench = openFanout(redis, followers(2), {
    change: (deps) => ({
      ...deps,
      fences: {
        ...deps.fences,
        generations: async (authors) => {
          const generations = await deps.fences.generations(authors);
          planned++;
          return generations;
        },
      },
      writer: {
        ...deps.writer,
        removeFromHomes: async (all, ...more) => {
          removals.push(all.flatMap(({ drops }) => drops).toSorted());
          await released;
          await deps.writer.removeFromHomes(all, ...more);
        },
      },
    }),
  });
  const drops = ["d1", "d2", "d3", "d4"];
  for (const drop_id of drops) await handle(bench, created({ ...DROP, drop_id }));
  planned = 0;
  let next = 0;
  const context = { ...contextWith(), beginNext: () => void next++ };
  const remove = (...ids: string[]) =>
    bench.handlers.drops.batch(
      ids.map((id) => logged(deleted(id, "ada"), Date.now())),
      context,
    );
  const batches = [remove("d1")];
  await eventually(() => removals.length === 1, "the first is being removed");
  batches.push(remove("d2", "d3"), remove("d4"));
  await eventually(() => next === 3, "each has let the next begin");
  // The generation is the last thing that a batch asks for before its removal.
  await eventually(() => planned === 3, "the others are to be removed");
  expect(await Promise.all(drops.map((drop) => redis.raw.zscore(TOMBSTONES_KEY, drop)))).not.toContain(null);
  expect(bench.completed.filter(({ event }) => event === "drop_deleted")).toEqual([]);
  release();
  expect(await Promise.all(batches)).toEqual([[], [], []]);
  expect(removals).toEqual([["d1"], ["d2", "d3", "d4"]]);
  expect(await idsOf(homeKey("f0"))).toEqual([]);
});

// Invariant 4.
test("a batch lets the next one begin once its drops are written and its tombstones stand", async () => {
  const bench = openFanout(redis, followers(2));
  for (const drop_id of ["known", "d1"]) await handle(bench, created({ ...DROP, drop_id }));
  let seen: Promise<unknown> | undefined;
  const look = () => Promise.all([idsOf(homeKey("f0")), redis.raw.zscore(TOMBSTONES_KEY, "d1")]);
  const batch = [created({ ...DROP, drop_id: "d2", created_at: 2_000 }), deleted("d1", "ada")];
  await bench.handlers.drops.batch(
    batch.map((event) => logged(event, 5_000_000_000_000)),
    {
      ...contextWith(),
      beginNext: () => {
        seen = look();
      },
    },
  );
  expect(await seen).toEqual([expect.arrayContaining(["d2"]), "5000000000000"]);
  expect((await idsOf(homeKey("f0"))).toSorted()).toEqual(["d2", "known"]);
});

test("the list of an author with 5,000 followers is kept: the next drop is written at once; one more makes jobs of all", async () => {
  const bench = openFanout(redis, followers(5_000), { pageSize: 1_000 });
  await handle(bench, created({ ...DROP, drop_id: "first" }));
  expect(bench.jobs.flatMap(({ user_ids }) => user_ids)).toHaveLength(5_001);
  expect(await bench.handlers.drops.batch([logged(created(DROP), Date.now())], contextWith())).toEqual([]);
  expect(await idsOf(homeKey("ada"))).toEqual(["d1"]);
  const larger = openFanout(redis, followers(5_001), { pageSize: 1_000 });
  await handle(larger, created({ ...DROP, drop_id: "first" }));
  const next = logged(created(DROP), Date.now());
  expect(await larger.handlers.drops.batch([next], contextWith())).toEqual([next]);
});

// Invariant 11.
test("a follow of an author of very many direct drops leaves the home to be rebuilt", async () => {
  const world = new World();
  const count = 110;
  for (let at = 1; at <= count; at++)
    world.post({ ...DROP, drop_id: `dm${at}`, user_id: "bot", created_at: 1_000 * at, visibility: "direct" });
  world.follow("rik", "bot");
  await redis.raw.zadd(homeKey("rik"), 0, "~floor", 5, "kept");
  let pages = 0;
  const bench = openFanout(redis, world, {
    change: (deps) => ({
      ...deps,
      readAuthorDrops: async (author, below, of) => {
        pages++;
        const { drops } = await deps.readAuthorDrops(author, below, of);
        return dropPageOf(drops.slice(0, 1));
      },
    }),
  });
  await handle(bench, followed("rik", "bot", 1), Date.now());
  expect(pages).toBe(100);
  expect(await redis.raw.zscore(homeKey("rik"), "~floor")).toBeNull();
  expect(await redis.raw.zscore(homeKey("rik"), "kept")).toBe("5");
});
