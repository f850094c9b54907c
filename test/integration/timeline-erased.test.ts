import { afterEach, beforeEach, expect, test } from "@jest/globals";
import { GetTimelineRequest, GetTimelineResponse } from "../../src/gen/avion/timeline.js";
import { hookFailpoints } from "../../src/kernel/failpoints.js";
import { silent } from "../../src/kernel/logger.js";
import { rebuildUnlessErased, sourcesWithoutErased } from "../../src/reads/erased.js";
import { type GetTimeline, getHomeTimeline, getSharedTimeline, type ReadDeps } from "../../src/reads/get-timeline.js";
import { fillPulls } from "../../src/reads/home.js";
import { createRebuild, snapshotOf } from "../../src/reads/rebuild.js";
import type { AuthorRegistry } from "../../src/state/big-authors/registry.js";
import type { Erased } from "../../src/state/erased/erasures.js";
import { createFences } from "../../src/state/fences/fences.js";
import { homeKey, pullsKey } from "../../src/state/keys.js";
import { erasedOn, forgetIn, namedIn } from "../support/erased.js";
import { historyOf, rebuildQueue, sourcesOf } from "../support/memory-upstreams.js";
import { natsOfFile } from "../support/nats-of-file.js";
import { openRegistry, published } from "../support/pulled.js";
import { adaptersOn } from "../support/redis.js";
import { redisOfFile } from "../support/redis-of-file.js";
import { World, type WorldDrop } from "../support/world.js";

const redis = redisOfFile();
const nats = natsOfFile();
const EVE = "eve.the@erased";
const START = Date.now() - 600_000;
const MAX = 20;
let erased: Erased;

afterEach(() => hookFailpoints(undefined));

beforeEach(async () => {
  await nats.manager.streams.purge("KV_ERASED");
  erased = erasedOn(redis.scripts, nats);
});

/** Ada and eve follow bob; ada follows eve and hides her, and cat, who hides ada. Upstreams never forget anybody. */
class Scene {
  readonly world = new World();
  readonly deps: ReadDeps;
  /** The users service was asked whom these hide. */
  readonly asked: string[] = [];
  whileHiddenIsRead = async (): Promise<void> => undefined;
  #drops = 0;

  constructor(registry?: AuthorRegistry) {
    const readHidden = async (user: string) => {
      this.asked.push(user);
      await this.whileHiddenIsRead();
      return this.world.hiddenFrom(user);
    };
    const { store, pulls, hidden, fenceStore } = adaptersOn(
      redis.scripts,
      { maxEntries: MAX, readHidden, erased },
      registry,
    );
    const fences = createFences({ store: fenceStore, readHistory: historyOf([]), log: silent });
    const authorStates = registry ?? { copy: () => new Map(), refresh: async () => new Map() };
    const of = { store, fences, fillHidden: hidden.fill, rebuildQueue, log: silent, observe: () => undefined };
    const rebuild = rebuildUnlessErased(createRebuild(of), { store, erased, authorStates });
    this.deps = {
      ...{ store, pulls, hidden, fences, rebuildQueue, rebuild, maxEntries: MAX, judgesReplies: false, log: silent },
      openSources: sourcesWithoutErased(() => sourcesOf(this.world), erased),
      deadlineMaxMs: 30_000,
      readShared: async () => snapshotOf([], MAX, 0),
      ...{ maybeLost: () => false, affected: () => [], isAffected: async () => false, observe: () => undefined },
    };
    for (const author of ["bob", EVE]) this.world.follow("ada", author);
    this.world.follow(EVE, "bob");
  }

  post(user_id: string, more: Partial<WorldDrop> = {}): string {
    const drop = { drop_id: `d${this.#drops}`, user_id, created_at: START + this.#drops++, ...more };
    this.world.post(drop);
    return drop.drop_id;
  }

  home = (user_id: string, more: Partial<GetTimelineRequest> = {}) => read(getHomeTimeline(this.deps), user_id, more);
  local = (user_id: string) => read(getSharedTimeline(this.deps, "local"), user_id);
}

async function read(get: GetTimeline, user_id: string, more: Partial<GetTimelineRequest> = {}) {
  const asked = GetTimelineRequest.fromPartial({ user_id, limit: 10, ...more });
  return GetTimelineResponse.decode(await get(asked, { deadline: Date.now() + 10_000, traced: (work) => work() }));
}

const keysWithout = async (): Promise<readonly string[]> => namedIn(redis.raw, EVE);

test("reads of an erased user find nothing, and leave nothing in Redis", async () => {
  const scene = new Scene();
  for (let at = 0; at < 5; at++) scene.post("bob");
  expect((await scene.home(EVE)).drop_ids).toHaveLength(5);
  const token = (await scene.home(EVE, { limit: 2 })).next_max_id;
  await erased.record(EVE, 1);
  await forgetIn(redis.raw, EVE, []);
  for (const more of [{}, { max_id: token }, { max_id: "d3" }, { min_id: token }])
    await expect(scene.home(EVE, more)).rejects.toMatchObject({ code: "notfound" });
  await expect(scene.deps.rebuild(homeKey(EVE), async () => snapshotOf([], MAX, 0))).rejects.toMatchObject({
    code: "notfound",
  });
  expect(await keysWithout()).toEqual([]);
});

test("an erased viewer of local hides nobody, and leaves nothing in Redis", async () => {
  const scene = new Scene();
  scene.world.mute(EVE, "bob");
  await erased.record(EVE, 1);
  expect(await scene.local(EVE)).toMatchObject({ degraded: false });
  expect(await keysWithout()).toEqual([]);
});

test("a home that is rebuilt, or read below its floor, has no drop of an erased author and no repost of one", async () => {
  const scene = new Scene();
  const kept: string[] = [];
  for (let at = 0; at < 15; at++) {
    const original = scene.post(EVE);
    scene.post("bob", { repost_of: original, repost_author: EVE });
    kept.unshift(scene.post("bob"), scene.post("ada"));
    kept.splice(0, 2, ...kept.slice(0, 2).reverse());
  }
  await erased.record(EVE, 1);
  const shown: string[] = [];
  for (let max_id = "", more = true; more; ) {
    const page = await scene.home("ada", { limit: 7, max_id });
    expect(page.degraded).toBe(false);
    shown.push(...page.drop_ids);
    ({ next_max_id: max_id, has_more: more } = page);
  }
  expect(shown).toEqual(kept);
  expect(await keysWithout()).toEqual([]);
});

test("whom an erased user hides, and who hides them, is not kept", async () => {
  const scene = new Scene();
  scene.world.mute("ada", EVE);
  scene.world.mute("ada", "bob");
  scene.world.block(EVE, "cat");
  await erased.record(EVE, 1);
  await scene.home("ada");
  await scene.home("cat");
  await expect(scene.deps.hidden.known(EVE)).rejects.toMatchObject({ code: "notfound" });
  expect(scene.asked).toEqual(["ada", "cat"]);
  expect(await keysWithout()).toEqual([]);
  expect(await redis.raw.keys("timeline:x:hiders:*")).toEqual(["timeline:x:hiders:bob"]);
});

test("a user who is erased while their home is rebuilt has none, also where the erasure has passed it", async () => {
  const scene = new Scene();
  scene.world.mute(EVE, "cat");
  scene.post("bob");
  hookFailpoints(async (point) => {
    if (point !== "rebuild-read") return;
    await erased.record(EVE, 1);
    await forgetIn(redis.raw, EVE, []);
  });
  await expect(scene.home(EVE)).rejects.toMatchObject({ code: "notfound" });
  expect(await keysWithout()).toEqual([]);
});

test("a user who is erased while their hidden users are read has none, also where the erasure has passed them", async () => {
  const scene = new Scene();
  scene.world.mute(EVE, "cat");
  scene.whileHiddenIsRead = async () => {
    await erased.record(EVE, 1);
    await forgetIn(redis.raw, EVE, []);
  };
  await expect(scene.deps.hidden.fill(EVE)).rejects.toMatchObject({ code: "notfound" });
  expect(await keysWithout()).toEqual([]);
});

test("the pulled authors of an erased user are not kept, and those of others do not name one who was erased", async () => {
  const registry = openRegistry(redis, 0);
  const scene = new Scene(registry);
  for (const author of ["bob", EVE]) await registry.updateStates(published(author, 5));
  await erased.record(EVE, 1);
  await registry.forget(EVE);
  await expect(fillPulls(scene.deps, EVE, Date.now() + 5_000)).rejects.toMatchObject({ code: "notfound" });
  await fillPulls(scene.deps, "ada", Date.now() + 5_000);
  expect((await redis.raw.smembers(pullsKey("ada"))).sort()).toEqual(["bob", "~complete"]);
  expect(await keysWithout()).toEqual([]);
});

test("a page read with an older copy of the registry shows what it has without the author who was erased", async () => {
  const registry = openRegistry(redis, 0);
  const scene = new Scene(registry);
  await registry.updateStates(published(EVE, 5));
  scene.post(EVE);
  const kept = scene.post("bob");
  await scene.home("ada");
  const other = openRegistry(redis, 0);
  await erased.record(EVE, 1);
  await other.forget(EVE);
  await forgetIn(redis.raw, EVE, ["d0"]);
  expect(await scene.home("ada")).toMatchObject({ drop_ids: [kept], degraded: false });
  expect(await keysWithout()).toEqual([]);
});
