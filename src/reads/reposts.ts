import { compareEntries, type TimelineEntry } from "../contracts/timelines.js";
import { type Incomplete, isIncomplete, type Shown, SPARE, shownAmong } from "../state/index.js";
import { type Entries, type Page, type PageDeps, type Query, readPage, startOf } from "./pages.js";

interface OnceDeps extends PageDeps {
  /** Number of places in which reposts of one drop are shown once; 0: all are shown. */
  readonly repostWindow: number;
}

interface FirstRead {
  readonly query: Query;
  readonly page: Page;
}

/** Maximum number of reads for a page, and of entries of a read. If more is covered, a cursor leads on from there. */
const [MAX_READS, MAX_ENTRIES] = [8, 500];

/**
 * Reads a page of a home without the entries that others above them cover, and names who reposted. That depends on the
 * entries on both sides of the page, which are read only if the home may have reposts.
 */
export async function readPageOnce(deps: OnceDeps, key: string, query: Query): Promise<Page | Incomplete> {
  const page = await readPage(deps, key, query);
  if (isIncomplete(page) || deps.repostWindow === 0 || !page.mayRepeat) return page;
  return (query.direction === "older" ? readOlder : readNewer)(deps, key, { query, page });
}

async function readOlder(deps: OnceDeps, key: string, { query, page }: FirstRead): Promise<Page | Incomplete> {
  const { below, above, count } = query;
  const window = deps.repostWindow;
  const isShort = page.entries.length < count;
  const older = new Side(deps, key, { direction: "older", from: below });
  older.take(page, isShort && above === undefined);
  const newer = below && new Side(deps, key, { direction: "newer", from: startOf(below.score), besides: below });
  const unread = await newer?.fill(window, spanOf(page.entries, window));
  if (unread) return unread;
  const covering = newer?.entries.toReversed() ?? [];
  const isUncovered = newer?.isCutShort === true && covering.length < window;
  const isWanted = ({ entry, place }: Shown): boolean =>
    place >= covering.length && (above === undefined || compareEntries(entry, above) > 0);
  for (let reads = 1; ; reads++) {
    const shown = shownAmong([...covering, ...older.entries], window).filter(isWanted);
    const oldest = older.entries.at(-1);
    const isAll = isShort || older.isEnded || (above && oldest && compareEntries(oldest, above) <= 0);
    const missing = isAll ? 0 : Math.max(0, count - shown.length);
    const areNamed = older.isEnded || shown.slice(0, count - 1).every(({ isNamed }) => isNamed);
    const pageOf = (reached?: TimelineEntry): Page => ({ ...older.pageOf(shown, count, reached), isUncovered });
    if (missing === 0 && areNamed) return pageOf();
    if (reads === MAX_READS) return pageOf(missing > 0 ? oldest : undefined);
    const read = older.read(Math.max(missing + SPARE, areNamed ? 0 : window) * 2 ** (reads - 1));
    const incomplete = await (missing > 0 ? read : read.catch(() => NO_NAMES));
    if (incomplete === NO_NAMES) return pageOf();
    if (incomplete) return incomplete;
  }
}

async function readNewer(deps: OnceDeps, key: string, { query, page }: FirstRead): Promise<Page | Incomplete> {
  const { count } = query;
  const above = query.above as TimelineEntry;
  const window = deps.repostWindow;
  const newer = new Side(deps, key, { direction: "newer", from: above });
  newer.take(page, page.entries.length < count);
  const older = new Side(deps, key, { direction: "older", from: startOf(above.score + 1), besides: above });
  const unread = await older.fill(window).catch(() => NO_NAMES);
  if (unread && unread !== NO_NAMES) return unread;
  for (let reads = 1; ; reads++) {
    // Entries that cover the newest ones are not read. If the calls ran out, the next page begins with the newest ones,
    // unless this page would then be empty.
    const isUncovered = newer.isCutShort && newer.entries.length <= window;
    const first = isUncovered || (newer.isEnded && !newer.isCutShort) ? 0 : window;
    const shown = shownAmong([...newer.entries.toReversed(), ...older.entries], window)
      .filter(({ place }) => place >= first && place < newer.entries.length)
      .reverse();
    const missing = newer.isEnded ? 0 : Math.max(0, count - shown.length);
    const reached = first > 0 ? newer.entries.at(-1 - window) : undefined;
    if (missing === 0 || reads === MAX_READS) return { ...newer.pageOf(shown, count, reached), isUncovered };
    const incomplete = await newer.read((missing + window + SPARE) * 2 ** (reads - 1));
    if (incomplete) return incomplete;
  }
}

/** A read that only adds names has failed: the page goes without them. */
const NO_NAMES = "no names" as const;

/** Returns a time, ms, in which about this number of entries is expected above a page. */
function spanOf(page: Entries, count: number): number | undefined {
  const [newest, oldest] = [page[0], page.at(-1)];
  if (!newest || !oldest || newest === oldest) return undefined;
  return Math.ceil((2 * count * (newest.score - oldest.score)) / page.length) + 1;
}

interface SideOptions {
  readonly direction: Query["direction"];
  /** Exclusive position; undefined for the newest entry. */
  readonly from: TimelineEntry | undefined;
  /** Leaves out entries on the other side of this position; one at the position itself belongs to this side. */
  readonly besides?: TimelineEntry;
}

/** The entries of a home on one side of a position that the viewer sees, nearest first, as far as they are read. */
class Side {
  readonly entries: TimelineEntry[] = [];
  isEnded = false;
  #from: TimelineEntry | undefined;
  #reached: TimelineEntry | undefined;
  readonly #beyond = new Set<string>();

  constructor(
    private readonly deps: PageDeps,
    private readonly key: string,
    private readonly options: SideOptions,
  ) {
    this.#from = options.from;
  }

  take({ entries, reached, beyond = new Set() }: Page, isEnded: boolean): void {
    const { direction, besides } = this.options;
    const sign = direction === "older" ? -1 : 1;
    for (const entry of entries) if (!besides || sign * compareEntries(entry, besides) >= 0) this.entries.push(entry);
    for (const { drop } of beyond) this.#beyond.add(drop);
    this.#from = entries.at(-1) ?? this.#from;
    this.#reached = reached;
    this.isEnded = isEnded || reached !== undefined;
  }

  /** True: the upstream calls ran out before everything was read. */
  get isCutShort(): boolean {
    return this.#reached !== undefined;
  }

  async read(wanted: number, span?: number): Promise<Incomplete | undefined> {
    const { direction } = this.options;
    const count = Math.min(wanted, MAX_ENTRIES);
    const [above, below] = direction === "newer" ? [this.#from, undefined] : [undefined, this.#from];
    const page = await readPage(this.deps, this.key, { direction, above, below, count, span });
    if (isIncomplete(page)) return page;
    this.take(page, page.entries.length < count);
    return undefined;
  }

  /** Reads until there are `count` entries, or no more. */
  async fill(count: number, span?: number): Promise<Incomplete | undefined> {
    for (let reads = 1; reads <= MAX_READS && !this.isEnded && this.entries.length < count; reads++) {
      const incomplete = await this.read((count + 1) * reads, span);
      if (incomplete) return incomplete;
    }
    return undefined;
  }

  /** Makes a page of at most `count` entries. A shorter one continues from `reached`. */
  pageOf(shown: readonly Shown[], count: number, reached = this.#reached): Page {
    const entries = shown.slice(0, count).map(({ entry }) => entry);
    const beyond = new Set(entries.filter(({ drop }) => this.#beyond.has(drop)));
    return { entries, ...(entries.length < count && { reached }), ...(this.#beyond.size > 0 && { beyond }) };
  }
}
