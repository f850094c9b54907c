import type { TimelineEvent } from "../../contracts/events.js";
import type { HeldDrop } from "../../contracts/timelines.js";
import { codeOf, subjectOf } from "../../kernel/errors.js";
export function dropsIn({ name, payload }: TimelineEvent): HeldDrop[] {
  if (name !== "drop_created") return [];
  return [{ drop: payload.drop_id, author: payload.user_id, createdAt: payload.created_at }];
}

export interface Compared<Item> {
  readonly item: Item;
  readonly known: boolean;
}

const FEWEST = 3;
/**
 * Maximum share of known entries between lost ones: drops are stored and admitted in slightly different orders around
 * the time of a backup.
 */
const MOST_KNOWN_BETWEEN = 0.1;

/**
 * Returns the drops or edges that the upstreams lost with a restore of their database, of a sample in the order of
 * admission. A restore loses all changes of a time, of all users, and keeps those before it. Drops that an upstream no
 * longer retains are the oldest ones instead, and an erased user's changes are all by that user. `madeBy` returns
 * undefined if it is not known.
 */
export function lostByRestore<Item>(
  sample: readonly Compared<Item>[],
  madeBy: (item: Item) => string | undefined,
): readonly Item[] {
  const first = sample.findIndex(({ known }) => !known);
  if (first < 1) return [];
  const run = sample.slice(first, sample.findLastIndex(({ known }) => !known) + 1);
  const unknown = run.filter(({ known }) => !known);
  const isRun = run.length - unknown.length <= run.length * MOST_KNOWN_BETWEEN;
  const makers = new Set(unknown.map(({ item }) => madeBy(item)));
  const isOfOne = makers.size === 1 && !makers.has(undefined);
  return unknown.length >= FEWEST && isRun && !isOfOne ? unknown.map(({ item }) => item) : [];
}

/** Resolves to undefined if the question fails for one user alone. */
export async function unlessUnanswered<T>(ask: () => Promise<T>): Promise<T | undefined> {
  try {
    return await ask();
  } catch (error) {
    if (codeOf(error) === "unavailable" && subjectOf(error) === undefined) throw error;
    return undefined;
  }
}
