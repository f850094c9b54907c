import { AUTHOR_PREFIX, authorOfKey, kindOf, PULLED_KEY, pullsKeyOfHome, TOMBSTONES_KEY } from "../contracts/keys.js";
import { currentOf, isPushed, type PulledAuthors } from "../contracts/pulled.js";
import { compareEntries, type TimelineEntry } from "../contracts/timelines.js";
import { MAX_IDLE_MS } from "../contracts/times.js";
import { inSpan, SpanKind } from "../delivery/telemetry.js";
import { codeOf } from "../kernel/errors.js";
import type { Scripts } from "../platform/redis/scripts.js";
import { type EncodedPage, encodedPage } from "./page-response.js";

export interface Range {
  readonly key: string;
  readonly direction: "older" | "newer";
  /** Exclusive; undefined: from the end. */
  readonly from: TimelineEntry | undefined;
  readonly count: number;
  /** Asks for an encoded page of so many drops where none of them is hidden; those older than `since` (ms) are. */
  readonly page?: { readonly drops: number; readonly since: number } | undefined;
}

export interface Stored {
  /** In ms; undefined: the timeline, or what is merged into it, must be rebuilt. */
  readonly floor: number | undefined;
  /** Those nearest to `from` first, complete down to `floor`. */
  readonly entries: readonly TimelineEntry[];
  /** False: the entries must be compared with the tombstones. */
  readonly areAlive: boolean;
  /** Then there are no entries. */
  readonly page?: EncodedPage;
  readonly pulled?: Pulled;
}

/** The timelines of pulled authors that are merged into a home. */
export interface Pulled {
  /** False: whom the reader pulls must be read first. */
  readonly areKnown: boolean;
  readonly keys: readonly string[];
  /** The keys to rebuild, that of the home among them. */
  readonly incomplete: readonly string[];
}

interface Asked {
  readonly key: string;
  readonly args: readonly (string | number)[];
  readonly readers: { readonly resolve: (stored: Stored) => void; readonly reject: (error: unknown) => void }[];
}

/** Redis takes some 2 ms for a call of so many pages, and serves nobody else meanwhile. */
const PAGES_A_CALL = 32;
/** Merging the timelines of twenty authors takes as long as so many pages. */
const MERGED_PAGES = 8;

const NO_PAGE = { drops: 0, since: 0 } as const;
const SPAN = { kind: SpanKind.CLIENT, attributes: { "db.system": "redis" } } as const;

/**
 * Reads entries next to a position. Reads of one turn of the event loop, and those that come while a call is under way,
 * share the next call; no read shares a call that began before it. `ttlMs`: of homes.
 */
export function createReadPages(
  scripts: Scripts,
  ttlMs: number,
  pulled: PulledAuthors,
): (range: Range) => Promise<Stored> {
  const lanes = new Map<string, Lane>();
  // The slots of a cluster fail one by one.
  const laneOf = (key: string): Lane => {
    const name = scripts.isCluster ? key : "";
    const lane = lanes.get(name) ?? new Lane(scripts, () => lanes.delete(name));
    lanes.set(name, lane);
    return lane;
  };
  const readOne = ({ key, direction, from, count, page = NO_PAGE }: Range, pulls: string, ttl: number) => {
    const position = from ? [from.score, from.drop] : ["", ""];
    const args = [direction, count, ttl, page.drops, page.since, ...position, pulls];
    return inSpan("redis read-page", SPAN, () => laneOf(key).read(key, args));
  };
  const readPulled = async (range: Range): Promise<Stored> => {
    const home = await readOne(range, pullsKeyOfHome(range.key), ttlMs);
    if (!scripts.isCluster || !home.pulled?.areKnown) return home;
    const registry = await currentOf(pulled);
    const stateOf = (key: string) => registry.get(authorOfKey(key) as string)?.state;
    const keys = home.pulled.keys.filter(stateOf);
    // As in read-page.lua, of authors who are pushed too.
    const parts = keys.map(async (key): Promise<Stored> => {
      if (!isPushed(stateOf(key))) return readOne({ ...range, key }, "", ttlMs);
      return { ...(await readOne({ ...range, key }, "", 0)), floor: 0 };
    });
    return merge(range, home, { keys, parts: await Promise.all(parts) });
  };
  return async (range) => {
    const kind = kindOf(range.key);
    if (kind !== "home") return readOne(range, "", kind === "author" ? ttlMs : 0);
    for (;;) {
      if ((await currentOf(pulled)).size > 0) return readPulled(range);
      const stored = await readOne(range, "", ttlMs);
      // The process may have been suspended while the first author changed over.
      if ((await currentOf(pulled)).size === 0) return stored;
    }
  };
}

/** In a cluster each timeline is in a slot of its own; elsewhere read-page.lua merges. */
function merge(
  { key, direction, count }: Range,
  home: Stored,
  { keys, parts }: { readonly keys: readonly string[]; readonly parts: readonly Stored[] },
): Stored {
  const entries = new Map<string, TimelineEntry>();
  let floor = home.floor ?? 0;
  const incomplete = home.floor === undefined ? [key] : [];
  for (const [at, part] of [home, ...parts].entries()) {
    for (const entry of part.entries)
      if (entry.score < (entries.get(entry.drop)?.score ?? Number.POSITIVE_INFINITY)) entries.set(entry.drop, entry);
    floor = Math.max(floor, part.floor ?? 0);
    if (at > 0 && part.floor === undefined) incomplete.push(keys[at - 1] as string);
  }
  const sign = direction === "older" ? -1 : 1;
  const nearest = [...entries.values()].sort((a, b) => sign * compareEntries(a, b)).slice(0, count);
  return {
    floor: incomplete.length === 0 ? floor : undefined,
    entries: nearest,
    areAlive: false,
    pulled: { areKnown: true, keys, incomplete },
  };
}

class Lane {
  readonly #asked = new Map<string, Asked>();
  #isBusy = false;

  constructor(
    private readonly scripts: Scripts,
    private readonly idle: () => void,
  ) {}

  read(key: string, args: Asked["args"]): Promise<Stored> {
    return new Promise((resolve, reject) => {
      const name = `${key} ${args.join(" ")}`;
      const asked = this.#asked.get(name);
      if (asked) asked.readers.push({ resolve, reject });
      else this.#asked.set(name, { key, args, readers: [{ resolve, reject }] });
      if (this.#isBusy) return;
      this.#isBusy = true;
      setImmediate(() => this.#next());
    });
  }

  /** Sends the next call before readers get their answers: Redis works while they are sent. */
  #next(): void {
    const pages: Asked[] = [];
    let size = 0;
    for (const [name, asked] of this.#asked) {
      this.#asked.delete(name);
      pages.push(asked);
      size += asked.args.at(-1) === "" ? 1 : MERGED_PAGES;
      if (size >= PAGES_A_CALL) break;
    }
    if (pages.length === 0) {
      this.#isBusy = false;
      return this.idle();
    }
    void this.#call(pages).then((settle) => {
      this.#next();
      settle();
    });
  }

  async #call(pages: readonly Asked[]): Promise<() => void> {
    const { isCluster, runBytes } = this.scripts;
    const keys = pages.map(({ key }) => key);
    const args = [isCluster ? "" : 1, MAX_IDLE_MS, PULLED_KEY, AUTHOR_PREFIX, ...pages.flatMap((page) => page.args)];
    try {
      const replies = (await runBytes("read-page", isCluster ? keys : [...keys, TOMBSTONES_KEY], args)) as unknown[];
      const stored = replies.map((reply, at) => storedOf(reply as Buffer | Buffer[], pages[at] as Asked));
      return () => {
        for (const [at, { readers }] of pages.entries())
          for (const { resolve } of readers) resolve(stored[at] as Stored);
      };
    } catch (error) {
      // One of the keys may be no timeline.
      const isOfOne = pages.length > 1 && codeOf(error) !== "unavailable";
      const alone = isOfOne ? await Promise.all(pages.map((page) => this.#call([page]))) : undefined;
      return () => {
        if (alone) for (const settle of alone) settle();
        else for (const { readers } of pages) for (const { reject } of readers) reject(error);
      };
    }
  }
}

function storedOf(reply: Buffer | readonly Buffer[], { key, args: [direction, count] }: Asked): Stored {
  if (Buffer.isBuffer(reply)) return { floor: 0, entries: [], areAlive: true, page: encodedPage(reply) };
  const [floor, alive, merged = "", ...held] = reply.map(String);
  const ascending: TimelineEntry[] = [];
  for (let at = 0; at < held.length; at += 2) ascending.push({ drop: held[at] as string, score: Number(held[at + 1]) });
  const nearest = direction === "older" ? ascending.toReversed() : ascending;
  const isComplete = floor !== "" && Number(floor) >= 0;
  const pulled = merged === "" ? undefined : pulledIn(merged, key, isComplete);
  return {
    floor: isComplete && pulled?.areKnown !== false ? Number(floor) : undefined,
    entries: nearest.slice(0, Number(count)),
    areAlive: alive === "1",
    ...(pulled && { pulled }),
  };
}

const NOT_KNOWN = "?";
const HOME = "~home";

function pulledIn(merged: string, home: string, isComplete: boolean): Pulled {
  if (merged === NOT_KNOWN) return { areKnown: false, keys: [], incomplete: isComplete ? [] : [home] };
  const keysIn = (names: string): string[] =>
    names === "" ? [] : names.split(",").map((name) => (name === HOME ? home : AUTHOR_PREFIX + name));
  const [authors = "", incomplete = ""] = merged.split("/");
  return { areKnown: true, keys: keysIn(authors), incomplete: keysIn(incomplete) };
}
