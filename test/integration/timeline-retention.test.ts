import { expect, test } from "@jest/globals";
import { GetTimelineResponse } from "../../src/gen/avion/timeline.js";
import { AppError } from "../../src/kernel/errors.js";
import { silent } from "../../src/kernel/logger.js";
import { DAY } from "../../src/kernel/time.js";
import { getHomeTimeline } from "../../src/reads/get-timeline.js";
import { homeBelowFloor } from "../../src/reads/home.js";
import { type Entries, readPage } from "../../src/reads/pages.js";
import { createRebuild } from "../../src/reads/rebuild.js";
import type { PullRegistry } from "../../src/state/big-authors/pulled.js";
import { createTrimStore, startTrimming } from "../../src/state/entries/trim.redis.js";
import { createFences, createRetention } from "../../src/state/fences/fences.js";
import { becomes } from "../support/eventually.js";
import { handle, openFanout } from "../support/fanout.js";
import { historyOf, readDropsOf, rebuildQueue, sourcesOf } from "../support/memory-upstreams.js";
import { adaptersOn, fencedOn } from "../support/redis.js";
import { redisOfFile } from "../support/redis-of-file.js";
import { created, received } from "../support/timeline-events.js";
import { held, hidesNobody, homeKey, inKey } from "../support/timeline-keys.js";
import { World } from "../support/world.js";

const SINCE = 5_000;

const redis = redisOfFile();

const REGISTRY: PullRegistry = new Map([["ö", { state: "pulled", by: "hand", since: 0 }]]);
const PULLED = { copy: () => REGISTRY, refresh: async () => REGISTRY };
const idsOf = async (key: string) => (await held(redis.raw, key)).entries.map(([id]) => id);
const fill = async (key: string, floor: number | undefined, scores: readonly number[]) => {
  await hidesNobody(redis.raw, key);
  await redis.raw.zadd(
    key,
    ...scores.flatMap((score) => [score, `d${score}`]),
    ...(floor === undefined ? [] : [floor, "~floor"]),
  );
};

function scene(retentionStart = (): number => SINCE) {
  const { store, hidden, fenceStore } = adaptersOn(redis.scripts, { maxEntries: 100 });
  const fences = createFences({ store: fenceStore, readHistory: historyOf([]), retentionStart, log: silent });
  return { store, hidden, fences, trimStore: createTrimStore(redis.scripts, fencedOn(redis.scripts), PULLED) };
}

// Invariant 4.
test("pages leave out drops older than the retention, and remove them from the timeline", async () => {
  const { store, fences } = scene();
  const key = homeKey("ada");
  await fill(key, 0, [1_000, SINCE - 1, SINCE, SINCE + 1]);
  for (const query of [
    { direction: "older", above: undefined, below: undefined, count: 10 },
    { direction: "newer", above: { score: 1, drop: "" }, below: undefined, count: 10 },
  ] as const) {
    const { entries } = (await readPage({ store, fences }, key, query)) as { readonly entries: Entries };
    expect(new Set(entries.map(({ score }) => score))).toEqual(new Set([SINCE, SINCE + 1]));
  }
  await becomes(async () => expect(await idsOf(key)).toEqual([`d${SINCE + 1}`, `d${SINCE}`]));
});

// Invariant 11.
test("a page upwards from before the retention begins there, and asks for none of the hidden drops", async () => {
  const { store, hidden, fences } = scene();
  const world = new World();
  world.follow("rik", "ada");
  for (let at = 1; at <= 600; at++) world.post({ drop_id: `old${at}`, user_id: "ada", created_at: at });
  for (const created_at of [SINCE, SINCE + 1]) world.post({ drop_id: `d${created_at}`, user_id: "ada", created_at });
  const key = homeKey("rik");
  await fill(key, SINCE + 1, [SINCE + 2]);
  let calls = 0;
  const read = readDropsOf(world);
  const counted: typeof read = (request) => {
    calls++;
    return read(request);
  };
  const home = {
    openSources: () => sourcesOf(world, counted),
    pulls: adaptersOn(redis.scripts, { maxEntries: 100 }).pulls,
    ...{ hidden, rebuildQueue, maxEntries: 100, judgesReplies: false },
  };
  const belowFloor = homeBelowFloor(home, "rik", { deadline: Date.now() + 10_000 });
  const above = { score: 1, drop: "a" };
  const query = { direction: "newer", above, below: undefined, count: 6 } as const;
  const page = await readPage({ store, fences, belowFloor }, key, query);
  expect(page).toMatchObject({ entries: [SINCE, SINCE + 1, SINCE + 2].map((score) => ({ score })) });
  // Of ada and rik: a page, and the end.
  expect(calls).toBeLessThanOrEqual(4);
});

// Invariant 4.
test("a rebuild does not bring back drops older than the retention", async () => {
  const { store, hidden, fences } = scene();
  const rebuild = createRebuild({
    store,
    fences,
    fillHidden: hidden.fill,
    rebuildQueue,
    log: silent,
    observe: () => undefined,
  });
  const entries = [SINCE + 1, SINCE, SINCE - 1].map((score) => ({ score, drop: `d${score}` }));
  await rebuild("timeline:global", async () => ({ entries, floor: 0 }));
  expect(await idsOf("timeline:global")).toEqual([`d${SINCE + 1}`, `d${SINCE}`]);
});

// Invariant 4.
test("fan-out writes no drop older than the retention, and notifies nobody of it", async () => {
  // Of drops from the past nobody is notified anyway.
  const since = Date.now() - 60_000;
  const world = new World();
  world.follow("bob", "ada");
  const bench = openFanout(redis, world, {
    change: (deps) => ({ ...deps, fences: { ...deps.fences, retentionStart: () => since } }),
  });
  for (const created_at of [since - 1, since]) {
    const drop = { user_id: "ada", created_at };
    await handle(bench, created({ ...drop, drop_id: `own${created_at}`, visibility: "public" }), Date.now());
    await handle(bench, received({ ...drop, drop_id: `remote${created_at}` }), Date.now());
  }
  const kept = [`remote${since}`, `own${since}`];
  expect(await idsOf(homeKey("bob"))).toEqual(kept);
  expect(await idsOf("timeline:global")).toEqual(kept);
  expect(await idsOf("timeline:local")).toEqual([`own${since}`]);
  expect(new Set(bench.notified.map(({ notification }) => notification.drop_id))).toEqual(new Set(kept));
  expect(bench.completed).toHaveLength(4);
});

// Invariant 4.
test("trimming removes old drops from all timelines, and leaves floors, rebuild marks and times to live as they are", async () => {
  const { trimStore } = scene();
  const floors: [string, number | undefined][] = [
    ["timeline:local", 0],
    ["timeline:global", 2_000],
    [`timeline:author:${inKey("ö")}`, 0],
    [homeKey("complete"), 0],
    [homeKey("trimmed"), 2_000],
    [homeKey("above"), SINCE + 1],
    [homeKey("edge"), SINCE],
    [homeKey("rebuilding"), -77],
    [homeKey("lost"), undefined],
    [homeKey("ö"), 0],
  ];
  for (const [key, floor] of floors) {
    await fill(key, floor, [0, 1_000, SINCE - 1, SINCE, SINCE + 1]);
    await redis.raw.pexpire(key, DAY);
  }
  await fill(homeKey("all gone"), 0, [1_000]);
  await redis.raw.pexpire(homeKey("all gone"), DAY);
  let removed = 0;
  for await (const gone of trimStore.trimAll(SINCE)) removed += gone;
  expect(removed).toBe(3 * floors.length + 1);
  for (const [key, floor] of [...floors, [homeKey("all gone"), 0] as const]) {
    const score = await redis.raw.zscore(key, "~floor");
    expect(score === null ? undefined : Number(score)).toBe(floor);
    expect(await redis.raw.pttl(key)).toBeGreaterThan(DAY / 2);
    expect(await idsOf(key)).toEqual(key === homeKey("all gone") ? [] : [`d${SINCE + 1}`, `d${SINCE}`]);
  }
});

test("each time the retention moves on all timelines are trimmed once, by one process", async () => {
  let since = 0;
  const walks: number[] = [];
  const { trimStore } = scene();
  const store: typeof trimStore = {
    ...trimStore,
    trimAll: (before) => {
      walks.push(before);
      return trimStore.trimAll(before);
    },
  };
  let holder = 0;
  const processes = [1, 2].map((name) =>
    startTrimming({
      store,
      retentionStart: () => since,
      lease: {
        hold: async () => {
          holder ||= name;
          return holder === name;
        },
        release: async () => {
          if (holder === name) holder = 0;
        },
      },
      log: silent,
      everyMs: 5,
    }),
  );
  await fill("timeline:local", 0, [1_000, 3_000, SINCE]);
  since = 2_000;
  await becomes(async () => expect(await trimStore.trimmedTo()).toBe(2_000));
  expect(await idsOf("timeline:local")).toEqual([`d${SINCE}`, "d3000"]);
  since = SINCE;
  await becomes(async () => expect(await trimStore.trimmedTo()).toBe(SINCE));
  expect(await idsOf("timeline:local")).toEqual([`d${SINCE}`]);
  await Promise.all(processes.map((one) => one.close()));
  expect(walks).toEqual([2_000, SINCE]);
});

test("the retention is remembered: an outage, a smaller time and one ahead of now change nothing", async () => {
  let answer = async (): Promise<number | undefined> => SINCE;
  const retention = createRetention(
    () => answer(),
    silent,
    () => 10_000,
  );
  expect(retention.retentionStart()).toBe(0);
  expect(await retention.refresh()).toBe(true);
  for (const told of [SINCE - 1, 10_001, 0.5, Number.NaN, -1]) {
    answer = async () => told;
    await retention.refresh();
    expect(retention.retentionStart()).toBe(SINCE);
  }
  answer = async () => undefined;
  expect(await retention.refresh()).toBe(false);
  answer = () => Promise.reject(new Error("away"));
  await expect(retention.refresh()).rejects.toThrow("away");
  expect(retention.retentionStart()).toBe(SINCE);
});

// Invariant 4.
test("a degraded page shows neither deleted drops nor those older than the retention, whatever the upstreams say", async () => {
  const { store, hidden, fences } = scene();
  const world = new World();
  world.follow("rik", "ada");
  for (const [at, drop_id] of ["old", "gone", "kept"].entries())
    world.post({ drop_id, user_id: "ada", created_at: SINCE - 1 + at });
  await fences.recordTombstones([{ drop: "gone", time: Date.now() }]);
  const away = () => Promise.reject(new AppError("unavailable", "away"));
  const read = getHomeTimeline({
    ...{
      store,
      hidden,
      fences,
      rebuildQueue,
      maxEntries: 100,
      judgesReplies: false,
      deadlineMaxMs: 30_000,
      log: silent,
    },
    pulls: adaptersOn(redis.scripts, { maxEntries: 100 }).pulls,
    openSources: () => sourcesOf(world),
    readShared: away,
    rebuild: away,
    maybeLost: () => false,
    affected: () => [],
    isAffected: async () => false,
    observe: () => undefined,
  });
  const asked = { user_id: "rik", limit: 0, since_id: "", max_id: "", min_id: "" };
  const answer = await read(asked, { deadline: Date.now() + 10_000, traced: (work) => work() });
  expect(GetTimelineResponse.decode(answer)).toMatchObject({ drop_ids: ["kept"], degraded: true });
});
