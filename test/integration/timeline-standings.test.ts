import { expect, test } from "@jest/globals";
import type { FanoutDeps } from "../../src/fanout/deps.js";
import { createVeilUsers, veilNew } from "../../src/fanout/standings.js";
import { silent } from "../../src/kernel/logger.js";
import { homeKey, STANDINGS_KEY, VEILED_KEY } from "../../src/state/keys.js";
import { contextWith } from "../support/deliveries.js";
import { eventually } from "../support/eventually.js";
import { handle, logged, openFanout } from "../support/fanout.js";
import { Scene, START } from "../support/hidden-scene.js";
import { openRegistry, stateOf, step } from "../support/pulled.js";
import { redisOfFile } from "../support/redis-of-file.js";
import { deleted, followed, received, unfollowed } from "../support/timeline-events.js";
import { World } from "../support/world.js";

const redis = redisOfFile();

let versions = 0;

/** Sets a standing, and refreshes the copies of the processes. */
async function set(scene: Scene, subject: { user_id?: string; host?: string }, standing: string, until = 0) {
  await handle(scene.fanout, {
    channel: "standing_changed",
    payload: { ...subject, standing, until, version: ++versions },
  });
  await refresh(scene);
}

const refresh = async ({ standings, fanout }: Scene) =>
  Promise.all([standings.refresh(), fanout.deps.standings.refresh()]);

// Invariant 5.
test("a suspended author is on no page, stored or rebuilt, and afterwards all is as if it had never been", async () => {
  const scene = new Scene(redis);
  for (const author of ["bob", "cat", "bob"]) await scene.post(author);
  expect(await scene.home()).toMatchObject({ drop_ids: ["bob-2", "cat-1", "bob-0"], degraded: false });
  await set(scene, { user_id: "bob" }, "suspended");
  const notified = scene.fanout.notified.length;
  // His server has not heard of it yet.
  await scene.post("bob");
  await scene.post("cat");
  const shown = { drop_ids: ["cat-4", "cat-1"], degraded: false };
  expect([await scene.home(), await scene.local(), await scene.local("")]).toMatchObject([shown, shown, shown]);
  expect(scene.fanout.notified.slice(notified).map(({ notification }) => notification.drop_id)).toEqual(["cat-4"]);
  await redis.raw.del(homeKey("ada"));
  expect(await scene.home()).toMatchObject(shown);
  const rebuilt = scene.rebuilt;
  await set(scene, { user_id: "bob" }, "active");
  const all = { drop_ids: ["cat-4", "bob-3", "bob-2", "cat-1", "bob-0"], degraded: false };
  expect([await scene.home(), await scene.local()]).toMatchObject([all, all]);
  expect([scene.rebuilt, await redis.raw.zcard(VEILED_KEY)]).toEqual([rebuilt, 0]);
});

// Invariant 5.
test("while Redis has lost the standings, homes that may show drops of the suspended are degraded", async () => {
  const scene = new Scene(redis);
  for (const author of ["bob", "cat"]) await scene.post(author);
  const read = async function* () {
    yield [{ user_id: "bob", standing: "suspended" as const, until: 0, version: ++versions }];
  };
  const fill = async () => {
    const loop = scene.standings.startFill(silent, read, createVeilUsers(scene.fanout.deps));
    await eventually(async () => (await redis.raw.hget(STANDINGS_KEY, "~complete")) === "1", "a fill");
    await loop.close();
    await refresh(scene);
  };
  const shown = { drop_ids: ["cat-1"], degraded: false };
  await fill();
  expect(await scene.home()).toMatchObject(shown);
  await redis.raw.flushall();
  await refresh(scene);
  expect(await scene.home()).toMatchObject({ degraded: true });
  await fill();
  expect(await scene.home()).toMatchObject(shown);
});

// Invariant 5.
test("drops posted while a suspension begins or ends, of which the copy of no process knows yet, follow it", async () => {
  const scene = new Scene(redis);
  await scene.post("cat");
  await scene.home();
  const version = ++versions;
  await scene.fanout.deps.standings.record([{ user_id: "bob", standing: "suspended", until: 0, version }]);
  const drop_id = await scene.post("bob");
  await refresh(scene);
  expect(await scene.home()).toMatchObject({ drop_ids: ["cat-0"] });
  const { standings, veiled } = scene.fanout.deps;
  const liftedBefore: typeof veiled.add = async (...adding) => {
    await set(scene, { user_id: "bob" }, "active");
    await veiled.add(...adding);
  };
  await veilNew({ standings, veiled: { ...veiled, add: liftedBefore } }, [{ drop_id, user_id: "bob" }]);
  expect(await redis.raw.zcard(VEILED_KEY)).toBe(0);
  expect(await scene.home()).toMatchObject({ drop_ids: [drop_id, "cat-0"] });
});

// Invariant 5.
test("a suspension hides, and its end shows, what homes have below drops that few of them have", async () => {
  const scene = new Scene(redis);
  await scene.post("bob");
  expect(await scene.home()).toMatchObject({ drop_ids: ["bob-0"] });
  for (let number = 0; number < 150; number++) {
    const drop = { drop_id: `few-${number}`, user_id: "bob", created_at: START + 1_000 + number };
    const isDirect = number % 2 === 0;
    if (isDirect) scene.world.post({ ...drop, visibility: "direct", recipients: ["zoe"] });
    else scene.world.post({ ...drop, visibility: "public", reply_to: "zoe-0", reply_to_author: "zoe" });
  }
  await set(scene, { user_id: "bob" }, "suspended");
  expect(await scene.home()).toMatchObject({ drop_ids: [] });
  await set(scene, { user_id: "bob" }, "active");
  expect(await redis.raw.zcard(VEILED_KEY)).toBe(0);
});

// Invariant 11.
test("a drop that is deleted while its author is suspended is not kept as hidden", async () => {
  const scene = new Scene(redis);
  const drops = [await scene.post("bob"), await scene.post("bob")];
  await set(scene, { user_id: "bob" }, "suspended");
  expect(await redis.raw.zcard(VEILED_KEY)).toBe(2);
  await handle(scene.fanout, deleted("bob-0", "bob"));
  expect(await redis.raw.zrange(VEILED_KEY, "0", "-1")).toEqual(drops.slice(1));
});

// Invariant 5.
test("a suspension ends at its time, without an event", async () => {
  const scene = new Scene(redis);
  for (const author of ["bob", "cat"]) await scene.post(author);
  await scene.home();
  await set(scene, { user_id: "bob" }, "suspended", Date.now() + 400);
  expect(await scene.home()).toMatchObject({ drop_ids: ["cat-1"] });
  await eventually(async () => {
    await refresh(scene);
    return (await scene.home()).drop_ids.length === 2;
  }, "the end");
  expect(await scene.local()).toMatchObject({ drop_ids: ["cat-1", "bob-0"] });
});

// Invariant 3.
test("events of a standing that come twice and in the wrong order hide what the newest one says", async () => {
  const scene = new Scene(redis);
  await scene.post("bob");
  await scene.home();
  const events = (["suspended", "active", "suspended", "active"] as const).map((standing) => ({
    channel: "standing_changed" as const,
    payload: { user_id: "bob", standing, version: ++versions },
  }));
  for (const event of [...events.toReversed(), ...events, ...events.slice(0, 3)]) await handle(scene.fanout, event);
  await refresh(scene);
  expect(await scene.home()).toMatchObject({ drop_ids: ["bob-0"] });
  expect(await redis.raw.zcard(VEILED_KEY)).toBe(0);
});

// Invariant 5.
test("drops of a suspended host are on no page, and those of a limited author stand in homes only", async () => {
  const scene = new Scene(redis);
  const actor = "https://a.spam.example/u/1";
  scene.world.follow("ada", actor);
  const remote = "https://a.spam.example/drops/1";
  scene.world.post({ drop_id: remote, user_id: actor, created_at: Date.now() - 1_000, remote: true });
  for (const author of ["bob", "cat"]) await scene.post(author);
  expect(await scene.home()).toMatchObject({ drop_ids: [remote, "cat-1", "bob-0"] });
  await set(scene, { host: "spam.example" }, "suspended");
  await set(scene, { user_id: "bob" }, "limited");
  expect(await scene.home()).toMatchObject({ drop_ids: ["cat-1", "bob-0"] });
  expect([(await scene.local("ada")).drop_ids, (await scene.local("bob")).drop_ids]).toEqual([
    ["cat-1"],
    ["cat-1", "bob-0"],
  ]);
  await set(scene, { host: "spam.example" }, "active");
  expect(await scene.home()).toMatchObject({ drop_ids: [remote, "cat-1", "bob-0"] });
});

/** Ada follows bob and cat, and has read her home. */
async function replyScene(options: ConstructorParameters<typeof Scene>[1] = {}) {
  const scene = new Scene(redis, { judgesReplies: true, ...options });
  scene.world.follow("ada", "dan");
  await scene.post("dan");
  await scene.home();
  return scene;
}

const to = (author: string) => ({ reply_to: `${author}-x`, reply_to_author: author });
const idsOf = async (scene: Scene, asked: Parameters<Scene["home"]>[2] = {}) =>
  (await scene.home("ada", undefined, asked)).drop_ids;

// Invariant 5.
test.each([true, false])(
  "replies to a suspended user are in no home, stored or rebuilt, and are back afterwards (replies judged: %s)",
  async (judgesReplies) => {
    const scene = await replyScene({ judgesReplies });
    for (const author of ["bob", "cat", "ada"]) await scene.post(author, to("dan"));
    await scene.post("bob", to("cat"));
    await scene.post("bob", to("bob"));
    const all = ["bob-5", "bob-4", "ada-3", "cat-2", "bob-1", "dan-0"];
    expect(await scene.home()).toMatchObject({ drop_ids: all, degraded: false });
    await set(scene, { user_id: "dan" }, "suspended");
    const notified = scene.fanout.notified.length;
    await scene.post("cat", to("dan"));
    expect(scene.fanout.notified.slice(notified)).toEqual([]);
    const shown = { drop_ids: ["bob-5", "bob-4"], degraded: false };
    expect(await scene.home()).toMatchObject(shown);
    expect(await idsOf(scene, { limit: 1 })).toEqual(["bob-5"]);
    expect(await idsOf(scene, { limit: 9, min_id: "dan-0" })).toEqual(["bob-5", "bob-4"]);
    await redis.raw.del(homeKey("ada"));
    expect(await scene.home()).toMatchObject(shown);
    const rebuilt = scene.rebuilt;
    await set(scene, { user_id: "dan" }, "active");
    expect(await scene.home()).toMatchObject({ drop_ids: ["cat-6", ...all], degraded: false });
    expect(scene.rebuilt).toBe(rebuilt);
  },
);

// Invariant 5.
test("a reply to a user whom nobody suspends stays while others are suspended, and one to a suspended host's actor goes", async () => {
  const scene = await replyScene();
  const actor = "https://spam.example/u/1";
  scene.world.follow("ada", actor);
  await redis.raw.del(homeKey("ada"));
  await scene.home();
  await scene.post("bob", to(actor));
  await scene.post("cat", to("dan"));
  await set(scene, { host: "spam.example" }, "suspended");
  expect(await idsOf(scene)).toEqual(["cat-2", "dan-0"]);
  await set(scene, { host: "spam.example" }, "active");
  expect(await idsOf(scene)).toEqual(["cat-2", "bob-1", "dan-0"]);
});

// Invariant 5.
test.each(["pushed", "pulled"])(
  "drops of a suspended host whose ids are no URIs are in no home, stored or rebuilt; the actor is %s",
  async (how) => {
    const registry = openRegistry(redis, how === "pulled" ? 0 : Number.POSITIVE_INFINITY);
    const scene = await replyScene({ registry });
    const actor = "https://a.spam.example/u/1";
    const version = scene.world.follow("ada", actor);
    await handle(scene.fanout, followed("ada", actor, version));
    const remote = async (drop_id: string) => {
      const drop = { drop_id, user_id: actor, created_at: Date.now() - 1_000 };
      scene.world.post({ ...drop, visibility: "public", remote: true });
      await handle(scene.fanout, received(drop));
      return drop_id;
    };
    const before = await remote("0f1");
    await step(scene.fanout, registry);
    await scene.home();
    await remote("0f3");
    await scene.home();
    expect(new Set(await idsOf(scene))).toEqual(new Set(["0f3", before, "dan-0"]));
    await set(scene, { host: "spam.example" }, "suspended");
    await remote("0f2");
    expect(await idsOf(scene)).toEqual(["dan-0"]);
    await redis.raw.del(homeKey("ada"));
    expect(await idsOf(scene)).toEqual(["dan-0"]);
    await set(scene, { host: "spam.example" }, "active");
    expect(new Set(await idsOf(scene))).toEqual(new Set(["0f1", "0f2", "0f3", "dan-0"]));
    expect((await stateOf(registry, actor)) ?? "pushed").toBe(how);
  },
);

// Invariant 9.
test("a user with 100,000 replies, and a host with 100,000 actors, are suspended as fast as others", async () => {
  const scene = await replyScene();
  const actorOf = (number: number) => `https://spam.example/u/${number}`;
  for (let number = 0; number < 100_000; number++) {
    const author = number % 2 === 0 ? actorOf(number) : `user-${number}`;
    const drop = { drop_id: `to-dan-${number}`, user_id: author, created_at: START - 100_000 + number };
    scene.world.post({ ...drop, visibility: "public", ...to("dan") });
  }
  // A home full of replies.
  for (let number = 0; number < 48; number++) await scene.post(number % 2 === 0 ? "bob" : "cat", to("dan"));
  await redis.raw.config("RESETSTAT");
  await set(scene, { host: "spam.example" }, "suspended");
  await set(scene, { user_id: "dan" }, "suspended");
  expect(await redis.raw.zrange(VEILED_KEY, "0", "-1")).toEqual(["dan-0"]);
  expect(await idsOf(scene)).toEqual([]);
  const calls = [...(await redis.raw.info("commandstats")).matchAll(/calls=(\d+)/g)].map(([, count]) => Number(count));
  expect(calls.reduce((sum, count) => sum + count, 0)).toBeLessThan(150);
});

// Invariant 9.
test("a batch of edges does not wait for the drops of a suspended user, who is suspended at once", async () => {
  const world = new World();
  const hanging = (deps: FanoutDeps): FanoutDeps => ({ ...deps, readAuthorDrops: () => new Promise(() => undefined) });
  const fanout = openFanout(redis, world, { change: hanging });
  const payload = { user_id: "bob", standing: "suspended", version: ++versions } as const;
  const deliveries = [
    logged({ channel: "standing_changed", payload }, Date.now(), 1),
    logged(
      { channel: "standing_changed", payload: { ...payload, user_id: undefined, host: "spam.example" } },
      Date.now(),
      2,
    ),
    logged(unfollowed("ada", "ada", 1), Date.now(), 3),
  ];
  const { batch } = fanout.handlers.graph;
  expect(await batch?.(deliveries, contextWith())).toEqual(deliveries.slice(0, 1));
  await fanout.deps.standings.refresh();
  expect(["bob", "https://spam.example/u/1"].map(fanout.deps.standings.of)).toEqual(["suspended", "suspended"]);
});
