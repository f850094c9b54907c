import { createCache } from "../../contracts/caches.js";
import {
  type Byline,
  bylineBytes,
  bylineOf,
  bylineText,
  listedBylineText,
  type TimelineEntry,
} from "../../contracts/timelines.js";
import { chunked } from "../../kernel/concurrency.js";
import { encodeId } from "../../kernel/ids.js";
import type { Scripts } from "../../platform/redis/scripts.js";
import type { Erased } from "../erased/erasures.js";
import { ACTOR_TOKEN, bylinesKey, kindOf, standingBylinesKey } from "../keys.js";

const DROPS_A_CALL = 1_000;

type Signed = readonly [drop: string, by: Byline];

interface Put {
  readonly signed: readonly Signed[];
  readonly textOf: (by: Byline) => string;
  /** Time to live of the hash, ms; 0: none. */
  readonly ttl: number;
}

interface BylinesOptions {
  readonly erased: Pick<Erased, "among">;
  /** Returns the time to live of a timeline, ms; 0: none. */
  readonly ttlOf: (key: string) => number;
}

/** Stores and reads the bylines of a timeline's drops. The byline of a drop never changes. */
export function createBylines({ command }: Pick<Scripts, "command">, { erased, ttlOf }: BylinesOptions) {
  const cached = createCache<Byline>("bylines", { sizeOf: bylineBytes });
  const cachedOfStanding = createCache<Byline>("standingBylines", { sizeOf: bylineBytes });
  const read = async (
    bylines: string,
    known: typeof cached,
    drops: readonly string[],
    none?: Byline,
  ): Promise<void> => {
    const missing = drops.filter((drop) => !known.has(drop));
    for (const chunk of chunked(missing, DROPS_A_CALL)) {
      const texts = await command("hmget", (client) => client.hmget(bylines, ...chunk));
      for (const [index, drop] of chunk.entries()) {
        const by = texts[index] == null ? none : bylineOf(texts[index]);
        if (by) known.set(drop, by);
      }
    }
  };
  const put = async (bylines: string, { signed, textOf, ttl }: Put): Promise<void> => {
    for (const chunk of chunked(signed, DROPS_A_CALL)) {
      const texts = new Map(chunk.map(([drop, by]) => [drop, textOf(by)]));
      await command("hset", (client) => client.hset(bylines, texts));
    }
    if (ttl > 0 && signed.length > 0) await command("pexpire", (client) => client.pexpire(bylines, ttl));
    // An erasure that passed the hash before has set its marker before.
    const gone = await erased.among([...new Set(signed.flatMap(([, by]) => usersOf(by)))]);
    const late = signed.filter(([, by]) => usersOf(by).some((user) => gone.has(user))).map(([drop]) => drop);
    for (const chunk of chunked(late, DROPS_A_CALL)) await command("hdel", (client) => client.hdel(bylines, ...chunk));
  };
  return {
    /** Keeps the bylines that a timeline has beside it: homes have those of reposts, and those that suspensions judge. */
    async keepBylines(key: string, entries: readonly TimelineEntry[]): Promise<void> {
      const [kind, ttl] = [kindOf(key), ttlOf(key)];
      const textOf = kind === "list" ? listedBylineText : bylineText;
      await put(bylinesKey(key), { signed: entries.flatMap(signedIn(key)), textOf, ttl });
      if (kind !== "home") return;
      const judged = entries.flatMap(signedBy(standingBylineOf));
      await put(standingBylinesKey(key), { signed: judged, textOf, ttl });
    },
    /** Returns the bylines of these drops that are stored. */
    async bylinesOf(key: string, drops: readonly string[]): Promise<ReadonlyMap<string, Byline>> {
      await read(bylinesKey(key), cached, drops);
      return knownOf(cached, drops);
    },
    /** Returns what only suspensions judge of these drops, all of which a home has. */
    async standingBylinesOf(home: string, drops: readonly string[]): Promise<ReadonlyMap<string, Byline>> {
      await read(standingBylinesKey(home), cachedOfStanding, drops, NONE);
      return new Map([...knownOf(cachedOfStanding, drops)].filter(([, by]) => by !== NONE));
    },
  };
}

/** Nothing of the drop is judged by suspensions only. */
const NONE: Byline = { author: "" };

const knownOf = (
  known: ReturnType<typeof createCache<Byline>>,
  drops: readonly string[],
): ReadonlyMap<string, Byline> =>
  new Map(
    drops.flatMap((drop) => {
      const by = known.get(drop);
      return by ? [[drop, by] as const] : [];
    }),
  );

/** Homes have the bylines of reposts, timelines of authors those of replies to others as well, the others all. */
const signedIn = (key: string) => {
  const kind = kindOf(key);
  return signedBy(({ by }) => {
    const isKept = by?.original !== undefined || (kind === "author" && by?.parent !== undefined);
    return isKept || (kind !== "home" && kind !== "author") ? by : undefined;
  });
};

/**
 * Returns what only suspensions judge of a drop in a home: of a reply the author of its parent; its author, if that is an
 * actor of another server whose host the id of the drop does not name. add-entries.lua has the same rule.
 */
function standingBylineOf({ drop, by }: TimelineEntry): Byline | undefined {
  if (!by || by.original !== undefined) return undefined;
  const isUnnamed = ACTOR.test(encodeId(by.author)) && !drop.includes("://");
  return isUnnamed || by.parent !== undefined ? { author: isUnnamed ? by.author : "", parent: by.parent } : undefined;
}

const ACTOR = new RegExp(ACTOR_TOKEN);

const signedBy =
  (bylineIn: (entry: TimelineEntry) => Byline | undefined) =>
  (entry: TimelineEntry): Signed[] => {
    const by = bylineIn(entry);
    return by ? [[entry.drop, by]] : [];
  };

const usersOf = ({ author, original = "", parent = "" }: Byline): string[] =>
  [author, original, parent].filter((user) => user !== "");
