import { PUBLISHED } from "./published.js";
import { normal, seeded } from "./random.js";

/** Authors with more than `above` followers and at most `upTo`, summed up. */
export interface Cell {
  readonly above: number;
  readonly upTo: number;
  readonly authors: number;
  readonly followers: number;
  /** Drops a second of all of them. */
  readonly drops: number;
  /** Followers times drops a second: entries a second where they are pushed. */
  readonly entries: number;
}

export interface Population {
  readonly users: number;
  readonly cells: readonly Cell[];
  /** Followers of the author who has most. */
  readonly most: number;
  /** Share of the drops that the tenth of the users writes who write most. */
  readonly topDecile: number;
}

export interface PopulationOptions {
  readonly users: number;
  readonly seed: number;
  /** Users drawn at most; of more users each drawn one stands for several. */
  readonly draws?: number;
  /** Unset: drops by followers, as published. `alike`: every author posts at the same mean rate. */
  readonly rates?: "alike";
}

const DRAWS = 100_000_000;
const DAY_S = 86_400;
/** Of the logarithm of an author's rate; with it a tenth of the users writes the published share. */
const RATE_DEVIATION = 1.5;
/** Drawn once, and then from among them: a tenth of the time. */
const DEVIATIONS = 65_536;
const [FEW, MANY] = [100, 1_800];
const RATE_SLOPE = Math.log(PUBLISHED.manyPost.value / PUBLISHED.fewPost.value) / Math.log(MANY / FEW);
/** Authors with more followers post hardly more (Beevolve, 36 M profiles, 2012: 13,000 and 15,300 drops of an author). */
const LOG_MANY = Math.log(MANY);
const RATE_CELLS = 512;
const CELLS_A_LOGARITHM = 16;

/** Bounds of the cells, and the thresholds that can be asked for. */
export const EDGES: readonly number[] = [
  0,
  ...Array.from({ length: 9 }, (_, power) => [1, 2, 3, 5].map((digit) => digit * 10 ** power)).flat(),
];

/** Upper shares of those who post and their followers, from the median of one side to the tail. */
const KNOTS: readonly (readonly [share: number, followers: number])[] = [
  [1, 1],
  [0.5, PUBLISHED.median.value],
  [0.04, PUBLISHED.percentile96.value],
  [0.01, PUBLISHED.percentile99.value],
];
const TAIL = 1 / (PUBLISHED.tail.value - 1);

/** Straight lines between the knots, in logarithms. */
const LINES = KNOTS.map(([share, followers], at) => {
  const [to, many] = KNOTS[at + 1] ?? [share / 10, followers * 10 ** TAIL];
  const slope = Math.log(many / followers) / Math.log(to / share);
  return { share, slope, start: Math.log(followers) - slope * Math.log(share) };
}).reverse();

/** Logarithm of the followers that the given share of those who post reaches or exceeds. */
export function logFollowersOf(share: number): number {
  let line = LINES[0] as (typeof LINES)[number];
  for (let at = 1; share > line.share; at++) line = LINES[at] as (typeof LINES)[number];
  return line.start + line.slope * Math.log(share);
}

/** Draws users one by one and keeps sums only: memory does not depend on their number. */
export function drawPopulation({ users, seed, draws = DRAWS, rates }: PopulationOptions): Population {
  const random = seeded(seed);
  const drawn = Math.min(users, draws);
  const weight = users / drawn;
  const [authors, sums, drops, entries] = [cells(), cells(), cells(), cells()];
  const byRate = new RateHistogram();
  const deviations = Float64Array.from({ length: DEVIATIONS }, () => RATE_DEVIATION * normal(random));
  const bound = Math.max(1, Math.floor(PUBLISHED.most.value * users));
  let most = 0;
  for (let user = 0; user < drawn; user++) {
    const posts = random() >= PUBLISHED.silent.value;
    const logarithm = posts ? logFollowersOf(random()) : 0;
    const followers = posts ? Math.min(bound, Math.round(Math.exp(logarithm))) : PUBLISHED.followersOfSilent.value;
    const cell = cellOf(followers);
    authors[cell] = (authors[cell] as number) + 1;
    sums[cell] = (sums[cell] as number) + followers;
    if (followers > most) most = followers;
    if (!posts) continue;
    const mean = rates === "alike" ? 0 : RATE_SLOPE * Math.min(logarithm, LOG_MANY);
    const rateLogarithm = mean + (deviations[Math.floor(random() * DEVIATIONS)] as number);
    const rate = Math.exp(rateLogarithm);
    drops[cell] = (drops[cell] as number) + rate;
    entries[cell] = (entries[cell] as number) + rate * followers;
    byRate.add(rateLogarithm, rate);
  }
  // Makes the rate of all drops together the published one.
  const rated = ((PUBLISHED.drops.value / PUBLISHED.users.value) * users) / drops.reduce((sum, rate) => sum + rate, 0);
  const summed = EDGES.map((above, cell) => ({
    ...{ above, upTo: EDGES[cell + 1] ?? Number.POSITIVE_INFINITY },
    ...{ authors: weight * (authors[cell] as number), followers: weight * (sums[cell] as number) },
    ...{ drops: rated * (drops[cell] as number), entries: rated * (entries[cell] as number) },
  }));
  return { users, cells: summed, most, topDecile: byRate.topShare(drawn / 10) };
}

const cells = (): Float64Array => new Float64Array(EDGES.length);

function cellOf(followers: number): number {
  let cell = 0;
  while (cell + 1 < EDGES.length && (EDGES[cell + 1] as number) < followers) cell++;
  return cell;
}

class RateHistogram {
  readonly #authors = new Float64Array(RATE_CELLS);
  readonly #drops = new Float64Array(RATE_CELLS);

  add(logarithm: number, rate: number): void {
    const at = Math.round(logarithm * CELLS_A_LOGARITHM) + RATE_CELLS / 2;
    const cell = Math.min(RATE_CELLS - 1, Math.max(0, at));
    this.#authors[cell] = (this.#authors[cell] as number) + 1;
    this.#drops[cell] = (this.#drops[cell] as number) + rate;
  }

  /** Share of the drops that so many users write, those who write most. */
  topShare(users: number): number {
    let [left, drops] = [users, 0];
    for (let cell = RATE_CELLS - 1; cell >= 0 && left > 0; cell--) {
      const [authors, theirs] = [this.#authors[cell] as number, this.#drops[cell] as number];
      const part = authors === 0 ? 0 : Math.min(1, left / authors);
      drops += part * theirs;
      left -= authors;
    }
    return drops / this.#drops.reduce((sum, value) => sum + value, 0);
  }
}

/** Sums over authors with more followers than the threshold. */
export function above(threshold: number, { cells }: Population): Omit<Cell, "above" | "upTo"> {
  const sums = { authors: 0, followers: 0, drops: 0, entries: 0 };
  for (const cell of cells) {
    if (cell.above < threshold) continue;
    sums.authors += cell.authors;
    sums.followers += cell.followers;
    sums.drops += cell.drops;
    sums.entries += cell.entries;
  }
  return sums;
}

/** Reads a second of so many users, as published. */
export const readsOf = (users: number): number => (PUBLISHED.reads.value / PUBLISHED.users.value) * users;

export const perDay = (rate: number): number => rate * DAY_S;
