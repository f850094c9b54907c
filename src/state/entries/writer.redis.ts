import { listOfReader } from "../../contracts/lists.js";
import { type Byline, bylineText, listedBylineText, type TimelineEntry } from "../../contracts/timelines.js";
import { decodeId, encodeId } from "../../kernel/ids.js";
import type { Scripts } from "../../platform/redis/scripts.js";
import type { Erased } from "../erased/erasures.js";
import type { Fenced } from "../fenced.redis.js";
import {
  HOME_PREFIX,
  LIST_PREFIX,
  type PackedKeys,
  packKeys,
  readerKey,
  SHARED_PREFIX,
  SHARED_TOKENS,
} from "../keys.js";
import type { ListenersAmong } from "../listeners/listening.redis.js";
import { script } from "../scripts.redis.js";
import { createDropFacts } from "./drop-facts.redis.js";
import { createHomeLooks, eachOf } from "./home-looks.redis.js";
import { createRemovalNotes } from "./removal-notes.redis.js";

export const ADD_ENTRIES = script("add-entries", import.meta.url);
export const REMOVE_ENTRIES = script("remove-entries", import.meta.url);

/** Users, each once, and the readers of lists, with the tokens of their keys as scripts take them. */
export interface Audience {
  readonly ids: readonly string[];
  readonly keys: PackedKeys;
  readonly readers: readonly string[];
  readonly listKeys: PackedKeys;
}

/** Takes users, and readers of lists among them. */
export function audienceOf(users: Iterable<string>): Audience {
  const all = [...new Set(users)];
  const readers = all.filter((user) => listOfReader(user) !== undefined);
  const ids = readers.length === 0 ? all : all.filter((user) => listOfReader(user) === undefined);
  const lists = readers.map((reader) => encodeId(listOfReader(reader) as string));
  return { ids, keys: packKeys(ids.map(encodeId)), readers, listKeys: packKeys(lists) };
}

/** Returns the users of an audience, and the readers of its lists. */
export const usersOf = ({ ids, readers }: Pick<Audience, "ids" | "readers">): readonly string[] =>
  readers.length === 0 ? ids : [...ids, ...readers];

/** Entries to add to the homes of an audience. Each home leaves out those that its user does not see. */
export interface HomeAddition {
  readonly audience: Audience;
  readonly entries: readonly SignedEntry[];
}

export type SignedEntry = TimelineEntry & { readonly by: Byline };

/** Drops to remove from the homes of an audience. */
export interface HomeRemoval {
  readonly audience: Audience;
  readonly drops: readonly string[];
}

export interface SharedAddition {
  readonly timelines: readonly Shared[];
  readonly entry: SignedEntry;
}

type Shared = keyof typeof SHARED_TOKENS;

export type TimelineWriter = ReturnType<typeof createTimelineWriter>;

export interface WriterOptions {
  readonly maxEntries: number;
  /** Time to live of a home timeline that is not read. */
  readonly ttlMs: number;
  /** Maximum number of remote drops in global. Default: no maximum. */
  readonly remoteCap?: number | undefined;
  /** True: writes only to home timelines that were read since they were last lost. */
  readonly activeOnly: boolean;
  /** True: homes leave out replies to those whom their users do not follow. */
  readonly judgesReplies: boolean;
}

interface WriterDeps {
  readonly scripts: Scripts;
  readonly fenced: Fenced;
  readonly erased: Pick<Erased, "among">;
  readonly listenersAmong: ListenersAmong;
}

/** Trimming one entry at every insert halves the rate on full timelines; five percent at once does not. */
const TRIM_TO = 0.95;

interface AddOptions extends Omit<WriterOptions, "judgesReplies"> {
  /** Kind of write; the header of the script describes them. */
  readonly kind: "homes" | "new homes" | "all" | "reposts" | `remote ${number}`;
}

/** Returns the arguments of the script `add-entries` before the groups. A time to live of 0: none. */
export const addOptionsOf = ({ maxEntries, ttlMs, activeOnly, kind }: AddOptions): (string | number)[] => [
  maxEntries,
  Math.ceil(maxEntries * TRIM_TO),
  ttlMs,
  activeOnly ? "1" : "0",
  kind,
];

export const itemOf = ({ drop, score, by }: SignedEntry): (string | number)[] => [score, drop, bylineText(by)];

/**
 * Writes timelines. Every method resolves only after each reply was a success. A call that `yields` lets other writes
 * go first.
 */
export function createTimelineWriter(deps: WriterDeps, options: WriterOptions) {
  const { scripts, fenced, listenersAmong } = deps;
  const addShared = createAddShared(deps, options);
  const notes = createRemovalNotes(scripts);
  const removeFromHomes = async (all: readonly HomeRemoval[], yields = false): Promise<void> => {
    const groups = all.map(({ audience: { keys }, drops }) => ({ keys, items: drops.map((drop) => [drop]) }));
    const lists = all.flatMap(({ audience: { listKeys: keys }, drops }) =>
      keys.length === 0 ? [] : { keys, items: drops.map((drop) => [drop]) },
    );
    const call = { script: REMOVE_ENTRIES, before: [], yields } as const;
    await fenced.groups({ ...call, prefix: HOME_PREFIX, groups });
    if (lists.length > 0) await fenced.groups({ ...call, prefix: LIST_PREFIX, groups: lists });
  };
  return {
    removeFromHomes,
    /**
     * Removes drops, and notes for listeners which of them they had: the fan-out of the drops' deletions has not read
     * their homes yet.
     */
    async removeFromHomesWithNote(all: readonly HomeRemoval[]): Promise<void> {
      const isListening = await listenersAmong(all.map(({ audience }) => usersOf(audience)));
      if (isListening)
        for (const { audience, drops } of all)
          await eachOf(usersOf(audience).filter(isListening), (user) => notes.note(readerKey(user), drops));
      await removeFromHomes(all);
    },
    addToHomes: withLists(createAddToHomes(deps, options), createAddToLists(deps, options)),
    addShared,
    async removeShared(drops: readonly string[]): Promise<void> {
      const groups = [{ keys: [`${SHARED_TOKENS.local},${SHARED_TOKENS.global}`], items: drops.map((drop) => [drop]) }];
      await fenced.groups({ script: REMOVE_ENTRIES, prefix: SHARED_PREFIX, before: [], groups });
    },
    /** Lets other writes go first, as a write that yields does after `ms` of work. */
    yieldAfter: fenced.yieldAfter,
    ...createHomeLooks(scripts, options),
    ...createDropFacts(scripts, options.ttlMs),
  };
}

function createAddShared({ fenced }: WriterDeps, { remoteCap, ...options }: WriterOptions) {
  const optionsOf = (kind: AddOptions["kind"]) => addOptionsOf({ ...options, activeOnly: false, ttlMs: 0, kind });
  const [toAll, toRemote] = [optionsOf("all"), optionsOf(`remote ${remoteCap ?? 0}`)];
  const add = async (all: readonly SharedAddition[], before: typeof toAll): Promise<void> => {
    if (all.length === 0) return;
    const groups = all.map(({ timelines, entry }) => {
      return { keys: [timelines.map((name) => SHARED_TOKENS[name]).join(",")], items: [itemOf(entry)] };
    });
    await fenced.groups({ script: ADD_ENTRIES, prefix: SHARED_PREFIX, before, groups });
  };
  return async function addShared(all: readonly SharedAddition[]): Promise<void> {
    const remote = remoteCap === undefined ? [] : all.filter(({ entry }) => entry.remote);
    const others = remote.length === 0 ? all : all.filter(({ entry }) => !entry.remote);
    await Promise.all([add(others, toAll), add(remote, toRemote)]);
  };
}

function createAddToHomes({ fenced, erased }: WriterDeps, options: WriterOptions) {
  const toHomes = addOptionsOf({ ...options, kind: "homes" });
  const toNewHomes = addOptionsOf({ ...options, kind: "new homes" });
  /** Adds entries. The tokens of homes that do not exist, and were not created, are added to `unmade`. */
  const add = (additions: readonly HomeAddition[], yields: boolean, unmade?: Set<string>): Promise<number> => {
    const groups = additions.map(({ audience: { keys }, entries }) => ({ keys, items: entries.map(itemOf) }));
    const numberOf = (reply: unknown): number => {
      if (!Array.isArray(reply)) return Number(reply);
      const [added, tokens] = reply as [number, string];
      for (const token of tokens.split(",")) unmade?.add(token);
      return added;
    };
    const before = unmade ? toHomes : toNewHomes;
    return fenced.groups({ script: ADD_ENTRIES, prefix: HOME_PREFIX, before, groups, yields, numberOf });
  };
  /** Resolves to true if every home took every entry as new. Erased users get no home. */
  const addToHomes = async (additions: readonly HomeAddition[], yields = false): Promise<boolean> => {
    const unmade = new Set<string>();
    const added = await add(additions, yields, unmade);
    if (unmade.size === 0) return added === entriesIn(additions);
    // In a cluster the script cannot read whether the users of these homes are erased.
    const gone = await erased.among([...unmade].map(decodeId));
    const made = only(additions, (user) => !gone.has(user) && unmade.has(encodeId(user)));
    return added + (await add(made, yields)) === entriesIn(only(additions, (user) => !gone.has(user)));
  };
  return addToHomes;
}

/**
 * Returns a function that adds entries to the lists of audiences, with the bylines of all: reads judge them. A list that
 * was not read since it was last lost is rebuilt by its next read.
 */
function createAddToLists({ fenced }: WriterDeps, options: WriterOptions) {
  const before = addOptionsOf({ ...options, activeOnly: true, kind: "all" });
  return async (additions: readonly HomeAddition[], yields = false): Promise<void> => {
    const groups = additions.flatMap(({ audience: { listKeys: keys }, entries }) =>
      keys.length === 0
        ? []
        : { keys, items: entries.map(({ drop, score, by }) => [score, drop, listedBylineText(by)]) },
    );
    if (groups.length > 0) await fenced.groups({ script: ADD_ENTRIES, prefix: LIST_PREFIX, before, groups, yields });
  };
}

const withLists =
  (
    addToHomes: ReturnType<typeof createAddToHomes>,
    addToLists: ReturnType<typeof createAddToLists>,
  ): typeof addToHomes =>
  async (additions, yields) => {
    await addToLists(additions, yields);
    return addToHomes(additions, yields);
  };

const entriesIn = (additions: readonly HomeAddition[]): number =>
  additions.reduce((sum, { audience, entries }) => sum + audience.ids.length * entries.length, 0);

const only = (additions: readonly HomeAddition[], has: (user: string) => boolean): readonly HomeAddition[] =>
  additions.map(({ audience: { ids }, entries }) => ({ audience: audienceOf(ids.filter(has)), entries }));
