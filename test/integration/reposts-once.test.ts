import { expect, test } from "@jest/globals";
import { audienceOf } from "../../src/state/index.js";
import { bylinesKey, homeKey } from "../../src/state/keys.js";
import { handle } from "../support/fanout.js";
import { Scene } from "../support/hidden-scene.js";
import { openRegistry, step } from "../support/pulled.js";
import { openCache } from "../support/read-cache.js";
import { adaptersOn } from "../support/redis.js";
import { redisOfFile } from "../support/redis-of-file.js";
import { deleted, related } from "../support/timeline-events.js";

const redis = redisOfFile();
const HOME = homeKey("ada");
const OLD = 1;
const EVES = { repost_author: "eve" };

type Item = Awaited<ReturnType<Scene["home"]>>["items"][number];
const named = ({ drop_id, repost_of, reposted_by }: Item) => [drop_id, repost_of, ...reposted_by];

/** Deletes a drop as an unshare does its repost. */
async function remove(scene: Scene, drop: string, author: string): Promise<void> {
  scene.world.remove(drop);
  await handle(scene.fanout, deleted(drop, author));
}

const CHECKS = ["from Redis", "cached", "of pulled authors", "of pulled authors, cached"] as const;

// Contract: reposts once.
test.each(CHECKS)(
  "a drop and its reposts are shown once, and what is taken back brings back what it covered: %s",
  async (how) => {
    const registry = openRegistry(redis, how.startsWith("of pulled") ? 0 : Number.POSITIVE_INFINITY);
    const held = how.endsWith("cached")
      ? await openCache({ scripts: redis.scripts, url: redis.broker.url })
      : undefined;
    try {
      const scene = new Scene(redis, { repostWindow: 3, registry, ...(held && { cache: held.cache }) });
      for (const author of ["dan", "eve"]) scene.world.follow("ada", author);
      const items = async () => {
        // The second read is from the cache, if there is one.
        const [first, again] = [await scene.home(), await scene.home()];
        expect(again).toEqual(first);
        expect(first.degraded).toBe(false);
        expect(first.items.map(({ drop_id }) => drop_id)).toEqual(first.drop_ids);
        return first.items.filter(({ created_at }) => created_at > OLD).map(named);
      };
      const eves = await scene.post("eve");
      for (const author of ["bob", "cat", "dan"]) await scene.post(author, { created_at: OLD });
      if (how.startsWith("of pulled")) for (let steps = 0; steps < 3; steps++) await step(scene.fanout, registry);
      await scene.home();
      const share = (sharer: string) => scene.post(sharer, { repost_of: eves, ...EVES });
      const [bobs, cats, plain, dans] = [
        await share("bob"),
        await share("cat"),
        await scene.post("bob"),
        await share("dan"),
      ];
      expect(await items()).toEqual([
        [dans, eves, "dan", "cat", "bob"],
        [plain, ""],
      ]);
      await remove(scene, dans, "dan");
      expect(await items()).toEqual([
        [plain, ""],
        [cats, eves, "cat", "bob"],
      ]);
      scene.world.mute("ada", "cat", true);
      await handle(scene.fanout, related("user_muted", "ada", "cat", { reposts_only: true }));
      expect(await items()).toEqual([
        [plain, ""],
        [bobs, eves, "bob"],
      ]);
      await remove(scene, bobs, "bob");
      expect(await items()).toEqual([
        [plain, ""],
        [eves, ""],
      ]);
      await redis.raw.flushall();
      scene.world.unmute("ada", "cat");
      expect(await items()).toEqual([
        [plain, ""],
        [cats, eves, "cat"],
      ]);
    } finally {
      await held?.close();
    }
  },
);

test("what repeats a drop is beside the home: only of reposts, for as long as the home, and bounded like it", async () => {
  const scene = new Scene(redis, { repostWindow: 3 });
  const plain = await scene.post("bob");
  await scene.home();
  expect(await redis.raw.exists(bylinesKey(HOME))).toBe(0);
  const repost = await scene.post("bob", { repost_of: plain, repost_author: "bob" });
  expect(await redis.raw.hgetall(bylinesKey(HOME))).toEqual({ [repost]: `bob,bob,,${plain}` });
  expect(await redis.raw.pttl(bylinesKey(HOME))).toBeGreaterThan((await redis.raw.pttl(HOME)) - 10_000);
  await redis.raw.pexpire(HOME, 1_000_000);
  await redis.raw.pexpire(bylinesKey(HOME), 1_000_000);
  await scene.home();
  expect(await redis.raw.pttl(bylinesKey(HOME))).toBeGreaterThan(2_000_000);
  // The home holds 50 drops.
  for (let number = 0; number < 250; number++) await scene.post("bob", { repost_of: `gone-${number}`, ...EVES });
  // After each 16 new bylines some that are taken at random are looked at.
  expect(await redis.raw.hlen(bylinesKey(HOME))).toBeLessThanOrEqual(150);
  await redis.raw.zrem(HOME, "~floor");
  const { items } = await scene.home();
  expect(items.every(({ repost_of }) => repost_of.startsWith("gone-"))).toBe(true);
});

test("a read asks for the bylines of its own entries, and not for all that a home has", async () => {
  const { store, writer } = adaptersOn(redis.scripts, { maxEntries: 1_000 });
  const [author, original, repostOf] = [1, 2, 3].map((n) => `0197a7c8-0000-7000-8000-00000000000${n}`);
  const by = { author: author as string, original, repostOf };
  const entries = Array.from({ length: 200 }, (_, at) => ({ drop: `r${at}`, score: 1_000 + at, by }));
  await writer.addToHomes([{ audience: audienceOf(["ada"]), entries }]);
  await redis.raw.config("RESETSTAT");
  const read = await store.read({ key: HOME, direction: "older", from: undefined, count: 100 });
  expect(read.entries).toEqual(entries.slice(100).reverse());
  const calls = await redis.raw.info("commandstats");
  expect(calls).toMatch(/cmdstat_hmget:calls=1,/);
  expect(calls).not.toMatch(/cmdstat_hgetall/);
});

test("a home that a version without originals wrote shows each repost, until it is rebuilt", async () => {
  const scene = new Scene(redis, { repostWindow: 3 });
  const plain = await scene.post("bob");
  const repost = await scene.post("cat", { repost_of: plain, repost_author: "bob" });
  await scene.home();
  await redis.raw.del(bylinesKey(HOME));
  expect((await scene.home()).drop_ids).toEqual([repost, plain]);
  await redis.raw.zrem(HOME, "~floor");
  expect((await scene.home()).items.map(named)).toEqual([[repost, plain, "cat"]]);
});

test("local shows originals, whatever covers them in a home", async () => {
  const scene = new Scene(redis, { repostWindow: 3 });
  const plain = await scene.post("bob");
  await scene.post("cat", { repost_of: plain, repost_author: "bob" });
  expect((await scene.local()).items).toMatchObject([{ drop_id: plain, repost_of: "", reposted_by: [] }]);
});

test("a cursor may be a drop that is left out, or one that is gone", async () => {
  const scene = new Scene(redis, { repostWindow: 3 });
  const plain = await scene.post("bob");
  const [first, second, last] = [
    await scene.post("cat", { repost_of: plain, repost_author: "bob" }),
    await scene.post("bob", { repost_of: plain, repost_author: "bob" }),
    await scene.post("cat"),
  ];
  await scene.home();
  const from = async (asked: { max_id: string } | { min_id: string } | { since_id: string }) =>
    (await scene.home("ada", undefined, asked)).drop_ids;
  expect(await from({ max_id: last })).toEqual([second]);
  expect(await from({ max_id: second })).toEqual([]);
  expect(await from({ max_id: first })).toEqual([]);
  expect(await from({ min_id: first })).toEqual([last, second]);
  expect(await from({ since_id: plain })).toEqual([last, second]);
  await remove(scene, second, "bob");
  expect(await from({ max_id: second })).toEqual([first]);
  expect(await from({ min_id: plain })).toEqual([last, first]);
});
