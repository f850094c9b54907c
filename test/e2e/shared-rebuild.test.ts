import { expect } from "@jest/globals";
import { becomes } from "../support/eventually.js";
import { testWithStack } from "../support/stack.js";
import { created, deleted, received } from "../support/timeline-events.js";

const MINUTE = 60_000;
const drop = (drop_id: string, created_at: number) =>
  ({ drop_id, user_id: "ada", visibility: "public", created_at }) as const;

// Invariant 5.
testWithStack("local and global take new drops after both the log and Redis were emptied", {}, async (stack) => {
  const { streams, redis, publish, reads } = stack;
  await publish(created(drop("lost", Date.now())));
  await streams.settled(1);
  await streams.manager.streams.purge("DROPS");
  await redis.flushall();
  for (const read of [reads.local, reads.global])
    await becomes(async () => expect(await read()).toMatchObject({ drop_ids: [], degraded: false }));
  // The second one waited for its bridge, or came late from another server.
  const [fresh, late] = [drop("fresh", Date.now()), drop("late", Date.now() - 30 * MINUTE)];
  await publish(created(fresh), received(late));
  await streams.settled(2);
  expect(await reads.local()).toMatchObject({ drop_ids: ["fresh"], degraded: false });
  expect(await reads.global()).toMatchObject({ drop_ids: ["fresh", "late"], degraded: false });
  // Now the log is a moment old, and holds both.
  await redis.del("timeline:local", "timeline:global");
  expect(await reads.local()).toMatchObject({ drop_ids: ["fresh"], degraded: false });
  expect(await reads.global()).toMatchObject({ drop_ids: ["fresh", "late"], degraded: false });
});

// Invariant 5.
testWithStack(
  "deleted drops take no room in local and global when these are rebuilt",
  { env: { TIMELINE_MAX_ENTRIES: "10" } },
  async ({ streams, redis, publish, reads }) => {
    const now = Date.now();
    const kept = ["k1", "k2", "k3"].map((id, at) => drop(id, now - MINUTE + at));
    const spam = Array.from({ length: 25 }, (_, at) => drop(`spam-${at}`, now - 1_000 + at));
    await publish(...[...kept, ...spam].map(created));
    await publish(...spam.map(({ drop_id }) => deleted(drop_id, "ada")));
    await streams.settled(kept.length + 2 * spam.length);
    await redis.del("timeline:local", "timeline:global");
    for (const read of [reads.local, reads.global])
      expect(await read()).toMatchObject({ drop_ids: ["k3", "k2", "k1"], degraded: false });
  },
);
