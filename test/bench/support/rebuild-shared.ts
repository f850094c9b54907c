/** What the bare client is told: so many calls, one an author in turn, as many for each reader. */
export interface BareCalls {
  readonly authors: readonly string[];
  readonly readers: readonly string[];
  readonly calls: number;
  /** Drops of a call. */
  readonly limit: number;
  readonly atOnce: number;
}

/** How long they took in all, in ms. */
export type BareTook = number;
