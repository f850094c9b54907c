import { type Cursor, fromToken, type PageRequest } from "../contracts/page-request.js";
import { compareEntries, type TimelineEntry } from "../contracts/timelines.js";
import { AppError, invalid } from "../kernel/errors.js";
import { dateOfId } from "../kernel/ids.js";
import {
  type Fences,
  type Incomplete,
  incompleteOf,
  isIncomplete,
  SPARE,
  type Stored,
  type TimelineStore,
} from "../state/index.js";

export type Entries = readonly TimelineEntry[];

/** Range of a page. Both bounds are exclusive. */
export interface Query {
  readonly direction: "older" | "newer";
  readonly above: TimelineEntry | undefined;
  readonly below: TimelineEntry | undefined;
  /** Size of a page and one more, to know if another page follows. */
  readonly count: number;
  /** Time, ms, in which about `count` entries are expected. */
  readonly span?: number | undefined;
}

/** Reads from the upstreams the part of a home below the floor. */
export interface BelowFloor {
  /** Reads drops older than `from`, from the newest if `from` is undefined. */
  older(from: TimelineEntry | undefined, query: Pick<Query, "above" | "count">): Promise<Page>;
  /** Reads entries above `query.above` and created before `top` ms, oldest first. */
  newer(query: Pick<Query, "count" | "span"> & { readonly above: TimelineEntry }, top: number): Promise<Page>;
}

export interface Page {
  readonly entries: Entries;
  /** Position from which the next page continues, if the rest of this one would take too many upstream calls. */
  readonly reached?: TimelineEntry | undefined;
  /** Entries that were read below the floor; undefined if none were. */
  readonly beyond?: ReadonlySet<TimelineEntry> | undefined;
  /** True: the upstream calls ran out before all entries that may cover those of the page were read. */
  readonly isUncovered?: boolean;
  /** False: neither the page nor what is above it has reposts. */
  readonly mayRepeat?: boolean;
}

export interface PageDeps {
  readonly store: Pick<TimelineStore, "read" | "remove">;
  readonly fences: PageFences;
  /** Undefined: a page ends at the end of the stored timeline. */
  readonly belowFloor?: BelowFloor | undefined;
}

export type PageFences = Pick<Fences, "retentionStart" | "tombstonedAmong">;

interface QueryDeps {
  readonly store: Pick<TimelineStore, "read" | "createdAt">;
  readonly maybeLost: () => boolean;
}

/** Returns the query of a request, or which timeline must be rebuilt before the position of the cursor is known. */
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
  const entryAt = (score: number): TimelineEntry => ({ score, drop: text });
  const dated = dateOfId(text);
  if (dated !== undefined) return entryAt((await store.createdAt(key, text).catch(() => undefined)) ?? dated);
  const stored = await store.createdAt(key, text);
  if (stored !== undefined) return entryAt(stored);
  const first = await store.read({ key, direction: "older", from: undefined, count: 1 });
  if (first.floor === undefined) return incompleteOf(key, first);
  // Another read may have completed the timeline meanwhile.
  const storedNow = await store.createdAt(key, text);
  if (storedNow !== undefined) return entryAt(storedNow);
  if (maybeLost()) throw new AppError("unavailable", `${kind}: Redis may have lost the drop`);
  throw invalid(kind, "is neither a token nor a drop of this timeline, and carries no date");
}

/** Returns the position before all drops of this ms: no drop id is empty. */
export const startOf = (score: number): TimelineEntry => ({ score, drop: "" });

/**
 * Reads entries of a stored timeline, and below its floor through `belowFloor`. Deleted drops are left out. The floor
 * may rise between two reads, so the entries of each read are compared to the floor that came with them.
 */
export function readPage(deps: PageDeps, key: string, query: Query): Promise<Page | Incomplete> {
  return query.direction === "older" ? readOlder(deps, key, query) : readNewer(deps, key, query);
}

async function readOlder(deps: PageDeps, key: string, query: Query): Promise<Page | Incomplete> {
  const { belowFloor } = deps;
  const collected: TimelineEntry[] = [];
  let from = query.below;
  let mayRepeat = false;
  for (;;) {
    const count = query.count - collected.length + SPARE;
    const stored = await deps.store.read({ key, direction: query.direction, from, count });
    if (stored.floor === undefined) return incompleteOf(key, stored);
    mayRepeat ||= stored.hasReposts === true;
    const complete = belowFloor ? aboveFloor(stored.entries, stored.floor) : stored.entries;
    const wanted = complete.filter((entry) => query.above === undefined || compareEntries(entry, query.above) > 0);
    collected.push(...(await visibleStored(deps, key, { ...stored, entries: wanted })));
    if (collected.length >= query.count || wanted.length < complete.length) break;
    if (complete.length < stored.entries.length || stored.entries.length < count) {
      const top = startOf(stored.floor + 1);
      if (!belowFloor || stored.floor === 0 || (query.above && compareEntries(query.above, top) >= 0)) break;
      const start = from !== undefined && compareEntries(from, top) < 0 ? from : top;
      const rest = await readBelow({ ...deps, belowFloor }, { ...query, count: query.count - collected.length }, start);
      const entries = [...collected, ...rest.entries].slice(0, query.count);
      return { ...rest, entries, beyond: new Set(rest.entries), mayRepeat: true };
    }
    from = stored.entries.at(-1);
  }
  return { entries: collected.slice(0, query.count), mayRepeat };
}

/** Reads until there are enough drops or no more: a page must not end early because drops were deleted meanwhile. */
async function readBelow(
  { fences, belowFloor }: PageDeps & { readonly belowFloor: BelowFloor },
  query: Query,
  start: TimelineEntry,
): Promise<Page> {
  const collected: TimelineEntry[] = [];
  let from: TimelineEntry | undefined = start;
  while (from && collected.length < query.count) {
    const count = query.count - collected.length;
    const { entries, reached }: Page = await belowFloor.older(from, { ...query, count });
    collected.push(...(await visible(fences, entries)));
    from = entries.length < count ? undefined : entries.at(-1);
    // Drops older than the retention are not shown.
    if (from && from.score < fences.retentionStart()) break;
    if (reached && !from) return { entries: collected, reached };
  }
  return { entries: collected };
}

async function readNewer(deps: PageDeps, key: string, query: Query): Promise<Page | Incomplete> {
  const { belowFloor } = deps;
  const collected: TimelineEntry[] = [];
  let beyond: Set<TimelineEntry> | undefined;
  let mayRepeat = false;
  // Drops older than the retention are not shown, even if the upstreams still list them.
  const lowest = startOf(deps.fences.retentionStart());
  let from = query.above && compareEntries(query.above, lowest) < 0 ? lowest : query.above;
  while (collected.length < query.count) {
    const missing = query.count - collected.length;
    const stored = await deps.store.read({ key, direction: "newer", from, count: missing + SPARE });
    if (stored.floor === undefined) return incompleteOf(key, stored);
    mayRepeat ||= stored.hasReposts === true;
    const top = startOf(stored.floor + 1);
    if (belowFloor && stored.floor > 0 && from !== undefined && compareEntries(from, top) < 0) {
      const { entries, reached } = await belowFloor.newer({ ...query, above: from, count: missing }, top.score);
      mayRepeat = true;
      const shown = await visible(deps.fences, entries);
      collected.push(...shown);
      beyond = new Set([...(beyond ?? []), ...shown]);
      if (reached) return { entries: collected, reached, mayRepeat };
      from = entries.length < missing ? top : entries.at(-1);
      continue;
    }
    collected.push(...(await visibleStored(deps, key, stored)));
    if (stored.entries.length < missing + SPARE) break;
    from = stored.entries.at(-1);
  }
  return { entries: collected.slice(0, query.count), beyond, mayRepeat };
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

/**
 * Leaves out drops that the viewer does not see. Removes deleted drops from the timeline: their deletion may have
 * missed it, as the followers of a remote author may be unknown.
 */
async function visibleStored(
  { store, fences }: PageDeps,
  key: string,
  { entries, areAlive, hidden, merged = [] }: Stored,
): Promise<Entries> {
  const shown = areAlive ? retainedOf(fences, entries) : await visible(fences, entries);
  if (shown.length < entries.length) {
    const kept = new Set(shown);
    const gone = entries.filter((entry) => !kept.has(entry)).map(({ drop }) => drop);
    for (const timeline of [key, ...merged]) void store.remove(timeline, gone).catch(() => undefined);
  }
  return hidden ? shown.filter(({ drop }) => !hidden.has(drop)) : shown;
}
