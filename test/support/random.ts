/** A seeded source of numbers in [0, 1): the same seed gives the same run. */
export type Random = () => number;

/** mulberry32: small, and good enough to shuffle histories. */
export function seeded(seed: number): Random {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}

/** A whole number in [0, below). */
export function below(random: Random, limit: number): number {
  return Math.floor(random() * limit);
}

/** One of the items. */
export function oneOf<T>(random: Random, items: readonly T[]): T {
  const item = items[below(random, items.length)];
  if (item === undefined) throw new Error("nothing to choose from");
  return item;
}

/** A shuffled copy. */
export function shuffled<T>(random: Random, items: readonly T[]): T[] {
  const copy = [...items];
  for (let last = copy.length - 1; last > 0; last -= 1) {
    const other = below(random, last + 1);
    [copy[last], copy[other]] = [copy[other] as T, copy[last] as T];
  }
  return copy;
}

/** Every item once, about a third of them twice, in any order. */
export function duplicatedAndShuffled<T>(random: Random, items: readonly T[]): T[] {
  const again = items.filter(() => random() < 0.35);
  return shuffled(random, [...items, ...again]);
}

/** A drop id that carries its date: UUID version 7. */
export function uuidV7(random: Random, atMs: number): string {
  const hex = (digits: number): string => Array.from({ length: digits }, () => below(random, 16).toString(16)).join("");
  const time = atMs.toString(16).padStart(12, "0");
  const variant = "89ab"[below(random, 4)] ?? "8";
  return `${time.slice(0, 8)}-${time.slice(8)}-7${hex(3)}-${variant}${hex(3)}-${hex(12)}`;
}

/** A drop id that carries its date: ULID. */
export function ulid(random: Random, atMs: number): string {
  const alphabet = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
  let time = "";
  for (let rest = atMs, digit = 0; digit < 10; digit += 1, rest = Math.floor(rest / 32))
    time = alphabet[rest % 32] + time;
  return time + Array.from({ length: 16 }, () => alphabet[below(random, 32)]).join("");
}
