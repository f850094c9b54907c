import { expect, test } from "@jest/globals";
import { NEWS_AGE_MS } from "../../src/contracts/times.js";
import type { FanoutDeps } from "../../src/fanout/deps.js";
import { createNotify } from "../../src/fanout/notify.js";
import { createPublishNotifications } from "../../src/fanout/publish.nats.js";
import { RECENT_KEY } from "../../src/state/keys.js";
import { DROP, type FanoutBench, followers, handle, openFanout } from "../support/fanout.js";
import { natsOfFile } from "../support/nats-of-file.js";
import { openRegistry, step } from "../support/pulled.js";
import { redisOfFile } from "../support/redis-of-file.js";
import { created, deleted } from "../support/timeline-events.js";
import { homeKey } from "../support/timeline-keys.js";

const redis = redisOfFile();
const nats = natsOfFile();

/** Users notified of an event, in order. */
const toldOf = ({ notified }: FanoutBench, event: string): string[] =>
  notified.flatMap(({ users, notification }) => (notification.event === event ? users : [])).sort();

const readable = (user: string, floor = 0) => redis.raw.zadd(homeKey(user), floor, "~floor");

// Invariant 2.
test("a drop that is more than six hours old when it is admitted notifies nobody, its deletion those who have it", async () => {
  const bench = openFanout(redis, followers(1));
  const now = Date.now();
  const old = { ...DROP, created_at: now - NEWS_AGE_MS - 1 };
  await handle(bench, created(old), now);
  expect([bench.notified, await redis.raw.zscore(homeKey("f0"), "d1")]).toEqual([[], String(old.created_at)]);
  await handle(bench, deleted("d1", "ada"), now);
  expect(toldOf(bench, "drop_deleted")).toEqual(["ada", "f0"]);
  await handle(bench, created({ ...DROP, drop_id: "d2", created_at: now - NEWS_AGE_MS }), now);
  expect(toldOf(bench, "new_drop")).toEqual(["ada", "f0"]);
  const later = openFanout(redis, followers(1));
  // It was admitted in time, and waited.
  await handle(later, created({ ...DROP, drop_id: "d3", created_at: now - NEWS_AGE_MS - 60_000 }), now - 60_000);
  expect(toldOf(later, "new_drop")).toEqual(["ada", "f0"]);
});

// Invariant 2.
test("a drop below the floor of a home does not notify its reader, also where it is handled again", async () => {
  const bench = openFanout(redis, followers(3));
  await readable("f0", DROP.created_at);
  await readable("f1", DROP.created_at - 1);
  for (const _ of ["first", "again"]) await handle(bench, created(DROP));
  expect(toldOf(bench, "new_drop")).toEqual(["ada", "ada", "f1", "f1", "f2", "f2"]);
});

test("a drop that a full home cuts off at once does not notify its reader", async () => {
  const bench = openFanout(redis, followers(1), { maxEntries: 3 });
  await readable("f0");
  const ids = ["d1", "d2", "d3", "d4"];
  for (const [at, drop_id] of ids.entries())
    await handle(bench, created({ ...DROP, drop_id, created_at: DROP.created_at + (drop_id === "d4" ? 0 : at + 1) }));
  const told = bench.notified.filter(({ notification }) => notification.drop_id === "d4").flatMap(({ users }) => users);
  expect([told, await redis.raw.zscore(homeKey("f0"), "d4")]).toEqual([["ada"], null]);
});

test("a drop of a pulled author notifies nobody whose home has its floor above it", async () => {
  const registry = openRegistry(redis, Number.POSITIVE_INFINITY);
  const world = followers(9);
  const bench = openFanout(redis, world, { pageSize: 2, change: (deps) => ({ ...deps, authorStates: registry }) });
  await registry.choose("ada", "pull");
  await step(bench, registry);
  for (const user of ["f1", "f2"]) await redis.raw.zadd(RECENT_KEY, Date.now(), user);
  await readable("f1", DROP.created_at + 1);
  world.post(DROP);
  await handle(bench, created(DROP));
  expect(toldOf(bench, "new_drop")).toEqual(["ada", "f2"]);
});

// Invariant 2.
test("where only homes that are read are written, a listener who was told of a drop is told of its deletion", async () => {
  const bench = openFanout(redis, followers(3), { activeOnly: true });
  await readable("f0");
  const read = { ...DROP, drop_id: "d2", visibility: "direct", recipients: ["f0"] } as const;
  for (const drop of [DROP, read]) await handle(bench, created(drop));
  expect(toldOf(bench, "new_drop")).toEqual(["ada", "ada", "f0", "f0", "f1", "f2"]);
  await handle(bench, deleted("d1", "ada"));
  expect(toldOf(bench, "drop_deleted")).toEqual(["ada", "f0", "f1", "f2"]);
  await handle(bench, deleted("d2", "ada"));
  expect(toldOf(bench, "drop_deleted")).toEqual(["ada", "f0", "f0", "f1", "f2"]);
});

/** The messages of NOTIFY for a user, in order. */
async function storedFor(user: string): Promise<string[]> {
  const all = await nats.streams.all("NOTIFY");
  return all
    .filter(({ subject }) => subject === `notify.user.${user}`)
    .map(({ body }) => (JSON.parse(String(body)) as { event: string }).event);
}

// Invariant 2.
test("a deletion that another process announces just before its drop is announced after it, too", async () => {
  const world = followers(2);
  const publish = createPublishNotifications(nats.publishAll);
  const processOf = (before: () => Promise<void>): FanoutBench =>
    openFanout(redis, world, {
      change: (deps: FanoutDeps) => ({
        ...deps,
        notify: async (all) => {
          if (all.some(({ notification }) => notification.event === "new_drop")) await before();
          return createNotify({ ...deps, publish })(all);
        },
      }),
    });
  await redis.raw.zadd(RECENT_KEY, Date.now(), "f0", Date.now(), "f1");
  for (const user of ["f0", "f1"]) await readable(user);
  const other = processOf(async () => undefined);
  const drop = { ...DROP, visibility: "followers" } as const;
  await handle(
    processOf(() => handle(other, deleted("d1", "ada"))),
    created(drop),
  );
  for (const user of ["f0", "f1"]) expect(await storedFor(user)).toEqual(["drop_deleted", "new_drop", "drop_deleted"]);
});
