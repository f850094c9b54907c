import { expect } from "@jest/globals";
import { eventually } from "../support/eventually.js";
import { limited } from "../support/limits.js";
import { type Stack, testWithStack } from "../support/stack.js";
import type { WorldDrop } from "../support/world.js";

const START = Date.now() - 3_600_000;
const LIMIT = 20;

/** Authors with drops, and readers who follow all of them. */
function populate({ world }: Stack, of: { readers: number; authors: number; drops: number }): string[] {
  const authors = Array.from({ length: of.authors }, (_, number) => `author-${number}`);
  for (const [number, author] of authors.entries()) {
    const drops = Array.from({ length: of.drops }, (_, age): WorldDrop => {
      return { drop_id: `${author}-${age}`, user_id: author, created_at: START - age * 1_000 + (number % 997) };
    });
    world.post(...drops);
  }
  const readers = Array.from({ length: of.readers }, (_, number) => `reader-${number}`);
  for (const reader of readers) for (const author of authors) world.follow(reader, author);
  return readers;
}

const firstPage = ({ world }: Stack, reader: string): string[] =>
  world
    .homeOf(reader)
    .slice(0, LIMIT)
    .map(({ drop_id }) => drop_id);

const PATIENT = limited({ reads: { deadlineMaxMs: 180_000 } });

// Invariant 5.
testWithStack(
  "a dozen cold homes of 1,500 followings each are read whole, with a bounded number of calls upstream",
  { slow: true, roles: "api", env: { ...PATIENT, TIMELINE_UPSTREAM_CONCURRENCY: "100" }, timeoutMs: 240_000 },
  async (stack) => {
    const readers = populate(stack, { readers: 12, authors: 1_500, drops: 5 });
    stack.upstreams.inject({ method: "GetDropsByUserID", delayMs: 20 });
    const pages = await Promise.all(readers.map((reader) => stack.reads.home(reader, { limit: LIMIT }, 150_000)));
    const expected = firstPage(stack, "reader-0");
    for (const page of pages) expect([page.degraded, page.drop_ids]).toEqual([false, expected]);
    expect(stack.upstreams.mostHeld()).toBeLessThanOrEqual(100);
    expect(stack.upstreams.mostHeld()).toBeGreaterThan(50);
  },
);

testWithStack(
  "forty pages from 1970 on of one reader, who follows a thousand, make nobody else's first page late or degraded",
  { slow: true, roles: "api", timeoutMs: 120_000 },
  async (stack) => {
    const [greedy = ""] = populate(stack, { readers: 1, authors: 1_000, drops: 12 });
    const others = Array.from({ length: 10 }, (_, number) => `other-${number}`);
    for (const other of others)
      for (const author of ["author-1", "author-2", "author-3"]) stack.world.follow(other, author);
    stack.upstreams.inject({ method: "GetDropsByUserID", delayMs: 10 });
    // The time 1 and no drop, as nobody was handed it.
    const query = { limit: LIMIT, min_id: "~1.YQ" };
    const one = await stack.reads.home(greedy, query, 20_000);
    expect(stack.upstreams.calls("GetDropsByUserID")).toBeLessThanOrEqual(6_000);
    expect(one.degraded || one.drop_ids.length > 0).toBe(true);
    const pages = Array.from({ length: 40 }, () => stack.reads.home(greedy, query, 20_000).catch(() => undefined));
    await eventually(() => stack.upstreams.mostHeld() > 50, "the pages are being read");
    for (const other of others)
      expect(await stack.reads.home(other, { limit: LIMIT }, 5_000)).toMatchObject({
        degraded: false,
        drop_ids: firstPage(stack, other),
      });
    await Promise.all(pages);
  },
);

// Invariant 11.
testWithStack(
  "eight cold homes of 7,500 followings each are read whole by a process with a small heap",
  {
    slow: true,
    roles: "api",
    env: { ...PATIENT, NODE_OPTIONS: "--max-old-space-size=256" },
    timeoutMs: 300_000,
  },
  async (stack) => {
    const readers = populate(stack, { readers: 8, authors: 7_500, drops: 40 });
    const pages = await Promise.all(readers.map((reader) => stack.reads.home(reader, { limit: LIMIT }, 170_000)));
    const expected = firstPage(stack, "reader-0");
    for (const page of pages) expect([page.degraded, page.drop_ids]).toEqual([false, expected]);
  },
);

// Invariant 5.
testWithStack(
  "after FLUSHALL two hundred readers at once are all answered in time, and soon all homes are whole",
  { slow: true, timeoutMs: 180_000 },
  async (stack) => {
    const readers = populate(stack, { readers: 200, authors: 100, drops: 5 });
    stack.upstreams.inject({ method: "GetDropsByUserID", delayMs: 20 });
    await stack.redis.flushall();
    const pages = await Promise.all(readers.map((reader) => stack.reads.home(reader, { limit: LIMIT }, 10_000)));
    const expected = firstPage(stack, "reader-0");
    for (const { degraded, drop_ids } of pages) if (!degraded) expect(drop_ids).toEqual(expected);
    const again = async (): Promise<boolean | string> => {
      const later = await Promise.all(readers.map((reader) => stack.reads.home(reader, { limit: LIMIT }, 20_000)));
      const whole = later.filter(({ degraded }) => !degraded);
      for (const page of whole) expect(page.drop_ids).toEqual(expected);
      return whole.length === readers.length || `${whole.length} of ${readers.length} are whole`;
    };
    await eventually(again, "every home is whole", 120_000);
  },
);

testWithStack(
  "a caller's deadline of more than ten seconds is honoured",
  { slow: true, roles: "api", env: { TIMELINE_UPSTREAM_CONCURRENCY: "1" }, timeoutMs: 60_000 },
  async (stack) => {
    const [reader = ""] = populate(stack, { readers: 1, authors: 60, drops: 1 });
    stack.upstreams.inject({ method: "GetDropsByUserID", delayMs: 200 });
    const page = await stack.reads.home(reader, { limit: LIMIT }, 29_000);
    expect([page.degraded, page.drop_ids]).toEqual([false, firstPage(stack, reader)]);
  },
);

// Invariant 5.
testWithStack(
  "a caller's deadline is honoured up to a bound; then its page is degraded",
  { roles: "api", env: limited({ reads: { deadlineMaxMs: 700 } }) },
  async (stack) => {
    const [reader = ""] = populate(stack, { readers: 1, authors: 3, drops: 1 });
    stack.upstreams.inject({ method: "GetDropsByUserID", delayMs: 4_000 });
    expect((await stack.reads.home(reader, { limit: LIMIT }, 20_000)).degraded).toBe(true);
  },
);

// Invariant 11.
testWithStack(
  "while the queue of readers is full, further pages are degraded at once; later they are complete",
  { roles: "api", env: limited({ reads: { rebuildsAtOnce: 1, rebuildsWaiting: 0 } }) },
  async (stack) => {
    const [first = "", second = ""] = populate(stack, { readers: 2, authors: 3, drops: 2 });
    const heal = stack.upstreams.inject({ method: "GetDropsByUserID", delayMs: 3_000 });
    const slow = stack.reads.home(first, { limit: LIMIT });
    await eventually(() => stack.upstreams.held() > 0, "the first rebuild is under way");
    expect((await stack.reads.home(second, { limit: LIMIT })).degraded).toBe(true);
    expect(stack.upstreams.held()).toBeGreaterThan(0);
    heal();
    expect((await slow).degraded).toBe(false);
    expect(await stack.reads.home(second, { limit: LIMIT })).toMatchObject({
      drop_ids: firstPage(stack, second),
      degraded: false,
    });
  },
);
