import { belongsHome, compareEntries, type TimelineEntry } from "../contracts/timelines.js";
import { isTooFarAhead } from "../contracts/times.js";
import type { Drop } from "../gen/avion/posts.js";
import { HOUR, sharedNow } from "../kernel/time.js";
import type { Sources } from "./sources.grpc.js";

/** Both positions are exclusive; the deadline is in ms since the epoch. */
interface CollectRequest {
  readonly reader: string;
  readonly authors: readonly string[];
  readonly below?: TimelineEntry | undefined;
  readonly above?: TimelineEntry | undefined;
  readonly count: number;
  readonly deadline: number;
}

interface Collected {
  readonly entries: readonly TimelineEntry[];
  readonly more: boolean;
}

/** Drops of a first page: fewer for many authors, most of whom have no recent drop. */
const FIRST_PAGE_MIN = 10;
const FIRST_PAGE_MAX = 40;
const MAX_FIRST_DROPS = 20_000;
const NEXT_PAGE = 200;

interface AuthorRead {
  readonly author: string;
  position: TimelineEntry | undefined;
  exhausted: boolean;
  pageLength: number;
}

/**
 * Merges the newest drops of many authors. Each author is read a page at a time, as long as entries newer than the
 * oldest one kept may follow. Memory is bounded by `count`, not by the number of authors.
 *
 * @throws AppError `deadline` if not all authors can be read in time
 */
export async function collect(sources: Sources, wanted: CollectRequest): Promise<Collected> {
  const { authors, below, count, deadline } = wanted;
  const newest = new Newest(count + 1);
  const all = authors.map((author): AuthorRead => ({ author, position: below, exhausted: false, pageLength: 0 }));
  const take = (read: AuthorRead, drops: readonly Drop[]): void => takePage(read, drops, { wanted, newest });
  const first = firstPageOf(all.length);
  await sources.drops(all, { count: first, deadline }, take);
  endShortReads(all, first);
  const isOpen = ({ exhausted, position }: AuthorRead): boolean =>
    !exhausted && (!newest.oldest || !position || compareEntries(position, newest.oldest) > 0);
  for (let open = all; ; ) {
    newest.cut();
    open = open.filter(isOpen);
    if (open.length === 0) break;
    await sources.drops(stillOpen(open, isOpen), { count: NEXT_PAGE, deadline }, take);
  }
  const entries = newest.all();
  return { entries: entries.slice(0, count), more: entries.length > count };
}

/** Pages that come meanwhile may have closed a read before it is its turn. */
function* stillOpen(reads: readonly AuthorRead[], isOpen: (read: AuthorRead) => boolean): Iterable<AuthorRead> {
  for (const read of reads) if (isOpen(read)) yield read;
}

/** How many drops each of so many authors is asked for at first. */
export const firstPageOf = (authors: number): number =>
  Math.max(FIRST_PAGE_MIN, Math.min(FIRST_PAGE_MAX, Math.floor(MAX_FIRST_DROPS / authors)));

/** A short first page is the author's last, unless it is as long as the longest: the upstream may return no more. */
function endShortReads(reads: readonly AuthorRead[], size: number): void {
  let longest = 0;
  for (const { pageLength } of reads) longest = Math.max(longest, Math.min(pageLength, size));
  for (const read of reads) if (read.pageLength < longest) read.exhausted = true;
}

function takePage(
  read: AuthorRead,
  drops: readonly Drop[],
  { wanted: { reader, above }, newest }: { readonly wanted: CollectRequest; readonly newest: Newest },
): void {
  const now = sharedNow();
  read.pageLength = drops.length;
  const last = drops.at(-1);
  if (last) read.position = { score: last.created_at, drop: last.drop_id };
  read.exhausted = !last || (above !== undefined && compareEntries(read.position as TimelineEntry, above) <= 0);
  for (const drop of drops) {
    if (!belongsHome(drop, reader) || isTooFarAhead(drop.created_at, now)) continue;
    const entry = { score: drop.created_at, drop: drop.drop_id };
    if (above === undefined || compareEntries(entry, above) > 0) newest.add(entry);
  }
}

class Newest {
  /** The oldest entry kept at the last {@link cut}; undefined while there are fewer than `size`. */
  oldest: TimelineEntry | undefined;
  readonly #entries: TimelineEntry[] = [];
  readonly #cutAt: number;

  constructor(private readonly size: number) {
    this.#cutAt = size + Math.max(256, Math.ceil(size / 4));
  }

  add(entry: TimelineEntry): void {
    if (this.oldest && compareEntries(entry, this.oldest) <= 0) return;
    this.#entries.push(entry);
    if (this.#entries.length >= this.#cutAt) this.cut();
  }

  cut(): void {
    this.#entries.sort((a, b) => compareEntries(b, a));
    if (this.#entries.length < this.size) return;
    this.#entries.length = this.size;
    this.oldest = this.#entries.at(-1);
  }

  all(): readonly TimelineEntry[] {
    this.cut();
    return this.#entries;
  }
}

const MAX_WINDOW_ENTRIES = 2_000;
const FIRST_WINDOW_MS = HOUR;
const WIDEN = 4;

/**
 * Collects the `count` oldest drops newer than `above` and created before `top` ms, oldest first. The upstreams list
 * drops newest first only: windows of time are read upward, each as wide as the last one allows.
 */
export async function collectUpward(
  sources: Sources,
  wanted: Omit<CollectRequest, "below"> & { readonly above: TimelineEntry; readonly top: number },
): Promise<TimelineEntry[]> {
  const found: TimelineEntry[] = [];
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
