import { compareEntries, type TimelineEntry } from "../contracts/timelines.js";
import type { Fences } from "../records/fences.js";
import type { TimelineStore } from "./store.redis.js";
import { type Incomplete, incompleteOf, type Stored } from "./stored.js";

export type Entries = readonly TimelineEntry[];

/** Both bounds are exclusive. */
export interface Query {
  readonly direction: "older" | "newer";
  readonly above: TimelineEntry | undefined;
  readonly below: TimelineEntry | undefined;
  /** One more than a page's, to know if another page follows. */
  readonly count: number;
  readonly belowFloor?: BelowFloor;
}

export interface BelowFloor {
  /** Reads from the newest where `from` is undefined. */
  older(from: TimelineEntry | undefined, query: Pick<Query, "above" | "count">): Promise<Beyond>;
  /** Reads entries above `query.above` and created before `top` ms, oldest first. */
  newer(query: Query & { readonly above: TimelineEntry }, top: number): Promise<Beyond>;
}

interface Beyond {
  readonly entries: Entries;
  /** This is set where the calls of a page ran out: nothing is missing up to there. */
  readonly reached: TimelineEntry | undefined;
}

export interface Page {
  readonly entries: Entries;
  /** This is set where the rest of the page would take too many calls of the upstreams: the next one goes on there. */
  readonly reached?: TimelineEntry | undefined;
}

interface PageDeps {
  readonly store: Pick<TimelineStore, "read" | "remove">;
  readonly fences: PageFences;
}

export type PageFences = Pick<Fences, "retentionStart" | "tombstonedAmong">;

/** So many more are read than asked for, in place of drops that are hidden. */
const SPARE = 16;

/** A position before every drop of this ms: no drop id is empty. */
export const startOf = (score: number): TimelineEntry => ({ score, drop: "" });

/**
 * Reads entries of a stored timeline, and below its floor through `belowFloor`. Deleted drops are left out. The
 * floor may rise between two reads: each read is judged by the floor that came with it.
 */
export function readPage(deps: PageDeps, key: string, query: Query): Promise<Page | Incomplete> {
  return query.direction === "older" ? readOlder(deps, key, query) : readNewer(deps, key, query);
}

async function readOlder(deps: PageDeps, key: string, query: Query): Promise<Page | Incomplete> {
  const found: TimelineEntry[] = [];
  let from = query.below;
  for (;;) {
    const count = query.count - found.length + SPARE;
    const stored = await deps.store.read({ key, direction: query.direction, from, count });
    if (stored.floor === undefined) return incompleteOf(key, stored.pulled);
    const complete = query.belowFloor ? aboveFloor(stored.entries, stored.floor) : stored.entries;
    const wanted = complete.filter((entry) => query.above === undefined || compareEntries(entry, query.above) > 0);
    found.push(...(await visibleStored(deps, key, { ...stored, entries: wanted })));
    if (found.length >= query.count || wanted.length < complete.length) break;
    if (complete.length < stored.entries.length || stored.entries.length < count) {
      const top = startOf(stored.floor + 1);
      if (stored.floor === 0 || (query.above && compareEntries(query.above, top) >= 0)) break;
      const start = from !== undefined && compareEntries(from, top) < 0 ? from : top;
      const reached = await readBelow(deps, { query, found }, start);
      return { entries: found.slice(0, query.count), reached };
    }
    from = stored.entries.at(-1);
  }
  return { entries: found.slice(0, query.count) };
}

/** Reads on until there is enough or no more: drops that are deleted meanwhile must not look like the end. */
async function readBelow(
  { fences }: PageDeps,
  { query, found }: { readonly query: Query; readonly found: TimelineEntry[] },
  start: TimelineEntry,
): Promise<Page["reached"]> {
  let from: TimelineEntry | undefined = start;
  while (query.belowFloor && from && found.length < query.count) {
    const count = query.count - found.length;
    const { entries, reached }: Beyond = await query.belowFloor.older(from, { ...query, count });
    found.push(...(await visible(fences, entries)));
    from = entries.length < count ? undefined : entries.at(-1);
    // Nothing older is shown.
    if (from && from.score < fences.retentionStart()) return undefined;
    if (reached && !from) return reached;
  }
  return undefined;
}

async function readNewer(deps: PageDeps, key: string, query: Query): Promise<Page | Incomplete> {
  const found: TimelineEntry[] = [];
  // Nothing older is shown, however much of it the upstreams still list.
  const lowest = startOf(deps.fences.retentionStart());
  let from = query.above && compareEntries(query.above, lowest) < 0 ? lowest : query.above;
  while (found.length < query.count) {
    const missing = query.count - found.length;
    const stored = await deps.store.read({ key, direction: "newer", from, count: missing + SPARE });
    if (stored.floor === undefined) return incompleteOf(key, stored.pulled);
    const top = startOf(stored.floor + 1);
    if (query.belowFloor && stored.floor > 0 && from !== undefined && compareEntries(from, top) < 0) {
      const { entries, reached } = await query.belowFloor.newer({ ...query, above: from, count: missing }, top.score);
      found.push(...(await visible(deps.fences, entries)));
      if (reached) return { entries: found, reached };
      from = entries.length < missing ? top : entries.at(-1);
      continue;
    }
    found.push(...(await visibleStored(deps, key, stored)));
    if (stored.entries.length < missing + SPARE) break;
    from = stored.entries.at(-1);
  }
  return { entries: found.slice(0, query.count) };
}

export const aboveFloor = (entries: Entries, floor: number): Entries =>
  floor === 0 ? entries : entries.filter(({ score }) => score > floor);

export async function visible(fences: PageFences, entries: Entries): Promise<Entries> {
  const retained = retainedOf(fences, entries);
  const tombstoned = await fences.tombstonedAmong(retained.map(({ drop }) => drop));
  return tombstoned.size === 0 ? retained : retained.filter(({ drop }) => !tombstoned.has(drop));
}

export function retainedOf(fences: PageFences, entries: Entries): Entries {
  const start = fences.retentionStart();
  return start === 0 ? entries : entries.filter(({ score }) => score >= start);
}

/** Also removes hidden drops: a deletion may have missed them, as the followers of a remote author may be unknown. */
async function visibleStored(
  { store, fences }: PageDeps,
  key: string,
  { entries, areAlive, pulled }: Pick<Stored, "entries" | "areAlive" | "pulled">,
): Promise<Entries> {
  const shown = areAlive ? retainedOf(fences, entries) : await visible(fences, entries);
  if (shown.length < entries.length) {
    const kept = new Set(shown);
    const gone = entries.filter((entry) => !kept.has(entry)).map(({ drop }) => drop);
    for (const one of [key, ...(pulled?.keys ?? [])]) void store.remove(one, gone).catch(() => undefined);
  }
  return shown;
}
