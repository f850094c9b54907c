import { expect, test } from "@jest/globals";
import { toToken } from "../../src/contracts/page-request.js";
import { GetTimelineResponse } from "../../src/gen/avion/timeline.js";
import { silent } from "../../src/kernel/logger.js";
import { getSharedTimeline } from "../../src/reads/get-timeline.js";
import { createFences } from "../../src/state/fences/fences.js";
import { historyOf, rebuildQueue, sourcesOf } from "../support/memory-upstreams.js";
import { adaptersOn } from "../support/redis.js";
import { redisOfFile } from "../support/redis-of-file.js";
import { World } from "../support/world.js";

const redis = redisOfFile();

// Invariant 5.
test.each([
  ["a first page", ""],
  ["a later page", toToken({ score: 9, drop: "d" })],
])("%s is degraded where Redis may have lost data before it was read or while it was", async (_, max_id) => {
  const { store, pulls, hidden, fenceStore } = adaptersOn(redis.scripts, { maxEntries: 10 });
  const fences = createFences({ store: fenceStore, readHistory: historyOf([]), log: silent });
  await fences.recordTombstones([{ drop: "other", time: Date.now() }]);
  await redis.raw.zadd("timeline:local", 0, "~floor", 1, "a", 2, "b");
  let isLost = false;
  let meanwhile = (): void => undefined;
  const read = getSharedTimeline(
    {
      store: {
        ...store,
        read: (range) => store.read(range).finally(() => meanwhile()),
        readFirstPage: (...of) => store.readFirstPage(...of).finally(() => meanwhile()),
      },
      ...{
        pulls,
        hidden,
        fences,
        rebuildQueue,
        maxEntries: 10,
        judgesReplies: false,
        deadlineMaxMs: 30_000,
        log: silent,
      },
      openSources: () => sourcesOf(new World()),
      readShared: async () => ({ entries: [], floor: 0 }),
      rebuild: async () => undefined,
      maybeLost: () => isLost,
      affected: () => [],
      isAffected: async () => false,
      observe: () => undefined,
    },
    "local",
  );
  const page = async () => {
    const asked = { user_id: "", limit: 0, since_id: "", min_id: "", max_id };
    const answer = await read(asked, { deadline: Date.now() + 10_000, traced: (work) => work() });
    const { drop_ids, degraded } = GetTimelineResponse.decode(answer);
    return [drop_ids.join(), degraded];
  };
  expect(await page()).toEqual(["b,a", false]);
  meanwhile = () => {
    isLost = true;
  };
  expect(await page()).toEqual(["b,a", true]);
  meanwhile = () => {
    isLost = false;
  };
  expect(await page()).toEqual(["b,a", true]);
  expect(await page()).toEqual(["b,a", false]);
});
