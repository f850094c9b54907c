import { expect, test } from "@jest/globals";
import { GetTimelineResponse } from "../../src/gen/avion/timeline.js";
import { AppError } from "../../src/kernel/errors.js";
import { silent } from "../../src/kernel/logger.js";
import { getHomeTimeline } from "../../src/reads/get-timeline.js";
import { createFences } from "../../src/state/fences/fences.js";
import { historyOf, readDropsOf, rebuildQueue, sourcesOf } from "../support/memory-upstreams.js";
import { adaptersOn } from "../support/redis.js";
import { redisOfFile } from "../support/redis-of-file.js";
import { World } from "../support/world.js";

const redis = redisOfFile();

// Invariant 11.
test("while a home cannot be rebuilt, a page whose calls run out hands out where the next one goes on", async () => {
  const world = new World();
  world.follow("rik", "ada");
  world.post({ drop_id: "shown", user_id: "ada", created_at: 10 });
  for (let at = 0; at < 1_100; at++)
    world.post({ ...{ drop_id: `to-eve-${at}`, user_id: "ada", created_at: 1_000 + at }, visibility: "direct" });
  // So many drops take more calls than a page makes.
  const all = readDropsOf(world);
  const read: typeof all = (of) => all({ ...of, limit: of.limit > 40 ? 1 : of.limit });
  const { store, pulls, hidden, fenceStore } = adaptersOn(redis.scripts, { maxEntries: 10 });
  const away = () => Promise.reject(new AppError("unavailable", "away"));
  const home = getHomeTimeline({
    ...{ store, pulls, hidden, rebuildQueue, maxEntries: 10, judgesReplies: false, deadlineMaxMs: 30_000, log: silent },
    fences: createFences({ store: fenceStore, readHistory: historyOf([]), log: silent }),
    openSources: () => sourcesOf(world, read),
    readShared: away,
    rebuild: away,
    maybeLost: () => false,
    affected: () => [],
    isAffected: async () => false,
    observe: () => undefined,
  });
  const page = async (max_id: string): Promise<GetTimelineResponse> => {
    const asked = { user_id: "rik", limit: 0, since_id: "", max_id, min_id: "" };
    const answer = await home(asked, { deadline: Date.now() + 20_000, traced: (work) => work() });
    return GetTimelineResponse.decode(answer);
  };
  const first = await page("");
  expect(first).toMatchObject({ drop_ids: [], degraded: true, has_more: true });
  expect(await page(first.next_max_id)).toMatchObject({ drop_ids: ["shown"], degraded: true, has_more: false });
});
