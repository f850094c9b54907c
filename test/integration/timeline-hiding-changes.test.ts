import { expect, test } from "@jest/globals";
import { AppError } from "../../src/kernel/errors.js";
import { APART_MS } from "../../src/state/hidden/changes.redis.js";
import { ASK_MS } from "../../src/state/hidden/relations.redis.js";
import { hiddenKey, homeKey, renewalKey } from "../../src/state/keys.js";
import { handle } from "../support/fanout.js";
import { Scene } from "../support/hidden-scene.js";
import type { ReadHiddenOnce } from "../support/redis.js";
import { redisOfFile } from "../support/redis-of-file.js";
import { related } from "../support/timeline-events.js";
import type { World } from "../support/world.js";

const redis = redisOfFile();
const open = (how: ConstructorParameters<typeof Scene>[1] = {}) => new Scene(redis, how);

/** Relations that the users service is asked for, a page each. */
const counting = (world: () => World, asked: string[]): ReadHiddenOnce => {
  return async (user) => {
    asked.push(user);
    return world().hiddenFrom(user);
  };
};

/** Changes a relation, and tells the service. */
async function change({ world, fanout }: Scene, what: "block" | "unblock" | "mute" | "unmute", by: string, of: string) {
  world[what](by, of);
  const name = ({ block: "blocked", unblock: "unblocked", mute: "muted", unmute: "unmuted" } as const)[what];
  await handle(fanout, related(`user_${name}`, by, of, { version: ++versions }));
}
let versions = 0;

// Invariant 5.
test("strangers who block and unblock a user take nothing from the home, and nobody is asked for whom it hides", async () => {
  const asked: string[] = [];
  const scene: Scene = open({ readHidden: counting(() => scene.world, asked) });
  for (const author of ["bob", "cat", "eve"]) await scene.post(author);
  expect(await scene.home()).toMatchObject(scene.expected());
  await scene.local();
  const before = [asked.filter((user) => user === "ada").length, scene.rebuilt];
  for (const stranger of ["nobody", "eve", "nobody", "eve"]) {
    await change(scene, "block", stranger, "ada");
    expect(await redis.raw.zscore(homeKey("ada"), "~floor")).toBe("0");
    expect((await scene.local()).drop_ids).toHaveLength(stranger === "eve" ? 2 : 3);
    await change(scene, "unblock", stranger, "ada");
    expect(await redis.raw.zscore(homeKey("ada"), "~floor")).toBe("0");
    expect((await scene.local()).drop_ids).toHaveLength(3);
  }
  expect(await scene.home()).toMatchObject(scene.expected());
  expect([asked.filter((user) => user === "ada").length, scene.rebuilt]).toEqual(before);
});

// Invariant 5.
test("one whom the home shows renews it by blocks and unblocks at most once in some seconds", async () => {
  const scene = open();
  const original = await scene.post("eve");
  await scene.post("cat", { repost_of: original, repost_author: "eve" });
  expect(await scene.home()).toMatchObject({ drop_ids: ["cat-1"], degraded: false });
  await change(scene, "block", "eve", "ada");
  expect(await scene.home()).toMatchObject({ drop_ids: [], degraded: false });
  await redis.raw.pexpire(renewalKey("ada"), 60_000);
  for (let round = 0; round < 10; round++) {
    await change(scene, "unblock", "eve", "ada");
    await scene.home();
    await change(scene, "block", "eve", "ada");
    await scene.home();
  }
  await change(scene, "unblock", "eve", "ada");
  expect(scene.rebuilt).toBe(2);
  expect(Number(await redis.raw.get(renewalKey("ada")))).toBeLessThan(Date.now() + 60_000);
  await redis.raw.set(renewalKey("ada"), Date.now() - 1);
  expect(await scene.home()).toMatchObject({ drop_ids: ["cat-1"], degraded: false });
  expect(scene.rebuilt).toBe(3);
});

// Invariant 5.
test("a block by somebody else hides within 2 s however slowly questions are answered, whether a change or a read had the turn before", async () => {
  const mostMs = 2_000 - ASK_MS - APART_MS;
  const scene = open();
  const original = await scene.post("eve");
  await scene.post("cat", { repost_of: original, repost_author: "eve" });
  await scene.home();
  await change(scene, "block", "eve", "ada");
  expect(await redis.raw.pttl(renewalKey("ada"))).toBeLessThan(mostMs);
  await redis.raw.set(renewalKey("ada"), Date.now() - 1);
  await scene.home();
  expect(await redis.raw.pttl(renewalKey("ada"))).not.toBe(-1);
  expect(await redis.raw.pttl(renewalKey("ada"))).toBeLessThan(mostMs);
});

// Invariant 5.
test("one change of a user who hides very many costs one field, in whatever order and however often its events come", async () => {
  const asked: string[] = [];
  const scene: Scene = open({ readHidden: counting(() => scene.world, asked) });
  for (const author of ["bob", "cat", "bob"]) await scene.post(author);
  for (let number = 0; number < 6_000; number++) scene.world.mute("ada", `somebody-${number}`);
  await redis.raw.del(hiddenKey("ada"));
  await scene.home();
  await redis.raw.config("RESETSTAT");
  for (let round = 0; round < 3; round++) {
    await change(scene, "mute", "ada", "bob");
    expect(await scene.home()).toMatchObject({ drop_ids: ["cat-1"], degraded: false });
    await handle(scene.fanout, related("user_unmuted", "ada", "bob", { version: 1 }));
    expect(await scene.home()).toMatchObject({ drop_ids: ["cat-1"], degraded: false });
    await change(scene, "unmute", "ada", "bob");
    await handle(scene.fanout, related("user_muted", "ada", "bob", { version: 1 }));
    expect(await scene.home()).toMatchObject({ drop_ids: ["bob-2", "cat-1", "bob-0"], degraded: false });
  }
  const calls = [...(await redis.raw.info("commandstats")).matchAll(/cmdstat_(\w+):calls=(\d+)/g)];
  expect(calls.reduce((sum, [, , count]) => sum + Number(count), 0)).toBeLessThan(1_000);
  expect(asked.filter((user) => user === "ada").length).toBe(2);
});

// Invariant 5.
test("whom a user hides who hides very many is asked for again if Redis loses it between the two looks of a page", async () => {
  let isAway = false;
  const readHidden = async (user: string) => {
    if (isAway) throw new AppError("unavailable", "GetHidden");
    return scene.world.hiddenFrom(user);
  };
  const scene: Scene = open({ readHidden });
  for (let number = 0; number < 6_000; number++) scene.world.mute("ada", `somebody-${number}`);
  const by = { author: "somebody-1" };
  const known = await scene.hidden.known("ada");
  await redis.raw.del(hiddenKey("ada"));
  expect((await known.among([by])).hides(by)).toBe(true);
  isAway = true;
  await redis.raw.hdel(hiddenKey("ada"), "~state");
  await expect(known.among([by])).rejects.toMatchObject({ code: "unavailable" });
  expect((await scene.hidden.lastKnown("ada").among([by])).hides(by)).toBe(true);
});

// Invariant 5.
test.each(["by this version", "by one that knows no changes", "while GetRelations fails"])(
  "a change while a fill has read what was before is not lost: %s",
  async (how) => {
    let fills = 0;
    let isAway = false;
    const scene: Scene = open({
      readHidden: async (user) => {
        const hidden = scene.world.hiddenFrom(user);
        if (isAway) throw new AppError("unavailable", "GetHidden");
        if (user !== "ada" || fills++ !== 1) return hidden;
        if (how === "by one that knows no changes") {
          scene.world.mute("ada", "bob");
          await redis.raw.hdel(hiddenKey("ada"), "~state");
        } else {
          isAway = how === "while GetRelations fails";
          await change(scene, "mute", "ada", "bob");
          isAway = false;
        }
        return hidden;
      },
      changeSources: {
        readHidings: async (user, targets) => {
          if (isAway) throw new AppError("unavailable", "GetRelations");
          return targets.map((target) => ({ hiding: scene.world.hiddenFrom(user).get(target) }));
        },
      },
    });
    for (const author of ["bob", "cat"]) await scene.post(author);
    await redis.raw.del(hiddenKey("ada"));
    fills = 1;
    await scene.home();
    expect(await scene.home()).toMatchObject({ drop_ids: ["cat-1"], degraded: false });
    expect(await redis.raw.hgetall(hiddenKey("ada"))).toEqual({ "~state": "complete", bob: "all" });
    expect(await redis.raw.keys("timeline:x:hidden-*")).toEqual([]);
  },
);

// Invariant 5.
test("changes of a user about whom nothing is answered wait once, and the next page has them", async () => {
  const asked: string[] = [];
  const readHidings = (user: string): Promise<never> => {
    asked.push(user);
    return new Promise(() => undefined);
  };
  const scene = open({ changeSources: { readHidings } });
  for (const author of ["bob", "cat", "dan"]) await scene.post(author);
  await scene.home();
  for (const target of ["bob", "cat"]) {
    await scene.home();
    await change(scene, "mute", "ada", target);
  }
  expect(await scene.home()).toMatchObject({ drop_ids: [], degraded: false });
  expect(asked).toEqual(["ada"]);
});
