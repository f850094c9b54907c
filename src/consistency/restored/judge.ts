import type { TimeRange } from "../reconcile/reconcile.js";

/** The drop is of the log, or of local, which names no author. */
export interface HeldDrop {
  readonly drop: string;
  readonly author?: string | undefined;
  /** The time is in ms since the epoch. */
  readonly createdAt: number;
}

/** @throws AppError where the author's drops cannot be had */
export type KnowsDrop = (held: HeldDrop) => Promise<boolean>;

/**
 * The own drops changed in a range, each with whether it is there or deleted; undefined without ListDrops, or where there
 * are more than `most`.
 */
export type ListDropIds = (range: TimeRange, most?: number) => Promise<ReadonlyMap<string, boolean> | undefined>;

export interface Judged<Held> {
  readonly held: Held;
  readonly known: boolean;
}

const FEWEST = 3;
/** Drops are stored and admitted in slightly different orders around the time of a backup. */
const MOST_KNOWN_BETWEEN = 0.1;

/**
 * The drops or edges that the upstreams lost with a restore of their database, of a sample in the order of admission. A
 * restore loses all changes of a time, whoever made them, and keeps those before it. What an upstream no longer keeps is the
 * oldest instead, and what one user alone made went with the user. `madeBy`: undefined where it is not known.
 */
export function lostByRestore<Held>(
  sample: readonly Judged<Held>[],
  madeBy: (held: Held) => string | undefined,
): readonly Held[] {
  const first = sample.findIndex(({ known }) => !known);
  if (first < 1) return [];
  const run = sample.slice(first, sample.findLastIndex(({ known }) => !known) + 1);
  const unknown = run.filter(({ known }) => !known);
  const isRun = run.length - unknown.length <= run.length * MOST_KNOWN_BETWEEN;
  const makers = new Set(unknown.map(({ held }) => madeBy(held)));
  const isOfOne = makers.size === 1 && !makers.has(undefined);
  return unknown.length >= FEWEST && isRun && !isOfOne ? unknown.map(({ held }) => held) : [];
}
