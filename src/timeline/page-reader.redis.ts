import {
  AUTHOR_PREFIX,
  authorOfKey,
  GLOBAL_KEY,
  kindOf,
  LOCAL_KEY,
  PULLED_KEY,
  pullsKeyOfHome,
} from "../contracts/keys.js";
import { inChildSpan, SpanKind } from "../delivery/telemetry.js";
import type { Scripts } from "../platform/redis/scripts.js";
import { currentOf, isPushed, type PulledAuthors } from "../records/pulled.js";
import { merge, type Part, partOfHead } from "./merge.js";
import type { FollowedKey, PageCache } from "./page-cache.js";
import { type Answer, type Ask, createPageCalls } from "./page-calls.redis.js";
import { encodeWhole } from "./page-response.js";
import { type EncodedPage, type Incomplete, incompleteOf, type Range, type Stored } from "./stored.js";

export interface PageReaderOptions {
  /** The time to live is that of homes and authors, in ms. */
  readonly ttlMs: number;
  readonly pulled: PulledAuthors;
  readonly cache?: PageCache | undefined;
  /** Tests pass a wrong one, and must notice it. */
  readonly merge?: typeof merge;
}

type Reading = Omit<Ask, "follows"> & {
  /** Homes have all drops of this author: what the author's own timeline lacks is not missing. */
  readonly isBeside?: boolean;
};

/** The tokens are the keys that `stored` was read from. They are undefined where not all of them are followed. */
interface Made {
  readonly stored: Stored;
  readonly tokens: readonly FollowedKey[] | undefined;
}

interface Asked {
  readonly asked: Promise<Answer>;
  /** This is true where the cache gives nothing that is older than the read. */
  readonly upToDate: boolean | Promise<boolean>;
}

type Home = Pick<Answer, "authors" | "isSetNamed"> & Pick<Asked, "upToDate">;

const SPAN = { kind: SpanKind.CLIENT, attributes: { "db.system": "redis" } } as const;

/** All reads of a turn share one page, and reading it costs less than asking whether a cached one is up to date. */
const SHARED: ReadonlySet<string> = new Set([LOCAL_KEY, GLOBAL_KEY]);

/** So many newest drops of a pulled author are cached: more than a page. */
const HEAD = 128;

/**
 * Reads entries next to a position: from the cache, else from Redis; then it merges the timelines of pulled authors,
 * encodes a whole page, and caches the answer. Without a cache, or while it is off, each answer is from Redis.
 */
export class PageReader {
  readonly #ask: ReturnType<typeof createPageCalls>;
  /** Callers that share a call share what is made of its answer. */
  readonly #made = new WeakMap<Promise<Answer>, Promise<Stored>>();

  constructor(
    scripts: Scripts,
    private readonly options: PageReaderOptions,
  ) {
    this.#ask = createPageCalls(scripts, options.cache);
  }

  readonly read = (range: Range): Promise<Stored> => {
    const { ttlMs } = this.options;
    const kind = kindOf(range.key);
    if (kind === "home") return this.#read({ range, ttl: ttlMs, pulls: pullsKeyOfHome(range.key) });
    return this.#read({ range, ttl: kind === "author" ? ttlMs : 0, pulls: "" });
  };

  /** The encoded page; undefined where it is not whole, or hides drops: deleted ones, or those created before `since`. */
  readonly readFirstPage = async (
    key: string,
    drops: number,
    since: number,
  ): Promise<EncodedPage | Incomplete | undefined> => {
    const range = { key, direction: "older", from: undefined, count: drops + 1, page: { drops, since } } as const;
    const { page, floor, pulled } = await this.read(range);
    return page || floor !== undefined ? page : incompleteOf(key, pulled);
  };

  async #read(reading: Reading): Promise<Stored> {
    const { cache } = this.options;
    const name = nameOf(reading);
    const cached = cache && !SHARED.has(reading.range.key) ? await cache.read(name) : undefined;
    return cached ?? inChildSpan("redis read-page", SPAN, () => this.#readFromRedis(name, reading));
  }

  #readFromRedis(name: string, reading: Reading): Promise<Stored> {
    // While nobody is pulled the script answers the encoded page.
    const pulls = this.options.pulled.copy()?.size === 0 ? "" : reading.pulls;
    const answer = this.#ask(reading.range.key, name, () => ({
      ...reading,
      pulls,
      follows: this.#keysOf(name, reading),
    }));
    // The server is asked beside the call, not after it.
    const upToDate = (pulls !== "" && this.options.cache?.upToDate()) || false;
    const stored = this.#made.get(answer) ?? this.#make(name, reading, { asked: answer, upToDate });
    this.#made.set(answer, stored);
    return stored;
  }

  /** The keys to follow: those of an answer that is to be cached. */
  #keysOf(name: string, { range: { key }, pulls }: Reading): readonly string[] {
    const { cache } = this.options;
    if (SHARED.has(key) || !cache?.isOn() || !cache.isWanted(name)) return [];
    return pulls === "" ? [key] : [key, pulls, PULLED_KEY];
  }

  async #make(name: string, reading: Reading, { asked, upToDate }: Asked): Promise<Stored> {
    const { cache } = this.options;
    const answer = await asked;
    const { origin, floor, entries, areAlive, page: encoded } = answer;
    try {
      const own: Stored = { floor: reading.isBeside ? 0 : floor, entries, areAlive, ...(encoded && { page: encoded }) };
      const { stored, tokens } =
        reading.pulls === "" ? { stored: own, tokens: [] } : await this.#merge(reading, own, { ...answer, upToDate });
      const page = encodeWhole(stored, reading.range);
      const whole: Stored = page ? { floor: stored.floor, entries: [], areAlive: true, page } : stored;
      if (origin && tokens) cache?.keep(name, whole, { ...origin, tokens: [...origin.tokens, ...tokens] });
      return whole;
    } finally {
      if (origin) cache?.end(origin);
    }
  }

  async #merge(reading: Reading, home: Stored, { authors, isSetNamed, upToDate }: Home): Promise<Made> {
    const { range } = reading;
    // Looked at after the call: the process may have been suspended while an author changed over.
    const registry = await currentOf(this.options.pulled);
    if (registry.size === 0) return { stored: home, tokens: [] };
    if (!isSetNamed) return { stored: await this.#read(reading), tokens: undefined };
    if (authors === undefined) {
      const incomplete = home.floor === undefined ? [range.key] : [];
      const pulled = { areKnown: false, keys: [], incomplete };
      return { stored: { ...home, floor: undefined, pulled }, tokens: undefined };
    }
    const isUpToDate = await upToDate;
    const parts = await Promise.all(
      authors.flatMap((token) => {
        const key = AUTHOR_PREFIX + token;
        const state = registry.get(authorOfKey(key) as string)?.state;
        if (state === undefined) return [];
        return this.#readPart({ ...range, key, page: undefined }, { home, isUpToDate, isBeside: isPushed(state) });
      }),
    );
    if (parts.length === 0) return { stored: home, tokens: [] };
    const tokens = parts.every((part) => part.tokens) ? parts.flatMap((part) => part.tokens ?? []) : undefined;
    return { stored: (this.options.merge ?? merge)(range, home, parts), tokens };
  }

  /** Reads from the author's cached newest drops, where these reach far enough. */
  async #readPart(
    range: Range,
    { home, isUpToDate, isBeside }: { readonly home: Stored; readonly isUpToDate: boolean; readonly isBeside: boolean },
  ): Promise<Part & Pick<Made, "tokens">> {
    const { cache, ttlMs } = this.options;
    const { key } = range;
    const how = { ttl: isBeside ? 0 : ttlMs, pulls: "", isBeside };
    if (cache?.isOn()) {
      const newest: Reading = { ...how, range: { key, direction: "older", from: undefined, count: HEAD } };
      const name = nameOf(newest);
      const cached = isUpToDate ? cache.get(name) : undefined;
      const head = cached?.stored ?? (await this.#readFromRedis(name, newest));
      const entries = partOfHead(head, HEAD, { range, home });
      const kept = cached ?? cache.get(name);
      const tokens = kept?.stored === head ? kept.tokens : undefined;
      if (entries) return { key, stored: { ...head, entries }, tokens };
    }
    return { key, stored: await this.#read({ ...how, range }), tokens: undefined };
  }
}

const NO_PAGE = { drops: 0, since: 0 } as const;

const nameOf = ({ range: { key, direction, from, count, page = NO_PAGE }, ttl, isBeside }: Reading): string =>
  `${key} ${direction} ${count} ${page.drops} ${page.since} ${from?.score} ${from?.drop} ${ttl} ${isBeside}`;
