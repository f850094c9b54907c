import { beforeEach, expect, test } from "@jest/globals";
import { jobSubject, notifySubject, STREAM } from "../../src/contracts/subjects.js";
import type { FanoutDeps } from "../../src/fanout/deps.js";
import { createNotify } from "../../src/fanout/notify.js";
import { createPublishNotifications } from "../../src/fanout/publish.nats.js";
import { AppError } from "../../src/kernel/errors.js";
import { type Erased, withoutErasedOriginals } from "../../src/state/erased/erasures.js";
import { GLOBAL_KEY, homeKey, LOCAL_KEY, postedKey, RECENT_KEY, TOMBSTONES_KEY } from "../../src/state/keys.js";
import { contextWith, deliveryOf, headersWith } from "../support/deliveries.js";
import { erasedOn, forgetIn, namedIn } from "../support/erased.js";
import { type FanoutBench, handle, insisting, logged, openFanout, work } from "../support/fanout.js";
import { natsOfFile } from "../support/nats-of-file.js";
import { openRegistry, published, step } from "../support/pulled.js";
import { duplicatedAndShuffled, oneOf, type Random, seeded } from "../support/random.js";
import { redisOfFile } from "../support/redis-of-file.js";
import {
  created,
  deleted,
  followed,
  received,
  related,
  type TimelineEvent,
  unfollowed,
} from "../support/timeline-events.js";
import { World, type WorldDrop } from "../support/world.js";

const redis = redisOfFile();
const nats = natsOfFile();
let erased: Erased;

beforeEach(async () => {
  await nats.manager.streams.purge("KV_ERASED");
  erased = erasedOn(redis.scripts, nats);
});

/** The one who is erased. */
const EVE = "eve.the@erased";
const USERS = ["ada", "bob", "cat", "dan", "ann", "fay"];
const START = Date.now() - 600_000;
const erasure = (user_id = EVE): TimelineEvent => ({ channel: "user_erased", payload: { user_id, version: 1 } });

/** All follow bob, and eve; eve follows ada and bob. */
function worldWithEve(): World {
  const world = new World();
  for (const user of USERS) for (const author of ["bob", EVE]) if (user !== author) world.follow(user, author);
  for (const author of ["ada", "bob"]) world.follow(EVE, author);
  return world;
}

let made = 0;
function post(world: World, user_id: string, more: Partial<WorldDrop> = {}): TimelineEvent {
  const at = START + made++;
  const drop = { drop_id: `d${at}`, user_id, created_at: at, visibility: "public", ...more } as const;
  world.post(drop);
  return created(drop);
}
const dropOf = ({ payload }: TimelineEvent): string => ("drop_id" in payload ? payload.drop_id : "");

const homesOf = async (): Promise<Record<string, string[]>> => {
  const keys = (await redis.raw.keys("timeline:home:*")).sort();
  const homes = keys.map(async (key) => [key, await redis.raw.zrange(key, "0", "-1")] as const);
  return Object.fromEntries(await Promise.all(homes));
};

/** Everything about eve, with what about others names her; and what eve has nothing to do with. */
function historyOf(world: World) {
  const own = (["public", "unlisted", "followers"] as const).map((visibility) => post(world, EVE, { visibility }));
  const original = dropOf(own[0] as TimelineEvent);
  const reposts = [post(world, "bob", { repost_of: original, repost_author: EVE })];
  const direct = post(world, EVE, { visibility: "direct", recipients: ["cat", "bob"] });
  const toHer = post(world, "bob", { visibility: "direct", recipients: [EVE, "cat"] });
  const remote = received({ drop_id: `r${START}`, user_id: EVE, created_at: START, visibility: "public" });
  const others = Array.from({ length: 3 }, () => post(world, "bob"));
  const gone = post(world, "bob");
  world.remove(dropOf(gone));
  const edges = [
    followed(EVE, "cat", 5),
    unfollowed(EVE, "cat", 4),
    followed("cat", EVE, 7),
    unfollowed("dan", EVE, 9),
    unfollowed(EVE, "bob", 1e9),
  ];
  const relations = (["user_blocked", "user_unblocked", "user_muted", "user_unmuted"] as const).flatMap((channel) => [
    related(channel, EVE, "bob", { version: 1e9 }),
    related(channel, "cat", EVE, { version: 3 }),
  ]);
  const hers = [...own, direct, remote, ...reposts];
  const deletions = hers.map((event) => deleted(dropOf(event), event === reposts[0] ? "bob" : EVE));
  return {
    drops: hers.map(dropOf),
    events: [...hers, toHer, ...others, gone, deleted(dropOf(gone), "bob"), ...edges, ...relations],
    deletions,
    shown: { all: others.map(dropOf), direct: dropOf(toHer) },
  };
}

/** Handles each event alone, or with the following ones in a batch. */
async function handleAll(bench: FanoutBench, random: Random, events: readonly TimelineEvent[]): Promise<void> {
  for (let at = 0; at < events.length; ) {
    const size = oneOf(random, [1, 2, 5]);
    const some = events.slice(at, at + size);
    at += size;
    if (size === 1) await handle(bench, some[0] as TimelineEvent);
    else
      for (const kind of ["graph", "drops"] as const) {
        const own = some.filter(({ channel }) => channel.startsWith("user_") === (kind === "graph"));
        const batch = own.map((event, seq) => logged(event, Date.now(), seq));
        const { single, batch: together } = bench.handlers[kind];
        await insisting(async () => {
          for (const left of await together(batch, contextWith())) await single(left, contextWith());
        });
      }
  }
}

const redriven = (bench: FanoutBench, job: FanoutBench["jobs"][number]) => {
  const headers = headersWith({ "Dlq-Redrive-Count": "1" });
  const delivery = deliveryOf({ stream: "FANOUT", subject: jobSubject(job), json: job, headers });
  return insisting(() => bench.handlers.jobs.single(delivery, contextWith()));
};

// Invariant 4.
test.each([1, 2, 3, 4, 5, 6])(
  "whatever names an erased user comes late, twice and in any order, and nothing names them afterwards (seed %i)",
  async (seed) => {
    const random = seeded(seed);
    const world = worldWithEve();
    const bench = openFanout(redis, world, {
      pageSize: oneOf(random, [2, 100]),
      erased,
      readHidden: async (user) => world.hiddenFrom(user),
    });
    const { events, deletions, drops, shown } = historyOf(world);
    const before = duplicatedAndShuffled(random, events).slice(0, Math.floor(random() * events.length));
    await handleAll(bench, random, before);
    const jobs = [...bench.jobs];
    await handle(bench, erasure());
    await forgetIn(redis.raw, EVE, drops);
    await work(bench);
    await handleAll(bench, random, duplicatedAndShuffled(random, [...events, ...deletions, erasure()]));
    await work(bench);
    for (const job of jobs) await redriven(bench, job);
    expect(await namedIn(redis.raw, EVE)).toEqual([]);
    const expected = USERS.map((user) => [
      homeKey(user),
      [...shown.all, ...(["bob", "cat"].includes(user) ? [shown.direct] : [])].sort(),
    ]);
    expect(await homesOf()).toEqual(Object.fromEntries(expected));
    for (const shared of [LOCAL_KEY, GLOBAL_KEY]) expect(await redis.raw.zrange(shared, "0", "-1")).toEqual(shown.all);
  },
);

// Invariant 4.
test("a follower who was erased gets no home by a list of followers that was read before", async () => {
  const world = worldWithEve();
  const bench = openFanout(redis, world, { erased });
  await handle(bench, post(world, "bob"));
  await handle(bench, erasure());
  await forgetIn(redis.raw, EVE, []);
  const late = post(world, "bob");
  expect(await bench.handlers.drops.batch([logged(late, Date.now())], contextWith())).toEqual([]);
  expect(await redis.raw.zscore(homeKey("ann"), dropOf(late))).not.toBeNull();
  expect(await redis.raw.exists(homeKey(EVE))).toBe(0);
});

// Invariant 4.
test("a deletion by an erased author sets its tombstone, leaves local and global, and visits no homes", async () => {
  const world = worldWithEve();
  const bench = openFanout(redis, world, { erased });
  const drops = [post(world, EVE), post(world, EVE)];
  for (const one of drops) await handle(bench, one);
  await handle(bench, erasure());
  bench.notified.length = bench.completed.length = 0;
  const deletions = drops.map((one) => logged(deleted(dropOf(one), EVE), Date.now()));
  expect(await bench.handlers.drops.batch(deletions, contextWith())).toEqual([]);
  for (const one of drops) {
    expect(await redis.raw.zscore(TOMBSTONES_KEY, dropOf(one))).not.toBeNull();
    expect(await redis.raw.zscore(homeKey("ann"), dropOf(one))).not.toBeNull();
  }
  expect([await redis.raw.exists(LOCAL_KEY), await redis.raw.exists(GLOBAL_KEY)]).toEqual([0, 0]);
  expect(bench.notified).toEqual([]);
  expect(bench.completed).toMatchObject([
    { event: "drop_deleted", user_id: "", recipients: 0, chunks: 0 },
    { event: "drop_deleted", user_id: "", recipients: 0, chunks: 0 },
  ]);
});

// Invariant 4.
test("void publications, jobs and edges are done: nothing is completed, queued or left over", async () => {
  const world = worldWithEve();
  const bench = openFanout(redis, world, { erased, pageSize: 2 });
  const drop = post(world, EVE);
  await handle(bench, drop);
  const job = bench.jobs[0] as FanoutBench["jobs"][number];
  await handle(bench, erasure());
  await forgetIn(redis.raw, EVE, [dropOf(drop)]);
  bench.jobs.length = 0;
  const before = await redis.raw.dbsize();
  const batch = [drop, post(world, "bob", { repost_of: dropOf(drop), repost_author: EVE })];
  const deliveries = batch.map((one) => logged(one, Date.now()));
  expect(await bench.handlers.drops.batch(deliveries, contextWith())).toEqual([]);
  const late = deliveryOf({ stream: "FANOUT", subject: jobSubject(job), json: job });
  expect(await bench.handlers.jobs.batch([late], contextWith())).toEqual([]);
  await redriven(bench, job);
  const hot = {
    following_id: "bob",
    admitted_at: Date.now(),
    edges: [{ follower_id: EVE, version: 3, follows: true }],
  };
  const edgeJob = deliveryOf({ stream: "FANOUT", subject: "fanout.edges.1", json: hot });
  expect(await bench.handlers.hotGraph.batch([edgeJob], contextWith())).toEqual([]);
  await bench.handlers.hotGraph.single(edgeJob, contextWith());
  expect([bench.jobs, bench.edgeJobs, bench.completed, bench.applied]).toEqual([[], [], [], []]);
  expect(await redis.raw.dbsize()).toBe(before);
});

// Invariant 4.
test("Redis loses who is erased: late events are void all the same", async () => {
  const world = worldWithEve();
  const bench = openFanout(redis, world, { erased });
  await handle(bench, erasure());
  await redis.raw.flushall();
  await handle(bench, post(world, EVE));
  await handle(bench, followed(EVE, "cat", 3));
  await handle(bench, post(world, "bob"));
  expect(await namedIn(redis.raw, EVE)).toEqual([]);
});

// Invariant 8.
test("while nobody knows who is erased, nothing is written and the work waits", async () => {
  const world = worldWithEve();
  const away = async () => Promise.reject(new AppError("unavailable", "Redis is away"));
  const bench = openFanout(redis, world, { erased: { ...erased, among: away } });
  for (const event of [post(world, "bob"), deleted("d1", "bob"), followed("ann", "ada", 1)]) {
    const { single, batch } = bench.handlers[event.channel === "user_followed" ? "graph" : "drops"];
    const delivery = logged(event, Date.now());
    await expect(single(delivery, contextWith())).rejects.toMatchObject({ code: "unavailable" });
    await expect(batch([delivery], contextWith())).rejects.toMatchObject({ code: "unavailable" });
  }
  expect(await redis.raw.keys("*")).toEqual([]);
});

// Invariant 4.
test("an erased user with a stream is not notified, not even that a page is to be read again", async () => {
  const world = worldWithEve();
  const publish = createPublishNotifications(nats.publishAll);
  const change = (deps: FanoutDeps) => ({ ...deps, notify: createNotify({ ...deps, publish }) });
  const bench = openFanout(redis, world, { erased, change });
  await redis.raw.zadd(RECENT_KEY, Date.now(), `=${Buffer.from(EVE).toString("base64url")}`, Date.now(), "ann");
  await erased.record(EVE, 1);
  await handle(bench, post(world, "bob", { created_at: Date.now() }));
  const subjectsIn = async () => {
    const { state } = await nats.manager.streams.info(STREAM.notify, { subjects_filter: ">" });
    return Object.keys(state.subjects ?? {});
  };
  expect(await subjectsIn()).toEqual([notifySubject("ann")]);
  expect(await redis.raw.keys("timeline:x:hidden:*")).toEqual(["timeline:x:hidden:{timeline:home:ann}"]);
});

// Invariant 4.
test("an erased author is not pulled any more, and nothing brings them back", async () => {
  const world = worldWithEve();
  const registry = openRegistry(redis, 2);
  const bench = openFanout(redis, world, { erased, change: (deps) => ({ ...deps, authorStates: registry }) });
  await registry.updateStates(published(EVE, 5));
  await step(bench, registry);
  const drop = post(world, EVE);
  await handle(bench, drop);
  expect([...(await registry.refresh()).keys()]).toEqual([EVE]);
  await handle(bench, erasure());
  expect([...(await registry.refresh()).keys()]).toEqual([]);
  await forgetIn(redis.raw, EVE, [dropOf(drop)]);
  await handle(bench, drop);
  await handle(bench, deleted(dropOf(drop), EVE));
  await registry.choose(EVE, "pull");
  await registry.updateStates(published(EVE, 5));
  expect((await registry.list()).size).toBe(0);
  expect(await redis.raw.exists(postedKey(EVE))).toBe(0);
  expect(await namedIn(redis.raw, EVE)).toEqual([]);
});

// Invariant 4.
test("an author who was erased while they change to pulled leaves the registry, and no set gets them", async () => {
  const world = worldWithEve();
  const registry = openRegistry(redis, 2);
  const bench = openFanout(redis, world, { erased, change: (deps) => ({ ...deps, authorStates: registry }) });
  await registry.updateStates(published(EVE, 5));
  await redis.raw.sadd("timeline:x:pulls:{timeline:home:ann}", "~complete");
  await erased.record(EVE, 1);
  await step(bench, registry);
  expect((await registry.list()).size).toBe(0);
  expect(await redis.raw.smembers("timeline:x:pulls:{timeline:home:ann}")).toEqual(["~complete"]);
});

// Invariant 4.
test("a follow brings no repost of an erased author's drop into the follower's home", async () => {
  const world = worldWithEve();
  const original = dropOf(post(world, EVE));
  post(world, "ada", { repost_of: original, repost_author: EVE });
  const kept = dropOf(post(world, "ada"));
  await erased.record(EVE, 1);
  const bench = openFanout(redis, world, {
    erased,
    change: (deps) => ({
      ...deps,
      readAuthorDrops: async (...of) => withoutErasedOriginals(erased, await deps.readAuthorDrops(...of)),
    }),
  });
  world.follow("cat", "ada", 2);
  await handle(bench, followed("cat", "ada", 2));
  expect(await redis.raw.zrange(homeKey("cat"), "0", "-1")).toEqual([kept]);
});
