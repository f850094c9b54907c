/** Numbers in [0, 1), the same for the same seed. */
export type Random = () => number;

/**
 * Mulberry32 by Tommy Ettinger (2017, public domain), in the JavaScript form
 * published by bryc: 32 bits of state, enough for a world to play with and for
 * nothing secret.
 */
export function mulberry32(seed: number): Random {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = state;
    mixed = Math.imul(mixed ^ (mixed >>> 15), mixed | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}

/** An integer in [0, below). */
export function integer(random: Random, below: number): number {
  return Math.floor(random() * below);
}

/** Draws ranks 0..size-1 with probability proportional to 1 / (rank + 1) (Zipf). */
export function zipf(random: Random, size: number): () => number {
  const cumulative: number[] = [];
  let sum = 0;
  for (let rank = 1; rank <= size; rank++) {
    sum += 1 / rank;
    cumulative.push(sum);
  }
  return () => {
    const target = random() * sum;
    let low = 0;
    let high = size - 1;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((cumulative[middle] as number) <= target) low = middle + 1;
      else high = middle;
    }
    return low;
  };
}
