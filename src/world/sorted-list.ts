/**
 * An array kept in order. Reads are slices found by binary search; most inserts
 * are appends, and the others move memory, which at 50,000 entries costs less
 * than a tree would.
 */
export class SortedList<T> {
  readonly #items: T[] = [];

  constructor(private readonly compare: (a: T, b: T) => number) {}

  get size(): number {
    return this.#items.length;
  }

  /** Adds an item; one that compares equal to an existing one is put before it. */
  add(item: T): void {
    const last = this.#items.at(-1);
    if (last === undefined || this.compare(last, item) < 0) this.#items.push(item);
    else
      this.#items.splice(
        this.lowerBound((other) => this.compare(other, item)),
        0,
        item,
      );
  }

  /** Removes the item that compares equal; says whether there was one. */
  remove(item: T): boolean {
    const index = this.lowerBound((other) => this.compare(other, item));
    const found = this.#items[index];
    if (found === undefined || this.compare(found, item) !== 0) return false;
    this.#items.splice(index, 1);
    return true;
  }

  /** The index of the first item that is not below the position (`probe` < 0: below). */
  lowerBound(probe: (item: T) => number): number {
    let low = 0;
    let high = this.#items.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (probe(this.#items[middle] as T) < 0) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** The items in [from, to), as a copy. */
  slice(from: number, to: number): T[] {
    return this.#items.slice(Math.max(0, from), Math.max(0, to));
  }
}
