import { authorOfKey, GLOBAL_KEY, kindOf, LOCAL_KEY, PULLED_KEY, pullsKeyOfHome } from "../contracts/keys.js";
import { currentOf, isPushed, type PulledAuthors } from "../contracts/pulled.js";
import { inChildSpan, SpanKind } from "../delivery/telemetry.js";
import type { Scripts } from "../platform/redis/scripts.js";
import { merge, type Part, partOfHead } from "./merge.js";
import type { Origin, PageCache } from "./page-cache.js";
import { type Ask, createPageCalls } from "./page-calls.redis.js";
import type { Range, Stored } from "./stored.js";

interface ReadPagesOptions {
  /** Of homes. */
  readonly ttlMs: number;
  readonly pulled: PulledAuthors;
  readonly cache?: PageCache | undefined;
}

interface How {
  /** The set of authors to merge; "": none. */
  readonly pulls: string;
  /** Time to live that the read gives the key, ms; 0: leave it. */
  readonly ttl: number;
}

const NO_PAGE = { drops: 0, since: 0 } as const;
const SPAN = { kind: SpanKind.CLIENT, attributes: { "db.system": "redis" } } as const;

/** All reads of a turn share one page, and reading it costs less than asking whether a cached one is up to date. */
const SHARED: ReadonlySet<string> = new Set([LOCAL_KEY, GLOBAL_KEY]);

/** Newest drops of a pulled author that are cached: more than a page. */
const HEAD = 128;

/** Reads entries next to a position. Without a cache, or while it is off, each answer is from Redis. */
export function createReadPages(scripts: Scripts, { ttlMs, pulled, cache }: ReadPagesOptions) {
  const call = createPageCalls(scripts, cache);
  const keep = (name: string, stored: Stored, origin: Origin | undefined): Stored => {
    if (origin) cache?.keep(name, stored, origin);
    return stored;
  };

  const readOne = (range: Range, how: How): Promise<Stored> => {
    const name = nameOf(range, how);
    const ask = (): Promise<Stored> =>
      inChildSpan("redis read-page", SPAN, () => call(range.key, name, () => askOf(name, range, how)));
    return cache && !SHARED.has(range.key) ? cache.read(name).then((cached) => cached ?? ask()) : ask();
  };

  const askOf = (name: string, range: Range, how: How): Ask => {
    const keys = how.pulls === "" ? [range.key] : [range.key, how.pulls, PULLED_KEY];
    return {
      key: range.key,
      args: argsOf(range, how),
      follows: !SHARED.has(range.key) && cache?.isOn() && cache.isWanted(name) ? keys : [],
      finish: (stored, { origin, upToDate }) => {
        if (!stored.pulled?.areNamed || !stored.pulled.areKnown) return keep(name, stored, origin);
        return mergeNamed(range, stored, upToDate).then(({ merged, tokens }) =>
          keep(name, merged, origin && tokens && { ...origin, tokens: [...origin.tokens, ...tokens] }),
        );
      },
    };
  };

  /** The tokens are undefined where not all keys are followed. */
  const mergeNamed = async (range: Range, home: Stored, upToDate: Promise<boolean>) => {
    const registry = await currentOf(pulled);
    const stateOf = (key: string) => registry.get(authorOfKey(key) as string)?.state;
    const named = home.pulled?.keys ?? [];
    // Redis has looked at the registry, but for a cluster.
    const keys = scripts.isCluster ? named.filter(stateOf) : named;
    const isUpToDate = await upToDate;
    const parts = await Promise.all(
      keys.map((key) =>
        readPart({ ...range, key, page: undefined }, home, { isUpToDate, isBeside: isPushed(stateOf(key)) }),
      ),
    );
    const tokens = parts.every((part) => part.tokens) ? parts.flatMap((part) => part.tokens ?? []) : undefined;
    return { merged: merge(range, home, parts), tokens };
  };

  /** As in read-page.lua, a timeline beside homes that are complete without it has no floor, and is not renewed. */
  const readPart = async (
    range: Range,
    home: Stored,
    { isUpToDate, isBeside }: { readonly isUpToDate: boolean; readonly isBeside: boolean },
  ): Promise<Part> => {
    const { key } = range;
    const how = { pulls: "", ttl: isBeside ? 0 : ttlMs };
    const whole = (stored: Stored): Stored => (isBeside ? { ...stored, floor: 0 } : stored);
    if (cache?.isOn()) {
      const newest: Range = { key, direction: "older", from: undefined, count: HEAD };
      const name = `${nameOf(newest, how)} ${isBeside}`;
      const finish: Ask["finish"] = (stored, { origin }) => keep(name, whole(stored), origin);
      const cached = isUpToDate ? cache.get(name) : undefined;
      const ask = (): Ask => ({ key, args: argsOf(newest, how), follows: [key], finish });
      const head = cached?.stored ?? (await call(key, name, ask));
      const kept = cached ?? cache.get(name);
      const tokens = kept?.stored === head ? kept.tokens : undefined;
      const entries = partOfHead(head, HEAD, { range, home });
      if (entries) return { key, stored: { ...head, entries }, tokens };
    }
    return { key, stored: whole(await readOne(range, how)), tokens: undefined };
  };

  const readHome = async (range: Range): Promise<Stored> => {
    for (;;) {
      if ((await currentOf(pulled)).size > 0) return readOne(range, { pulls: pullsKeyOfHome(range.key), ttl: ttlMs });
      const stored = await readOne(range, { pulls: "", ttl: ttlMs });
      // The process may have been suspended while the first author changed over.
      if ((await currentOf(pulled)).size === 0) return stored;
    }
  };

  return (range: Range): Promise<Stored> => {
    const kind = kindOf(range.key);
    return kind === "home" ? readHome(range) : readOne(range, { pulls: "", ttl: kind === "author" ? ttlMs : 0 });
  };
}

const argsOf = ({ direction, from, count, page = NO_PAGE }: Range, { pulls, ttl }: How): Ask["args"] => {
  const position = from ? [from.score, from.drop] : ["", ""];
  return [direction, count, ttl, page.drops, page.since, ...position, pulls];
};

const nameOf = ({ key, direction, from, count, page = NO_PAGE }: Range, { pulls, ttl }: How): string =>
  `${key} ${direction} ${count} ${page.drops} ${page.since} ${from?.score} ${from?.drop} ${ttl} ${pulls}`;
