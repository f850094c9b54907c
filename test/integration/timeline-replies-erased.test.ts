import { afterEach, expect, test } from "@jest/globals";
import { peopleOf } from "../../src/contracts/people.js";
import type { Drop } from "../../src/gen/avion/posts.js";
import { hookFailpoints } from "../../src/kernel/failpoints.js";
import { createWalk } from "../../src/state/erased/walk.redis.js";
import { followsKeyOfHome, homeKey } from "../../src/state/keys.js";
import { handle } from "../support/fanout.js";
import { Scene } from "../support/hidden-scene.js";
import { lua } from "../support/lua.js";
import { redisOfFile } from "../support/redis-of-file.js";
import { followed } from "../support/timeline-events.js";

const redis = redisOfFile();
const open = (how: ConstructorParameters<typeof Scene>[1] = {}) => new Scene(redis, { judgesReplies: true, ...how });

afterEach(() => hookFailpoints(undefined));

const COPY = followsKeyOfHome(homeKey("ada"));
const floor = () => redis.raw.zscore(homeKey("ada"), "~floor");

async function follow({ world, fanout }: Scene, user: string): Promise<void> {
  await handle(fanout, followed("ada", user, world.follow("ada", user)));
}

/** Removes a user from Redis as an erasure does. */
const walk = (user: string): Promise<void> =>
  createWalk(redis.scripts).removeAll(
    { ...peopleOf([{ user, token: user }]), ownAmong: async () => new Set(), authors: [], met: () => undefined },
    { stopping: new AbortController().signal, left: async () => undefined, lost: async () => undefined },
  );

/** After an erasure the posts service does not say any more whom a reply answers. */
function unname({ world }: Scene, drop: string): void {
  const { drop_id, user_id, created_at } = world.find(drop) as Drop;
  world.post({ drop_id, user_id, created_at });
}

// Invariant 5.
test("once a user is erased, replies to them are in each home again", async () => {
  const scene = open();
  const reply = await scene.post("bob", { reply_to_author: "eve" });
  await scene.post("bob", { reply_to_author: "cat" });
  await scene.home();
  const forget = (user: string) => redis.scripts.run(lua("forget-beside-home"), [COPY, homeKey("ada")], [user]);
  await forget("dan");
  expect(await floor()).toBe("0");
  await forget("eve");
  expect([await floor(), await redis.raw.hget(COPY, "eve")]).toEqual([null, null]);
  unname(scene, reply);
  expect(await scene.home()).toMatchObject({ drop_ids: ["bob-1", "bob-0"], degraded: false });
});

// Invariant 5.
test.each(["muted", "blocked"] as const)(
  "once a user whom somebody has %s is erased, replies to them are in each home again",
  async (how) => {
    const scene = open();
    await follow(scene, "eve");
    if (how === "muted") scene.world.mute("ada", "eve");
    else scene.world.block("eve", "ada");
    const rebuilt = await scene.post("bob", { reply_to_author: "eve" });
    expect(await scene.home()).toMatchObject({ drop_ids: [], degraded: false });
    const written = await scene.post("bob", { reply_to_author: "eve" });
    expect(await scene.home()).toMatchObject({ drop_ids: [], degraded: false });
    if (how === "muted") scene.world.unmute("ada", "eve");
    else scene.world.unblock("eve", "ada");
    await walk("eve");
    for (const reply of [rebuilt, written]) unname(scene, reply);
    expect(await scene.home()).toMatchObject({ drop_ids: [written, rebuilt], degraded: false });
  },
);

// Invariant 5.
test("a rebuild names nobody who is erased while it runs, and replies to them are in the home", async () => {
  const gone = new Set<string>();
  const scene = open({ erased: { among: async (users) => new Set(users.filter((user) => gone.has(user))) } });
  await follow(scene, "dan");
  const reply = await scene.post("bob", { reply_to_author: "eve" });
  hookFailpoints(async (point) => {
    if (point !== "rebuild-read" || gone.size > 0) return;
    for (const user of ["dan", "eve"]) gone.add(user);
    // The upstreams do not name them any more.
    scene.world.unfollow("ada", "dan");
    unname(scene, reply);
  });
  expect(await scene.home()).toMatchObject({ drop_ids: [reply], degraded: false });
  expect(Object.keys(await redis.raw.hgetall(COPY)).sort()).toEqual(["bob", "cat", "~left", "~state"]);
});

// Invariant 5.
test("an erasure beside a rebuild forgets to whom the replies are that came meanwhile", async () => {
  const scene = open();
  hookFailpoints(async (point) => {
    if (point !== "rebuild-marked" || (await redis.raw.exists(COPY)) > 0) return;
    await scene.post("bob", { reply_to_author: "eve" });
    expect(await redis.raw.hgetall(COPY)).toEqual({ "?bob-0": "eve" });
    await walk("eve");
    expect(await redis.raw.exists(COPY)).toBe(0);
    unname(scene, "bob-0");
  });
  expect(await scene.home()).toMatchObject({ drop_ids: ["bob-0"], degraded: false });
  expect(await redis.raw.hget(COPY, "eve")).toBeNull();
});
