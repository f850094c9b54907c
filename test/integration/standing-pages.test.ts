import { afterAll, beforeAll, expect } from "@jest/globals";
import { entryOfDrop } from "../../src/contracts/timelines.js";
import { handle } from "../support/fanout.js";
import { Scene } from "../support/hidden-scene.js";
import { below, oneOf, seeded } from "../support/random.js";
import { openReader } from "../support/read-cache.js";
import { redisOfFile } from "../support/redis-of-file.js";
import { onceIn, REPOST_WINDOW } from "../support/reposts-once.js";
import { quickTest as test } from "../support/suite.js";

const redis = redisOfFile();
const AUTHORS = Array.from({ length: 6 }, (_, number) => `author-${number}`);

let reader: Awaited<ReturnType<typeof openReader>>;
let versions = 0;

beforeAll(async () => {
  reader = await openReader(redis.broker.url);
});
afterAll(() => reader.close());

const setStanding = (scene: Scene, user_id: string, standing: "active" | "suspended") =>
  handle(scene.fanout, { channel: "standing_changed", payload: { user_id, standing, version: ++versions } });

/** Number of calls of some commands of Redis. */
async function callsOf(...commands: readonly string[]): Promise<number[]> {
  const info = await redis.raw.info("commandstats");
  return commands.map((name) => Number(new RegExp(`cmdstat_${name}:calls=(\\d+)`).exec(info)?.[1] ?? 0));
}

// Invariant 5.
test("a cached home is read once, whoever is suspended: each change costs a look at its drops, and the next page none", async () => {
  const scene = new Scene({ scripts: reader.scripts }, { cache: reader.held.cache });
  for (const author of ["bob", "cat", "bob"]) await scene.post(author);
  await setStanding(scene, "stranger", "suspended");
  await scene.standings.refresh();
  const home = () => scene.home("ada", undefined, { limit: 20 });
  for (let reads = 0; reads < 3; reads++) await home();
  const { events } = reader.held.cache;
  for (let round = 0; round < 20; round++) {
    await setStanding(scene, `stranger-${round}`, "suspended");
    await scene.standings.refresh();
    const before = { hits: events.hit, misses: events.miss, looks: (await callsOf("zmscore"))[0] as number };
    for (let reads = 0; reads < 5; reads++)
      expect(await home()).toMatchObject({ drop_ids: ["bob-2", "cat-1", "bob-0"], degraded: false });
    const looks = (await callsOf("zmscore"))[0] as number;
    expect([events.hit - before.hits, events.miss - before.misses, looks - before.looks]).toEqual([5, 0, 1]);
  }
  await setStanding(scene, "bob", "suspended");
  await scene.standings.refresh();
  expect(await home()).toMatchObject({ drop_ids: ["cat-1"], has_more: false });
  const { miss } = events;
  for (let reads = 0; reads < 5; reads++) expect(await home()).toMatchObject({ drop_ids: ["cat-1"] });
  expect(events.miss).toBe(miss);
});

// Invariant 5.
test.each([0, REPOST_WINDOW])(
  "pages of a home with drops of suspended authors are full and in order down to the end, reposts once in %i places",
  async (repostWindow) => {
    const random = seeded(11 + repostWindow);
    for (let round = 0; round < 12; round++) {
      await redis.raw.flushall();
      const scene = new Scene({ scripts: reader.scripts }, { repostWindow, cache: reader.held.cache });
      for (const author of AUTHORS) scene.world.follow("ada", author);
      const posted: { readonly id: string; readonly author: string }[] = [];
      for (let count = below(random, 45); count > 0; count--) {
        const author = oneOf(random, AUTHORS);
        const shared = posted.length > 0 && below(random, 3) === 0 ? oneOf(random, posted) : undefined;
        const more = shared && { repost_of: shared.id, repost_author: shared.author };
        const id = await scene.post(author, more);
        if (!shared) posted.push({ id, author });
      }
      const suspended = new Set(AUTHORS.filter(() => below(random, 3) === 0));
      for (const author of ["stranger", ...suspended]) await setStanding(scene, author, "suspended");
      await scene.standings.refresh();
      const isShown = ({ author, original }: { author: string; original?: string }) =>
        !suspended.has(author) && !suspended.has(original ?? "");
      const entries = scene.world.homeOf("ada").map(entryOfDrop);
      const all = onceIn(
        entries.filter(({ by }) => by && isShown(by)),
        repostWindow,
      );
      const limit = 1 + below(random, 30);
      for (let reads = 0; reads < 3; reads++) {
        const page = await scene.home("ada", undefined, { limit });
        const items = page.items.map(({ drop_id, reposted_by }) => ({ drop: drop_id, repostedBy: reposted_by }));
        expect([items, page.has_more, page.degraded]).toEqual([all.slice(0, limit), all.length > limit, false]);
      }
    }
  },
);

// Invariant 11.
test("a standing that is toggled in a loop is one change to each copy, after which cached pages of others cost no look", async () => {
  const scene = new Scene({ scripts: reader.scripts }, { cache: reader.held.cache });
  await scene.post("bob");
  const toggles = Array.from({ length: 5_000 }, (_, n) => ({
    ...{ user_id: "mallory", standing: n % 2 === 0 ? ("active" as const) : ("suspended" as const), until: 0 },
    version: versions + n + 1,
  }));
  versions += toggles.length;
  await scene.standings.record(toggles);
  await scene.standings.refresh();
  expect([scene.standings.changes, scene.standings.of("mallory")]).toEqual([2, "suspended"]);
  const home = async () => expect(await scene.home()).toMatchObject({ drop_ids: ["bob-0"], degraded: false });
  for (let reads = 0; reads < 4; reads++) await home();
  await redis.raw.config("RESETSTAT");
  for (let reads = 0; reads < 20; reads++) await home();
  expect(await callsOf("zmscore", "evalsha")).toEqual([0, 0]);
});
