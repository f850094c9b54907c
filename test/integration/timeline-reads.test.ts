import { expect, test } from "@jest/globals";
import { toToken } from "../../src/contracts/page-request.js";
import { type GetTimelineRequest, GetTimelineResponse } from "../../src/gen/avion/timeline.js";
import { createBoundedQueue } from "../../src/kernel/concurrency.js";
import { AppError } from "../../src/kernel/errors.js";
import { silent } from "../../src/kernel/logger.js";
import { type GetTimeline, getHomeTimeline, getSharedTimeline, type ReadDeps } from "../../src/reads/get-timeline.js";
import { createRebuild } from "../../src/reads/rebuild.js";
import { createFences } from "../../src/state/fences/fences.js";
import type { Fences } from "../../src/state/fences/types.js";
import { type FanoutBench, handle, openFanout } from "../support/fanout.js";
import { historyOf, rebuildQueue, sourcesOf } from "../support/memory-upstreams.js";
import { below, seeded, uuidV7 } from "../support/random.js";
import { adaptersOn } from "../support/redis.js";
import { redisOfFile } from "../support/redis-of-file.js";
import { created, deleted } from "../support/timeline-events.js";
import { held, homeKey } from "../support/timeline-keys.js";
import { World } from "../support/world.js";

const redis = redisOfFile();

const READER = "rik";
const MAX = 12;
const QUIET = { log: silent, observe: () => undefined };

const decoded =
  (read: GetTimeline) =>
  async (asked: GetTimelineRequest, { deadline }: { readonly deadline: number }): Promise<GetTimelineResponse> =>
    GetTimelineResponse.decode(await read(asked, { deadline, traced: (work) => work() }));
const homeRead = (deps: ReadDeps) => decoded(getHomeTimeline(deps));
const sharedRead = (...of: Parameters<typeof getSharedTimeline>) => decoded(getSharedTimeline(...of));

/** Reads, fan-out and the world they are about. */
class Scene {
  readonly world = new World();
  readonly observed: string[] = [];
  readonly fanout: FanoutBench;
  readonly fences: Fences;
  readonly deps: ReadDeps;
  #drops = 0;

  constructor(change: Partial<ReadDeps> = {}) {
    this.fanout = openFanout(redis, this.world, { maxEntries: MAX });
    const { store, pulls, hidden, fenceStore } = adaptersOn(redis.scripts, { maxEntries: MAX });
    this.fences = createFences({ store: fenceStore, readHistory: historyOf([]), log: silent });
    this.deps = {
      ...{ store, pulls, hidden },
      fences: this.fences,
      openSources: () => sourcesOf(this.world),
      rebuildQueue,
      deadlineMaxMs: 30_000,
      readShared: async () => ({ entries: [], floor: 0 }),
      rebuild: createRebuild({ store, fences: this.fences, fillHidden: hidden.fill, rebuildQueue, ...QUIET }),
      maxEntries: MAX,
      judgesReplies: false,
      ...{ maybeLost: () => false, affected: () => [], isAffected: async () => false },
      log: silent,
      observe: (_, outcome) => this.observed.push(outcome),
      ...change,
    };
    for (const author of ["ada", "bob"]) this.world.follow(READER, author);
  }

  async post(created_at: number, drop_id = `d${this.#drops++}é`): Promise<string> {
    const drop = { drop_id, created_at, user_id: this.#drops % 2 ? "ada" : "bob", visibility: "public" } as const;
    this.world.post(drop);
    await handle(this.fanout, created(drop), 1);
    return drop_id;
  }

  async delete(drop: string): Promise<void> {
    const author = this.world.find(drop)?.user_id;
    this.world.remove(drop);
    await handle(this.fanout, deleted(drop, author), Date.now());
  }

  home(asked: Partial<GetTimelineRequest> = {}, deadline = Date.now() + 10_000): Promise<GetTimelineResponse> {
    return homeRead(this.deps)(request(asked), { deadline });
  }

  /** Drops that home must show, newest first. */
  ids(): string[] {
    return this.world.homeOf(READER).map(({ drop_id }) => drop_id);
  }

  token(drop: string): string {
    return toToken({ score: this.world.find(drop)?.created_at as number, drop });
  }
}

const request = (asked: Partial<GetTimelineRequest>): GetTimelineRequest => ({
  user_id: READER,
  limit: 0,
  since_id: "",
  max_id: "",
  min_id: "",
  ...asked,
});

/** Turns pages until there are no more. */
async function turn(
  scene: Scene,
  way: "down" | "up",
  first: Partial<GetTimelineRequest>,
  between: (page: GetTimelineResponse) => Promise<void> = async () => undefined,
): Promise<GetTimelineResponse[]> {
  const pages: GetTimelineResponse[] = [];
  for (let asked = first; pages.length < 200; ) {
    const page = await scene.home(asked);
    pages.push(page);
    if (!page.has_more) return pages;
    await between(page);
    asked = {
      limit: first.limit ?? 0,
      ...(way === "down" ? { max_id: page.next_max_id } : { min_id: page.prev_min_id }),
    };
  }
  throw new Error("paging does not end");
}
const shown = (pages: readonly GetTimelineResponse[]) => pages.flatMap(({ drop_ids }) => drop_ids);

// Invariant 6.
test.each(Array.from({ length: 12 }, (_, seed) => seed + 1))(
  "paging %i: every drop exactly once in either direction, through ties and past the cap, while others come and go",
  async (seed) => {
    const random = seeded(seed);
    const scene = new Scene();
    const standing: string[] = [];
    for (let index = 0; index < 45; index++) standing.push(await scene.post(10 + below(random, 12)));
    await scene.home();
    const gone = new Set<string>();
    let now = 100;
    const churn = async (): Promise<void> => {
      for (let change = below(random, 4); change > 0; change--) {
        if (random() < 0.5) await scene.post(now++);
        const victim = standing[below(random, standing.length)] as string;
        if (random() < 0.5 && !gone.has(victim)) {
          await scene.delete(victim);
          gone.add(victim);
        }
      }
    };
    const before = scene.ids();
    const goneBefore = new Map<string, number>();
    let page = 0;
    const down = await turn(scene, "down", { limit: 1 + below(random, 7) }, async () => {
      await churn();
      page++;
      for (const drop of gone) if (!goneBefore.has(drop)) goneBefore.set(drop, page);
    });
    expect(down.some(({ degraded }) => degraded)).toBe(false);
    expect(new Set(shown(down)).size).toBe(shown(down).length);
    expect(shown(down).filter((drop) => !gone.has(drop))).toEqual(before.filter((drop) => !gone.has(drop)));
    for (const [drop, since] of goneBefore) expect(shown(down.slice(since))).not.toContain(drop);

    const bottom = scene.ids().at(-1) as string;
    const start = scene.ids();
    const up = await turn(scene, "up", { limit: 1 + below(random, 7), min_id: scene.token(bottom) }, churn);
    const upward = up.flatMap(({ drop_ids }) => drop_ids.toReversed());
    expect(new Set(upward).size).toBe(upward.length);
    const stayed = start.filter((drop) => drop !== bottom && scene.ids().includes(drop)).toReversed();
    expect(upward.filter((drop) => stayed.includes(drop))).toEqual(stayed);
  },
);

// Invariant 6.
test.each([3, MAX, 25])("any cursor, any kind, a page of %i equals the model's", async (limit) => {
  const scene = new Scene();
  const random = seeded(limit);
  for (let index = 0; index < 30; index++) await scene.post(10 + below(random, 9));
  const all = scene.ids();
  for (const [at, drop] of all.entries()) {
    const id = scene.token(drop);
    const newer = all.slice(0, at);
    const older = all.slice(at + 1);
    expect(await scene.home({ limit, max_id: id })).toMatchObject({
      drop_ids: older.slice(0, limit),
      has_more: older.length > limit,
    });
    expect(await scene.home({ limit, since_id: id })).toMatchObject({
      drop_ids: newer.slice(0, limit),
      has_more: newer.length > limit,
    });
    expect(await scene.home({ limit, min_id: id })).toMatchObject({
      drop_ids: newer.slice(-limit),
      has_more: newer.length > limit,
    });
  }
  expect(scene.observed.filter((outcome) => outcome !== "hit" && outcome !== "beyond")).toEqual(["rebuilt"]);
});

// Invariant 6.
test("an empty page hands its cursor back, so that the next read goes on from there", async () => {
  const scene = new Scene();
  const drop = await scene.post(10);
  const newest = (await scene.home()).prev_min_id;
  expect(await scene.home({ min_id: newest })).toEqual({
    drop_ids: [],
    has_more: false,
    next_max_id: newest,
    prev_min_id: newest,
    degraded: false,
    items: [],
  });
  await scene.post(11, "later");
  expect((await scene.home({ min_id: newest })).drop_ids).toEqual(["later"]);
  expect((await scene.home({ max_id: scene.token(drop) })).next_max_id).toBe(scene.token(drop));
});

test("a drop id is a cursor while it is held, after it was deleted, and where it carries its date", async () => {
  const scene = new Scene();
  const drops = [await scene.post(10), await scene.post(11), await scene.post(12)] as const;
  await scene.home();
  expect((await scene.home({ max_id: drops[1] })).drop_ids).toEqual([drops[0]]);
  await scene.delete(drops[1]);
  expect((await scene.home({ max_id: drops[1] })).drop_ids).toEqual([drops[0]]);
  expect((await scene.home({ min_id: drops[1] })).drop_ids).toEqual([drops[2]]);
  expect((await scene.home({ max_id: uuidV7(seeded(1), 12) })).drop_ids).toEqual([drops[0]]);
  await expect(scene.home({ since_id: "never-seen" })).rejects.toThrow(
    expect.objectContaining({ code: "invalid", message: expect.stringMatching(/^since_id: /) }),
  );
});

// Invariant 4.
test("a tombstoned drop is not shown, also where its removal missed the timeline", async () => {
  const scene = new Scene();
  const drops = [await scene.post(10), await scene.post(11), await scene.post(12)];
  await scene.home();
  await scene.fences.recordTombstones([{ drop: drops[1] as string, time: Date.now() }]);
  expect((await held(redis.raw, homeKey(READER))).entries).toHaveLength(3);
  expect(await scene.home({ limit: 2 })).toMatchObject({ drop_ids: [drops[2], drops[0]], has_more: false });
});

test("a long row of tombstones does not end a timeline", async () => {
  const scene = new Scene();
  const { store } = adaptersOn(redis.scripts, { maxEntries: 2_000 });
  await redis.raw.zadd(homeKey(READER), 0, "~floor", 1, "last");
  for (let index = 0; index < 1_500; index++) {
    await redis.raw.zadd(homeKey(READER), 2 + index, `dead${index}`);
    await redis.raw.zadd("timeline:tombstones", Date.now(), `dead${index}`);
  }
  await redis.raw.zadd("timeline:tombstones", 0, "~floor");
  const deps = { ...scene.deps, store };
  expect((await homeRead(deps)(request({ limit: 1 }), { deadline: Date.now() + 5_000 })).drop_ids).toEqual(["last"]);
});

// Invariant 4.
test.each(["down", "up"] as const)(
  "%s past the cap: a drop deleted between the upstream's answer and ours does not end the timeline",
  async (way) => {
    const scene = new Scene();
    for (let index = 0; index < 40; index++) await scene.post(10 + index);
    await scene.home();
    const all = scene.ids();
    // The upstreams still show these; the tombstones do not.
    const dead = [all[22], all[23], all[30], all[31]] as string[];
    for (const drop of dead) await scene.fences.recordTombstones([{ drop: drop, time: Date.now() }]);
    const alive = all.filter((drop) => !dead.includes(drop));
    const first = way === "down" ? { limit: 5 } : { limit: 5, min_id: scene.token(all.at(-1) as string) };
    const pages = await turn(scene, way, first);
    if (way === "down") expect(shown(pages)).toEqual(alive);
    else expect(pages.flatMap(({ drop_ids }) => drop_ids.toReversed())).toEqual(alive.slice(0, -1).toReversed());
  },
);

test("a home that nobody wrote to is rebuilt before it is shown, once, with its own drops and those of the followed", async () => {
  const scene = new Scene();
  scene.world.post(
    { drop_id: "own", user_id: READER, created_at: 5 },
    { drop_id: "theirs", user_id: "ada", created_at: 6 },
  );
  scene.world.post(
    { drop_id: "stranger", user_id: "eve", created_at: 7 },
    { drop_id: "whisper", user_id: "bob", created_at: 8, visibility: "direct" },
  );
  const pages = await Promise.all([scene.home(), scene.home(), scene.home()]);
  for (const page of pages)
    expect(page).toMatchObject({ drop_ids: ["theirs", "own"], degraded: false, has_more: false });
  expect((await held(redis.raw, homeKey(READER))).floor).toBe(0);
});

// Invariant 5.
test("while an upstream is unavailable a page is degraded and shows what is stored", async () => {
  const scene = new Scene();
  await scene.post(10, "stored");
  const away = {
    following: () => Promise.reject(new AppError("unavailable", "away")),
    drops: () => Promise.reject(new AppError("unavailable", "away")),
  };
  const deps = { ...scene.deps, openSources: () => away };
  const page = await homeRead(deps)(request({}), { deadline: Date.now() + 5_000 });
  expect(page).toMatchObject({ drop_ids: ["stored"], degraded: true });
  expect((await held(redis.raw, homeKey(READER))).floor ?? -1).toBeLessThan(0);
  expect(await scene.home()).toMatchObject({ drop_ids: ["stored"], degraded: false });
});

// Invariant 5.
test("a rebuild does not admit a drop from further ahead than an event may be, nor does a read below the floor", async () => {
  const scene = new Scene();
  const now = Date.now();
  const ahead = { user_id: "ada", created_at: Date.parse("2100-01-01T00:00:00Z") };
  for (let index = 0; index < 50; index++) scene.world.post({ ...ahead, drop_id: `ahead${index}` });
  const drops = Array.from({ length: 3 * MAX }, (_, index) => ({ drop_id: `d${99 - index}`, created_at: now - index }));
  for (const drop of drops) scene.world.post({ ...drop, user_id: "ada" });
  const pages = await turn(scene, "down", { limit: 10 });
  expect(pages.flatMap(({ drop_ids }) => drop_ids)).toEqual(drops.map(({ drop_id }) => drop_id));
  expect((await held(redis.raw, homeKey(READER))).entries[0]).toEqual(["d99", now]);
});

test("a page from the stored timeline is a hit, one wholly from below its floor is counted apart", async () => {
  const scene = new Scene();
  for (let index = 0; index < 3 * MAX; index++) await scene.post(1_000 + index);
  const pages = await turn(scene, "down", { limit: 4 });
  expect(pages.flatMap(({ drop_ids }) => drop_ids)).toEqual(scene.ids());
  const { floor = 0 } = await held(redis.raw, homeKey(READER));
  const stored = scene.world.homeOf(READER).filter(({ created_at }) => created_at > floor).length;
  expect(stored).toBeGreaterThan(0);
  const kinds = pages.map((_, index) => (index === 0 ? "rebuilt" : 4 * index < stored ? "hit" : "beyond"));
  expect(scene.observed).toEqual(kinds);
  expect(kinds).toEqual(expect.arrayContaining(["hit", "beyond"]));
  const last = pages.at(-1)?.next_max_id as string;
  await scene.home({ max_id: last });
  await scene.home({ min_id: last, limit: 4 });
  expect(scene.observed.slice(-2)).toEqual(["beyond", "beyond"]);
});

test("a caller's deadline is bounded by ours", async () => {
  const scene = new Scene();
  const sources = { ...scene.deps.openSources("reader"), following: () => new Promise<never>(() => undefined) };
  const deps = { ...scene.deps, openSources: () => sources, deadlineMaxMs: 300 };
  // Nothing else would end it: the upstream never answers, and the caller waits longer than a test may take.
  const page = await homeRead(deps)(request({}), { deadline: Date.now() + 600_000 });
  expect(page.degraded).toBe(true);
});

test("a timeline whose rebuild finds no place in the queue is degraded, and shows what is stored", async () => {
  const full = { rebuildQueue: createBoundedQueue({ atOnce: 1, waiting: 0 }) };
  const scene = new Scene();
  const { store, hidden } = scene.deps;
  const rebuild = createRebuild({ store, fences: scene.fences, fillHidden: hidden.fill, ...full, ...QUIET });
  const deps = { ...scene.deps, ...full, rebuild };
  let go: () => void = () => undefined;
  const busy = full.rebuildQueue(() => new Promise<void>((resolve) => (go = resolve)));
  await scene.post(7, "stored");
  const page = await homeRead(deps)(request({}), { deadline: Date.now() + 5_000 });
  expect(page).toMatchObject({ drop_ids: ["stored"], degraded: true });
  go();
  await busy;
  expect((await homeRead(deps)(request({}), { deadline: Date.now() + 5_000 })).degraded).toBe(false);
});

test("while Redis is unavailable a page is degraded and shows what the upstreams say", async () => {
  const scene = new Scene();
  scene.world.post({ drop_id: "theirs", user_id: "ada", created_at: 6 });
  const away = () => Promise.reject(new AppError("unavailable", "away"));
  const store = { ...scene.deps.store, read: away, readFirstPage: away, createdAt: away };
  const page = await homeRead({ ...scene.deps, store })(request({}), { deadline: Date.now() + 5_000 });
  expect(page).toMatchObject({ drop_ids: ["theirs"], degraded: true });
});

// Invariant 5.
test("a caller that cannot wait for a rebuild gets a degraded page in time; the rebuild goes on", async () => {
  const scene = new Scene();
  scene.world.post({ drop_id: "theirs", user_id: "ada", created_at: 6 });
  let go: () => void = () => undefined;
  const waiting = new Promise<void>((resolve) => (go = resolve));
  const openSources = () => ({
    ...scene.deps.openSources("reader"),
    following: async (user: string) => waiting.then(() => scene.world.followingOf(user)),
  });
  const deps = { ...scene.deps, openSources };
  const page = await homeRead(deps)(request({}), { deadline: Date.now() + 300 });
  expect(page.degraded).toBe(true);
  go();
  expect(await homeRead(deps)(request({}), { deadline: Date.now() + 5_000 })).toMatchObject({
    drop_ids: ["theirs"],
    degraded: false,
  });
});

test.each(["local", "global"] as const)(
  "%s is rebuilt from the log, ends at its cap, and needs no user",
  async (name) => {
    const entries = Array.from({ length: MAX }, (_, index) => ({ drop: `d${99 - index}`, score: 99 - index }));
    const scene = new Scene({ readShared: async () => ({ entries, floor: 50 }) });
    const read = sharedRead(scene.deps, name);
    const context = { deadline: Date.now() + 5_000 };
    const first = await read(request({ user_id: "", limit: 10 }), context);
    expect(first).toMatchObject({ drop_ids: entries.slice(0, 10).map(({ drop }) => drop), has_more: true });
    const last = { has_more: false };
    const older = await read(request({ limit: 10, max_id: first.next_max_id }), context);
    expect(older).toMatchObject({ drop_ids: ["d89", "d88"], ...last });
    const newer = await read(request({ limit: 5, min_id: "d95" }), context);
    expect(newer).toMatchObject({ drop_ids: ["d99", "d98", "d97", "d96"], ...last });
    expect(await redis.raw.pttl(`timeline:${name}`)).toBe(-1);
  },
);
