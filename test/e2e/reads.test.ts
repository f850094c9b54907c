import { status } from "@grpc/grpc-js";
import { beforeAll, expect } from "@jest/globals";
import { seeded, ulid, uuidV7 } from "../support/random.js";
import type { Query, Read } from "../support/reader.js";
import { type Stack, sharedStack } from "../support/stack.js";
import { created } from "../support/timeline-events.js";

const START = Date.now() - 3_600_000;
const COUNT = 130;
/** Ten drops share each millisecond. */
const DROPS = Array.from({ length: COUNT }, (_, number) => ({
  drop_id: `drop-${String(number).padStart(3, "0")}`,
  user_id: number % 2 === 0 ? "alice" : "anna",
  visibility: "public" as const,
  created_at: START + Math.floor(number / 10),
}));
const NEWEST_FIRST = DROPS.map(({ drop_id }) => drop_id).toReversed();

const reading = sharedStack();
let ready: Promise<void> | undefined;

async function seed(stack: Stack): Promise<void> {
  for (const author of ["alice", "anna"]) stack.world.follow("bob", author);
  stack.world.post(...DROPS);
  await stack.publish(...DROPS.map(created));
  await stack.streams.settled(DROPS.length);
}

beforeAll(() => {
  ready = undefined;
});

/** A test of each of the three timelines, which hold the same drops. */
function eachTimeline(name: string, work: (read: Read, stack: Stack) => Promise<void>): void {
  for (const timeline of ["home", "local", "global"] as const) {
    reading(`${timeline}: ${name}`, async (stack) => {
      ready ??= seed(stack);
      await ready;
      const { reads } = stack;
      const home: Read = (query, deadlineMs) => reads.home("bob", query, deadlineMs);
      await work({ home, local: reads.local, global: reads.global }[timeline], stack);
    });
  }
}

async function expectInvalid(read: Read, query: Query): Promise<void> {
  const outcome = await read(query).then(
    (page) => page,
    (error: { code?: number }) => error.code,
  );
  expect({ query, outcome }).toEqual({ query, outcome: status.INVALID_ARGUMENT });
}

function from(position: number, length: number): string[] {
  return NEWEST_FIRST.slice(position, position + length);
}

eachTimeline("limit 0 means 20, 1 to 100 are taken as they are, everything else is refused", async (read) => {
  expect((await read()).drop_ids).toEqual(from(0, 20));
  expect((await read({ limit: 1 })).drop_ids).toEqual(from(0, 1));
  expect((await read({ limit: 100 })).drop_ids).toEqual(from(0, 100));
  for (const limit of [-1, 101, 2_147_483_647, -2_147_483_648]) await expectInvalid(read, { limit });
});

eachTimeline("raw drop ids are cursors", async (read) => {
  const at = (position: number): string => NEWEST_FIRST[position] as string;
  const older = await read({ limit: 7, max_id: at(24) });
  expect([older.drop_ids, older.has_more]).toEqual([from(25, 7), true]);
  const newer = await read({ limit: 7, min_id: at(24) });
  expect([newer.drop_ids, newer.has_more]).toEqual([from(17, 7), true]);
  const since = await read({ limit: 7, since_id: at(24) });
  expect([since.drop_ids, since.has_more]).toEqual([from(0, 7), true]);
  const few = await read({ limit: 7, since_id: at(5) });
  expect([few.drop_ids, few.has_more]).toEqual([from(0, 5), false]);
  const exactly = await read({ limit: 7, since_id: at(7) });
  expect([exactly.drop_ids, exactly.has_more]).toEqual([from(0, 7), false]);
});

eachTimeline("tokens of a page lead to its neighbours and say when there is no more", async (read) => {
  const first = await read({ limit: 10 });
  const second = await read({ limit: 10, max_id: first.next_max_id });
  expect(second.drop_ids).toEqual(from(10, 10));
  const back = await read({ limit: 10, min_id: second.prev_min_id });
  expect([back.drop_ids, back.has_more]).toEqual([from(0, 10), false]);
  const last = await read({ limit: 10, max_id: NEWEST_FIRST[COUNT - 11] as string });
  expect([last.drop_ids, last.has_more]).toEqual([from(COUNT - 10, 10), false]);
  const partial = await read({ limit: 10, max_id: NEWEST_FIRST[COUNT - 4] as string });
  expect([partial.drop_ids, partial.has_more]).toEqual([from(COUNT - 3, 3), false]);
  const upper = await read({ limit: 10, min_id: NEWEST_FIRST[3] as string });
  expect([upper.drop_ids, upper.has_more]).toEqual([from(0, 3), false]);
  const token = await read({ limit: 3, since_id: first.next_max_id });
  expect([token.drop_ids, token.has_more]).toEqual([from(0, 3), true]);
});

eachTimeline("an empty page hands its cursor back", async (read) => {
  const bottom = NEWEST_FIRST.at(-1) as string;
  const top = NEWEST_FIRST[0] as string;
  const below = await read({ max_id: bottom });
  expect(below).toMatchObject({ drop_ids: [], has_more: false, next_max_id: bottom });
  const above = await read({ min_id: top });
  expect(above).toMatchObject({ drop_ids: [], has_more: false, prev_min_id: top });
  const since = await read({ since_id: top });
  expect(since).toMatchObject({ drop_ids: [], has_more: false, prev_min_id: top });
  const { next_max_id, prev_min_id } = await read({ limit: 100, max_id: NEWEST_FIRST[99] as string });
  expect(await read({ max_id: next_max_id })).toMatchObject({ drop_ids: [], next_max_id });
  expect((await read({ limit: 1, min_id: prev_min_id })).drop_ids).toEqual(from(99, 1));
});

eachTimeline("one cursor at a time", async (read) => {
  const [since_id, max_id, min_id] = from(10, 3) as [string, string, string];
  for (const query of [
    { since_id, max_id },
    { since_id, min_id },
    { max_id, min_id },
    { since_id, max_id, min_id },
  ]) {
    await expectInvalid(read, query);
  }
});

eachTimeline("an unknown id without a date is refused, one with a date stands for it", async (read) => {
  const random = seeded(11);
  const undated = ["never-heard-of", "1", "drop-", "00000000-0000-4000-8000-000000000000", "x".repeat(128), "😀"];
  for (const id of undated) {
    for (const cursor of ["max_id", "min_id", "since_id"]) await expectInvalid(read, { [cursor]: id });
  }
  // Between two milliseconds that hold drops there is none: the drops of START + 6 are older, those of START + 7 not.
  for (const id of [uuidV7(random, START + 60_000), ulid(random, START + 60_000)]) {
    expect((await read({ limit: 5, max_id: id })).drop_ids).toEqual(from(0, 5));
    expect((await read({ limit: 5, min_id: id })).drop_ids).toEqual([]);
    expect((await read({ limit: 5, since_id: id })).drop_ids).toEqual([]);
  }
  for (const id of [uuidV7(random, START - 60_000), ulid(random, START - 60_000)]) {
    expect((await read({ limit: 5, max_id: id })).drop_ids).toEqual([]);
    expect((await read({ limit: 5, min_id: id })).drop_ids).toEqual(from(COUNT - 5, 5));
    expect((await read({ limit: 5, since_id: id })).drop_ids).toEqual(from(0, 5));
  }
});

eachTimeline("a dated id in the middle splits by its millisecond", async (read) => {
  const random = seeded(12);
  for (const id of [uuidV7(random, START + 6), ulid(random, START + 6)]) {
    const older = (await read({ limit: 100, max_id: id })).drop_ids;
    const newer = (await read({ limit: 100, min_id: id })).drop_ids;
    expect([...newer, ...older]).toEqual(NEWEST_FIRST);
    expect(older).toEqual(expect.arrayContaining(from(COUNT - 60, 60)));
    expect(newer).toEqual(expect.arrayContaining(from(0, 60)));
  }
});

reading("home: needs a user, and shows a stranger nothing", async ({ reads }) => {
  await expectInvalid((query) => reads.home("", query), {});
  expect(await reads.home("stranger")).toMatchObject({ drop_ids: [], has_more: false, degraded: false });
});

reading("a reader at the top sees what comes next by its last cursor", async (stack) => {
  const top = await stack.reads.home("bob", { limit: 1 });
  const empty = await stack.reads.home("bob", { min_id: top.prev_min_id });
  expect(empty).toMatchObject({ drop_ids: [], has_more: false });
  const drop = { drop_id: "the-next", user_id: "alice", visibility: "followers" as const, created_at: Date.now() };
  stack.world.post(drop);
  await stack.publish(created(drop));
  await stack.streams.settled(1);
  expect((await stack.reads.home("bob", { min_id: empty.prev_min_id })).drop_ids).toEqual(["the-next"]);
});
