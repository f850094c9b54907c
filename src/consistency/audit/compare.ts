import type { TimelineEntry } from "../../contracts/timelines.js";
import { isTooFarAhead } from "../../contracts/times.js";

export interface Contents {
  /** The time down to which it is complete, in ms since the epoch; 0: from the start. */
  readonly floor: number;
  readonly entries: readonly TimelineEntry[];
}

export const KINDS = ["missing", "unexpected", "wrong_score"] as const;
export type Kind = (typeof KINDS)[number];

export interface Difference {
  readonly kind: Kind;
  readonly drop: string;
  readonly score: number | undefined;
  readonly expected: number | undefined;
}

/** Compares above both floors. Drops younger than the settling time may be under way, and are left out. */
export function compare(
  stored: Contents,
  expected: Contents,
  { now, settleMs }: { readonly now: number; readonly settleMs: number },
): Difference[] {
  const floor = Math.max(stored.floor, expected.floor);
  const lowest = floor > 0 ? floor : Number.NEGATIVE_INFINITY;
  const judged = (score: number): boolean => score > lowest && (score <= now - settleMs || isTooFarAhead(score, now));
  const held = new Map(stored.entries.map(({ drop, score }) => [drop, score]));
  const wanted = new Map(expected.entries.map(({ drop, score }) => [drop, score]));
  const found: Difference[] = [];
  for (const [drop, time] of wanted) {
    const score = held.get(drop);
    if (score === time || !judged(time)) continue;
    found.push({ kind: score === undefined ? "missing" : "wrong_score", drop, score, expected: time });
  }
  for (const [drop, score] of held) {
    if (!wanted.has(drop) && judged(score)) found.push({ kind: "unexpected", drop, score, expected: undefined });
  }
  return found;
}

/** The differences of both comparisons. */
export function confirmed(before: readonly Difference[], now: readonly Difference[]): Difference[] {
  const nameOf = ({ kind, drop }: Difference): string => `${kind} ${drop}`;
  const known = new Set(before.map(nameOf));
  return now.filter((difference) => known.has(nameOf(difference)));
}
