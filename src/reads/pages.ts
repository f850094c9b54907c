import { type Cursor, fromToken, type PageRequest } from "../contracts/page-request.js";
import { compareEntries, type TimelineEntry } from "../contracts/timelines.js";
import { AppError, invalid } from "../kernel/errors.js";
import { dateOfId } from "../kernel/ids.js";
import type { TimelineStore } from "../state/entries/store.redis.js";
import { type Incomplete, incompleteOf, isIncomplete, SPARE, type Stored } from "../state/entries/stored.js";
import type { Fences } from "../state/fences/types.js";

export type Entries = readonly TimelineEntry[];

/** Both bounds are exclusive. */
export interface Query {
  readonly direction: "older" | "newer";
  readonly above: TimelineEntry | undefined;
  readonly below: TimelineEntry | undefined;
  /** It is one more than a page's, to know if another page follows. */
  readonly count: number;
}

/** Reads from the upstreams what a home does not hold. */
export interface BelowFloor {
  /** Reads from the newest where `from` is undefined. */
  older(from: TimelineEntry | undefined, query: Pick<Query, "above" | "count">): Promise<Page>;
  /** Reads entries above `query.above` and created before `top` ms, oldest first. */
  newer(query: Pick<Query, "count"> & { readonly above: TimelineEntry }, top: number): Promise<Page>;
}

export interface Page {
  readonly entries: Entries;
  /** This is set where the rest of the page would take too many calls of the upstreams: the next one goes on there. */
  readonly reached?: TimelineEntry | undefined;
  /** These entries were read below the floor; undefined if nothing was. */
  readonly beyond?: ReadonlySet<TimelineEntry> | undefined;
}

interface PageDeps {
  readonly store: Pick<TimelineStore, "read" | "remove">;
  readonly fences: PageFences;
  /** Without it a page ends where the stored timeline does. */
  readonly belowFloor?: BelowFloor | undefined;
}

export type PageFences = Pick<Fences, "retentionStart" | "tombstonedAmong">;

interface QueryDeps {
  readonly store: Pick<TimelineStore, "read" | "createdAt">;
  readonly maybeLost: () => boolean;
}

/** Makes the query of a request; incomplete: the timeline must be rebuilt before the cursor's position is known. */
export async function queryOf(deps: QueryDeps, key: string, request: PageRequest): Promise<Query | Incomplete> {
  const { cursor, limit } = request;
  const position = cursor && (await positionOf(deps, key, cursor));
  if (position && isIncomplete(position)) return position;
  return {
    direction: cursor?.kind === "min_id" ? "newer" : "older",
    above: cursor?.kind === "max_id" ? undefined : position,
    below: cursor?.kind === "max_id" ? position : undefined,
    count: limit + 1,
  };
}

async function positionOf(
  { store, maybeLost }: QueryDeps,
  key: string,
  { kind, text }: Cursor,
): Promise<TimelineEntry | Incomplete> {
  const position = fromToken(text);
  if (position) return position;
  const at = (score: number): TimelineEntry => ({ score, drop: text });
  const dated = dateOfId(text);
  if (dated !== undefined) return at((await store.createdAt(key, text).catch(() => undefined)) ?? dated);
  const found = await store.createdAt(key, text);
  if (found !== undefined) return at(found);
  const stored = await store.read({ key, direction: "older", from: undefined, count: 1 });
  if (stored.floor === undefined) return incompleteOf(key, stored);
  // Another read may have completed the timeline meanwhile.
  const foundNow = await store.createdAt(key, text);
  if (foundNow !== undefined) return at(foundNow);
  if (maybeLost()) throw new AppError("unavailable", `${kind}: Redis may have lost the drop`);
  throw invalid(kind, "is neither a token nor a drop of this timeline, and carries no date");
}

/** Returns the position before all drops of this ms: no drop id is empty. */
export const startOf = (score: number): TimelineEntry => ({ score, drop: "" });

/**
 * Reads entries of a stored timeline, and below its floor through `belowFloor`. Deleted drops are left out. The
 * floor may rise between two reads: each read is judged by the floor that came with it.
 */
export function readPage(deps: PageDeps, key: string, query: Query): Promise<Page | Incomplete> {
  return query.direction === "older" ? readOlder(deps, key, query) : readNewer(deps, key, query);
}

async function readOlder(deps: PageDeps, key: string, query: Query): Promise<Page | Incomplete> {
  const { belowFloor } = deps;
  const found: TimelineEntry[] = [];
  let from = query.below;
  for (;;) {
    const count = query.count - found.length + SPARE;
    const stored = await deps.store.read({ key, direction: query.direction, from, count });
    if (stored.floor === undefined) return incompleteOf(key, stored);
    const complete = belowFloor ? aboveFloor(stored.entries, stored.floor) : stored.entries;
    const wanted = complete.filter((entry) => query.above === undefined || compareEntries(entry, query.above) > 0);
    found.push(...(await visibleStored(deps, key, { ...stored, entries: wanted })));
    if (found.length >= query.count || wanted.length < complete.length) break;
    if (complete.length < stored.entries.length || stored.entries.length < count) {
      const top = startOf(stored.floor + 1);
      if (!belowFloor || stored.floor === 0 || (query.above && compareEntries(query.above, top) >= 0)) break;
      const start = from !== undefined && compareEntries(from, top) < 0 ? from : top;
      const rest = await readBelow({ ...deps, belowFloor }, { ...query, count: query.count - found.length }, start);
      return { ...rest, entries: [...found, ...rest.entries].slice(0, query.count), beyond: new Set(rest.entries) };
    }
    from = stored.entries.at(-1);
  }
  return { entries: found.slice(0, query.count) };
}

/** Reads on until there is enough or no more: drops that are deleted meanwhile must not look like the end. */
async function readBelow(
  { fences, belowFloor }: PageDeps & { readonly belowFloor: BelowFloor },
  query: Query,
  start: TimelineEntry,
): Promise<Page> {
  const found: TimelineEntry[] = [];
  let from: TimelineEntry | undefined = start;
  while (from && found.length < query.count) {
    const count = query.count - found.length;
    const { entries, reached }: Page = await belowFloor.older(from, { ...query, count });
    found.push(...(await visible(fences, entries)));
    from = entries.length < count ? undefined : entries.at(-1);
    // Nothing older is shown.
    if (from && from.score < fences.retentionStart()) break;
    if (reached && !from) return { entries: found, reached };
  }
  return { entries: found };
}

async function readNewer(deps: PageDeps, key: string, query: Query): Promise<Page | Incomplete> {
  const { belowFloor } = deps;
  const found: TimelineEntry[] = [];
  let beyond: Set<TimelineEntry> | undefined;
  // Nothing older is shown, however much of it the upstreams still list.
  const lowest = startOf(deps.fences.retentionStart());
  let from = query.above && compareEntries(query.above, lowest) < 0 ? lowest : query.above;
  while (found.length < query.count) {
    const missing = query.count - found.length;
    const stored = await deps.store.read({ key, direction: "newer", from, count: missing + SPARE });
    if (stored.floor === undefined) return incompleteOf(key, stored);
    const top = startOf(stored.floor + 1);
    if (belowFloor && stored.floor > 0 && from !== undefined && compareEntries(from, top) < 0) {
      const { entries, reached } = await belowFloor.newer({ above: from, count: missing }, top.score);
      const shown = await visible(deps.fences, entries);
      found.push(...shown);
      beyond = new Set([...(beyond ?? []), ...shown]);
      if (reached) return { entries: found, reached };
      from = entries.length < missing ? top : entries.at(-1);
      continue;
    }
    found.push(...(await visibleStored(deps, key, stored)));
    if (stored.entries.length < missing + SPARE) break;
    from = stored.entries.at(-1);
  }
  return { entries: found.slice(0, query.count), beyond };
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

/** Leaves out what the viewer does not see. Also removes deleted drops: a deletion may have missed them, as the followers of a remote author may be unknown. */
async function visibleStored(
  { store, fences }: PageDeps,
  key: string,
  { entries, areAlive, hidden, merged = [] }: Stored,
): Promise<Entries> {
  const shown = areAlive ? retainedOf(fences, entries) : await visible(fences, entries);
  if (shown.length < entries.length) {
    const kept = new Set(shown);
    const gone = entries.filter((entry) => !kept.has(entry)).map(({ drop }) => drop);
    for (const one of [key, ...merged]) void store.remove(one, gone).catch(() => undefined);
  }
  return hidden ? shown.filter(({ drop }) => !hidden.has(drop)) : shown;
}
