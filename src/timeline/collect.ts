import { belongsHome, compareEntries, type TimelineEntry } from "../contracts/timelines.js";
import { isTooFarAhead } from "../contracts/times.js";
import { AppError } from "../kernel/errors.js";
import { mapLimited } from "../kernel/mapped.js";
import type { Sources } from "./ports.js";

/** Which drops to collect: newest first, `count` of them, between two positions (both exclusive). */
export interface Wanted {
  readonly reader: string;
  readonly authors: readonly string[];
  readonly below?: TimelineEntry | undefined;
  readonly above?: TimelineEntry | undefined;
  readonly count: number;
  /** In ms since the epoch. */
  readonly deadline: number;
}

/** What was found, newest first, and whether there is more beyond it. */
export interface Collected {
  readonly entries: readonly TimelineEntry[];
  readonly more: boolean;
}

/** Authors of one read asked at a time; how many calls the process makes at once is bounded where it calls. */
const AUTHORS_AT_ONCE = 128;
/** Drops of a first page: fewer where there are many authors, of whom most have nothing that is new enough. */
const FIRST_PAGE_MIN = 10;
const FIRST_PAGE_MAX = 40;
const FIRST_PAGES_DROPS = 20_000;
const NEXT_PAGE = 200;

/** One author while drops are collected. */
interface Lane {
  readonly author: string;
  /** Down to where the author's drops have been read. */
  read: TimelineEntry | undefined;
  exhausted: boolean;
  /** Length of the page read last, before anything was left out. */
  length: number;
}

/**
 * Merges the newest drops of many authors. Each is read a page at a time, and
 * on only while something newer than the worst entry found so far may follow.
 * What is kept is bounded by `count`, not by the number of authors.
 *
 * @throws AppError `deadline` where the authors cannot all be asked in time
 */
export async function collect(sources: Sources, wanted: Wanted): Promise<Collected> {
  const newest = new Newest(wanted.count + 1);
  const lanes: Lane[] = wanted.authors.map((author) => ({ author, read: wanted.below, exhausted: false, length: 0 }));
  const first = Math.max(FIRST_PAGE_MIN, Math.min(FIRST_PAGE_MAX, Math.floor(FIRST_PAGES_DROPS / lanes.length)));
  await mapLimited(lanes, AUTHORS_AT_ONCE, (lane) => readPage(sources, lane, { wanted, newest, size: first }));
  closeShort(lanes, first);
  const isOpen = (lane: Lane): boolean =>
    !lane.exhausted && (!newest.worst || !lane.read || compareEntries(lane.read, newest.worst) > 0);
  for (let open = lanes; ; ) {
    newest.cut();
    open = open.filter(isOpen);
    if (open.length === 0) break;
    // Whatever is found for one lane may close others.
    await mapLimited(open, AUTHORS_AT_ONCE, async (lane) => {
      if (isOpen(lane)) await readPage(sources, lane, { wanted, newest, size: NEXT_PAGE });
    });
  }
  const entries = newest.all();
  return { entries: entries.slice(0, wanted.count), more: entries.length > wanted.count };
}

/**
 * A first page that is shorter than asked for is the author's last, unless it
 * is as long as the longest of them all: then it may be as long as an answer
 * of this upstream can be.
 */
function closeShort(lanes: readonly Lane[], size: number): void {
  let longest = 0;
  for (const { length } of lanes) longest = Math.max(longest, Math.min(length, size));
  for (const lane of lanes) if (lane.length < longest) lane.exhausted = true;
}

async function readPage(
  sources: Sources,
  lane: Lane,
  { wanted, newest, size }: { wanted: Wanted; newest: Newest; size: number },
): Promise<void> {
  const { reader, above, deadline } = wanted;
  if (Date.now() >= deadline) throw new AppError("deadline", "there was not time enough to ask for every author");
  const drops = await sources.drops(lane.author, lane.read, { count: size, deadline });
  const now = Date.now();
  lane.length = drops.length;
  const last = drops.at(-1);
  // The order goes by what the upstream says, also through drops that are left out.
  if (last) lane.read = { score: last.created_at, drop: last.drop_id };
  lane.exhausted = !last || (above !== undefined && compareEntries(lane.read as TimelineEntry, above) <= 0);
  for (const drop of drops) {
    if (!belongsHome(drop, reader) || isTooFarAhead(drop.created_at, now)) continue;
    const entry = { score: drop.created_at, drop: drop.drop_id };
    if (above === undefined || compareEntries(entry, above) > 0) newest.add(entry);
  }
}

/** The newest entries of all that were added, at most `size` of them. */
class Newest {
  /** Where there are as many as wanted: the oldest of them when it was last looked. */
  worst: TimelineEntry | undefined;
  readonly #entries: TimelineEntry[] = [];
  readonly #cutAt: number;

  constructor(private readonly size: number) {
    this.#cutAt = size + Math.max(256, Math.ceil(size / 4));
  }

  add(entry: TimelineEntry): void {
    if (this.worst && compareEntries(entry, this.worst) <= 0) return;
    this.#entries.push(entry);
    if (this.#entries.length >= this.#cutAt) this.cut();
  }

  cut(): void {
    this.#entries.sort((a, b) => compareEntries(b, a));
    if (this.#entries.length < this.size) return;
    this.#entries.length = this.size;
    this.worst = this.#entries.at(-1);
  }

  all(): readonly TimelineEntry[] {
    this.cut();
    return this.#entries;
  }
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
  wanted: Omit<Wanted, "below"> & { readonly above: TimelineEntry; readonly top: number },
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
