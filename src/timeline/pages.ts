import type { Fences } from "../contracts/fences.js";
import { compareEntries, type TimelineEntry } from "../contracts/timelines.js";
import type { TimelineStore } from "./ports.js";
import { startOf } from "./position.js";

/** Which entries are wanted, both bounds exclusive. `limit` more than one page shows whether there is more. */
export interface Query {
  readonly direction: "older" | "newer";
  readonly above: TimelineEntry | undefined;
  readonly below: TimelineEntry | undefined;
  readonly count: number;
}

/** Entries nearest to where the query starts first. */
export type Run = readonly TimelineEntry[];

/** Reads what is below a timeline's floor, where there is such a thing. */
export interface Beyond {
  older(from: TimelineEntry, query: Query): Promise<Run>;
  /** Those above `query.above` and created before `top` ms, oldest first. */
  newer(query: Query & { readonly above: TimelineEntry }, top: number): Promise<Run>;
}

/** Thrown where a stored timeline is not complete. */
export class Incomplete extends Error {}

interface PageDeps {
  readonly store: TimelineStore;
  readonly fences: Fences;
}

/** What is read at once beyond what is asked, since some of it may be deleted. */
const SPARE = 16;

/**
 * Reads entries of a stored timeline, and goes on beyond its floor where it
 * has a `beyond`. Deleted drops are left out. The floor may rise between two
 * reads: each read is judged by the floor that came with it.
 *
 * @throws Incomplete where the timeline must be rebuilt first
 */
export async function readRun(deps: PageDeps, key: string, query: Query & { readonly beyond?: Beyond }): Promise<Run> {
  return query.direction === "older" ? readOlder(deps, key, query) : readNewer(deps, key, query);
}

type Asked = Query & { readonly beyond?: Beyond };

async function readOlder(deps: PageDeps, key: string, query: Asked): Promise<Run> {
  const found: TimelineEntry[] = [];
  let from = query.below;
  for (;;) {
    const count = query.count - found.length + SPARE;
    const held = await deps.store.read({ key, direction: "older", from, count });
    if (held.floor === undefined) throw new Incomplete();
    const vouched = query.beyond ? aboveFloor(held.entries, held.floor) : held.entries;
    const wanted = vouched.filter((entry) => query.above === undefined || compareEntries(entry, query.above) > 0);
    found.push(...(await livingStored(deps, key, wanted)));
    if (found.length >= query.count || wanted.length < vouched.length) break;
    if (vouched.length < held.entries.length || held.entries.length < count) {
      const top = startOf(held.floor + 1);
      if (held.floor === 0 || (query.above && compareEntries(query.above, top) >= 0)) break;
      const start = from !== undefined && compareEntries(from, top) < 0 ? from : top;
      found.push(...(await readBeyond(deps, { ...query, count: query.count - found.length }, start)));
      break;
    }
    from = held.entries.at(-1);
  }
  return found.slice(0, query.count);
}

/** Goes on below the floor until there is enough, or no more: what is deleted meanwhile must not look like the end. */
async function readBeyond({ fences }: PageDeps, query: Asked, start: TimelineEntry): Promise<Run> {
  const found: TimelineEntry[] = [];
  let from: TimelineEntry | undefined = start;
  while (query.beyond && from && found.length < query.count) {
    const count = query.count - found.length;
    const below: Run = await query.beyond.older(from, { ...query, count });
    found.push(...(await living(fences, below)));
    from = below.length < count ? undefined : below.at(-1);
  }
  return found;
}

async function readNewer(deps: PageDeps, key: string, query: Asked): Promise<Run> {
  const found: TimelineEntry[] = [];
  let from = query.above;
  while (found.length < query.count) {
    const missing = query.count - found.length;
    const held = await deps.store.read({ key, direction: "newer", from, count: missing + SPARE });
    if (held.floor === undefined) throw new Incomplete();
    const top = startOf(held.floor + 1);
    if (query.beyond && held.floor > 0 && from !== undefined && compareEntries(from, top) < 0) {
      const below = await query.beyond.newer({ ...query, above: from, count: missing }, top.score);
      found.push(...(await living(deps.fences, below)));
      from = below.length < missing ? top : below.at(-1);
      continue;
    }
    found.push(...(await livingStored(deps, key, held.entries)));
    if (held.entries.length < missing + SPARE) break;
    from = held.entries.at(-1);
  }
  return found.slice(0, query.count);
}

const aboveFloor = (entries: Run, floor: number): Run =>
  floor === 0 ? entries : entries.filter(({ score }) => score > floor);

async function living(fences: Fences, entries: Run): Promise<Run> {
  const kept = keptOf(fences, entries);
  const dead = await fences.tombstonedAmong(kept.map(({ drop }) => drop));
  return dead.size === 0 ? kept : kept.filter(({ drop }) => !dead.has(drop));
}

/** Those that have not gone for their age. */
export function keptOf(fences: Pick<Fences, "retentionStart">, entries: Run): Run {
  const since = fences.retentionStart();
  return since === 0 ? entries : entries.filter(({ score }) => score >= since);
}

/** A deletion may have missed a timeline (of a remote drop, whose followers are not known for ever): the read makes up for it. */
async function livingStored({ store, fences }: PageDeps, key: string, entries: Run): Promise<Run> {
  const alive = await living(fences, entries);
  if (alive.length < entries.length) {
    const kept = new Set(alive);
    const dead = entries.filter((entry) => !kept.has(entry)).map(({ drop }) => drop);
    void store.remove(key, dead).catch(() => undefined);
  }
  return alive;
}
