/** A user may set these for a benchmark; each has defaults of its own. */
export const PARAMETERS = ["followers", "posts", "authors", "workers", "entries", "connections"] as const;
export type Parameters = Readonly<Partial<Record<(typeof PARAMETERS)[number], number>>>;

/** One figure, and the ceiling or peer it is a ratio to, measured in the same run. */
export interface Row {
  readonly name: string;
  readonly value: number;
  readonly unit: string;
  /** In the unit of `value`. */
  readonly peer?: { readonly name: string; readonly value: number } | undefined;
  /** Unset: `value` divided by the peer's. */
  readonly ratio?: number | undefined;
  /** Of the ratio. */
  readonly target?: { readonly atLeast: number } | { readonly atMost: number } | undefined;
  /** µs of user and system time a unit of work, by process. */
  readonly cpu?: Readonly<Record<string, number>> | undefined;
  readonly note?: string | undefined;
}

export interface Result {
  /** What is measured, and against what: one or two sentences. */
  readonly about: string;
  readonly rows: readonly Row[];
}

export const ratioOf = ({ value, peer, ratio }: Row): number | undefined =>
  ratio ?? (peer === undefined ? undefined : value / peer.value);

/** Fails the benchmark where what it did is not what it was to do. */
export function check(fact: boolean, what: string): asserts fact {
  if (!fact) throw new Error(`the benchmark's result is wrong: ${what}`);
}
