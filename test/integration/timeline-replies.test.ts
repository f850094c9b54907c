import { afterEach, expect, test } from "@jest/globals";
import fc from "fast-check";
import { entryOfDrop } from "../../src/contracts/timelines.js";
import type { Drop } from "../../src/gen/avion/posts.js";
import { AppError } from "../../src/kernel/errors.js";
import { type Failpoint, hookFailpoints } from "../../src/kernel/failpoints.js";
import { Follows, MAX_LEFT_OUT } from "../../src/state/entries/follows.js";
import { createFollowsStore } from "../../src/state/entries/follows.redis.js";
import { audienceOf } from "../../src/state/entries/writer.redis.js";
import { followsKeyOfHome, GLOBAL_KEY, homeKey } from "../../src/state/keys.js";
import { handle } from "../support/fanout.js";
import { Scene, START } from "../support/hidden-scene.js";
import { sourcesOf } from "../support/memory-upstreams.js";
import { openRegistry, step } from "../support/pulled.js";
import { asCluster } from "../support/redis.js";
import { redisOfFile } from "../support/redis-of-file.js";
import { followed, received, related, unfollowed } from "../support/timeline-events.js";

const redis = redisOfFile();
const open = (how: ConstructorParameters<typeof Scene>[1] = {}) => new Scene(redis, { judgesReplies: true, ...how });

afterEach(() => hookFailpoints(undefined));

const COPY = followsKeyOfHome(homeKey("ada"));
const floor = () => redis.raw.zscore(homeKey("ada"), "~floor");

async function follow({ world, fanout }: Scene, user: string, reader = "ada"): Promise<void> {
  await handle(fanout, followed(reader, user, world.follow(reader, user)));
}

async function unfollow({ world, fanout }: Scene, user: string, reader = "ada"): Promise<void> {
  await handle(fanout, unfollowed(reader, user, world.unfollow(reader, user)));
}

/** Each kind of drop that the rule names. */
async function postAll(scene: Scene): Promise<void> {
  for (const reply_to_author of ["eve", "cat", "ada", "bob", undefined])
    await scene.post("bob", reply_to_author ? { reply_to_author } : {});
  await scene.post("ada", { reply_to_author: "eve" });
  await scene.post("bob", { visibility: "direct", recipients: ["ada"], reply_to_author: "eve" });
  const reply = await scene.post("eve", { reply_to_author: "dan" });
  await scene.post("bob", { repost_of: reply, repost_author: "eve" });
}

const SHOWN = ["bob-8", "bob-6", "ada-5", "bob-4", "bob-3", "bob-2", "bob-1"];

// Invariant 5.
test.each(["pushed", "pulled", "in a cluster"])(
  "a reply to somebody else is in the home of those who follow both; authors are %s",
  async (how) => {
    const registry = openRegistry(redis, how === "pulled" ? 0 : Number.POSITIVE_INFINITY);
    const scripts = how === "in a cluster" ? asCluster(redis.scripts) : redis.scripts;
    const scene = new Scene({ scripts }, { judgesReplies: true, registry });
    await postAll(scene);
    if (how === "pulled") await step(scene.fanout, registry);
    expect(await scene.home()).toMatchObject({ drop_ids: SHOWN, degraded: false });
    // The same into a home that is stored.
    await postAll(scene);
    expect(await scene.home()).toMatchObject(scene.expected());
    expect(scene.expected().drop_ids).toHaveLength(2 * SHOWN.length);
    expect(await scene.local("")).toMatchObject({ degraded: false });
    for (const change of [follow, unfollow, follow]) {
      await change(scene, "eve");
      expect(await scene.home()).toMatchObject(scene.expected());
      await scene.post("bob", { reply_to_author: "eve" });
      expect(await scene.home()).toMatchObject(scene.expected());
    }
  },
);

// Invariant 5.
test("follows and unfollows of strangers leave a home as it is; of those who are answered in it they do not", async () => {
  const scene = open();
  await scene.post("bob", { reply_to_author: "eve" });
  await scene.post("bob", { reply_to_author: "cat" });
  await scene.home();
  for (const change of [follow, unfollow])
    for (const user of ["dan", "fay"]) {
      await change(scene, user);
      expect(await floor()).toBe("0");
    }
  expect(scene.rebuilt).toBe(1);
  // A second event of the same follow changes nothing.
  await handle(scene.fanout, followed("ada", "cat", 1));
  expect(await floor()).toBe("0");
  await follow(scene, "eve");
  expect(await floor()).toBeNull();
  expect(await scene.home()).toMatchObject({ drop_ids: ["bob-1", "bob-0"], degraded: false });
  await unfollow(scene, "cat");
  expect(await floor()).toBeNull();
  expect(await scene.home()).toMatchObject({ drop_ids: ["bob-0"], degraded: false });
});

// Invariant 5.
test("past a bound it is not noted any more who was answered: every follow may bring a reply back", async () => {
  const scene = open();
  await scene.home();
  for (let number = 0; number <= MAX_LEFT_OUT; number++) {
    const drop = { drop_id: `r${number}`, user_id: "bob", created_at: number, reply_to_author: `stranger-${number}` };
    scene.world.post(drop);
    const { writer } = scene.fanout.deps;
    const entry = entryOfDrop(scene.world.dropsOf("bob").find(({ drop_id }) => drop_id === drop.drop_id) as Drop);
    await writer.addToHomes([{ audience: audienceOf(["ada"]), entries: [entry] }]);
  }
  expect(await redis.raw.hlen(COPY)).toBeLessThan(MAX_LEFT_OUT + 10);
  expect(await redis.raw.hget(COPY, `stranger-${MAX_LEFT_OUT}`)).toBeNull();
  await follow(scene, `stranger-${MAX_LEFT_OUT}`);
  expect(await scene.home()).toMatchObject({ drop_ids: [`r${MAX_LEFT_OUT}`], degraded: false });
});

// Invariant 5.
test.each<Failpoint>(["rebuild-marked", "rebuild-read"])(
  "replies and follows beside a rebuild, at the point %s, are as after it",
  async (point) => {
    for (const isStored of [false, true]) {
      await redis.raw.flushall();
      const scene = open();
      for (const reply_to_author of ["eve", "cat", "dan"]) await scene.post("bob", { reply_to_author });
      if (isStored) {
        await scene.home();
        await redis.raw.zrem(homeKey("ada"), "~floor");
      }
      const steps = [
        async () => void (await scene.post("bob", { reply_to_author: "eve" })),
        async () => void (await scene.post("bob", { reply_to_author: "cat" })),
        () => follow(scene, "dan"),
        async () => void (await scene.post("bob", { reply_to_author: "dan" })),
      ];
      hookFailpoints(async (name) => (name === point ? steps.shift()?.() : undefined));
      while (steps.length > 0) {
        await redis.raw.zrem(homeKey("ada"), "~floor");
        expect(await scene.home()).toMatchObject(scene.expected());
      }
      hookFailpoints(undefined);
      for (const user of ["cat", "dan"]) {
        await unfollow(scene, user);
        expect(await scene.home()).toMatchObject(scene.expected());
      }
      await follow(scene, "eve");
      expect(await scene.home()).toMatchObject(scene.expected());
    }
  },
);

// Invariant 5.
test("a reply to somebody hidden is hidden, also where all replies are shown", async () => {
  for (const judgesReplies of [true, false]) {
    await redis.raw.flushall();
    const scene = open({ judgesReplies });
    await scene.post("bob", { reply_to_author: "cat" });
    await scene.home();
    scene.world.mute("ada", "cat");
    await handle(scene.fanout, related("user_muted", "ada", "cat"));
    await scene.post("bob", { reply_to_author: "cat" });
    await scene.post("ada", { reply_to_author: "cat" });
    expect(await scene.home()).toMatchObject({ drop_ids: ["ada-2"], degraded: false });
    expect(await scene.local()).toMatchObject({ drop_ids: judgesReplies ? [] : ["ada-2"], degraded: false });
    scene.world.unmute("ada", "cat");
    await handle(scene.fanout, related("user_unmuted", "ada", "cat", { version: 2 }));
    expect(await scene.home()).toMatchObject({ drop_ids: ["ada-2", "bob-1", "bob-0"], degraded: false });
  }
});

// Invariant 5.
test("replies of another server that come are judged as a rebuild judges them", async () => {
  const scene = open();
  await scene.post("bob");
  await scene.home();
  for (const [index, reply_to_author] of ["eve", "cat", undefined].entries()) {
    const drop = { drop_id: `remote-${index}`, user_id: "bob", created_at: START + 100 + index };
    const reply = {
      ...drop,
      visibility: "public",
      reply_to: "parent",
      ...(reply_to_author && { reply_to_author }),
    } as const;
    scene.world.post(reply);
    await handle(scene.fanout, received(reply));
  }
  const drop_ids = ["remote-2", "remote-1", "bob-0"];
  expect(await redis.raw.zrange(GLOBAL_KEY, 0, "-1")).toEqual(["bob-0", "remote-2"]);
  expect(await scene.home()).toMatchObject({ drop_ids, degraded: false });
  await redis.raw.del(homeKey("ada"));
  expect(await scene.home()).toMatchObject({ drop_ids, degraded: false });
  expect(scene.rebuilt).toBe(2);
});

test("a copy that is staged in part ends by itself", async () => {
  let calls = 0;
  const command: typeof redis.scripts.command = (name, call) => {
    if (++calls > 2) throw new Error("the process has ended");
    return redis.scripts.command(name, call);
  };
  const follows = new Follows(
    "ada",
    Array.from({ length: 6_000 }, (_, n) => `u${n}`),
  );
  await expect(createFollowsStore({ command }, true).stage(COPY, follows)).rejects.toThrow("ended");
  expect(await redis.raw.hlen(COPY)).toBe(5_000);
  expect(await redis.raw.pttl(COPY)).toBeGreaterThan(0);
});

// Invariants 3 and 5.
test("a followed user with more drops than a home holds leaves no gap where reposts among them are hidden", async () => {
  const scene = open();
  scene.world.mute("ada", "zoe");
  for (let number = 0; number < 40; number++) await scene.post("eve");
  for (let number = 0; number < 30; number++)
    await scene.post("eve", number % 3 === 0 ? { repost_of: `zoe-${number}`, repost_author: "zoe" } : {});
  expect(await scene.home()).toMatchObject({ drop_ids: [], degraded: false });
  await follow(scene, "eve");
  expect(scene.expected().drop_ids).toHaveLength(60);
  expect(await scene.home()).toMatchObject(scene.expected());
  expect(scene.rebuilt).toBe(1);
});

// Invariant 5.
test("local has no replies to others, unless all replies are shown", async () => {
  for (const judgesReplies of [true, false]) {
    await redis.raw.flushall();
    const scene = open({ judgesReplies });
    await scene.local("");
    for (const reply_to_author of ["eve", "bob"]) await scene.post("bob", { reply_to_author });
    expect((await scene.local("")).drop_ids).toEqual(judgesReplies ? ["bob-1"] : ["bob-1", "bob-0"]);
  }
});

// Invariant 5.
test("a home is rebuilt once after the setting has changed, or the copy of follows is lost", async () => {
  const scene = open();
  for (const reply_to_author of ["eve", "cat"]) await scene.post("bob", { reply_to_author });
  expect((await scene.home()).drop_ids).toEqual(["bob-1"]);
  await redis.raw.del(COPY);
  await redis.raw.zadd(homeKey("ada"), 1, "wrong");
  expect((await scene.home()).drop_ids).toEqual(["bob-1"]);
  const all = open({ judgesReplies: false, world: scene.world });
  for (let reads = 0; reads < 2; reads++) expect((await all.home()).drop_ids).toEqual(["bob-1", "bob-0"]);
  expect([all.rebuilt, await redis.raw.exists(COPY)]).toEqual([1, 0]);
  const again = open({ world: scene.world });
  for (let reads = 0; reads < 2; reads++) expect((await again.home()).drop_ids).toEqual(["bob-1"]);
  expect(again.rebuilt).toBe(1);
});

// Invariant 5.
test("while the copy of follows is lost and cannot be read, a degraded page hides whom its user hides", async () => {
  const registry = openRegistry(redis, 0);
  const scene = open({ registry });
  scene.world.mute("ada", "eve");
  const muted = await scene.post("eve");
  for (const more of [{}, { reply_to_author: "eve" }, { repost_of: muted, repost_author: "eve" }])
    await scene.post("bob", more);
  await scene.post("bob", { reply_to_author: "cat" });
  await step(scene.fanout, registry);
  expect(await scene.home()).toMatchObject({ drop_ids: ["bob-4", "bob-1"], degraded: false });
  await redis.raw.del(COPY);
  await redis.raw.zrem(homeKey("ada"), "~floor");
  const away = () => Promise.reject(new AppError("unavailable", "GetFollowingList"));
  Object.assign(scene.deps, {
    rebuild: away,
    openSources: () => ({ ...sourcesOf(scene.world), following: away }),
  });
  expect(await scene.home()).toMatchObject({ drop_ids: ["bob-4", "bob-1"], degraded: true });
});

// Invariant 5.
test("a stream says replies only to those whose homes show them", async () => {
  const scene = open();
  for (const user of ["fay", "gus"]) await follow(scene, "bob", user);
  await follow(scene, "cat", "fay");
  const told = async (reply_to_author: string): Promise<string[]> => {
    const drop = await scene.post("bob", { reply_to_author });
    const { notified } = scene.fanout;
    return notified.flatMap(({ users, notification }) => (notification.drop_id === drop ? users : [])).sort();
  };
  // Homes of which nothing is stored, then stored ones.
  for (let round = 0; round < 2; round++) {
    expect(await told("eve")).toEqual(["bob"]);
    expect(await told("cat")).toEqual(["ada", "bob", "fay"]);
    expect(await told("gus")).toEqual(["bob", "gus"]);
    expect(await told("bob")).toEqual(["ada", "bob", "fay", "gus"]);
    for (const user of ["ada", "fay", "gus"]) await scene.home(user);
  }
});

type Event = readonly [kind: "reply" | "follow" | "unfollow", who: string];

const event: fc.Arbitrary<Event> = fc.tuple(
  fc.constantFrom("reply", "reply", "follow", "unfollow"),
  fc.constantFrom("bob", "cat", "dan", "eve"),
);

// Invariant 3.
test("any order of follows and unfollows, each told twice, ends with the replies of the newest", async () => {
  const history = fc.tuple(fc.array(event, { minLength: 4, maxLength: 14, size: "max" }), fc.array(fc.nat()));
  await fc.assert(
    fc.asyncProperty(history, async ([events, order]) => {
      await redis.raw.flushall();
      const scene = open();
      await scene.home();
      const told = [];
      for (const [kind, who] of events) {
        if (kind === "reply") {
          await scene.post("bob", { reply_to_author: who });
          continue;
        }
        const { world } = scene;
        const follows = kind === "follow";
        if (world.follows("ada", who) === follows) continue;
        const version = follows ? world.follow("ada", who) : world.unfollow("ada", who);
        told.push(follows ? followed("ada", who, version) : unfollowed("ada", who, version));
      }
      const twice = [...told, ...told].map((one, index) => [order[index] ?? index, one] as const);
      const shuffled = twice.sort(([a], [b]) => a - b).map(([, one]) => one);
      for (const [index, one] of shuffled.entries()) {
        await handle(scene.fanout, one);
        if (index % 3 === 0) await scene.home();
      }
      expect(await scene.home()).toMatchObject(scene.expected());
    }),
    { numRuns: 40 },
  );
}, 60_000);
