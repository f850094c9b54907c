import type { TimelineEvent } from "../../contracts/events.js";
import type { HeldDrop } from "../../contracts/timelines.js";
import { codeOf, subjectOf } from "../../kernel/errors.js";
export function dropsIn({ name, payload }: TimelineEvent): HeldDrop[] {
  if (name !== "drop_created") return [];
  return [{ drop: payload.drop_id, author: payload.user_id, createdAt: payload.created_at }];
}

export interface Judged<Held> {
  readonly held: Held;
  readonly known: boolean;
}

const FEWEST = 3;
/** Drops are stored and admitted in slightly different orders around the time of a backup. */
const MOST_KNOWN_BETWEEN = 0.1;

/**
 * Returns the drops or edges that the upstreams lost with a restore of their database, of a sample in the order of
 * admission. A restore loses all changes of a time, whoever made them, and keeps those before it. What an upstream no longer
 * keeps is the oldest instead, and what one user alone made went with the user. `madeBy` returns undefined where it is not
 * known.
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

/** Resolves to undefined where the failure of one user leaves the question unanswered. */
export async function unlessUnanswered<T>(ask: () => Promise<T>): Promise<T | undefined> {
  try {
    return await ask();
  } catch (error) {
    if (codeOf(error) === "unavailable" && subjectOf(error) === undefined) throw error;
    return undefined;
  }
}
