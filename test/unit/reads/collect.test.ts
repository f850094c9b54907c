import { expect, test } from "@jest/globals";
import fc from "fast-check";
import { belongsHome, compareEntries, entryOfDrop, type TimelineEntry } from "../../../src/contracts/timelines.js";
import { AppError } from "../../../src/kernel/errors.js";
import { createOldestFirst } from "../../../src/kernel/oldest-first.js";
import { collect, collectUpward } from "../../../src/reads/collect.js";
import { createSources, type Sources } from "../../../src/reads/sources.grpc.js";
import { connectUpstreams } from "../../../src/upstreams/upstreams.grpc.js";
import { readDropsOf, sourcesOf } from "../../support/memory-upstreams.js";
import { startUpstreams } from "../../support/upstreams.js";
import { NAMES_NOBODY, World, type WorldDrop } from "../../support/world.js";

const AUTHORS = ["ada", "bob", "eve"] as const;
const READER = "rik";
/** No sooner than that of a test. */
const deadline = () => Date.now() + 60_000;

const drop = fc.record({
  drop_id: fc.string({ unit: fc.constantFrom("a", "b", "é", "～", "\u{1f600}"), minLength: 1, maxLength: 4 }),
  user_id: fc.constantFrom(...AUTHORS, READER),
  created_at: fc.integer({ min: 1, max: 6 }),
  visibility: fc.constantFrom("public", "unlisted", "followers", "direct" as const),
  recipients: fc.subarray([READER, "eve"]),
});
const drops = fc.uniqueArray(drop, { selector: ({ drop_id }) => drop_id, maxLength: 40 });
const place = fc.record({
  score: fc.integer({ min: 1, max: 7 }),
  drop: fc.constantFrom("", "a", "é", "～", "\u{1f600}"),
});

function worldOf(posted: readonly WorldDrop[]): World {
  const world = new World();
  world.post(...posted);
  return world;
}

/** Everything a reader may see of the authors between two places, newest first. */
function visible(world: World, above: TimelineEntry | undefined, below: TimelineEntry | undefined): TimelineEntry[] {
  return [...AUTHORS, READER]
    .flatMap((author) => world.dropsOf(author))
    .filter((one) => belongsHome(one, READER))
    .map(entryOfDrop)
    .filter((one) => (!above || compareEntries(one, above) > 0) && (!below || compareEntries(one, below) < 0))
    .sort((a, b) => compareEntries(b, a));
}

/** Hands out no more than `most` drops a call after the first page, as upstreams may. */
const stingy = (world: World, most: number): Sources =>
  sourcesOf(world, (request) =>
    readDropsOf(world)({ ...request, limit: request.limit > 40 ? Math.min(request.limit, most) : request.limit }),
  );

async function sameAsModel(
  sources: Sources,
  world: World,
  asked: { above?: TimelineEntry | undefined; below?: TimelineEntry | undefined; count: number },
): Promise<void> {
  const expected = visible(world, asked.above, asked.below);
  const { reads, ...found } = await collect(sources, {
    reader: READER,
    authors: [...AUTHORS, READER],
    deadline: deadline(),
    ...asked,
  });
  expect(reads).toBeGreaterThan(AUTHORS.length);
  expect(found).toEqual({
    entries: expected.slice(0, asked.count),
    more: expected.length > asked.count,
    reached: undefined,
  });
}

const asked = fc.record({
  above: fc.option(place, { nil: undefined }),
  below: fc.option(place, { nil: undefined }),
  count: fc.integer({ min: 1, max: 30 }),
});

// Invariant 6.
test("collect equals the model: ties, visibility, recipients, both bounds", async () => {
  await fc.assert(
    fc.asyncProperty(drops, asked, (posted, how) => sameAsModel(sourcesOf(worldOf(posted)), worldOf(posted), how)),
    { numRuns: 400 },
  );
});

/** Authors of very different size, so that some are read on and some are not. */
function unevenWorld(): World {
  const world = new World();
  for (let index = 0; index < 700; index++) {
    const user_id = index % 10 === 0 ? "bob" : index % 97 === 0 ? "eve" : "ada";
    world.post({
      drop_id: `d${index}`,
      user_id,
      created_at: 1_000 + Math.floor(index / 3),
      visibility: index % 4 ? "public" : "direct",
    });
  }
  return world;
}

test("an upstream that never answers with more than a few drops at a time is read to the end", async () => {
  const world = unevenWorld();
  const capped = (most: number): Sources =>
    sourcesOf(world, (request) => readDropsOf(world)({ ...request, limit: Math.min(request.limit, most) }));
  for (const most of [1, 7, 20, 39]) await sameAsModel(capped(most), world, { count: 1_000 });
});

test("collect reads all pages that matter of an author, also where pages are short", async () => {
  const world = unevenWorld();
  for (const sources of [sourcesOf(world), stingy(world, 7)])
    for (const count of [1, 39, 40, 41, 200, 521, 524, 525, 526, 1_000])
      await sameAsModel(sources, world, { count, below: { score: 1_232, drop: "d697" } });
});

test("collect stops reading an author whose next page cannot matter", async () => {
  const world = unevenWorld();
  for (let index = 0; index < 300; index++) world.post({ drop_id: `old${index}`, user_id: "eve", created_at: 1 });
  const calls: string[] = [];
  const counted = sourcesOf(world, (request) => {
    calls.push(request.author);
    return readDropsOf(world)(request);
  });
  await collect(counted, { reader: READER, authors: [...AUTHORS], count: 20, deadline: deadline() });
  expect(calls.sort()).toEqual(["ada", "bob", "eve"]);
});

// Invariant 5.
test("drops from more than five minutes ahead are left out, and hide none of those below them", async () => {
  const world = new World();
  const now = Date.now();
  const post = (user_id: string, count: number, created_at: number): void => {
    for (let index = 0; index < count; index++)
      world.post({ drop_id: `${user_id}-${created_at}-${index}`, user_id, created_at: created_at + index });
  };
  for (const author of AUTHORS) post(author, 300, Date.parse("2100-01-01T00:00:00Z"));
  post("ada", 1, now + 6 * 60_000);
  post("ada", 1, now + 4 * 60_000);
  for (const author of AUTHORS) post(author, 50, now - 3_600_000);
  const expected = visible(world, undefined, { score: now + 5 * 60_000, drop: "" });
  for (const count of [10, 151, 400]) {
    const { reads: _reads, ...found } = await collect(sourcesOf(world), {
      reader: READER,
      authors: [...AUTHORS],
      count,
      deadline: deadline(),
    });
    expect(found).toEqual({ entries: expected.slice(0, count), more: expected.length > count, reached: undefined });
  }
});

// Invariant 11.
test("memory while many authors are read is bounded by the count asked for", async () => {
  const authors = Array.from({ length: 2_000 }, (_, index) => `author${index}`);
  let [most, underWay] = [0, 0];
  const sources = sourcesOf(new World(), async ({ author: user_id, below, limit }) => {
    most = Math.max(most, ++underWay);
    await new Promise(setImmediate);
    underWay--;
    const from = below === undefined ? 1_000 : below.score;
    return Array.from({ length: Math.min(limit, from) }, (_, index) => ({
      ...{ drop_id: `${user_id}-${from - index - 1}`, user_id, visibility: 1, deleted: false, recipients: [] },
      ...{ created_at: from - index - 1, repost_of: "", repost_author: "", ...NAMES_NOBODY },
    }));
  });
  const { entries, more } = await collect(sources, { reader: READER, authors, count: 30, deadline: deadline() });
  expect([entries.length, more, entries.at(-1)?.score]).toEqual([30, true, 999]);
  expect(most).toBeLessThanOrEqual(128);
});

test("a collection that has no time left ends, and asks no further author", async () => {
  let asked = 0;
  const sources = sourcesOf(new World(), async () => {
    asked++;
    return [];
  });
  await expect(
    collect(sources, { reader: READER, authors: [...AUTHORS], count: 1, deadline: Date.now() }),
  ).rejects.toMatchObject({ code: "deadline" });
  expect(asked).toBe(0);
});

test("an upstream that fails fails the collection", async () => {
  const broken = sourcesOf(new World(), () => Promise.reject(new AppError("unavailable", "away")));
  await expect(collect(broken, { reader: READER, authors: ["ada"], count: 1, deadline: deadline() })).rejects.toThrow(
    "away",
  );
});

// Invariant 6.
test("collectUpward equals the model: the oldest above a place and before a time, oldest first", async () => {
  await fc.assert(
    fc.asyncProperty(
      drops,
      place,
      fc.integer({ min: 1, max: 8 }),
      fc.integer({ min: 1, max: 20 }),
      async (posted, above, top, count) => {
        const world = worldOf(posted);
        const expected = visible(world, above, { score: top, drop: "" }).toReversed().slice(0, count);
        const { entries: found } = await collectUpward(sourcesOf(world), {
          reader: READER,
          authors: [...AUTHORS, READER],
          above,
          top,
          count,
          deadline: deadline(),
        });
        expect(found).toEqual(expected);
      },
    ),
    { numRuns: 300 },
  );
});

test("collectUpward bridges years of silence and narrows where a window is too full", async () => {
  const world = new World();
  const at = (index: number): number => (index < 10 ? 1_000 + index : 1_700_000_000_000 + Math.floor(index / 9));
  for (let index = 0; index < 5_000; index++)
    world.post({ drop_id: `d${index}`, user_id: "ada", created_at: at(index) });
  const found: TimelineEntry[] = [];
  for (let above: TimelineEntry = { score: 1, drop: "" }; ; above = found.at(-1) as TimelineEntry) {
    const { entries: part } = await collectUpward(sourcesOf(world), {
      reader: READER,
      authors: ["ada"],
      above,
      top: 1_800_000_000_000,
      count: 900,
      deadline: deadline(),
    });
    if (part.length === 0) break;
    found.push(...part);
  }
  expect(found).toEqual(visible(world, undefined, undefined).toReversed());
});

// Invariant 11.
test.each([
  ["of one second", (at: number) => 1_000 + at],
  ["of one millisecond", () => 1_000],
])(
  "collectUpward makes at most 1,000 calls and seven an author, also where very many drops are %s",
  async (_, timeOf) => {
    const authors = Array.from({ length: 1_500 }, (_, at) => `author-${at}`);
    const world = new World();
    for (const user_id of authors)
      for (let at = 0; at < 40; at++) world.post({ drop_id: `${user_id}-${at}`, user_id, created_at: timeOf(at) });
    let calls = 0;
    const sources = sourcesOf(world, (request) => {
      calls++;
      return readDropsOf(world)(request);
    });
    const above = { score: 1, drop: "a" };
    const asked = { reader: READER, authors, above, top: 8 * 3_600_000, count: 20, deadline: deadline() };
    await collectUpward(sources, asked).catch((error: AppError) => expect(error.code).toBe("exhausted"));
    expect(calls).toBeLessThanOrEqual(1_000 + 7 * authors.length);
  },
);

test("the same over gRPC", async () => {
  const world = unevenWorld();
  for (const author of AUTHORS) world.follow(READER, author);
  const upstreams = await startUpstreams(world, { pageLimit: 2 });
  const channels = connectUpstreams({
    userServiceAddr: upstreams.usersAddress,
    postServiceAddr: upstreams.postsAddress,
    tls: {},
  });
  try {
    const sources = createSources(channels, createOldestFirst(8))(READER);
    expect(await sources.following(READER, deadline())).toEqual([...AUTHORS]);
    for (const count of [40, 300, 1_000]) await sameAsModel(sources, world, { count });
    await sameAsModel(sources, world, {
      count: 50,
      above: { score: 1_100, drop: "d301" },
      below: { score: 1_150, drop: "" },
    });
    const above = { score: 1_050, drop: "d151" };
    const { entries: upward } = await collectUpward(sources, {
      reader: READER,
      authors: [...AUTHORS],
      above,
      top: 1_060,
      count: 12,
      deadline: deadline(),
    });
    expect(upward).toEqual(visible(world, above, { score: 1_060, drop: "" }).toReversed().slice(0, 12));
  } finally {
    channels.close();
    await upstreams.stop();
  }
});
