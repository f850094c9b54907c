import type { Byline, TimelineEntry } from "../../contracts/timelines.js";
import { decodeId } from "../../kernel/ids.js";
import type { Scripts } from "../../platform/redis/scripts.js";
import { inChildSpan, SpanKind } from "../../telemetry/spans.js";
import { currentOf, isPushed, type PulledAuthors } from "../big-authors/pulled.js";
import type { HiddenUsers } from "../hidden/hidden.js";
import type { HiddenStore } from "../hidden/hidden.redis.js";
import {
  AUTHOR_PREFIX,
  authorOfKey,
  followsKeyOfHome,
  hiddenKey,
  kindOf,
  PULLED_KEY,
  pullsKeyOfHome,
  userOfHomeKey,
} from "../keys.js";
import type { Standings } from "../standing/standings.redis.js";
import { NOBODY, NOTHING_HIDDEN, withUnlisted } from "../standing/unlisted.js";
import type { Veiled } from "../standing/veiled.redis.js";
import { createJudgeHome } from "./judged-homes.js";
import { type MergedPart, merge, partOfHead, signedByActor } from "./merge.js";
import type { Answer } from "./page-cache.js";
import { createPageCalls, type PageCallsOptions, type Reply, type StoreRead } from "./page-calls.redis.js";
import { encodeWhole } from "./page-response.js";
import { createShownPages } from "./shown-pages.js";
import { type EncodedPage, type Incomplete, incompleteOf, type Range, SPARE, type Stored } from "./stored.js";

export interface PageReaderOptions extends PageCallsOptions {
  /** Time to live of homes and authors' timelines, in ms. */
  readonly ttlMs: number;
  readonly authorStates: PulledAuthors;
  readonly hidden: Pick<HiddenStore, "held" | "lastKnown">;
  readonly standings: Pick<Standings, "of" | "size" | "suspended" | "isLost" | "changes">;
  readonly veiled: Pick<Veiled, "among">;
  readonly bylinesOf: (key: string, drops: readonly string[]) => Promise<ReadonlyMap<string, Byline>>;
  /** Resolves to what only suspensions judge of drops that a home has. */
  readonly standingBylinesOf: (home: string, drops: readonly string[]) => Promise<ReadonlyMap<string, Byline>>;
  /** Number of places of a home in which reposts of one drop are shown once. Default: 0, all are shown. */
  readonly repostWindow?: number;
  /** Resolves to those of these users whom the user of a home follows; to undefined if the copy is lost. */
  readonly followedAmong: (home: string, users: readonly string[]) => Promise<ReadonlySet<string> | undefined>;
  /** Set by tests, which replace it by a wrong one. */
  readonly merge?: typeof merge;
}

type Signed = TimelineEntry & { readonly by: Byline };

type Reading = Omit<StoreRead, "follows"> & {
  /** True if homes have all drops of this author: a gap in the author's own timeline is no gap of the page. */
  readonly isBeside?: boolean;
};

const SPAN = { kind: SpanKind.CLIENT, attributes: { "db.system": "redis" } } as const;

/** Number of newest drops of a pulled author that are cached: more than a page. */
const HEAD = 128;

/**
 * Reads entries next to a position: from the cache, else from Redis; then it merges the timelines of pulled authors,
 * encodes a whole page, and caches the answer. Without a cache, or while it is off, each answer is from Redis.
 */
export class PageReader {
  readonly #ask: ReturnType<typeof createPageCalls<Answer>>;
  readonly #readShown: ReturnType<typeof createShownPages>;
  readonly #judge: ReturnType<typeof createJudgeHome>;
  readonly #moreForReposts: number;

  constructor(
    scripts: Scripts,
    private readonly options: PageReaderOptions,
  ) {
    this.#moreForReposts = options.repostWindow ? options.repostWindow + SPARE : 0;
    this.#judge = createJudgeHome({ ...options, repostWindow: options.repostWindow ?? 0 });
    this.#ask = createPageCalls(scripts, { ...options, moreForReposts: this.#moreForReposts });
    this.#readShown = createShownPages({ read: this.read, bylinesOf: options.bylinesOf });
  }

  readonly read = async (range: Range): Promise<Stored> => {
    const { ttlMs, standings } = this.options;
    const kind = kindOf(range.key);
    const ttl = kind === "author" || kind === "list" ? ttlMs : 0;
    if (kind !== "home") return (await this.#read({ range, ttl, pulls: "" })).stored;
    const isJudged = standings.suspended > 0;
    const wanted = isJudged && range.page ? { ...range, count: range.count + SPARE } : range;
    const { stored } = await this.#read({ range: wanted, ttl: ttlMs, pulls: pullsKeyOfHome(range.key), isJudged });
    return isJudged ? this.#judge(stored, { ...wanted, count: stored.asked ?? wanted.count }) : stored;
  };

  /**
   * Reads a page. Resolves to undefined if the page is not whole, or hides drops (deleted, or older than `since`), or
   * if the users service must be asked whom the viewer hides.
   */
  readonly readFirstPage = async (
    key: string,
    page: NonNullable<Range["page"]>,
    viewer?: string,
  ): Promise<EncodedPage | Incomplete | undefined> => {
    const range = { key, direction: "older", from: undefined, count: page.drops + 1, page } as const;
    if (viewer === undefined) return firstPageOf(key, await this.read(range));
    const { cache, standings } = this.options;
    const name = hiddenKey(viewer);
    if (standings.size === 0 && cache?.peek(name)?.relations?.size === 0) {
      // Most viewers hide nobody: their page is read while it is checked that this is still so.
      const [relations, stored] = await Promise.all([cache.read(name), this.read(range)]);
      if (relations?.stored.relations?.size === 0) return firstPageOf(key, stored);
    }
    const asked = this.#readUnlisted(viewer);
    if (standings.size > 0) return this.#readShown({ key, page }, asked);
    const hidden = await asked;
    if (hidden?.size !== 0) return hidden && this.#readShown({ key, page }, hidden);
    return firstPageOf(key, await this.read(range));
  };

  async #readUnlisted(viewer: string): Promise<HiddenUsers | undefined> {
    const users = viewer === NOBODY ? NOTHING_HIDDEN : await this.readHidden(viewer);
    return users && withUnlisted(users, viewer, this.options.standings);
  }

  /** Resolves to the hidden users of a user; undefined if the users service must be asked. */
  readonly readHidden = async (user: string): Promise<HiddenUsers | undefined> => {
    const { cache, hidden } = this.options;
    const name = hiddenKey(user);
    const cached = await cache?.read(name);
    if (cached) return cached.stored.relations;
    if (!cache) return hidden.held(user);
    const { stored } = await cache.fill(name, [name], async (follows) => {
      const followed = follows.length > 0 && cache.follow(follows);
      const relations = await hidden.held(user);
      const isFollowed = relations && !relations.endsSoon && (await followed);
      return { stored: { floor: 0, entries: [], areAlive: true, relations }, keys: isFollowed ? [] : undefined };
    });
    return stored.relations;
  };

  async #read(reading: Reading): Promise<Answer> {
    const cached = await this.options.cache?.read(nameOf(reading));
    return cached ?? inChildSpan("redis read-page", SPAN, () => this.#readFromRedis(reading));
  }

  #readFromRedis(reading: Reading): Promise<Answer> {
    const { authorStates, cache } = this.options;
    const { key } = reading.range;
    const name = nameOf(reading);
    // While nobody is pulled the script answers with the encoded page.
    const pulls = authorStates.copy()?.size === 0 ? "" : reading.pulls;
    const keys = reading.pulls === "" ? [key] : [key, reading.pulls, PULLED_KEY, followsKeyOfHome(key)];
    return this.#ask(key, name, (send) => {
      const load = (follows: readonly string[]) => this.#answer(send({ ...reading, pulls, follows }), reading);
      return cache ? cache.fill(name, keys, load) : load([]);
    });
  }

  async #answer(replied: Promise<Reply>, reading: Reading): Promise<Answer> {
    const reply = await replied;
    const { floor, areAlive, isFollowed, isRenewedSoon, hasReposts, page: encoded } = reply;
    const entries = reading.isJudged ? await this.#withStandingBylines(reading.range.key, reply) : reply.entries;
    const shape = { ...(hasReposts && { hasReposts }), ...(encoded && { page: encoded }) };
    const home: Stored = { floor: reading.isBeside ? 0 : floor, entries, areAlive, ...shape };
    const more = hasReposts && reading.range.page && !reading.range.from ? this.#moreForReposts : 0;
    const range = { ...reading.range, count: reading.range.count + more };
    const merged =
      reading.pulls === "" ? { stored: home, keys: [] } : await this.#merge({ reading, range }, home, reply);
    const stored = reading.isJudged
      ? { ...merged.stored, asked: range.count }
      : (encodeWhole(merged.stored, range, this.options.repostWindow) ?? merged.stored);
    return { stored, keys: isFollowed && !isRenewedSoon ? merged.keys : undefined };
  }

  async #merge(
    { reading, range }: { readonly reading: Reading; readonly range: Range },
    home: Stored,
    { authors, isSetNamed, hides }: Reply,
  ): Promise<Answer> {
    // The registry is read after the call: the process may have been suspended while an author's state changed.
    const registry = await currentOf(this.options.authorStates);
    if (registry.size === 0) return { stored: home, keys: [] };
    if (!isSetNamed) return { ...(await this.#read(reading)), keys: undefined };
    if (authors === undefined) {
      const incomplete = { keys: home.floor === undefined ? [range.key] : [], arePullsKnown: false };
      return { stored: { ...home, floor: undefined, incomplete }, keys: undefined };
    }
    const hidden = hides ? await this.#hiddenOf(range.key) : undefined;
    const hiddenAuthors = await hidden?.among(authors.map((token) => ({ author: decodeId(token) })));
    const parts = await Promise.all(
      authors.flatMap((token) => {
        const key = AUTHOR_PREFIX + token;
        const author = authorOfKey(key) as string;
        const state = registry.get(author)?.state;
        if (state === undefined || hiddenAuthors?.hides({ author })) return [];
        const part = this.#readPart({ ...range, key, page: undefined }, { home, isBeside: isPushed(state) });
        return part.then((read) => signedByActor(author, read));
      }),
    );
    if (parts.length === 0) return { stored: home, keys: [] };
    const keys = parts.every((part) => part.keys) ? parts.flatMap((part) => part.keys ?? []) : undefined;
    const merged = (this.options.merge ?? merge)(range, home, parts);
    return { stored: await this.#withoutHidden(merged, { home: range.key, hidden }), keys };
  }

  async #withStandingBylines(home: string, { entries }: Reply): Promise<readonly TimelineEntry[]> {
    const unsigned = entries.flatMap(({ drop, by }) => (by ? [] : drop));
    const bylines = await this.options.standingBylinesOf(home, unsigned);
    return entries.map((entry) => ({ ...entry, by: entry.by ?? bylines.get(entry.drop) }));
  }

  async #hiddenOf(home: string): Promise<HiddenUsers> {
    const { hidden } = this.options;
    const user = userOfHomeKey(home) as string;
    return (await hidden.held(user)) ?? hidden.lastKnown(user);
  }

  /** Hides reposts and replies by pulled authors, which are in no home. */
  async #withoutHidden(
    merged: Stored,
    { home, hidden: viewer }: { readonly home: string; readonly hidden: HiddenUsers | undefined },
  ): Promise<Stored> {
    // A home leaves out by itself what standing bylines of replies name.
    const signed = merged.entries.filter(({ by }) => by && by.author !== "") as readonly Signed[];
    if (signed.length === 0) return merged;
    const asked = await viewer?.among(signed.map(({ by }) => by));
    const follows = await this.#followedParents(home, signed);
    const user = userOfHomeKey(home);
    const isShown = ({ by }: Signed): boolean =>
      !asked?.hides(by) &&
      (by.parent === undefined || by.parent === user || !follows || follows === "all" || follows.has(by.parent));
    const hidden = new Set(signed.filter((entry) => !isShown(entry)).map(({ drop }) => drop));
    const judged = hidden.size > 0 ? { ...merged, hidden } : merged;
    if (follows) return judged;
    // While the home cannot be rebuilt, a degraded page shows these entries.
    const keys = [...new Set([home, ...(merged.incomplete?.keys ?? [])])];
    return { ...judged, floor: undefined, incomplete: { keys, arePullsKnown: true } };
  }

  /** Resolves to the parents' authors whom the user of a home follows, or to "all" if replies are not judged. */
  async #followedParents(home: string, signed: readonly Signed[]): Promise<ReadonlySet<string> | "all" | undefined> {
    const parents = new Set(signed.flatMap(({ by }) => by.parent ?? []));
    if (parents.size === 0 || !this.options.judgesReplies) return "all";
    return this.options.followedAmong(home, [...parents]);
  }

  /** Reads from the author's cached newest drops, if they reach far enough. */
  async #readPart(
    range: Range,
    { home, isBeside }: { readonly home: Stored; readonly isBeside: boolean },
  ): Promise<MergedPart & Pick<Answer, "keys">> {
    const { cache, ttlMs } = this.options;
    const { key } = range;
    const how = { ttl: isBeside ? 0 : ttlMs, pulls: "", isBeside };
    if (cache?.isOn(key)) {
      const newest: Reading = { ...how, range: { key, direction: "older", from: undefined, count: HEAD } };
      const { stored, keys } = (await cache.read(nameOf(newest))) ?? (await this.#readFromRedis(newest));
      const entries = partOfHead(stored, HEAD, { range, home });
      if (entries) return { key, stored: { ...stored, entries }, keys };
    }
    return { key, ...(await this.#read({ ...how, range })), keys: undefined };
  }
}

const firstPageOf = (key: string, stored: Stored): EncodedPage | Incomplete | undefined =>
  stored.page || stored.floor !== undefined ? stored.page : incompleteOf(key, stored);

const NO_PAGE = { drops: 0, since: 0 } as const;

const nameOf = ({ range: { key, direction, from, count, page = NO_PAGE }, ttl, isBeside, isJudged }: Reading): string =>
  `${key} ${direction} ${count} ${page.drops} ${page.since} ${from?.score} ${from?.drop} ${ttl} ${isBeside} ${isJudged}`;
