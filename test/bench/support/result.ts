/** A user may set these for a benchmark; each has defaults of its own. */
export const PARAMETERS = [
  "followers",
  "posts",
  "authors",
  "workers",
  "entries",
  "connections",
  "users",
  "seed",
  "turns",
  "parts",
] as const;
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
  /** Of the ratio, unless it says that it is of the value. */
  readonly target?:
    | (({ readonly atLeast: number } | { readonly atMost: number }) & { readonly of?: "value" })
    | undefined;
  /** µs of user and system time a unit of work, by process. */
  readonly cpu?: Readonly<Record<string, number>> | undefined;
  readonly note?: string | undefined;
}

export interface Result {
  /** One or two sentences: the measurement, and its ceiling or peer. */
  readonly about: string;
  readonly rows: readonly Row[];
}

export const ratioOf = ({ value, peer, ratio }: Row): number | undefined =>
  ratio ?? (peer === undefined ? undefined : value / peer.value);

/** The figure that has the target. */
export const aimOf = (row: Row): number | undefined => (row.target?.of === "value" ? row.value : ratioOf(row));

/** As a table shows it. */
export function targetOf({ target, unit }: Row): string {
  if (target === undefined) return "";
  const [sign, wanted] = "atLeast" in target ? ["≥", target.atLeast] : ["≤", target.atMost];
  return `${sign} ${wanted.toLocaleString("en")}${target.of === "value" ? ` ${unit}` : ""}`;
}

/** Fails the benchmark where what it did is not what it was to do. */
export function check(fact: boolean, what: string): asserts fact {
  if (!fact) throw new Error(`the benchmark's result is wrong: ${what}`);
}
