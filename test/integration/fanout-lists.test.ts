import { randomUUID } from "node:crypto";
import { expect, test } from "@jest/globals";
import { listReader } from "../../src/contracts/lists.js";
import type { FanoutDeps } from "../../src/fanout/deps.js";
import { createNotify } from "../../src/fanout/notify.js";
import type { AddressedNotification } from "../../src/fanout/publish.nats.js";
import { encodeId } from "../../src/kernel/ids.js";
import { createLists } from "../../src/state/entries/lists.redis.js";
import { bylinesKey, FLOOR_MEMBER, generationKey, homeKey, listKey, RECENT_KEY } from "../../src/state/keys.js";
import { contextWith } from "../support/deliveries.js";
import { DROP, followers, handle, insisting, logged, openFanout, work } from "../support/fanout.js";
import { redisOfFile } from "../support/redis-of-file.js";
import { created, deleted, edited, followed, unfollowed } from "../support/timeline-events.js";
import { held } from "../support/timeline-keys.js";

const redis = redisOfFile();
const dropsOf = async (list: string) => (await held(redis.raw, listKey(list))).entries.map(([id]) => id);
/** Makes lists complete, as a rebuild does. */
const complete = (...lists: string[]) =>
  Promise.all(lists.map((list) => redis.raw.zadd(listKey(list), 0, FLOOR_MEMBER)));

/** Fan-out of ada, with her in these lists, and with so many followers. */
function open(
  lists: readonly string[],
  { fans = 3, pageSize = 100, change = (deps: FanoutDeps): FanoutDeps => deps } = {},
) {
  const world = followers(fans);
  const readers = lists.map(listReader);
  let reads = 0;
  const bench = openFanout(redis, world, {
    pageSize,
    change: (deps) => ({
      ...change(deps),
      readFollowers: async (author, token) => {
        const page = await deps.readFollowers(author, token);
        reads++;
        return author === "ada" && token === "" ? { ...page, ids: [...page.ids, ...readers] } : page;
      },
      findLists: async (_, owners) => (owners.length === 0 ? lists : owners.includes("rik") ? lists.slice(0, 1) : []),
    }),
  });
  return { world, bench, reads: () => reads };
}

// Invariant 2.
test.each([
  { how: "at once", pageSize: 100 },
  { how: "by jobs", pageSize: 2 },
])("a drop is written $how to the lists that are read, with its byline, and to no other list", async ({ pageSize }) => {
  const [read, unread] = [randomUUID(), randomUUID()];
  await complete(read);
  const { bench } = open([read, unread], { pageSize });
  await handle(bench, created({ ...DROP, reply_to_author: "eve" }));
  await handle(bench, created({ ...DROP, drop_id: "d2", created_at: DROP.created_at + 1, visibility: "followers" }));
  await work(bench);
  expect(await dropsOf(read)).toEqual(["d2", "d1"]);
  expect(await redis.raw.hgetall(bylinesKey(listKey(read)))).toEqual({ d1: "ada,,eve", d2: "ada,,,,f" });
  expect(await redis.raw.exists(listKey(unread), bylinesKey(listKey(unread)))).toBe(0);
  // Lists are no recipients: no completion counts them. Those that listen are told: here all do.
  expect(bench.completed.map(({ recipients }) => recipients)).toEqual([4, 4]);
  expect(
    bench.notified
      .flatMap(({ users }) => users)
      .filter((user) => user.startsWith("list:"))
      .sort(),
  ).toEqual([read, unread, read, unread].map(listReader).sort());
  expect(await redis.raw.exists(homeKey(listReader(read)))).toBe(0);
  await handle(bench, deleted("d1", "ada"));
  await work(bench);
  expect(await dropsOf(read)).toEqual(["d2"]);
});

/** Fan-out that tells only those who listen, and what lists are told. */
function openTelling(lists: readonly string[], pageSize = 100) {
  const told: AddressedNotification[] = [];
  const publish = async (all: readonly AddressedNotification[]): Promise<void> => void told.push(...all);
  const change = (deps: FanoutDeps): FanoutDeps => ({ ...deps, notify: createNotify({ ...deps, publish }) });
  const toldLists = () =>
    told.splice(0).flatMap(({ seeing, notification: { event, drop_id, by } }) => {
      const readers = seeing.filter((user) => user.startsWith("list:"));
      return readers.length === 0 ? [] : [[event, drop_id, by, ...readers]];
    });
  return { ...open(lists, { change, pageSize }), toldLists };
}
const listen = (...users: string[]) =>
  redis.raw.zadd(RECENT_KEY, ...users.flatMap((user) => [Date.now(), encodeId(user)]));

test("a list with an open stream is told of drops, edits and deletions with their bylines; one without floor lacks those", async () => {
  const [read, unread, quiet] = [randomUUID(), randomUUID(), randomUUID()];
  const readers = [read, unread].map(listReader);
  await complete(read, quiet);
  await listen(...readers, "f0");
  const { bench, toldLists } = openTelling([read, unread, quiet]);
  await handle(bench, created({ ...DROP, visibility: "followers", reply_to_author: "eve" }));
  expect(toldLists()).toEqual([["new_drop", "d1", "ada,,eve,,f", ...readers]]);
  await handle(bench, edited("d1", "ada"));
  expect(toldLists()).toEqual([["drop_edited", "d1", "ada,,eve,,f", ...readers]]);
  await handle(bench, deleted("d1", "ada"));
  expect(toldLists()).toEqual([["drop_deleted", "d1", "ada,,eve,,f", ...readers]]);
  await redis.raw.del(listKey(read), bylinesKey(listKey(read)));
  await handle(bench, created({ ...DROP, drop_id: "d2" }));
  await handle(bench, deleted("d2", "ada"));
  expect(toldLists()).toEqual([
    ["new_drop", "d2", "ada", ...readers],
    ["drop_deleted", "d2", undefined, ...readers],
  ]);
});

// Invariant 11.
test("an edit is told to the lists with the author that listen, and to no other list, also if the listeners are fewer than the followers", async () => {
  const [list, other] = [randomUUID(), randomUUID()];
  await listen(listReader(list), listReader(other));
  const { bench, toldLists } = openTelling([list], 2);
  await handle(bench, edited("d1", "ada"));
  expect(toldLists()).toEqual([["drop_edited", "d1", undefined, listReader(list)]]);
});

// Invariant 11.
test("lists without an open stream cost the telling of a drop no command of Redis", async () => {
  const count = async () => Number(/total_commands_processed:(\d+)/.exec(await redis.raw.info("stats"))?.[1]);
  const costOf = async (lists: readonly string[]) => {
    const costs: number[] = [];
    const change = (deps: FanoutDeps): FanoutDeps => {
      const notify = createNotify({ ...deps, publish: async () => undefined });
      const counted: FanoutDeps["notify"] = async (all) => {
        const before = await count();
        const told = await notify(all);
        costs.push((await count()) - before);
        return told;
      };
      return { ...deps, notify: counted };
    };
    const { bench } = open(lists, { change });
    for (const drop_id of ["d1", "d2"]) await handle(bench, created({ ...DROP, drop_id }));
    return costs.at(-1);
  };
  await listen("f0");
  const most = await costOf([]);
  expect(most).toBeGreaterThan(0);
  expect(await costOf(Array.from({ length: 100 }, () => randomUUID()))).toBeLessThanOrEqual(most as number);
});

test("a direct drop is written to the lists of its recipients alone", async () => {
  const [ofRik, other] = [randomUUID(), randomUUID()];
  await complete(ofRik, other);
  const { bench } = open([ofRik, other]);
  await handle(bench, created({ ...DROP, visibility: "direct", recipients: ["rik"] }));
  await handle(bench, created({ ...DROP, drop_id: "d2", visibility: "direct", recipients: ["eve"] }));
  expect([await dropsOf(ofRik), await dropsOf(other)]).toEqual([["d1"], []]);
  expect(await redis.raw.hgetall(bylinesKey(listKey(ofRik)))).toEqual({ d1: "ada,,,,f" });
});

test("a drop after a list was deleted leaves no key of it, and one during a rebuild leaves its byline", async () => {
  const [deletedList, rebuilt] = [randomUUID(), randomUUID()];
  await complete(deletedList);
  await redis.raw.zadd(listKey(rebuilt), -17, FLOOR_MEMBER);
  const { bench } = open([deletedList, rebuilt]);
  await createLists(redis.scripts).forget(deletedList);
  await handle(bench, created(DROP));
  expect(await redis.raw.keys(`*${deletedList}*`)).toEqual([]);
  expect(await redis.raw.hgetall(bylinesKey(listKey(rebuilt)))).toEqual({ d1: "ada" });
});

// Invariant 3.
test("a change of members renews the generation of the member and takes the floor, whatever the order of versions", async () => {
  const list = randomUUID();
  const { world, bench, reads } = open([list]);
  await handle(bench, created(DROP));
  const before = await redis.raw.get(generationKey("ada"));
  for (const event of [
    followed(listReader(list), "ada", 7),
    unfollowed(listReader(list), "ada", 6),
    followed(listReader(list), "ada", 7),
  ]) {
    await complete(list);
    const known = reads();
    const generation = await redis.raw.get(generationKey("ada"));
    await handle(bench, event);
    expect(await redis.raw.zscore(listKey(list), FLOOR_MEMBER)).toBeNull();
    expect(await redis.raw.get(generationKey("ada"))).not.toBe(generation);
    await handle(bench, created({ ...DROP, drop_id: `after-${event.channel}-${known}` }));
    expect(reads()).toBeGreaterThan(known);
  }
  expect(before).not.toBeNull();
  expect(world.follows(listReader(list), "ada")).toBe(false);
  // No home of a list is made, and nothing of the edge is kept.
  expect(await redis.raw.keys(`*${encodeId(listReader(list))}*`)).toEqual([]);
});

test("a rebuild under way starts over when the members change", async () => {
  const list = randomUUID();
  await redis.raw.zadd(listKey(list), -17, FLOOR_MEMBER);
  const { bench } = open([list]);
  await handle(bench, unfollowed(listReader(list), "ada", 3));
  expect(await redis.raw.zscore(listKey(list), FLOOR_MEMBER)).toBeNull();
});

// Invariant 11.
test("500 members that change at once cost one question for generations and one command for the list", async () => {
  const list = randomUUID();
  await complete(list);
  const { bench } = open([list]);
  const members = Array.from({ length: 500 }, (_, n) => logged(followed(listReader(list), `m${n}`, n + 1), Date.now()));
  const commands = async () => {
    const [, count = "0"] = /total_commands_processed:(\d+)/.exec(await redis.raw.info("stats")) ?? [];
    return Number(count);
  };
  const before = await commands();
  await insisting(async () => expect(await bench.handlers.graph.batch(members, contextWith())).toEqual([]));
  expect((await commands()) - before).toBeLessThan(600);
  expect(await redis.raw.zscore(listKey(list), FLOOR_MEMBER)).toBeNull();
});
