/** Remembers the newest keys, at most so many. */
export class Seen {
  readonly #keys = new Set<string>();

  constructor(private readonly capacity: number) {}

  get size(): number {
    return this.#keys.size;
  }

  /** Notes a key; true where it was known already. */
  repeats(key: string): boolean {
    const known = this.#keys.delete(key);
    this.#keys.add(key);
    if (this.#keys.size > this.capacity) this.#keys.delete(this.#keys.values().next().value as string);
    return known;
  }
}
