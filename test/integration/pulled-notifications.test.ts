import { expect, test } from "@jest/globals";
import fc from "fast-check";
import type { FanoutDeps } from "../../src/fanout/deps.js";
import { AppError } from "../../src/kernel/errors.js";
import type { AuthorRegistry } from "../../src/state/big-authors/registry.js";
import { pullsKey, RECENT_KEY } from "../../src/state/keys.js";
import { DROP, type FanoutBench, followers, handle, openFanout, work } from "../support/fanout.js";
import { openRegistry, stateOf, step } from "../support/pulled.js";
import { redisOfFile } from "../support/redis-of-file.js";
import { created, deleted, followed, unfollowed } from "../support/timeline-events.js";
import { held, homeKey } from "../support/timeline-keys.js";
import type { World } from "../support/world.js";

const redis = redisOfFile();

interface Scene {
  readonly world: World;
  readonly registry: AuthorRegistry;
  readonly bench: FanoutBench;
}

type Change = (deps: FanoutDeps) => FanoutDeps;
const asIs: Change = (deps) => deps;

/** A process that has read no list of followers yet. */
function open(world: World, change = asIs, registry = openRegistry(redis, Number.POSITIVE_INFINITY)): Scene {
  const bench = openFanout(redis, world, {
    pageSize: 2,
    change: (deps) => change({ ...deps, authorStates: registry }),
  });
  return { world, registry, bench };
}

async function pull({ bench, registry }: Scene): Promise<void> {
  await registry.choose("ada", "pull");
  await step(bench, registry);
  expect(await stateOf(registry, "ada")).toBe("pulled");
}

/** A process, changed so, after another has pulled an author of nine followers. */
async function pulledBy(change: Change): Promise<Scene> {
  const { world, registry, bench } = open(followers(9));
  await pull({ world, registry, bench });
  return open(world, change, registry);
}

const listen = (...users: string[]) => redis.raw.zadd(RECENT_KEY, ...users.flatMap((user) => [Date.now(), user]));

async function post({ bench, world }: Scene, drop_id: string, admittedAt = Date.now()): Promise<void> {
  const drop = { ...DROP, drop_id, created_at: admittedAt - 1_000 };
  world.post(drop);
  await handle(bench, created(drop), admittedAt);
}

async function postDirect({ bench, world }: Scene, drop_id: string, ...recipients: string[]): Promise<void> {
  const drop = { ...DROP, drop_id, visibility: "direct", recipients } as const;
  world.post(drop);
  await handle(bench, created(drop));
}

async function remove({ bench, world }: Scene, drop_id: string): Promise<void> {
  world.remove(drop_id);
  await handle(bench, deleted(drop_id, "ada"));
}

/** Users notified of a drop, each as often as told, and forgets it. */
function told({ bench }: Scene): string[] {
  return bench.notified
    .splice(0)
    .flatMap(({ users }) => users)
    .sort();
}

test("of a pulled author's drop those who listen are told, without a walk over the followers", async () => {
  const scene = open(followers(9));
  await pull(scene);
  await listen("f1", "f7", "stranger");
  await post(scene, "d1");
  expect([told(scene), scene.bench.jobs]).toEqual([["ada", "f1", "f7"], []]);
  expect(scene.bench.completed).toEqual([expect.objectContaining({ drop_id: "d1", recipients: 10, chunks: 1 })]);
});

test("of its deletion they are told before a home is looked at, and nobody is told a second time", async () => {
  const scene = open(followers(9));
  const before = open(scene.world);
  await post(before, "old");
  await work(before.bench);
  await pull(scene);
  await listen("f1", "f7");
  await post(scene, "d1");
  told(scene);
  await remove(scene, "d1");
  expect(told(scene)).toEqual(["ada", "f1", "f7"]);
  await work(scene.bench);
  expect(told(scene)).toEqual([]);
  expect(scene.bench.completed.at(-1)).toMatchObject({ event: "drop_deleted", recipients: 10 });
  await remove(scene, "old");
  await work(scene.bench);
  expect((await held(redis.raw, homeKey("f3"))).entries).toEqual([]);
});

// Invariant 2.
test.each(["before", "while"])(
  "of the deletion of a direct drop that was sent %s its author is pulled its recipients are told alone",
  async (when) => {
    const scene = open(followers(9));
    await listen("f1", "f7");
    if (when === "before") await postDirect(scene, "d1", "f1");
    await pull(scene);
    if (when === "while") await postDirect(scene, "d1", "f1");
    expect(told(scene)).toEqual(["ada", "f1"]);
    await remove(scene, "d1");
    await work(scene.bench);
    expect(told(scene)).toEqual(["ada", "f1"]);
  },
);

test.each([
  ["nobody says how many follow", undefined, ["f1"]],
  ["more users listen than follow", 9, ["f1", ...Array.from({ length: 9 }, (_, at) => `x${at}`)]],
])("where %s the followers are walked", async (_, total, listening) => {
  const scene = open(followers(9), (deps) => ({
    ...deps,
    readFollowers: async (...of) => ({ ...(await deps.readFollowers(...of)), total }),
  }));
  await pull(scene);
  await listen(...listening);
  await post(scene, "d1");
  await work(scene.bench);
  expect(told(scene)).toEqual(["ada", ...Array.from({ length: 9 }, (_, at) => `f${at}`)]);
  expect(scene.bench.completed).toEqual([expect.objectContaining({ recipients: 10 })]);
});

// Invariant 4.
test("a listener whose pulled authors are lost is told, and who has left is not, whatever their pulled authors say", async () => {
  const scene = open(followers(9));
  await pull(scene);
  await listen("f1", "f2", "f3");
  await post(scene, "d1");
  told(scene);
  await redis.raw.del(pullsKey("f1"));
  scene.world.unfollow("f2", "ada");
  await handle(scene.bench, unfollowed("f2", "ada", 2));
  await redis.raw.sadd(pullsKey("f2"), "ada");
  await post(scene, "d2");
  expect(told(scene)).toEqual(["ada", "f1", "f3"]);
});

// Invariant 2.
test("a fan-out that breaks off after some notifications is repeated, and notifies all", async () => {
  let breaks = 2;
  const scene = open(followers(9), (deps) => ({
    ...deps,
    notify: async (all) => {
      if (all.some(({ users }) => users.length > 0) && --breaks === 0) throw new AppError("unavailable", "away");
      return deps.notify(all);
    },
  }));
  await pull(scene);
  await listen("f1", "f7");
  await post(scene, "d1");
  expect([told(scene), scene.bench.completed.length]).toEqual([["ada", "ada", "f1", "f7"], 1]);
});

test("a drop that is too old to be notified of has nobody looked for", async () => {
  const scene = await pulledBy((deps) => ({
    ...deps,
    listeners: { ...deps.listeners, visit: () => Promise.reject(new Error("looked")) },
  }));
  await post(scene, "d1", Date.now() - 3_600_000);
  expect([told(scene), scene.bench.completed.length]).toEqual([[], 1]);
});

// Invariant 4.
test("a drop that is deleted while those who listen are looked for is not told to the others", async () => {
  const scene = await pulledBy((deps) => ({
    ...deps,
    listeners: {
      ...deps.listeners,
      visit: async (author, visit) => {
        await deps.fences.recordTombstones([{ drop: "d1", time: Date.now() }]);
        await deps.listeners.visit(author, visit);
      },
    },
  }));
  await listen("f1");
  await post(scene, "d1");
  // An attempt before this one may have told f1 of the drop.
  expect(scene.bench.notified.map(({ users, notification }) => [notification.event, users])).toEqual([
    ["new_drop", ["ada"]],
    ["drop_deleted", ["f1"]],
  ]);
});

const USERS = Array.from({ length: 8 }, (_, at) => `f${at}`);
const stepOf = fc.record({
  kind: fc.constantFrom("post", "post", "direct", "delete", "listen", "leave", "edge", "lose", "cross", "proceed"),
  user: fc.constantFrom(...USERS),
  pick: fc.nat(),
});

// Invariant 2.
test("whoever is pulled and whenever, each listening follower is notified of each drop and each deletion, and nobody else is", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(stepOf, { minLength: 10, maxLength: 40, size: "max" }), async (steps) => {
      await redis.raw.flushall();
      const { world, registry, bench } = open(followers(7));
      const drops: { readonly id: string; readonly recipients: readonly string[] }[] = [];
      let posts = 0;
      const expectTold = async (recipients: readonly string[], change: (scene: Scene) => Promise<void>) => {
        const scene = open(world, asIs, registry);
        await change(scene);
        await work(scene.bench);
        const listening = await redis.raw.zrange(RECENT_KEY, "0", "-1");
        const follow = world.followersOf("ada").filter((user) => listening.includes(user) && recipients.includes(user));
        const some = [...new Set(told(scene))].filter((user) => listening.includes(user));
        expect(some).toEqual(follow.sort());
      };
      for (const { kind, user, pick } of steps) {
        if (kind === "post") {
          drops.push({ id: `d${++posts}`, recipients: USERS });
          await expectTold(USERS, (scene) => post(scene, `d${posts}`));
        } else if (kind === "direct") {
          drops.push({ id: `d${++posts}`, recipients: [user] });
          await expectTold([user], (scene) => postDirect(scene, `d${posts}`, user));
        } else if (kind === "delete" && drops.length > 0) {
          for (const { id, recipients } of drops.splice(pick % drops.length, 1))
            await expectTold(recipients, (scene) => remove(scene, id));
        } else if (kind === "listen") await listen(user);
        else if (kind === "leave") await redis.raw.zrem(RECENT_KEY, user);
        else if (kind === "lose") await redis.raw.del(pullsKey(user));
        else if (kind === "proceed") await step(bench, registry);
        else if (kind === "cross") await registry.choose("ada", pick % 2 === 0 ? "pull" : "push");
        else if (kind === "edge" && world.follows(user, "ada"))
          await handle(bench, unfollowed(user, "ada", world.unfollow(user, "ada")));
        else if (kind === "edge") await handle(bench, followed(user, "ada", world.follow(user, "ada")));
      }
    }),
    { numRuns: 60 },
  );
}, 120_000);
