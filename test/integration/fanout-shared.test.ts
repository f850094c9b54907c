import { expect, test } from "@jest/globals";
import { SHARED_CHANGED, SILENT_HEADER, STREAM } from "../../src/contracts/subjects.js";
import { createNotifyHiding, createNotifyShared } from "../../src/fanout/publish.nats.js";
import { HOUR } from "../../src/kernel/time.js";
import { createRemovalNotes } from "../../src/state/entries/removal-notes.redis.js";
import { GLOBAL_KEY, LOCAL_KEY } from "../../src/state/keys.js";
import { contextWith, deliveryOf, headersWith } from "../support/deliveries.js";
import { DROP, type FanoutBench, followers, handle, openFanout } from "../support/fanout.js";
import { natsOfFile } from "../support/nats-of-file.js";
import { redisOfFile } from "../support/redis-of-file.js";
import { created, deleted, edited, received } from "../support/timeline-events.js";

const redis = redisOfFile();
const nats = natsOfFile();

/** Returns and forgets the events told on the streams of local and global, as `event drop timeline`. */
const toldOf = ({ shared }: FanoutBench): string[] =>
  shared.splice(0).map(({ event, drop_id, shown_in = "-", by = "?" }) => `${event} ${drop_id} ${shown_in} ${by}`);

test("a public drop is told with its timelines, and others are not", async () => {
  const bench = openFanout(redis, followers(1));
  await handle(bench, created(DROP));
  await handle(bench, created({ ...DROP, drop_id: "d2", visibility: "followers" }));
  await handle(bench, created({ ...DROP, drop_id: "d3", repost_of: "d1", repost_author: "ada" }));
  await handle(bench, created({ ...DROP, drop_id: "d4", created_at: Date.now() - 7 * HOUR }));
  await handle(
    bench,
    received({ drop_id: "https://b.example/1", user_id: "https://b.example/u", created_at: Date.now() }),
  );
  const actor = `=${Buffer.from("https://b.example/u").toString("base64url")}`;
  expect(toldOf(bench)).toEqual(["new_drop d1 local ada", `new_drop https://b.example/1 global ${actor}`]);
});

test("a silent drop, and one below the end of a full timeline, are told to nobody", async () => {
  const bench = openFanout(redis, followers(1), { maxEntries: 2 });
  const { channel, payload } = created(DROP);
  const headers = headersWith({ [SILENT_HEADER]: "1" });
  expect(channel).toBe("drop_created");
  await bench.handlers.drops.single(
    deliveryOf({ subject: "drops.created", json: payload, time: Date.now(), headers }),
    contextWith(),
  );
  expect(toldOf(bench)).toEqual([]);
  for (const id of ["n1", "n2", "n3"]) await handle(bench, created({ ...DROP, drop_id: id, created_at: Date.now() }));
  await handle(bench, created({ ...DROP, drop_id: "old", created_at: Date.now() - HOUR }));
  expect(toldOf(bench)).toEqual(["n1", "n2", "n3"].map((id) => `new_drop ${id} local ada`));
});

test("a deletion is told with the timelines that had the drop, and again by a repetition", async () => {
  const bench = openFanout(redis, followers(1));
  await handle(bench, created(DROP));
  toldOf(bench);
  await handle(bench, deleted("d1", "ada"));
  await handle(bench, deleted("d1", "ada"));
  await handle(bench, created(DROP));
  expect(toldOf(bench)).toEqual(["drop_deleted d1 local ada", "drop_deleted d1 - ada"]);
});

test("a deletion is told with the timelines whose pages have removed the drop before", async () => {
  const bench = openFanout(redis, followers(1));
  const notes = createRemovalNotes(redis.scripts);
  for (const [drop_id, created_at] of [
    ["d1", Date.now()],
    ["d2", Date.now() - 1],
  ] as const)
    await handle(bench, created({ ...DROP, drop_id, created_at }));
  toldOf(bench);
  for (const key of [LOCAL_KEY, GLOBAL_KEY]) await notes.remove(key, ["d1"]);
  await handle(bench, deleted("d1", "ada"));
  await handle(bench, deleted("d2", "ada"));
  expect(toldOf(bench)).toEqual(["drop_deleted d1 local ada", "drop_deleted d2 local ada"]);
});

test("an edit is told with the timelines that show the drop, unless it is still being published", async () => {
  const bench = openFanout(redis, followers(1));
  await handle(bench, created(DROP));
  toldOf(bench);
  await handle(bench, edited("d1", "ada", 2));
  await bench.deps.publishing.begin([{ drop_id: "d1", admitted_at: Date.now() }]);
  await bench.handlers.drops
    .single(
      deliveryOf({ subject: "drops.edited", json: edited("d1", "ada", 3).payload, time: Date.now() }),
      contextWith(),
    )
    .catch(() => undefined);
  expect(toldOf(bench)).toEqual(["drop_edited d1 local ada", "drop_edited d1 - ada"]);
});

// Invariant 2.
test("a drop and a change of relations are stored in SHARED, and a repetition of the drop is not", async () => {
  const notify = createNotifyShared(nats.publishAll);
  const notification = { event: "new_drop", drop_id: "d1", created_at: 1, shown_in: "local", by: "ada" } as const;
  await notify([{ notification, trace: undefined }]);
  await notify([{ notification, trace: undefined }]);
  await createNotifyHiding(nats.publishAll)([], ["bob"]);
  const { state } = await nats.manager.streams.info(STREAM.shared, { subjects_filter: ">" });
  expect(state.subjects).toEqual({ [SHARED_CHANGED]: 2 });
  const bodies = await Promise.all(
    [1, 2].map(async (seq) => (await nats.manager.streams.getMessage(STREAM.shared, { seq })).json()),
  );
  expect(bodies).toEqual([notification, { event: "~hiding", user_id: "bob" }]);
});
