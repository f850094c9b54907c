import { expect } from "@jest/globals";
import { becomes, eventually } from "../support/eventually.js";
import { downIds, pagesDown } from "../support/reader.js";
import { type Stack, testWithStack } from "../support/stack.js";
import { created, deleted, followed, type TimelineEvent, unfollowed } from "../support/timeline-events.js";
import { held, homeKey } from "../support/timeline-keys.js";
import type { WorldDrop } from "../support/world.js";

const START = Date.now() - 3_600_000;
const AUTHORS = ["alice", "anna", "arno"];

function drops(author: string, from: number, to: number): WorldDrop[] {
  return Array.from({ length: to - from }, (_, number) => ({
    drop_id: `${author}-${from + number}`,
    user_id: author,
    visibility: "public" as const,
    created_at: START + from + number,
  }));
}

function expectedHome({ world }: Stack, user: string): string[] {
  return world.homeOf(user).map(({ drop_id }) => drop_id);
}

/** All of a home, read page by page. */
async function wholeHome({ reads }: Stack, user: string): Promise<string[]> {
  return downIds(await pagesDown((query) => reads.home(user, query), { limit: 100 }));
}

/** The home is right when read, and what its key holds above the floor is right too. */
async function expectRight(stack: Stack, user: string): Promise<void> {
  const expected = stack.world.homeOf(user);
  expect(await wholeHome(stack, user)).toEqual(expected.map(({ drop_id }) => drop_id));
  const { entries, floor } = await held(stack.redis, homeKey(user));
  expect(floor).toBeGreaterThanOrEqual(0);
  expect(entries).toEqual(expected.map(({ drop_id, created_at }) => [drop_id, created_at]));
}

// Invariant 5.
testWithStack("a home never read, whose key fan-out has written to, is shown whole", {}, async (stack) => {
  const { world, publish, streams, redis, reads } = stack;
  for (const author of AUTHORS) world.follow("bob", author);
  world.post(...AUTHORS.flatMap((author) => drops(author, 0, 40)));
  const fresh = drops("alice", 100, 110);
  world.post(...fresh);
  await publish(...fresh.map((drop) => created({ visibility: "public", ...drop })));
  await streams.settled(fresh.length);
  const partial = await held(redis, homeKey("bob"));
  expect([partial.entries.length, partial.floor]).toEqual([fresh.length, undefined]);
  const page = await reads.home("bob", { limit: 100 });
  expect([page.drop_ids, page.degraded]).toEqual([expectedHome(stack, "bob").slice(0, 100), false]);
  await expectRight(stack, "bob");
});

// Invariant 4.
testWithStack("a rebuild that races with creations, deletions, follows and unfollows ends right", {}, async (stack) => {
  const { world, publish, streams, reads, upstreams } = stack;
  world.follow("bob", "alice");
  world.follow("bob", "anna");
  world.post(...AUTHORS.flatMap((author) => drops(author, 0, 60)));
  const heal = upstreams.inject({ method: "GetDropsByUserID", delayMs: 400 });
  const reading = reads.home("bob", { limit: 100 });
  await eventually(() => upstreams.held() > 0, "the rebuild waits for an answer that grows old");

  const history: TimelineEvent[] = [];
  const fresh = [...drops("alice", 100, 120), ...drops("anna", 100, 120)];
  world.post(...fresh);
  history.push(...fresh.map((drop) => created({ visibility: "public", ...drop })));
  for (const id of ["alice-3", "alice-59", "anna-0", "anna-59"]) {
    world.remove(id);
    history.push(deleted(id, id.split("-")[0]));
  }
  history.push(
    followed("bob", "arno", world.follow("bob", "arno")),
    unfollowed("bob", "anna", world.unfollow("bob", "anna")),
  );
  await publish(...history);
  const page = await reading;
  heal();
  await streams.settled(history.length);
  if (!page.degraded) {
    expect(page.drop_ids.filter((id) => ["alice-3", "alice-59", "anna-0"].includes(id))).toEqual([]);
  }
  await expectRight(stack, "bob");
});

testWithStack("many readers of one cold home cause few rebuilds and all see it whole", {}, async (stack) => {
  const { world, reads, upstreams } = stack;
  for (const author of AUTHORS) world.follow("bob", author);
  world.post(...AUTHORS.flatMap((author) => drops(author, 0, 30)));
  const second = await stack.start();
  expect(second.pid).not.toBe(stack.service.pid);
  const heal = upstreams.inject({ method: "GetDropsByUserID", delayMs: 100 });
  const pages = await Promise.all(Array.from({ length: 40 }, () => reads.home("bob", { limit: 100 })));
  heal();
  const expected = expectedHome(stack, "bob").slice(0, 100);
  for (const page of pages) expect([page.drop_ids, page.degraded]).toEqual([expected, false]);
  expect(upstreams.calls("GetDropsByUserID", "alice")).toBeLessThanOrEqual(4);
});

// Invariant 5.
testWithStack(
  "FLUSHALL in mid-run heals on read: home from the upstreams, local and global from the log",
  {},
  async (stack) => {
    const { world, publish, streams, redis, reads } = stack;
    world.follow("bob", "alice");
    const first = drops("alice", 0, 60);
    world.post(...first);
    await publish(...first.map((drop) => created({ visibility: "public", ...drop })));
    world.remove("alice-7", "alice-59");
    await publish(deleted("alice-7", "alice"), deleted("alice-59", "alice"));
    await streams.settled(first.length + 2);
    expect((await reads.home("bob", { limit: 100 })).drop_ids).toEqual(expectedHome(stack, "bob"));

    const second = drops("alice", 100, 130);
    const events = second.map((drop) => created({ visibility: "public", ...drop }));
    world.post(...second);
    await publish(...events.slice(0, 15));
    await redis.flushall();
    await publish(...events.slice(15));
    const expected = expectedHome(stack, "bob");
    for (const read of [(query: object) => reads.home("bob", query), reads.local, reads.global]) {
      await becomes(async () => {
        const page = await read({ limit: 100 });
        expect([page.drop_ids, page.degraded]).toEqual([expected, false]);
      });
    }
    await streams.settled(first.length + 2 + second.length);
    await expectRight(stack, "bob");
    expect((await held(redis, "timeline:local")).entries.map(([id]) => id)).toEqual(expected);
  },
);

// Invariant 4.
testWithStack("after FLUSHALL a page is whole or says that it is not, and the dead stay dead", {}, async (stack) => {
  const { world, publish, streams, redis, reads } = stack;
  const all = drops("alice", 0, 80);
  world.post(...all);
  await publish(...all.map((drop) => created({ visibility: "public", ...drop })));
  const dead = all.filter((_, number) => number % 5 === 0).map(({ drop_id }) => drop_id);
  world.remove(...dead);
  await publish(...dead.map((id) => deleted(id, "alice")));
  await streams.settled(all.length + dead.length);
  const expected = expectedHome(stack, "alice");
  const timelines = { local: reads.local, global: reads.global, home: (query: object) => reads.home("alice", query) };
  for (let round = 0; round < 5; round += 1) {
    await redis.flushall();
    const pages = await Promise.all(
      Object.entries(timelines).flatMap(([name, read]) =>
        [read, read].map(async (call) => ({ name, page: await call({ limit: 100 }) })),
      ),
    );
    for (const { name, page } of pages) {
      if (!page.degraded) expect({ name, ids: page.drop_ids }).toEqual({ name, ids: expected });
      expect({ name, shownDead: page.drop_ids.filter((id) => dead.includes(id)) }).toEqual({ name, shownDead: [] });
    }
  }
  await becomes(async () => {
    for (const read of Object.values(timelines))
      expect(await read({ limit: 100 })).toMatchObject({ drop_ids: expected, degraded: false });
  });
});

testWithStack("a lost home key alone is rebuilt, with an unfollow that nobody saw", {}, async (stack) => {
  const { world, publish, streams, redis, reads } = stack;
  for (const author of AUTHORS) world.follow("bob", author);
  world.post(...AUTHORS.flatMap((author) => drops(author, 0, 20)));
  expect((await reads.home("bob", { limit: 100 })).drop_ids).toEqual(expectedHome(stack, "bob"));
  await redis.del(homeKey("bob"));
  await publish(unfollowed("bob", "anna", world.unfollow("bob", "anna")));
  await streams.settled(1);
  await expectRight(stack, "bob");
});

testWithStack("homes of a timeline whose members are all deleted are empty, not broken", {}, async (stack) => {
  const { world, publish, streams, reads } = stack;
  world.follow("bob", "alice");
  const all = drops("alice", 0, 30);
  world.post(...all);
  await publish(...all.map((drop) => created({ visibility: "public", ...drop })));
  expect((await reads.home("bob", { limit: 100 })).degraded).toBe(false);
  world.remove(...all.map(({ drop_id }) => drop_id));
  await publish(...all.map(({ drop_id }) => deleted(drop_id, "alice")));
  await streams.settled(2 * all.length);
  expect(await reads.home("bob")).toMatchObject({ drop_ids: [], has_more: false, degraded: false });
  expect(await reads.local()).toMatchObject({ drop_ids: [], has_more: false, degraded: false });
  await expectRight(stack, "bob");
});
