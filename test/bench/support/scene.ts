import { drawPopulation, type Population, type PopulationOptions } from "./population.js";
import { drawReaders, type Followed } from "./readers.js";
import { type Strategy, strategyAt } from "./strategies.js";

const READERS = 50_000;
/** Of TIMELINE_FANOUT_PULL_THRESHOLD. */
export const DEFAULT_THRESHOLD = 500_000;
/** docs/capacity.md and decision 4 compare these. */
export const CANDIDATES = [1_000_000, 500_000, 300_000, 100_000] as const;
export const THRESHOLDS = [
  ...[0, 100, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 300_000, 500_000],
  ...[1_000_000, 2_000_000, 5_000_000, 10_000_000, Number.POSITIVE_INFINITY],
];

/** A population and its readers, at all thresholds. */
export interface Scene {
  readonly population: Population;
  readonly readers: ReadonlyMap<number, Followed>;
  readonly strategies: readonly Strategy[];
}

export function sceneOf(options: PopulationOptions): Scene {
  const population = drawPopulation(options);
  const readers = drawReaders(population, { readers: READERS, seed: options.seed });
  return { population, readers, strategies: THRESHOLDS.map((threshold) => strategyAt(threshold, population, readers)) };
}

/** For docs/capacity.md. */
export interface Load {
  readonly users: number;
  /** Authors a user follows, on the average. */
  readonly followings: number;
  readonly push: Strategy;
  /** At each of CANDIDATES, in their order. */
  readonly pulled: readonly Strategy[];
}

export function loadOf({ population, readers, strategies }: Scene): Load {
  const at = (threshold: number) => strategies.find((one) => one.threshold === threshold) as Strategy;
  // JSON has no Infinity.
  const push = { ...at(Number.POSITIVE_INFINITY), threshold: population.users };
  const followings = readers.get(0)?.mean ?? 0;
  return { users: population.users, followings, push, pulled: CANDIDATES.map(at) };
}

export const atThreshold = ({ pulled }: Load, threshold: (typeof CANDIDATES)[number]): Strategy =>
  pulled.find((one) => one.threshold === threshold) as Strategy;

export function nameOf(threshold: number): string {
  if (threshold === 0) return "pull";
  return threshold === Number.POSITIVE_INFINITY ? "push" : `above ${threshold.toLocaleString("en")} followers pulled`;
}
