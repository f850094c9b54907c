import { afterEach, expect, test } from "@jest/globals";
import { type Failpoint, hookFailpoints } from "../../src/kernel/failpoints.js";
import { createReadHidden } from "../../src/state/hidden/hidden.grpc.js";
import { bylinesKey, hiddenKey, hidersKey, homeKey, LOCAL_KEY } from "../../src/state/keys.js";
import { handle } from "../support/fanout.js";
import { Scene, START } from "../support/hidden-scene.js";
import { openRegistry, step } from "../support/pulled.js";
import { adaptersOn } from "../support/redis.js";
import { redisOfFile } from "../support/redis-of-file.js";
import { followed, related, unfollowed } from "../support/timeline-events.js";

const FAR = Date.now() + 3_600_000;
const redis = redisOfFile();
const open = (how: ConstructorParameters<typeof Scene>[1] = {}) => new Scene(redis, how);

// Invariant 5.
test.each(["pushed", "pulled"])(
  "a home of a version that knew no hidden users is rebuilt; its author is %s",
  async (how) => {
    const registry = openRegistry(redis, how === "pulled" ? 0 : Number.POSITIVE_INFINITY);
    const scene = open({ registry });
    for (const author of ["bob", "cat", "bob"]) await scene.post(author);
    if (how === "pulled") await step(scene.fanout, registry);
    expect(await scene.home()).toMatchObject(scene.expected());
    // The relation is older than the service that knows of it.
    await redis.raw.del(hiddenKey("ada"));
    scene.world.mute("ada", "bob");
    expect(await scene.home()).toMatchObject(scene.expected());
    expect(await scene.local()).toMatchObject({ drop_ids: ["cat-1"], degraded: false });
    await scene.post("bob");
    expect(await scene.home()).toMatchObject(scene.expected());
  },
);

// Invariant 5.
test("a home whose user turns out to hide nobody is read as it is", async () => {
  const scene = open();
  for (const author of ["bob", "cat"]) await scene.post(author);
  await scene.home();
  await redis.raw.zadd(homeKey("ada"), START + 90, "kept");
  await redis.raw.del(hiddenKey("ada"));
  expect(await scene.home()).toMatchObject({ drop_ids: ["kept", "cat-1", "bob-0"], degraded: false });
});

// Invariant 5.
test("a repost whose original's author is not named is a repost: a mute of reposts hides it", async () => {
  const scene = open();
  const original = await scene.post("eve");
  await scene.post("bob");
  scene.world.mute("ada", "bob", true);
  await handle(scene.fanout, related("user_muted", "ada", "bob", { reposts_only: true }));
  await scene.home();
  await scene.post("bob", { repost_of: original });
  expect(await scene.home()).toMatchObject({ drop_ids: ["bob-1"], degraded: false });
  const told = scene.fanout.notified.filter(({ notification }) => notification.drop_id === "bob-2");
  expect(told.flatMap(({ users }) => users)).not.toContain("ada");
  await redis.raw.flushall();
  expect(await scene.home()).toMatchObject({ drop_ids: ["bob-1"], degraded: false });
});

// Invariant 5.
test("a repost of a drop of somebody whom the reader mutes does not come into a home that is stored", async () => {
  const scene = open();
  await scene.post("bob");
  scene.world.mute("ada", "eve");
  await handle(scene.fanout, related("user_muted", "ada", "eve"));
  await scene.home();
  const original = await scene.post("eve");
  await scene.post("bob", { repost_of: original, repost_author: "eve" });
  expect(await redis.raw.zrange(homeKey("ada"), "0", "-1")).toEqual(["~floor", "bob-0"]);
});

// Invariant 5.
test("a user who is blocked and whose reposts are muted is hidden, and so is one whose mute has ended", async () => {
  const hidden = [
    { target_id: "bob", reposts_only: true, expires_at: 0, blocked: true },
    { target_id: "cat", reposts_only: false, expires_at: 1, blocked: true },
    { target_id: "dan", reposts_only: true, expires_at: 0, blocked: false },
    { target_id: "eve", reposts_only: false, expires_at: 1, blocked: false },
    { target_id: "fay", reposts_only: false, expires_at: FAR + 1, blocked: false },
    { target_id: "gus", reposts_only: false, expires_at: FAR, blocked: false },
  ];
  const upstreams = { hidden: async () => ({ hidden, next: "" }), leaveOut: () => undefined };
  const read = createReadHidden(upstreams as unknown as Parameters<typeof createReadHidden>[0]);
  const pages: unknown[] = [];
  for await (const page of read("ada")) pages.push(page);
  const hidings = new Map(Object.entries({ bob: "all", cat: "all", dan: "reposts", fay: "all", gus: "all" }));
  expect(pages).toEqual([{ hidings, until: FAR }]);
});

test("nothing about hidden users is kept for ever, and who hides somebody is kept longer than whom they hide", async () => {
  const scene = open();
  await scene.post("bob");
  scene.world.mute("ada", "bob");
  await handle(scene.fanout, related("user_muted", "ada", "bob"));
  expect(await redis.raw.pttl(hidersKey("bob"))).toBeGreaterThan(0);
  await scene.home();
  const filled = await redis.raw.pttl(hiddenKey("ada"));
  expect(await redis.raw.pttl(hidersKey("bob"))).toBeGreaterThan(filled + 1_000);
  // A read renews the home: whom its user hides is asked for again all the same.
  await redis.raw.pexpire(homeKey("ada"), filled - 86_400_000);
  await redis.raw.pexpire(hiddenKey("ada"), filled - 86_400_000);
  await scene.home();
  expect(await redis.raw.pttl(homeKey("ada"))).toBeGreaterThan(filled - 1_000_000);
  expect(await redis.raw.pttl(hiddenKey("ada"))).toBeLessThan(filled - 80_000_000);
});

// Invariant 5.
test("local of a version without bylines keeps what the log has lost, and hides what the log tells of", async () => {
  const scene = open();
  for (const author of ["bob", "cat", "bob", "cat"]) await scene.post(author);
  await scene.local("");
  await redis.raw.del(bylinesKey(LOCAL_KEY));
  scene.logFrom = START + 2;
  scene.world.mute("ada", "bob");
  await handle(scene.fanout, related("user_muted", "ada", "bob"));
  expect(await scene.local()).toMatchObject({ drop_ids: ["cat-3", "cat-1", "bob-0"], degraded: false });
  expect(await scene.local("")).toMatchObject({ drop_ids: ["cat-3", "bob-2", "cat-1", "bob-0"], degraded: false });
});

// Invariant 5.
test("pages of a user whom very many block are right, and ask about nobody else than who is on them", async () => {
  const scene = open();
  for (const author of ["bob", "cat", "bob"]) await scene.post(author);
  for (let number = 0; number < 70_000; number++) scene.world.mute("ada", `stranger-${number}`);
  scene.world.mute("ada", "bob");
  await redis.raw.del(hiddenKey("ada"));
  expect(await scene.home()).toMatchObject(scene.expected());
  expect(await scene.local()).toMatchObject({ drop_ids: ["cat-1"], degraded: false });
  await scene.post("bob");
  await scene.post("cat", { repost_of: "bob-0", repost_author: "bob" });
  expect(await scene.home()).toMatchObject(scene.expected());
  await redis.raw.config("RESETSTAT");
  await redis.raw.del(homeKey("ada"));
  expect(await scene.home()).toMatchObject(scene.expected());
  expect(await scene.local()).toMatchObject({ drop_ids: ["cat-1"], degraded: false });
  expect(await redis.raw.info("commandstats")).not.toMatch(/cmdstat_(hgetall|hscan|hkeys):/);
});

// Invariant 5.
test("a caller who cannot wait does not spoil the page of one who can", async () => {
  let answer = (): void => undefined;
  const asked = new Promise<void>((resolve) => {
    answer = resolve;
  });
  const scene = open({
    readHidden: async () => {
      await asked;
      return new Map([["bob", "all"]]);
    },
  });
  for (const author of ["bob", "cat"]) await scene.post(author);
  const hasty = scene.local("ada", Date.now() + 200);
  const patient = scene.local("ada");
  expect((await hasty).degraded).toBe(true);
  answer();
  expect(await patient).toMatchObject({ drop_ids: ["cat-1"], degraded: false });
});

afterEach(() => hookFailpoints(undefined));

/** Does something once, when the work under way comes to a point. */
function onceAt(point: Failpoint, work: () => Promise<unknown>): () => boolean {
  let done = false;
  hookFailpoints(async (name) => {
    if (name !== point || done) return;
    done = true;
    await work();
  });
  return () => done;
}

/** Ada blocks bob: both follows end, and the service is told in this order. */
async function block({ world, fanout }: Scene): Promise<void> {
  world.block("ada", "bob");
  await handle(fanout, related("user_blocked", "ada", "bob"));
  await handle(fanout, unfollowed("ada", "bob", 2));
}

// Invariant 5.
test.each<Failpoint>(["write", "written", "checked", "notified"])(
  "a block beside the fan-out of a drop, at the point %s: no later page has the drop",
  async (point) => {
    for (const isRead of [false, true]) {
      await redis.raw.flushall();
      const scene = open();
      await scene.post("cat");
      await scene.home();
      const wasThere = onceAt(point, async () => {
        await block(scene);
        if (isRead) await scene.home();
      });
      await scene.post("bob");
      expect(wasThere()).toBe(true);
      for (let reads = 0; reads < 2; reads++) expect(await scene.home()).toMatchObject(scene.expected());
      expect(await scene.local()).toMatchObject({ drop_ids: ["cat-0"], degraded: false });
    }
  },
);

// Invariant 5.
test("a follow that is applied after the block that ended it brings no drop back", async () => {
  const scene = open();
  for (const author of ["bob", "cat"]) await scene.post(author);
  await scene.home();
  await block(scene);
  await handle(scene.fanout, followed("ada", "bob", 1));
  expect(await scene.home()).toMatchObject(scene.expected());
  expect(scene.expected().drop_ids).toEqual(["cat-1"]);
});

// Invariant 5.
test.each<Failpoint>(["rebuild-marked", "rebuild-read"])(
  "the end of a mute beside a rebuild, at the point %s: the drops are back",
  async (point) => {
    const scene = open();
    scene.world.mute("ada", "bob");
    for (const author of ["bob", "cat"]) await scene.post(author);
    const wasThere = onceAt(point, async () => {
      scene.world.unmute("ada", "bob");
      await handle(scene.fanout, related("user_unmuted", "ada", "bob", { version: 2 }));
    });
    await scene.home();
    expect(wasThere()).toBe(true);
    expect(await scene.home()).toMatchObject({ drop_ids: ["cat-1", "bob-0"], degraded: false });
  },
);

// Invariant 5.
test.each([
  { floor: -5, when: "stay while a rebuild is under way, which has kept them for its end" },
  { floor: 0, when: "go, a few with each new one, once there is none" },
])("bylines without a drop in local $when", async ({ floor }) => {
  const { writer } = adaptersOn(redis.scripts, { maxEntries: 200 });
  await redis.raw.zadd(LOCAL_KEY, floor, "~floor");
  for (let number = 0; number < 200; number++) await redis.raw.hset(bylinesKey(LOCAL_KEY), `gone-${number}`, "bob");
  for (let number = 0; number < 200; number++) {
    const entry = { drop: `e-${number}`, score: START + number, by: { author: "cat" } };
    await writer.addShared([{ timelines: ["local"], entry }]);
  }
  const drops = await redis.raw.hkeys(bylinesKey(LOCAL_KEY));
  expect(drops.filter((drop) => drop.startsWith("e-"))).toHaveLength(200);
  const gone = drops.length - 200;
  if (floor < 0) expect(gone).toBe(200);
  else expect(gone).toBeLessThan(150);
});
