import { expect } from "@jest/globals";
import { becomes, eventually } from "../support/eventually.js";
import { downIds, pagesDown } from "../support/reader.js";
import { type SharedStack, sharedStack } from "../support/stack.js";
import {
  created,
  deleted,
  followed,
  type TimelineEvent,
  unfollowed,
  type VisibilityName,
} from "../support/timeline-events.js";
import { held, homeKey } from "../support/timeline-keys.js";

const START = Date.now() - 3_600_000;

const onStack = sharedStack();

/** Drops whose ids begin with their author's. */
function drops(author: string, from: number, to: number, visibility: VisibilityName = "public") {
  return Array.from({ length: to - from }, (_, number) => ({
    drop_id: `${author}-${from + number}`,
    user_id: author,
    visibility,
    created_at: START + from + number,
  }));
}

/** Drops that no event tells of. The shared timelines of the stack do not need them: they are no public ones. */
const untold = (author: string, count: number) => drops(author, 0, count, "unlisted");

/** A reader and three authors of the test's own. */
function peopleOf({ id }: SharedStack) {
  const [alice, anna, arno] = [id("alice"), id("anna"), id("arno")];
  return { alice, anna, arno, bob: id("bob"), authors: [alice, anna, arno] };
}

const idsOf = (some: readonly { readonly drop_id: string }[]): string[] => some.map(({ drop_id }) => drop_id);

const expectedHome = ({ world }: SharedStack, user: string): string[] => idsOf(world.homeOf(user));

/** Local and global of a stack without remote drops. */
const expectedShared = ({ world }: SharedStack): string[] => idsOf(world.localOf());

/** All of a home, read page by page. */
async function wholeHome({ reads }: SharedStack, user: string): Promise<string[]> {
  return downIds(await pagesDown((query) => reads.home(user, query), { limit: 100 }));
}

/** The home is right when read, and what its key holds above the floor is right too. */
async function expectRight(stack: SharedStack, user: string): Promise<void> {
  const expected = stack.world.homeOf(user);
  expect(await wholeHome(stack, user)).toEqual(idsOf(expected));
  const { entries, floor } = await held(stack.redis, homeKey(user));
  expect(floor).toBeGreaterThanOrEqual(0);
  expect(entries).toEqual(expected.map(({ drop_id, created_at }) => [drop_id, created_at]));
}

// Invariant 5.
onStack("a home never read, whose key fan-out has written to, is shown whole", async (stack) => {
  const { world, publish, streams, redis, reads } = stack;
  const { alice, bob, authors } = peopleOf(stack);
  for (const author of authors) world.follow(bob, author);
  world.post(...authors.flatMap((author) => untold(author, 40)));
  const fresh = drops(alice, 100, 110);
  world.post(...fresh);
  await publish(...fresh.map(created));
  await streams.settled(fresh.length);
  const partial = await held(redis, homeKey(bob));
  expect([partial.entries.length, partial.floor]).toEqual([fresh.length, undefined]);
  const page = await reads.home(bob, { limit: 100 });
  expect([page.drop_ids, page.degraded]).toEqual([expectedHome(stack, bob).slice(0, 100), false]);
  await expectRight(stack, bob);
});

// Invariant 4.
onStack("a rebuild that races with creations, deletions, follows and unfollows ends right", async (stack) => {
  const { world, publish, streams, reads, upstreams } = stack;
  const { alice, anna, arno, bob, authors } = peopleOf(stack);
  world.follow(bob, alice);
  world.follow(bob, anna);
  world.post(...authors.flatMap((author) => untold(author, 60)));
  const heal = upstreams.inject({ method: "GetDropsByUserID", delayMs: 400 });
  const reading = reads.home(bob, { limit: 100 });
  await eventually(() => upstreams.held() > 0, "the rebuild waits for an answer that grows old");

  const history: TimelineEvent[] = [];
  const fresh = [...drops(alice, 100, 120), ...drops(anna, 100, 120)];
  world.post(...fresh);
  history.push(...fresh.map(created));
  for (const [author, number] of [
    [alice, 3],
    [alice, 59],
    [anna, 0],
    [anna, 59],
  ] as const) {
    world.remove(`${author}-${number}`);
    history.push(deleted(`${author}-${number}`, author));
  }
  history.push(followed(bob, arno, world.follow(bob, arno)), unfollowed(bob, anna, world.unfollow(bob, anna)));
  await publish(...history);
  const page = await reading;
  heal();
  await streams.settled(history.length);
  if (!page.degraded) {
    expect(page.drop_ids.filter((id) => [`${alice}-3`, `${alice}-59`, `${anna}-0`].includes(id))).toEqual([]);
  }
  await expectRight(stack, bob);
});

onStack("many readers of one cold home cause few rebuilds and all see it whole", async (stack) => {
  const { world, reads, upstreams } = stack;
  const { alice, bob, authors } = peopleOf(stack);
  for (const author of authors) world.follow(bob, author);
  world.post(...authors.flatMap((author) => untold(author, 30)));
  const heal = upstreams.inject({ method: "GetDropsByUserID", delayMs: 100 });
  const pages = await Promise.all(Array.from({ length: 40 }, () => reads.home(bob, { limit: 100 })));
  heal();
  const expected = expectedHome(stack, bob).slice(0, 100);
  for (const page of pages) expect([page.drop_ids, page.degraded]).toEqual([expected, false]);
  expect(upstreams.calls("GetDropsByUserID", alice)).toBeLessThanOrEqual(4);
});

onStack("a lost home key alone is rebuilt, with an unfollow that nobody saw", async (stack) => {
  const { world, publish, streams, redis, reads } = stack;
  const { anna, bob, authors } = peopleOf(stack);
  for (const author of authors) world.follow(bob, author);
  world.post(...authors.flatMap((author) => untold(author, 20)));
  expect((await reads.home(bob, { limit: 100 })).drop_ids).toEqual(expectedHome(stack, bob));
  await redis.del(homeKey(bob));
  await publish(unfollowed(bob, anna, world.unfollow(bob, anna)));
  await streams.settled(1);
  await expectRight(stack, bob);
});

onStack("homes of a timeline whose members are all deleted are empty, not broken", async (stack) => {
  const { world, publish, streams, reads } = stack;
  const { alice, bob } = peopleOf(stack);
  world.follow(bob, alice);
  const all = drops(alice, 0, 30);
  world.post(...all);
  await publish(...all.map(created));
  expect((await reads.home(bob, { limit: 100 })).degraded).toBe(false);
  world.remove(...idsOf(all));
  await publish(...all.map(({ drop_id }) => deleted(drop_id, alice)));
  await streams.settled(2 * all.length);
  expect(await reads.home(bob)).toMatchObject({ drop_ids: [], has_more: false, degraded: false });
  const local = { drop_ids: expectedShared(stack), has_more: false, degraded: false };
  expect(await reads.local({ limit: 100 })).toMatchObject(local);
  await expectRight(stack, bob);
});

// Invariant 5.
onStack("FLUSHALL in mid-run heals on read: home from the upstreams, local and global from the log", async (stack) => {
  const { world, publish, streams, redis, reads } = stack;
  const { alice, bob } = peopleOf(stack);
  world.follow(bob, alice);
  const first = drops(alice, 0, 60);
  world.post(...first);
  await publish(...first.map(created));
  const gone = [7, 59].map((number) => `${alice}-${number}`);
  world.remove(...gone);
  await publish(...gone.map((id) => deleted(id, alice)));
  await streams.settled(first.length + gone.length);
  expect((await reads.home(bob, { limit: 100 })).drop_ids).toEqual(expectedHome(stack, bob));

  const second = drops(alice, 100, 130);
  const events = second.map(created);
  world.post(...second);
  await publish(...events.slice(0, 15));
  await redis.flushall();
  await publish(...events.slice(15));
  const shared = expectedShared(stack).slice(0, 100);
  for (const [read, expected] of [
    [(query: object) => reads.home(bob, query), expectedHome(stack, bob)],
    [reads.local, shared],
    [reads.global, shared],
  ] as const) {
    await becomes(async () => {
      const page = await read({ limit: 100 });
      expect([page.drop_ids, page.degraded]).toEqual([expected, false]);
    });
  }
  await streams.settled(first.length + gone.length + second.length);
  await expectRight(stack, bob);
  expect((await held(redis, "timeline:local")).entries.map(([id]) => id)).toEqual(expectedShared(stack));
});

// Invariant 4.
onStack("after FLUSHALL a page is whole or says that it is not, and the dead stay dead", async (stack) => {
  const { world, publish, streams, redis, reads } = stack;
  const { alice } = peopleOf(stack);
  const all = drops(alice, 0, 80);
  world.post(...all);
  await publish(...all.map(created));
  const dead = idsOf(all.filter((_, number) => number % 5 === 0));
  world.remove(...dead);
  await publish(...dead.map((id) => deleted(id, alice)));
  await streams.settled(all.length + dead.length);
  const shared = expectedShared(stack).slice(0, 100);
  const timelines = [
    { name: "local", read: reads.local, expected: shared },
    { name: "global", read: reads.global, expected: shared },
    { name: "home", read: (query: object) => reads.home(alice, query), expected: expectedHome(stack, alice) },
  ];
  for (let round = 0; round < 5; round += 1) {
    await redis.flushall();
    const pages = await Promise.all(
      timelines.flatMap(({ name, read, expected }) =>
        [read, read].map(async (call) => ({ name, expected, page: await call({ limit: 100 }) })),
      ),
    );
    for (const { name, expected, page } of pages) {
      if (!page.degraded) expect({ name, ids: page.drop_ids }).toEqual({ name, ids: expected });
      expect({ name, shownDead: page.drop_ids.filter((id) => dead.includes(id)) }).toEqual({ name, shownDead: [] });
    }
  }
  await becomes(async () => {
    for (const { read, expected } of timelines)
      expect(await read({ limit: 100 })).toMatchObject({ drop_ids: expected, degraded: false });
  });
});
