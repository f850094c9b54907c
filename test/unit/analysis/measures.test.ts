import { readFileSync } from "node:fs";
import { afterEach, expect, test } from "@jest/globals";
import fc from "fast-check";
import { clout, flow, kudos, measure, pulse } from "../../../src/analysis/measures.js";
import { type Post, SKIPPED } from "../../../src/analysis/sources/source.js";
import { DAY, HOUR, MINUTE } from "../../../src/kernel/time.js";

const ALL = ["flow", "clout", "kudos", "pulse"] as const;
const NOW = Date.UTC(2026, 2, 11);

const reactions = { likes: fc.nat(50), shares: fc.nat(9), replies: fc.nat(9), quotes: fc.nat(3) };
/** Within twenty days, so that the recent part is a quarter. */
const post = fc.record({
  createdAt: fc.integer({ min: 0, max: (20 * DAY) / MINUTE }).map((minutes) => NOW - 20 * DAY + minutes * MINUTE),
  ...reactions,
});
const posts = fc.array(post, { maxLength: 60 });
const somePosts = fc.array(post, { minLength: 5, maxLength: 60 });

async function* streamOf(all: readonly Post[]): AsyncGenerator<Post> {
  yield* all;
}

const measured = (all: readonly Post[], now = NOW) => measure(streamOf(all), { measures: ALL, now });
const sorted = (all: readonly Post[]): Post[] => all.toSorted((a, b) => a.createdAt - b.createdAt);
const everywhere = (all: readonly Post[], change: (at: number) => number): Post[] =>
  all.map((one) => ({ ...one, createdAt: change(one.createdAt) }));
/** Half of what rounding to three decimals may take, on both sides. */
const near = (value: number | null, other: number, slack = 0.0011): void =>
  expect(Math.abs((value as number) - other)).toBeLessThanOrEqual(slack);

const zone = process.env["TZ"];
afterEach(() => {
  if (zone === undefined) delete process.env["TZ"];
  else process.env["TZ"] = zone;
});

function exampleOf(name: string) {
  const text = new RegExp(`\`\`\`json ${name}\n(.*?)\`\`\``, "s").exec(readFileSync("docs/analysis.md", "utf8"))?.[1];
  return JSON.parse(text as string);
}

test("the worked example of docs/analysis.md holds", async () => {
  type Written = Omit<Post, "createdAt"> & { readonly createdAt: string };
  const written = (exampleOf("posts") as Written[]).map((one) => ({ ...one, createdAt: Date.parse(one.createdAt) }));
  expect(await measured(written, Date.parse("2026-03-11T06:00:00Z"))).toEqual(exampleOf("results"));
});

test("posts that cannot be read are counted beside the others", async () => {
  const one = { createdAt: NOW, likes: 1, shares: 0, replies: 0, quotes: 0 };
  async function* odd() {
    yield* [one, SKIPPED, SKIPPED] as const;
  }
  expect(await measure(odd(), { measures: ["kudos"], now: NOW })).toMatchObject({ posts: 1, skipped: 2 });
});

test("only what is asked for is answered, keyed by its type", async () => {
  const found = await measure(streamOf([]), { measures: ["clout"], now: NOW });
  expect(found).toEqual({
    version: "1",
    posts: 0,
    clout: { reach_per_post: null, median_reach: null, h_index: 0, amplification: null },
  });
});

test("an account without posts has a result; what cannot be known of it is null", async () => {
  const found = await measured([]);
  expect(Object.keys(found)).toEqual(["version", "posts", ...ALL]);
  expect(found.flow).toMatchObject({ posts_per_day: null, median_gap_hours: null, longest_gap_hours: null });
  expect(found.kudos).toMatchObject({ likes: 0, reactions_per_post: null, answered: null, spread: null });
  expect(Object.values(found.pulse ?? {})).toEqual([null, null, null, null, null]);
});

test("one post, or posts of one millisecond, have no rate and no gap", async () => {
  const one = { createdAt: NOW - DAY, likes: 1, shares: 0, replies: 0, quotes: 0 };
  expect((await measured([one])).flow).toMatchObject({ posts_per_day: null, burstiness: null });
  expect((await measured([one])).kudos).toMatchObject({ spread: 1, answered: 1 });
  const many = await measured(new Array(9).fill(one));
  expect(many.flow).toMatchObject({ posts_per_day: null, median_gap_hours: 0, burstiness: null });
  expect(pulse(new Array(9).fill(one), one.createdAt)).toMatchObject({ recent_days: 0, change: null });
});

test("the order of the posts does not matter", async () => {
  await fc.assert(
    fc.asyncProperty(posts, fc.infiniteStream(fc.nat()), async (all, random) => {
      const shuffled = all.toSorted(() => ((random.next().value as number) % 3) - 1);
      expect(await measured(shuffled)).toEqual(await measured(all));
    }),
  );
});

test("every figure is in its range", () => {
  const within = (value: number | null, low: number, high: number): void => {
    if (value === null) return;
    expect(value).toBeGreaterThanOrEqual(low);
    expect(value).toBeLessThanOrEqual(high);
  };
  fc.assert(
    fc.property(posts, (some) => {
      const all = sorted(some);
      const { posts_per_day, burstiness, hours, weekdays } = flow(all);
      within(posts_per_day, 0, Number.MAX_VALUE);
      within(burstiness, -1, 1);
      for (const histogram of [hours, weekdays]) expect(histogram.reduce((a, b) => a + b, 0)).toBe(all.length);
      within(clout(all).h_index, 0, all.length);
      within(clout(all).amplification, 0, 1);
      within(kudos(all).answered, 0, 1);
      within(kudos(all).spread, Math.round(1_000 / all.length) / 1_000, 1);
      const { recent_days, recent_posts_per_day, baseline_posts_per_day, change } = pulse(all, NOW);
      within(recent_days, 0, 7);
      within(recent_posts_per_day, 0, Number.MAX_VALUE);
      within(baseline_posts_per_day, 0, Number.MAX_VALUE);
      within(change, -1, 1);
    }),
  );
});

test("time that runs k times as fast: rates follow, rhythm and change stay", () => {
  fc.assert(
    fc.property(somePosts, fc.constantFrom(2, 4, 8), (some, factor) => {
      const all = sorted(some);
      const fast = everywhere(all, (at) => NOW - (NOW - at) / factor);
      expect(flow(fast).burstiness).toEqual(flow(all).burstiness);
      expect(pulse(fast, NOW).change).toEqual(pulse(all, NOW).change);
      near(flow(fast).median_gap_hours, (flow(all).median_gap_hours as number) / factor);
      const [rate, slow] = [flow(fast).posts_per_day, flow(all).posts_per_day];
      if (slow === null) expect(rate).toBeNull();
      else near(rate, slow * factor, 0.001 * factor);
    }),
  );
});

test("k times the reactions: means follow, what compares posts stays", () => {
  fc.assert(
    fc.property(somePosts, fc.integer({ min: 2, max: 9 }), (all, factor) => {
      const times = (one: Post): Post => ({
        createdAt: one.createdAt,
        likes: one.likes * factor,
        shares: one.shares * factor,
        replies: one.replies * factor,
        quotes: one.quotes * factor,
      });
      const loud = all.map(times);
      near(clout(loud).reach_per_post, (clout(all).reach_per_post as number) * factor, 0.001 * factor);
      near(kudos(loud).median_reactions, (kudos(all).median_reactions as number) * factor, 0.001 * factor);
      expect(clout(loud).amplification).toEqual(clout(all).amplification);
      expect(kudos(loud)).toMatchObject({ answered: kudos(all).answered, spread: kudos(all).spread });
    }),
  );
});

test("a post more: sums and histograms have it, the h-index rises by at most one", () => {
  fc.assert(
    fc.property(posts, post, (all, more) => {
      const [before, after] = [sorted(all), sorted([...all, more])];
      const [rise, likes, quotes] = [
        Number(clout(after).h_index) - Number(clout(before).h_index),
        Number(kudos(before).likes) + more.likes,
        Number(kudos(before).quotes) + more.quotes,
      ];
      expect([0, 1]).toContain(rise);
      expect(kudos(after)).toMatchObject({ likes, quotes });
      const hour = new Date(more.createdAt).getUTCHours();
      expect(flow(after).hours[hour]).toBe((flow(before).hours[hour] as number) + 1);
    }),
  );
});

test("a post that nobody answers never raises the reactions a post or their spread", () => {
  fc.assert(
    fc.property(somePosts, (all) => {
      fc.pre(kudos(all).spread !== null);
      const quiet = [...all, { createdAt: NOW, likes: 0, shares: 0, replies: 0, quotes: 0 }];
      expect(kudos(quiet).reactions_per_post).toBeLessThanOrEqual(kudos(all).reactions_per_post as number);
      expect(kudos(quiet).spread).toBeLessThanOrEqual(kudos(all).spread as number);
    }),
  );
});

test("the time zone of the process changes nothing; an hour later is an hour later", async () => {
  await fc.assert(
    fc.asyncProperty(
      somePosts,
      fc.constantFrom("America/St_Johns", "Asia/Kathmandu", "Pacific/Kiritimati", "Europe/Berlin"),
      async (all, elsewhere) => {
        process.env["TZ"] = "UTC";
        const here = await measured(all);
        process.env["TZ"] = elsewhere;
        expect(await measured(all)).toEqual(here);
      },
    ),
  );
  fc.assert(
    fc.property(somePosts, fc.integer({ min: 0, max: 23 }), (all, shift) => {
      const { hours } = flow(sorted(all));
      const later = flow(sorted(everywhere(all, (at) => at + shift * HOUR))).hours;
      expect(later).toEqual(hours.map((_, hour) => hours[(hour + 24 - shift) % 24]));
      const { weekdays } = flow(sorted(everywhere(all, (at) => at + 3 * DAY)));
      const before = flow(sorted(all)).weekdays;
      expect(weekdays).toEqual(before.map((_, day) => before[(day + 4) % 7]));
    }),
  );
});

test("a pause between posts: the longest gap grows by it, fewer posts a day, the same reactions", () => {
  fc.assert(
    fc.property(somePosts, fc.nat(), fc.integer({ min: 20, max: 400 }), (some, at, days) => {
      const all = sorted(some);
      const cut = 1 + (at % (all.length - 1));
      const paused = [...everywhere(all.slice(0, cut), (time) => time - days * DAY), ...all.slice(cut)];
      const gap = (all[cut] as Post).createdAt - (all[cut - 1] as Post).createdAt;
      near(flow(paused).longest_gap_hours, (gap + days * DAY) / HOUR);
      expect(flow(paused).posts_per_day).toBeLessThan(flow(all).posts_per_day ?? Number.POSITIVE_INFINITY);
      expect(clout(paused)).toEqual(clout(all));
      expect(kudos(paused)).toEqual(kudos(all));
    }),
  );
});

test("an account that falls silent for more than a week: its pulse is -1", () => {
  fc.assert(
    fc.property(somePosts, fc.integer({ min: 8, max: 900 }), (some, days) => {
      const silent = pulse(sorted(some), NOW + days * DAY);
      expect(silent).toMatchObject({ change: -1, recent_posts_per_day: 0 });
    }),
  );
});

test("the spread is that of the definition by pairs, the h-index that of its sentence", () => {
  fc.assert(
    fc.property(somePosts, (all) => {
      const each = all.map(({ likes, shares, replies, quotes }) => likes + shares + replies + quotes);
      const total = each.reduce((a, b) => a + b, 0);
      const apart = each.flatMap((a) => each.map((b) => Math.abs(a - b))).reduce((a, b) => a + b, 0);
      if (total === 0) expect(kudos(all).spread).toBeNull();
      else near(kudos(all).spread, 1 - apart / (2 * each.length * total));
      const reaches = (h: number) => all.filter(({ shares, quotes }) => shares + quotes >= h).length >= h;
      const h_index = Number(clout(all).h_index);
      expect([reaches(h_index), reaches(h_index + 1)]).toEqual([true, false]);
    }),
  );
});
