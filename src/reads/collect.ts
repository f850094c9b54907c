import { belongsHome, compareEntries, type DropPage, entryOfDrop, type TimelineEntry } from "../contracts/timelines.js";
import { isTooFarAhead } from "../contracts/times.js";
import { AppError } from "../kernel/errors.js";
import { HOUR, sharedNow } from "../kernel/time.js";
import type { Sources } from "./sources.grpc.js";

/** Range, bounds and reader of a read. Both positions are exclusive; the deadline is in ms since the epoch. */
export interface CollectRequest {
  readonly reader: string;
  readonly authors: readonly string[];
  readonly below?: TimelineEntry | undefined;
  readonly above?: TimelineEntry | undefined;
  readonly count: number;
  readonly deadline: number;
  /** An author whose drops cannot be read counts as an author without drops. Default: the call fails. */
  readonly tolerant?: boolean | undefined;
  /** Default: a budget for this call alone. */
  readonly budget?: Budget;
}

/** Number of upstream calls that remain. */
interface Budget {
  calls: number;
}

const MAX_CALLS = 1_000;
const MAX_CALLS_AN_AUTHOR = 2;

const budgetFor = (authors: readonly string[]): Budget => ({ calls: MAX_CALLS + MAX_CALLS_AN_AUTHOR * authors.length });

interface Collected {
  readonly entries: readonly TimelineEntry[];
  readonly more: boolean;
  /** Position that was reached when the calls ran out: the entries are complete down to it. */
  readonly reached: TimelineEntry | undefined;
  /** Number of pages read. */
  readonly reads: number;
}

/** Bounds of the size of a first page, in drops. Many authors get small pages, as most of them have no recent drop. */
const FIRST_PAGE_MIN = 10;
const FIRST_PAGE_MAX = 40;
const MAX_FIRST_DROPS = 20_000;
const NEXT_PAGE = 200;

interface AuthorRead {
  readonly author: string;
  position: TimelineEntry | undefined;
  exhausted: boolean;
}

/**
 * Merges the newest drops of many authors. Each author is read page by page while entries newer than the oldest one
 * kept may follow. Memory is bounded by `count`, calls by the number of authors.
 *
 * @throws AppError `deadline` if not all authors can be read in time
 */
export async function collect(sources: Sources, wanted: CollectRequest): Promise<Collected> {
  const { reader, authors, below, count, deadline, tolerant, budget = budgetFor(authors) } = wanted;
  const limits = { reader, deadline, tolerant };
  let reads = 0;
  const newest = new Newest(count + 1);
  const all = authors.map((author): AuthorRead => ({ author, position: below, exhausted: false }));
  const take = (read: AuthorRead, page: DropPage): void => {
    reads++;
    takePage(read, page, { wanted, newest });
  };
  budget.calls -= all.length;
  await sources.drops(all, { ...limits, count: firstPageOf(all.length) }, take);
  const isOpen = ({ exhausted, position }: AuthorRead): boolean =>
    !exhausted && (!newest.oldest || !position || compareEntries(position, newest.oldest) > 0);
  let open = all;
  for (;;) {
    newest.cut();
    open = open.filter(isOpen);
    if (open.length === 0 || budget.calls < open.length) break;
    budget.calls -= open.length;
    await sources.drops(stillOpen(open, isOpen), { ...limits, count: NEXT_PAGE }, take);
  }
  const ends = open.flatMap(({ position }) => position ?? []);
  const reached = ends.sort((a, b) => compareEntries(b, a))[0];
  const entries = newest.all().filter((entry) => !reached || compareEntries(entry, reached) >= 0);
  return { entries: entries.slice(0, count), more: entries.length > count, reached, reads };
}

/** Skips reads that pages of other authors closed while the read waited. */
function* stillOpen(reads: readonly AuthorRead[], isOpen: (read: AuthorRead) => boolean): Iterable<AuthorRead> {
  for (const read of reads) if (isOpen(read)) yield read;
}

/** Returns the size of the first page of each author. */
export const firstPageOf = (authors: number): number =>
  Math.max(FIRST_PAGE_MIN, Math.min(FIRST_PAGE_MAX, Math.floor(MAX_FIRST_DROPS / authors)));

function takePage(
  read: AuthorRead,
  { drops, next }: DropPage,
  { wanted: { reader, above }, newest }: { readonly wanted: CollectRequest; readonly newest: Newest },
): void {
  const now = sharedNow();
  read.position = next;
  read.exhausted = !next || (above !== undefined && compareEntries(next, above) <= 0);
  for (const drop of drops) {
    if (!belongsHome(drop, reader) || isTooFarAhead(drop.created_at, now)) continue;
    const entry = entryOfDrop(drop);
    if (above === undefined || compareEntries(entry, above) > 0) newest.add(entry);
  }
}

class Newest {
  /** The oldest entry kept at the last {@link cut}; undefined while there are fewer than `size`. */
  oldest: TimelineEntry | undefined;
  #entries: TimelineEntry[] = [];
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
    const sorted = this.#entries.sort((a, b) => compareEntries(b, a));
    // Two authors may list one drop.
    const unique = sorted.filter(
      (entry, index) => index === 0 || compareEntries(entry, sorted[index - 1] as TimelineEntry) !== 0,
    );
    this.#entries = unique.slice(0, this.size);
    if (unique.length >= this.size) this.oldest = this.#entries.at(-1);
  }

  all(): readonly TimelineEntry[] {
    this.cut();
    return this.#entries;
  }
}

const MAX_WINDOW_ENTRIES = 2_000;
const FIRST_WINDOW_MS = HOUR;
const WIDEN = 4;
/** Divisor of the width if no calls remain. A page must have one window: five divisions lead from any width to 1 ms. */
const NARROW = 64;

interface UpwardRequest extends Omit<CollectRequest, "below" | "budget"> {
  readonly above: TimelineEntry;
  readonly top: number;
  /** Width of the first window, ms. */
  readonly span?: number | undefined;
}

/**
 * Collects the `count` oldest drops newer than `above` and created before `top` ms, oldest first. The upstreams list
 * drops newest first only, so windows of time are read upward, and each result sets the width of the next window. If
 * the calls run out, the entries are complete up to `reached`. If they run out in the first window, up to five more are
 * made for each author.
 */
export async function collectUpward(
  sources: Sources,
  wanted: UpwardRequest,
): Promise<Pick<Collected, "entries" | "reached">> {
  const { authors, top } = wanted;
  const budget = budgetFor(authors);
  const collected: TimelineEntry[] = [];
  let above = wanted.above;
  // If the span is empty, windows of this width pass it within the budget of calls.
  const windows = Math.max(1, Math.floor(budget.calls / Math.max(1, authors.length)) - 1);
  const widths = (WIDEN ** windows - 1) / (WIDEN - 1);
  let width = Math.max(wanted.span ?? FIRST_WINDOW_MS, Math.ceil((top - above.score) / widths));
  while (collected.length < wanted.count && above.score < top) {
    // If no window was read, the next page would begin at the same position again.
    if (budget.calls < authors.length && above !== wanted.above) return { entries: collected, reached: above };
    const end = Math.min(above.score + width, top);
    const narrowest = end - above.score <= 1;
    const count = narrowest ? Number.MAX_SAFE_INTEGER : MAX_WINDOW_ENTRIES;
    const window = await collect(sources, { ...wanted, above, below: { score: end, drop: "" }, count, budget });
    if (window.reached && narrowest) throw new AppError("exhausted", "too many drops of one millisecond");
    if (window.more || window.reached) {
      const narrower = width / (budget.calls < authors.length ? NARROW : WIDEN);
      width = Math.max(1, Math.floor(Math.min(narrower, FIRST_WINDOW_MS)));
      continue;
    }
    collected.push(...window.entries.toReversed());
    above = { score: end, drop: "" };
    width *= WIDEN;
  }
  return { entries: collected.slice(0, wanted.count), reached: undefined };
}
