const TWO_32 = 2 ** 32;

/** Numbers in (0, 1): xoshiro128++ of Blackman and Vigna, seeded by splitmix32. The same seed makes the same numbers. */
export function seeded(seed: number): () => number {
  let mixed = seed | 0;
  const next = (): number => {
    mixed = (mixed + 0x9e3779b9) | 0;
    let z = mixed;
    z = Math.imul(z ^ (z >>> 16), 0x85ebca6b);
    z = Math.imul(z ^ (z >>> 13), 0xc2b2ae35);
    return z ^ (z >>> 16);
  };
  let [a, b, c, d] = [next(), next(), next(), next()];
  return () => {
    const sum = (a + d) | 0;
    const result = (((sum << 7) | (sum >>> 25)) + a) | 0;
    const shifted = b << 9;
    c ^= a;
    d ^= b;
    b ^= c;
    a ^= d;
    c ^= shifted;
    d = (d << 11) | (d >>> 21);
    return ((result >>> 0) + 0.5) / TWO_32;
  };
}

/** Of the normal distribution with mean 0 and deviation 1, by Box and Muller. */
export const normal = (random: () => number): number =>
  Math.sqrt(-2 * Math.log(random())) * Math.cos(2 * Math.PI * random());
