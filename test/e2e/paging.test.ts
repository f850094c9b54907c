import { expect } from "@jest/globals";
import { below, oneOf, seeded, shuffled, uuidV7 } from "../support/random.js";
import { type Between, downIds, pagesDown, pagesUp, type Read, upIds } from "../support/reader.js";
import { type Stack, sharedStack, testWithStack } from "../support/stack.js";
import { created, deleted } from "../support/timeline-events.js";
import { held, homeKey } from "../support/timeline-keys.js";
import { newestFirst, type WorldDrop } from "../support/world.js";

const START = Date.now() - 3_600_000;
const AUTHORS = ["alice", "anna", "arno", "axel"];
const random = seeded(21);

/** Many drops, three tenths of them in one millisecond. */
function manyDrops(count: number): WorldDrop[] {
  return Array.from({ length: count }, (_, number) => ({
    drop_id: `${below(random, 1_000_000).toString(36)}-${number}`,
    user_id: oneOf(random, AUTHORS),
    visibility: "public" as const,
    created_at: START + (number < 0.3 * count ? 50_000 : 100 * number),
  }));
}

async function seed(stack: Stack, drops: readonly WorldDrop[]): Promise<void> {
  for (const author of AUTHORS) stack.world.follow("bob", author);
  expect((await stack.reads.home("bob")).drop_ids).toEqual([]);
  stack.world.post(...drops);
  await stack.publish(...shuffled(random, drops).map((drop) => created({ visibility: "public", ...drop })));
  await stack.streams.settled(drops.length);
}

/** Changes while a reader turns pages; remembers which of the first drops are gone. */
class Bustle {
  readonly gone = new Set<string>();
  readonly known: Map<string, WorldDrop>;
  events: number;

  constructor(
    readonly stack: Stack,
    readonly first: readonly WorldDrop[],
    before?: Bustle,
  ) {
    this.known = new Map(first.map((drop) => [drop.drop_id, drop]));
    this.events = before?.events ?? first.length;
  }

  /** New drops at the top, late ones in the middle, and a deletion now and then. */
  readonly between: Between = async (page) => {
    const { world } = this.stack;
    const created_at = page % 3 === 0 ? START + below(random, 100_000) : Date.now();
    const drop = {
      drop_id: `new-${this.events}`,
      user_id: oneOf(random, AUTHORS),
      visibility: "public" as const,
      created_at,
    };
    world.post(drop);
    this.known.set(drop.drop_id, drop);
    this.events += 1;
    await this.stack.publish(created(drop));
    if (page % 4 !== 0) return;
    const victim = oneOf(random, this.first);
    if (this.gone.has(victim.drop_id)) return;
    this.gone.add(victim.drop_id);
    world.remove(victim.drop_id);
    this.events += 1;
    await this.stack.publish(deleted(victim.drop_id, victim.user_id));
  };

  /** Returns the drops that were not removed. */
  left(): WorldDrop[] {
    return [...this.known.values()].filter(({ drop_id }) => !this.gone.has(drop_id));
  }

  /** Every drop that was there throughout exactly once, nothing twice, and all of it in order. */
  expectComplete(ids: readonly string[]): void {
    expect(new Set(ids).size).toBe(ids.length);
    const drops = ids.map((id) => this.known.get(id) as WorldDrop);
    expect(ids).toEqual(drops.toSorted(newestFirst).map(({ drop_id }) => drop_id));
    const throughout = this.first.filter(({ drop_id }) => !this.gone.has(drop_id));
    const seen = new Set(ids);
    expect(throughout.filter(({ drop_id }) => !seen.has(drop_id))).toEqual([]);
  }
}

async function turnBothWays(read: Read, bustle: Bustle): Promise<void> {
  const { stack } = bustle;
  const down = await pagesDown(read, { limit: 7 }, bustle.between);
  bustle.expectComplete(downIds(down));
  expect(down.slice(0, -1).every(({ drop_ids }) => drop_ids.length === 7)).toBe(true);
  expect(down.filter(({ degraded }) => degraded)).toEqual([]);
  await stack.streams.settled(bustle.events);
  const up = await pagesUp(read, { limit: 7, min_id: uuidV7(random, 1_000) }, bustle.between);
  bustle.expectComplete(upIds(up));
  expect(up.slice(0, -1).every(({ drop_ids }) => drop_ids.length === 7)).toBe(true);
  await stack.streams.settled(bustle.events);
}

// Invariant 6.
testWithStack(
  "home turned down and up by 7 while drops come and go, across the cap",
  { env: { TIMELINE_MAX_ENTRIES: "400" } },
  async (stack) => {
    const drops = manyDrops(400);
    await seed(stack, drops);
    await turnBothWays((query) => stack.reads.home("bob", query), new Bustle(stack, drops));
  },
);

// Invariant 6.
testWithStack(
  "local and global turned down and up by 7 while drops come and go",
  { env: { TIMELINE_MAX_ENTRIES: "2000" } },
  async (stack) => {
    const drops = manyDrops(400);
    await seed(stack, drops);
    const first = new Bustle(stack, drops);
    await turnBothWays(stack.reads.local, first);
    await turnBothWays(stack.reads.global, new Bustle(stack, first.left(), first));
  },
);

const CAP = 50;
const onCapped = sharedStack({ env: { TIMELINE_MAX_ENTRIES: String(CAP) } });

/** Drops of all visibilities with many ties, three times as many as a timeline holds; ids and people end in `own`. */
function pastTheCap(own: string): WorldDrop[] {
  return Array.from({ length: 150 }, (_, number) => ({
    drop_id: `${number % 2 === 0 ? "a" : "Z"}-${number}${own}`,
    user_id: `${AUTHORS[number % AUTHORS.length]}${own}`,
    visibility: (["public", "unlisted", "followers", "direct", "public"] as const)[number % 5] ?? "public",
    recipients: [`${number % 2 === 0 ? "bob" : "carol"}${own}`],
    created_at: START + Math.floor(number / 13),
  }));
}

// Their tests share local and global: it comes first.
onCapped("local and global end at the cap", async (stack) => {
  const drops = pastTheCap("");
  stack.world.post(...drops);
  await stack.publish(...shuffled(random, drops).map((drop) => created({ visibility: "public", ...drop })));
  await stack.streams.settled(drops.length);
  const all = drops.filter(({ visibility }) => visibility === "public").sort(newestFirst);
  for (const read of [stack.reads.local, stack.reads.global]) {
    const pages = await pagesDown(read, { limit: 7 });
    const ids = downIds(pages);
    expect(ids).toEqual(all.slice(0, ids.length).map(({ drop_id }) => drop_id));
    expect(ids.length).toBeLessThanOrEqual(CAP);
    expect(ids.length).toBeGreaterThanOrEqual(Math.floor(CAP * 0.95));
    expect(pages.some(({ degraded }) => degraded)).toBe(false);
    expect(upIds(await pagesUp(read, { limit: 7, min_id: uuidV7(random, 1_000) }))).toEqual(ids);
  }
});

for (const warmed of [true, false]) {
  const name = warmed ? "filled by fan-out" : "rebuilt";
  // Invariant 6.
  onCapped(`home goes on past the cap and back up, with ties at the floor (${name})`, async (stack) => {
    const own = warmed ? "-warm" : "-cold";
    const bob = `bob${own}`;
    const { world, reads, redis } = stack;
    for (const author of AUTHORS) world.follow(bob, `${author}${own}`);
    if (warmed) expect((await reads.home(bob)).drop_ids).toEqual([]);
    const drops = pastTheCap(own);
    world.post(...drops);
    if (warmed) {
      await stack.publish(...shuffled(random, drops).map((drop) => created({ visibility: "public", ...drop })));
      await stack.streams.settled(drops.length);
    }
    const expected = world.homeOf(bob).map(({ drop_id }) => drop_id);
    const read: Read = (query) => reads.home(bob, query);
    for (const limit of [7, 1, 20, 100]) {
      expect(downIds(await pagesDown(read, { limit }))).toEqual(expected);
      expect(upIds(await pagesUp(read, { limit, min_id: uuidV7(random, 1_000) }))).toEqual(expected);
      // Undated ids are cursors while the timeline holds them; below the floor the tokens of pages lead on.
      for (const position of [0, 17, 29, 35, 40]) {
        const cursor = expected[position] as string;
        expect((await read({ limit, max_id: cursor })).drop_ids).toEqual(
          expected.slice(position + 1, position + 1 + limit),
        );
        expect((await read({ limit, min_id: cursor })).drop_ids).toEqual(
          expected.slice(Math.max(0, position - limit), position),
        );
      }
    }
    const kept = (await held(redis, homeKey(bob))).entries.length;
    expect(kept).toBeLessThanOrEqual(CAP);
    if (warmed) expect(kept).toBeGreaterThanOrEqual(Math.floor(CAP * 0.95));
  });
}

// Invariant 6.
onCapped("more drops in one millisecond than a timeline holds", async (stack) => {
  const { world, reads } = stack;
  world.follow("ben", "abel");
  world.follow("cora", "abel");
  expect((await reads.home("ben")).drop_ids).toEqual([]);
  const drops = Array.from({ length: 4 * CAP }, (_, number) => {
    return { drop_id: `same-${number}`, user_id: "abel", visibility: "public" as const, created_at: START };
  });
  world.post(...drops);
  await stack.publish(...shuffled(random, drops).map(created));
  await stack.streams.settled(drops.length);
  for (const user of ["ben", "cora"]) {
    const expected = world.homeOf(user).map(({ drop_id }) => drop_id);
    const read: Read = (query) => reads.home(user, query);
    for (const limit of [7, 60, 100]) {
      expect(downIds(await pagesDown(read, { limit }))).toEqual(expected);
      expect(upIds(await pagesUp(read, { limit, min_id: uuidV7(random, 1_000) }))).toEqual(expected);
    }
  }
});
