import type { AnalysisResults, Measure, MeasureResult } from "../contracts/analysis.js";
import { DAY, HOUR } from "../kernel/time.js";
import { type Post, SKIPPED } from "./sources/source.js";

/** docs/analysis.md of this version defines every figure. Results of different versions are not comparable. */
const MEASURES_VERSION = "1";

const FORMULAS: Readonly<Record<Measure, (sorted: readonly Post[], now: number) => MeasureResult>> = {
  flow,
  clout,
  kudos,
  pulse,
};

/** `now` is in ms since the epoch. Five numbers of each post are kept: the limit of the source bounds memory, and every figure is exact. */
export async function measure(
  posts: AsyncIterable<Post | typeof SKIPPED>,
  { measures, now }: { readonly measures: readonly Measure[]; readonly now: number },
): Promise<AnalysisResults> {
  const read: Post[] = [];
  let skipped = 0;
  for await (const post of posts) {
    if (post === SKIPPED) skipped++;
    else read.push(post);
  }
  // Clients choose the time of their posts: a source is sorted only nearly.
  read.sort((a, b) => a.createdAt - b.createdAt);
  const [oldest, newest] = [read[0], read.at(-1)];
  return {
    version: MEASURES_VERSION,
    posts: read.length,
    ...(skipped > 0 && { skipped }),
    ...(oldest && newest && { from: rfc3339(oldest), to: rfc3339(newest) }),
    ...Object.fromEntries(measures.map((name) => [name, FORMULAS[name](read, now)])),
  };
}

const rfc3339 = ({ createdAt }: Post): string => new Date(createdAt).toISOString();

// docs/analysis.md defines each figure. All take the posts of an account sorted by time, oldest first; a figure that
// cannot be known is null.

export function flow(posts: readonly Post[]) {
  const hours = new Array<number>(24).fill(0);
  const weekdays = new Array<number>(7).fill(0);
  for (const { createdAt } of posts) {
    const date = new Date(createdAt);
    countIn(hours, date.getUTCHours());
    // A week begins with Monday.
    countIn(weekdays, (date.getUTCDay() + 6) % 7);
  }
  const gaps = posts.slice(1).map(({ createdAt }, index) => createdAt - (posts[index] as Post).createdAt);
  const [average, deviation] = [mean(gaps), standardDeviation(gaps)];
  return {
    posts_per_day: rounded(DAY / average),
    median_gap_hours: rounded(median(gaps) / HOUR),
    longest_gap_hours: rounded(Math.max(...gaps) / HOUR),
    // See K.-I. Goh, A.-L. Barabási, "Burstiness and memory in complex systems", EPL 81, 2008.
    burstiness: gaps.length > 1 ? rounded((deviation - average) / (deviation + average)) : null,
    hours,
    weekdays,
  };
}

function countIn(histogram: number[], bin: number): void {
  histogram[bin] = (histogram[bin] as number) + 1;
}

export function clout(posts: readonly Post[]) {
  const reach = ascending(posts.map(reachOf));
  return {
    reach_per_post: rounded(mean(reach)),
    median_reach: rounded(median(reach)),
    // See J. E. Hirsch, "An index to quantify an individual's scientific research output", PNAS 102, 2005.
    h_index: unlessUnknown(reach, reach.toReversed().filter((value, index) => value > index).length),
    amplification: rounded(sum(reach) / sum(posts.map(reactionsOf))),
  };
}

const reachOf = ({ shares, quotes }: Post): number => shares + quotes;
const reactionsOf = (post: Post): number => post.likes + post.replies + reachOf(post);

export function kudos(posts: readonly Post[]) {
  const reactions = ascending(posts.map(reactionsOf));
  const total = (countOf: (post: Post) => number) => rounded(sum(posts.map(countOf)));
  return {
    likes: total(({ likes }) => likes),
    shares: total(({ shares }) => shares),
    replies: total(({ replies }) => replies),
    quotes: total(({ quotes }) => quotes),
    reactions_per_post: rounded(mean(reactions)),
    median_reactions: rounded(median(reactions)),
    answered: unlessUnknown(reactions, rounded(reactions.filter((count) => count > 0).length / posts.length)),
    spread: rounded(1 - gini(reactions)),
  };
}

/** The values are sorted. The coefficient is half the mean difference of two of them, divided by their mean (C. Gini, 1912). */
function gini(sorted: readonly number[]): number {
  const n = sorted.length;
  return sum(sorted.map((value, index) => (2 * index + 1 - n) * value)) / (n * sum(sorted));
}

const RECENT_MS = 7 * DAY;
/** The share is that of a history which is shorter than four weeks. */
const RECENT_PART = 1 / 4;
const ENOUGH_POSTS = 5;

/** `now` is in ms since the epoch. */
export function pulse(posts: readonly Post[], now: number) {
  const [first, last] = [posts[0]?.createdAt ?? Number.NaN, posts.at(-1)?.createdAt ?? Number.NaN];
  // The clock of a client may be ahead.
  const end = Math.max(now, last);
  const width = Math.min(RECENT_MS, (end - first) * RECENT_PART);
  const recent = posts.filter(({ createdAt }) => createdAt > end - width).length;
  // The oldest post only begins the time that is looked at.
  const before = posts.length - recent - 1;
  const [rate, baseline] =
    posts.length < ENOUGH_POSTS
      ? [Number.NaN, Number.NaN]
      : [recent / (width / DAY), before / ((end - first - width) / DAY)];
  return {
    days_since_last_post: rounded((end - last) / DAY),
    recent_days: rounded(width / DAY),
    recent_posts_per_day: rounded(rate),
    baseline_posts_per_day: rounded(baseline),
    change: rounded((rate - baseline) / (rate + baseline)),
  };
}

const unlessUnknown = <Figure>(values: readonly number[], figure: Figure): Figure | null =>
  values.some(Number.isNaN) ? null : figure;

const ascending = (values: readonly number[]): number[] => values.toSorted((a, b) => a - b);

const sum = (values: readonly number[]): number => values.reduce((total, value) => total + value, 0);

/** The mean of nothing is NaN, and so are the next two. */
const mean = (values: readonly number[]): number => sum(values) / values.length;

/** The deviation is that of all values, not of a sample. */
function standardDeviation(values: readonly number[]): number {
  const average = mean(values);
  return Math.sqrt(mean(values.map((value) => (value - average) ** 2)));
}

function median(values: readonly number[]): number {
  const sorted = ascending(values);
  const middle = (sorted.length - 1) / 2;
  return ((sorted[Math.floor(middle)] ?? Number.NaN) + (sorted[Math.ceil(middle)] ?? Number.NaN)) / 2;
}

const rounded = (value: number): number | null =>
  Number.isFinite(value) ? Math.round(value * 1_000) / 1_000 || 0 : null;
