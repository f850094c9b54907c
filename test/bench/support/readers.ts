import { EDGES, type Population } from "./population.js";
import { PUBLISHED } from "./published.js";
import { normal, seeded } from "./random.js";

/** Authors that a reader follows who have more followers than a threshold, over a sample of readers. */
export interface Followed {
  /** A read, where those who follow more read more often. */
  readonly perRead: number;
  /** A reader. */
  readonly mean: number;
  readonly p50: number;
  readonly p99: number;
  readonly max: number;
}

export interface ReadersOptions {
  readonly readers: number;
  readonly seed: number;
  /** As TIMELINE_MAX_FOLLOWING. */
  readonly most?: number;
}

const MOST_FOLLOWINGS = 7_500;
/** Draws of one following, of which none may be followed already. */
const TRIES = 100;
const READ_SLOPE = Math.log(PUBLISHED.heavyReads.value) / Math.log(PUBLISHED.heavyFollowings.value);

/**
 * Draws readers and whom they follow: each author by the number of followers, nobody twice. Followings are log-normal with the
 * published median, and as many in all as the population has followers.
 */
export function drawReaders(
  population: Population,
  { readers, seed, most = MOST_FOLLOWINGS }: ReadersOptions,
): ReadonlyMap<number, Followed> {
  const random = seeded(seed);
  const draw = createDraw(population, random);
  const mean = population.cells.reduce((sum, { followers }) => sum + followers, 0) / population.users;
  const median = Math.min(mean, PUBLISHED.followings.value);
  const deviation = Math.sqrt(2 * Math.log(mean / median));
  const counts = EDGES.map(() => new Uint32Array(most + 1));
  const read = EDGES.map(() => 0);
  let reads = 0;
  for (let reader = 0; reader < readers; reader++) {
    const drawn = Math.round(median * Math.exp(deviation * normal(random)));
    const followings = Math.min(most, Math.max(1, drawn));
    const weight = followings ** READ_SLOPE;
    reads += weight;
    const byCell = draw(followings);
    let followed = 0;
    for (let cell = EDGES.length - 1; cell >= 0; cell--) {
      followed += byCell[cell] as number;
      const some = counts[cell] as Uint32Array;
      some[followed] = (some[followed] as number) + 1;
      read[cell] = (read[cell] as number) + weight * followed;
    }
  }
  return new Map(
    EDGES.map((edge, cell) => [
      edge,
      { perRead: (read[cell] as number) / reads, ...summarised(counts[cell] as Uint32Array, readers) },
    ]),
  );
}

/** Yields how many of a reader's followings are in each cell. */
function createDraw({ cells }: Population, random: () => number): (followings: number) => Uint32Array {
  const until: number[] = [];
  let sum = 0;
  for (const { followers } of cells) {
    sum += followers;
    until.push(sum);
  }
  const byCell = new Uint32Array(cells.length);
  const drawn = new Set<number>();
  return (followings) => {
    byCell.fill(0);
    drawn.clear();
    for (let n = 0; n < followings; n++) {
      for (let tries = 0; tries < TRIES; tries++) {
        const at = random() * sum;
        let cell = 0;
        while (at >= (until[cell] as number)) cell++;
        const author = Math.floor(random() * (cells[cell]?.authors ?? 0)) * cells.length + cell;
        if (drawn.has(author)) continue;
        drawn.add(author);
        byCell[cell] = (byCell[cell] as number) + 1;
        break;
      }
    }
    return byCell;
  };
}

function summarised(counts: Uint32Array, readers: number): Omit<Followed, "perRead"> {
  const at = (share: number): number => {
    let [seen, value] = [0, -1];
    while (seen < share * readers) seen += counts[++value] as number;
    return value;
  };
  const mean = counts.reduce((sum, count, value) => sum + count * value, 0) / readers;
  return { mean, p50: at(0.5), p99: at(0.99), max: at(1) };
}
