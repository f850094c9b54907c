import { entryOfDrop } from "../../src/contracts/timelines.js";
import { GetTimelineRequest, GetTimelineResponse } from "../../src/gen/avion/timeline.js";
import { silent } from "../../src/kernel/logger.js";
import { type GetTimeline, getHomeTimeline, getSharedTimeline, type ReadDeps } from "../../src/reads/get-timeline.js";
import { createRebuild, snapshotOf } from "../../src/reads/rebuild.js";
import type { AuthorRegistry } from "../../src/state/big-authors/registry.js";
import type { PageCache } from "../../src/state/entries/page-cache.js";
import type { Erased } from "../../src/state/erased/erasures.js";
import { createFences } from "../../src/state/fences/fences.js";
import type { ChangeSources } from "../../src/state/hidden/changes.redis.js";
import { type FanoutBench, handle, openFanout } from "./fanout.js";
import { historyOf, rebuildQueue, sourcesOf } from "./memory-upstreams.js";
import { adaptersOn, type ReadHiddenOnce, type RedisBench } from "./redis.js";
import { created } from "./timeline-events.js";
import { World, type WorldDrop } from "./world.js";

export const START = Date.now() - 600_000;
const MAX = 50;

/** Ada follows bob and cat, and reads. */
export class Scene {
  readonly world: World;
  readonly fanout: FanoutBench;
  readonly deps: ReadDeps;
  readonly hidden: ReturnType<typeof adaptersOn>["hidden"];
  /** The copy of the process that reads. */
  readonly standings: ReturnType<typeof adaptersOn>["standings"];
  /** The log is said to hold drops from this time on. */
  logFrom = 0;
  rebuilt = 0;
  #drops = 0;

  constructor(
    redis: Pick<RedisBench, "scripts">,
    {
      readHidden = async (user: string) => this.world.hiddenFrom(user),
      registry,
      changeSources,
      judgesReplies = false,
      world = new World(),
      ...reading
    }: {
      readonly readHidden?: ReadHiddenOnce;
      readonly registry?: AuthorRegistry;
      readonly changeSources?: Partial<ChangeSources>;
      readonly judgesReplies?: boolean;
      readonly world?: World;
      readonly repostWindow?: number;
      readonly cache?: PageCache;
      readonly erased?: Pick<Erased, "among">;
    } = {},
  ) {
    this.world = world;
    world.judgesReplies = judgesReplies;
    const options = { maxEntries: MAX, readHidden, judgesReplies, ...(changeSources && { changeSources }) };
    const change = registry && { change: (deps: FanoutBench["deps"]) => ({ ...deps, authorStates: registry }) };
    this.fanout = openFanout(redis, this.world, { ...options, ...change });
    const { store, pulls, hidden, standings, fenceStore } = adaptersOn(
      redis.scripts,
      { maxEntries: MAX, readHidden, judgesReplies, ...reading },
      registry,
    );
    this.hidden = hidden;
    this.standings = standings;
    const fences = createFences({ store: fenceStore, readHistory: historyOf([]), log: silent });
    const observe = (outcome: string) => {
      if (outcome === "done") this.rebuilt++;
    };
    const rebuild = createRebuild({ store, fences, fillHidden: hidden.fill, rebuildQueue, log: silent, observe });
    this.deps = {
      ...{ store, pulls, hidden, fences, rebuildQueue, rebuild, maxEntries: MAX, judgesReplies, log: silent },
      openSources: () => sourcesOf(this.world),
      deadlineMaxMs: 30_000,
      readShared: async () => {
        const logged = this.world.localOf().map(entryOfDrop);
        return snapshotOf(
          logged.filter(({ score }) => score >= this.logFrom),
          MAX,
          this.logFrom,
        );
      },
      ...{ maybeLost: () => false, affected: () => [], isAffected: async () => false, observe: () => undefined },
    };
    for (const author of ["bob", "cat"]) this.world.follow("ada", author);
  }

  async post(user_id: string, more: Partial<WorldDrop> = {}): Promise<string> {
    const at = { drop_id: `${user_id}-${this.#drops}`, user_id, created_at: START + this.#drops++ };
    const drop = { ...at, visibility: "public", ...more } as const;
    this.world.post(drop);
    const { repost_author, ...event } = drop;
    await handle(this.fanout, created({ ...event, ...(repost_author ? { repost_author } : {}) }));
    return drop.drop_id;
  }

  home = (user_id = "ada", deadline?: number, asked: Partial<GetTimelineRequest> = {}) =>
    read(getHomeTimeline(this.deps), { user_id, ...asked }, deadline);
  local = (user_id = "ada", deadline?: number) => read(getSharedTimeline(this.deps, "local"), { user_id }, deadline);

  /** What a page of home must be. */
  expected(user = "ada") {
    return { drop_ids: this.world.homeOf(user).map(({ drop_id }) => drop_id), degraded: false };
  }
}

async function read(get: GetTimeline, asked: Partial<GetTimelineRequest>, deadline = Date.now() + 10_000) {
  const request = GetTimelineRequest.fromPartial({ limit: 100, ...asked });
  return GetTimelineResponse.decode(await get(request, { deadline, traced: (work) => work() }));
}
