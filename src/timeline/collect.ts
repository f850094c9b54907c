import { belongsHome } from "../contracts/visibility.js";
import { mapLimited } from "../kernel/mapped.js";
import type { Sources } from "./ports.js";
import { compare, type Position } from "./position.js";

/** Which drops to collect: newest first, `count` of them, between two positions (both exclusive). */
export interface Wanted {
  readonly reader: string;
  readonly authors: readonly string[];
  readonly below?: Position | undefined;
  readonly above?: Position | undefined;
  readonly count: number;
  /** In ms since the epoch. */
  readonly deadline: number;
}

/** What was found, newest first, and whether there is more beyond it. */
export interface Collected {
  readonly entries: readonly Position[];
  readonly more: boolean;
}

const AUTHORS_AT_ONCE = 32;
const FIRST_PAGE = 40;
const NEXT_PAGE = 200;

/** One author while drops are collected. */
interface Lane {
  readonly author: string;
  /** Down to where the author's drops have been read. */
  read: Position | undefined;
  exhausted: boolean;
}

/**
 * Merges the newest drops of many authors. Each is read a page at a time, and
 * on only while something newer than the worst entry found so far may follow.
 */
export async function collect(sources: Sources, wanted: Wanted): Promise<Collected> {
  const lanes: Lane[] = wanted.authors.map((author) => ({ author, read: wanted.below, exhausted: false }));
  const target = wanted.count + 1;
  let found: Position[] = [];
  let open = lanes;
  for (let size = FIRST_PAGE; open.length > 0; size = NEXT_PAGE) {
    const pages = await mapLimited(open, AUTHORS_AT_ONCE, (lane) => nextPage(sources, lane, { wanted, size }));
    for (const { entries } of pages) found.push(...entries);
    if (size === FIRST_PAGE) closeShort(open, pages);
    found.sort((a, b) => compare(b, a));
    found = found.slice(0, target);
    const worst = found.length === target ? (found.at(-1) as Position) : undefined;
    open = lanes.filter((lane) => !lane.exhausted && (!worst || !lane.read || compare(lane.read, worst) > 0));
  }
  return { entries: found.slice(0, wanted.count), more: found.length > wanted.count };
}

/** What an author's page held, and how long it was before anything was left out. */
interface Page {
  readonly entries: readonly Position[];
  readonly length: number;
}

/**
 * A first page that is shorter than asked for is the author's last, unless it
 * is as long as the longest of them all: then it may be as long as an answer
 * of this upstream can be.
 */
function closeShort(lanes: readonly Lane[], pages: readonly Page[]): void {
  const longest = Math.min(FIRST_PAGE, Math.max(...pages.map(({ length }) => length)));
  for (const [index, lane] of lanes.entries()) if ((pages[index] as Page).length < longest) lane.exhausted = true;
}

async function nextPage(sources: Sources, lane: Lane, how: { wanted: Wanted; size: number }): Promise<Page> {
  const { reader, above, deadline } = how.wanted;
  const drops = await sources.drops(lane.author, lane.read, { count: how.size, deadline });
  const last = drops.at(-1);
  if (last) lane.read = { score: last.created_at, drop: last.drop_id };
  const below = above !== undefined && lane.read !== undefined && compare(lane.read, above) <= 0;
  lane.exhausted = !last || below;
  const entries = drops
    .filter((drop) => belongsHome(drop, reader))
    .map((drop) => ({ score: drop.created_at, drop: drop.drop_id }))
    .filter((entry) => above === undefined || compare(entry, above) > 0);
  return { entries, length: drops.length };
}

/** A window that holds more than this is narrowed before it is used. */
const MAX_WINDOW_ENTRIES = 2_000;
const FIRST_WINDOW_MS = 3_600_000;
const WIDEN = 4;

/**
 * Collects the `count` oldest drops newer than `above` and created before
 * `top` ms, oldest first. The upstreams hand drops out newest first only, so
 * windows of time are read upward, each as wide as the last one allows.
 */
export async function collectUpward(
  sources: Sources,
  wanted: Omit<Wanted, "below"> & { readonly above: Position; readonly top: number },
): Promise<Position[]> {
  const found: Position[] = [];
  let above = wanted.above;
  let width = FIRST_WINDOW_MS;
  while (found.length < wanted.count && above.score < wanted.top) {
    const end = Math.min(above.score + width, wanted.top);
    const narrowest = end - above.score <= 1;
    const count = narrowest ? Number.MAX_SAFE_INTEGER : MAX_WINDOW_ENTRIES;
    const window = await collect(sources, { ...wanted, above, below: { score: end, drop: "" }, count });
    if (window.more) {
      width = Math.max(1, Math.floor(width / WIDEN));
      continue;
    }
    found.push(...window.entries.toReversed());
    above = { score: end, drop: "" };
    width *= WIDEN;
  }
  return found.slice(0, wanted.count);
}
