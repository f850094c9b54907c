import { LRUCache } from "lru-cache";

const MAX_PRODUCERS = 10_000;

/** Finds gaps in what producers number (`producer` and `seq` in a payload). */
export class Gaps {
  readonly #latest = new LRUCache<string, { readonly seq: number; readonly at: number }>({ max: MAX_PRODUCERS });

  /**
   * Notes a number.
   *
   * @returns when the last number before a gap was noted, in ms since the epoch; undefined where nothing is missing
   */
  note(producer: string, seq: number, now: number): number | undefined {
    const last = this.#latest.get(producer);
    // A producer that starts anew counts from the beginning; what else is behind came late or twice.
    if (last && seq <= last.seq && seq > 1) return undefined;
    this.#latest.set(producer, { seq, at: now });
    return last && seq > last.seq + 1 ? last.at : undefined;
  }
}
