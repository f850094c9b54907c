import { expect, test } from "@jest/globals";
import { AppError } from "../../src/kernel/errors.js";
import { contextWith } from "../support/deliveries.js";
import { failingFor } from "../support/failing.js";
import { DROP, followers, handle, logged, openFanout, work } from "../support/fanout.js";
import { redisOfFile } from "../support/redis-of-file.js";
import { created, deleted, followed, received } from "../support/timeline-events.js";
import { held, homeKey } from "../support/timeline-keys.js";

const redis = redisOfFile();
const idsOf = async (key: string) => (await held(redis.raw, key)).entries.map(([id]) => id);
const away = () => new AppError("unavailable", "away");

const HANDLINGS = ["alone", "in a batch"] as const;

/** A process that notes its steps, and knows ada's two followers. */
async function openNoting(order: string[]) {
  const noting =
    <A extends unknown[], R>(name: string, step: (...args: A) => Promise<R>) =>
    async (...args: A): Promise<R> => {
      const result = await step(...args);
      await new Promise(setImmediate);
      order.push(name);
      return result;
    };
  const bench = openFanout(redis, followers(2), {
    change: ({ writer, fences, notify, complete, ...deps }) => ({
      ...deps,
      writer: {
        ...writer,
        addToHomes: noting("written", writer.addToHomes),
        removeFromHomes: noting("removed", writer.removeFromHomes),
      },
      fences: {
        ...fences,
        recordTombstones: noting("recorded", fences.recordTombstones),
        tombstonedAmong: noting("looked", fences.tombstonedAmong),
      },
      notify: noting("notified", notify),
      complete: noting("completed", complete),
    }),
  });
  await handle(bench, created({ ...DROP, drop_id: "before", visibility: "followers" }));
  order.length = 0;
  return async (how: (typeof HANDLINGS)[number], event: Parameters<typeof handle>[1]): Promise<void> => {
    const delivery = logged(event, Date.now());
    if (how === "alone") await bench.handlers.drops.single(delivery, contextWith());
    else expect(await bench.handlers.drops.batch([delivery], contextWith())).toEqual([]);
    order.push("handled");
  };
}

// Invariant 2.
test.each(HANDLINGS)(
  "the order is: every write, the look for tombstones and unfollows, the notifications, another look, the completion (%s)",
  async (how) => {
    const order: string[] = [];
    const handling = await openNoting(order);
    await handling(how, created({ ...DROP, visibility: "followers" }));
    expect(order).toEqual(["written", "looked", "notified", "looked", "completed", "handled"]);
  },
);

// Invariant 2.
test.each(HANDLINGS)(
  "the order of a deletion is: the tombstone, the notifications, every removal, the completion (%s)",
  async (how) => {
    const order: string[] = [];
    const handling = await openNoting(order);
    await handling(how, deleted("before", "ada"));
    expect(order).toEqual(["recorded", "notified", "removed", "completed", "handled"]);
  },
);

// Invariant 2.
test("a notification that is not stored fails the handling: nothing is completed, and the next handling notifies everybody", async () => {
  const refused: string[] = [];
  const bench = openFanout(redis, followers(2), {
    change: (deps) => ({
      ...deps,
      notify: async (all) => {
        if (refused.length === 0) {
          refused.push(...all.flatMap(({ users }) => users));
          throw away();
        }
        return deps.notify(all);
      },
    }),
  });
  const delivery = logged(created(DROP), Date.now());
  await expect(bench.handlers.drops.single(delivery, contextWith())).rejects.toMatchObject({ code: "unavailable" });
  expect([bench.notified, bench.completed]).toEqual([[], []]);
  await bench.handlers.drops.single(delivery, contextWith());
  expect(bench.notified.flatMap(({ users }) => users)).toEqual(refused);
  expect([bench.completed.length, await idsOf(homeKey("f1"))]).toEqual([1, ["d1"]]);
});

const toldOf = (bench: ReturnType<typeof openFanout>) =>
  bench.notified.filter(({ notification }) => notification.event === "drop_deleted").flatMap(({ users }) => users);

test.each([1, 100])(
  "a deletion notifies the users from whose timeline something was removed, and nobody else (%i followers a page)",
  async (pageSize) => {
    const world = followers(5);
    const bench = openFanout(redis, world, { pageSize });
    const direct = { ...DROP, visibility: "direct", recipients: ["f1", "f3", "stranger"] } as const;
    await handle(bench, created(direct));
    await handle(bench, deleted("d1", "ada"));
    await work(bench);
    expect(toldOf(bench).sort()).toEqual(["ada", "f1", "f3"]);
    expect(await idsOf(homeKey("f1"))).toEqual([]);
    await handle(bench, deleted("d1", "ada"));
    await work(bench);
    expect(toldOf(bench)).toHaveLength(3);
  },
);

// Invariant 2.
test("a deletion that breaks off before the removal notifies the same users again, and nobody else", async () => {
  let broken = true;
  const bench = openFanout(redis, followers(3), {
    change: (deps) => ({
      ...deps,
      writer: {
        ...deps.writer,
        removeFromHomes: async (...args) => {
          if (broken) throw away();
          await deps.writer.removeFromHomes(...args);
        },
      },
    }),
  });
  await handle(bench, created({ ...DROP, visibility: "direct", recipients: ["f1"] }));
  const delivery = logged(deleted("d1", "ada"), Date.now());
  await expect(bench.handlers.drops.single(delivery, contextWith())).rejects.toMatchObject({ code: "unavailable" });
  broken = false;
  await bench.handlers.drops.single(delivery, contextWith());
  expect(toldOf(bench)).toEqual(["ada", "f1", "ada", "f1"]);
  expect(await idsOf(homeKey("f1"))).toEqual([]);
});

// Invariant 2.
test("a deletion whose notifications are not stored removes nothing yet: the next handling notifies everybody", async () => {
  let broken = true;
  const bench = openFanout(redis, followers(2), {
    change: (deps) => ({
      ...deps,
      notify: async (all) => {
        if (all.some(({ notification }) => notification.event === "drop_deleted") && broken) throw away();
        return deps.notify(all);
      },
    }),
  });
  await handle(bench, created(DROP));
  const delivery = logged(deleted("d1", "ada"), Date.now());
  await expect(bench.handlers.drops.single(delivery, contextWith())).rejects.toMatchObject({ code: "unavailable" });
  broken = false;
  await bench.handlers.drops.single(delivery, contextWith());
  expect(toldOf(bench).sort()).toEqual(["ada", "f0", "f1"]);
  expect(await idsOf(homeKey("f1"))).toEqual([]);
});

// Invariant 2.
test("a job or a completion that is not stored fails the planning", async () => {
  for (const port of ["queue", "complete"] as const) {
    const bench = openFanout(redis, followers(port === "queue" ? 5 : 1), {
      pageSize: 2,
      change: (deps) => ({ ...deps, [port]: () => Promise.reject(away()) }),
    });
    await expect(bench.handlers.drops.single(logged(created(DROP), Date.now()), contextWith())).rejects.toMatchObject({
      code: "unavailable",
    });
    expect([port, bench.completed]).toEqual([port, []]);
  }
});

// Invariant 2.
test("one failed reply of many fails the handling, though the other calls were written", async () => {
  const scripts = failingFor(redis.scripts, "f700");
  const bench = openFanout({ scripts }, followers(1_200), { pageSize: 2_000 });
  const delivery = logged(created(DROP), Date.now());
  await expect(bench.handlers.drops.single(delivery, contextWith())).rejects.toMatchObject({ code: "failed" });
  expect([await idsOf(homeKey("f1")), bench.notified, bench.completed]).toEqual([["d1"], [], []]);
  scripts.mend();
  await bench.handlers.drops.single(delivery, contextWith());
  expect([await idsOf(homeKey("f700")), bench.completed.length]).toEqual([["d1"], 1]);
});

// Invariant 2.
test("a chunk whose write fails is not counted as done; handled again it completes the fan-out", async () => {
  const scripts = failingFor(redis.scripts, "f3");
  const bench = openFanout({ scripts }, followers(4), { pageSize: 2 });
  await handle(bench, created(DROP));
  await expect(work(bench)).rejects.toMatchObject({ code: "failed" });
  const again = openFanout({ scripts }, followers(4), { pageSize: 2 });
  await work(again);
  expect([bench.completed, again.completed]).toEqual([[], []]);
  scripts.mend();
  await handle(again, created(DROP));
  await work(again);
  expect(again.completed).toEqual([expect.objectContaining({ drop_id: "d1", recipients: 5, chunks: 2 })]);
});

// Invariant 4.
test("a deletion sets the tombstone before it removes anything", async () => {
  const world = followers(2);
  await handle(openFanout(redis, world), created(DROP));
  const seen: [string, string | null][] = [];
  const look = async (what: string) => void seen.push([what, await redis.raw.zscore("timeline:tombstones", "d1")]);
  const bench = openFanout(redis, world, {
    change: (deps) => ({
      ...deps,
      writer: {
        ...deps.writer,
        removeShared: async (drop) => {
          await look("shared");
          await deps.writer.removeShared(drop);
        },
        removeFromHomes: async (...args) => {
          await look("home");
          await deps.writer.removeFromHomes(...args);
        },
      },
    }),
  });
  await handle(bench, deleted("d1", "ada"), 5_000_000_000_000);
  expect(seen).toEqual([
    ["shared", "5000000000000"],
    ["home", "5000000000000"],
  ]);
});

// Invariant 4.
test("a drop deleted while a follow is being backfilled does not come back", async () => {
  const world = followers(0);
  for (const drop_id of ["d1", "d2"]) world.post({ ...DROP, drop_id });
  let died = false;
  const bench = openFanout(redis, world, {
    change: (deps) => ({
      ...deps,
      readAuthorDrops: async (author, below, of) => {
        const page = await deps.readAuthorDrops(author, below, of);
        if (!died) await handle(openFanout(redis, world), deleted("d1", "ada"));
        died = true;
        return page;
      },
    }),
  });
  world.follow("rik", "ada");
  await handle(bench, followed("rik", "ada", 1));
  expect([died, await idsOf(homeKey("rik"))]).toEqual([true, ["d2"]]);
});

// Invariant 4.
test("a drop deleted between the write to the shared timelines and the look for its tombstone does not stay there", async () => {
  for (const event of [created(DROP), received({ drop_id: "d1", user_id: "ada", created_at: 1_000 })]) {
    await redis.raw.flushall();
    let died = false;
    const bench = openFanout(redis, followers(1), {
      change: (deps) => ({
        ...deps,
        writer: {
          ...deps.writer,
          addShared: async (...args) => {
            if (!died) await handle(openFanout(redis, followers(1)), deleted("d1", "ada"));
            died = true;
            await deps.writer.addShared(...args);
          },
        },
      }),
    });
    await handle(bench, event);
    expect([died, await idsOf("timeline:local"), await idsOf("timeline:global")]).toEqual([true, [], []]);
  }
});
