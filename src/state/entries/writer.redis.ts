import { type Byline, bylineText, type TimelineEntry } from "../../contracts/timelines.js";
import { chunked } from "../../kernel/concurrency.js";
import { decodeId, encodeId } from "../../kernel/ids.js";
import { DAY, HOUR } from "../../kernel/time.js";
import { inOrder, type Script, type Scripts, script } from "../../platform/redis/scripts.js";
import type { Erased } from "../erased/erasures.js";
import type { Fenced } from "../fenced.redis.js";
import {
  actorKey,
  deletedDropKey,
  directDropKey,
  FLOOR_MEMBER,
  GLOBAL_KEY,
  HOME_PREFIX,
  homeKey,
  KEYS_A_CALL,
  LOCAL_KEY,
  type PackedKeys,
  packKeys,
  repostedKey,
  SHARED_PREFIX,
  SHARED_TOKENS,
} from "../keys.js";
import type { ListenersAmong } from "../listeners/listening.redis.js";
import { createRemovalNotes } from "./removal-notes.redis.js";

export const ADD_ENTRIES = script("add-entries", import.meta.url);
export const REMOVE_ENTRIES = script("remove-entries", import.meta.url);
const READ_LATELY = script("read-lately", import.meta.url);
const INTERRUPT_REBUILD = script("interrupt-rebuild", import.meta.url);

/** Users, each once, and the tokens of their keys as scripts take them. */
export interface Audience {
  readonly ids: readonly string[];
  readonly keys: PackedKeys;
}

export function audienceOf(users: Iterable<string>): Audience {
  const ids = [...new Set(users)];
  return { ids, keys: packKeys(ids.map(encodeId)) };
}

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

/** Bounds of a home, in ms since the epoch; undefined if it has none. */
export interface HomeBounds {
  readonly floor: number | undefined;
  /** Creation time of the oldest drop. */
  readonly oldest: number | undefined;
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
}

interface WriterDeps {
  readonly scripts: Scripts;
  readonly fenced: Fenced;
  readonly erased: Pick<Erased, "among">;
  readonly listenersAmong: ListenersAmong;
}

/** Time for which the creation time of a deleted drop is stored. */
const DELETED_DROP_TTL_MS = DAY;
/** Time after which counts of shares include a repost. */
const REPOSTED_TTL_MS = HOUR;
/** Maximum number of commands about single homes at a time. */
const LOOKS_AT_ONCE = 500;

/** Trimming one entry at every insert halves the rate on full timelines; five percent at once does not. */
const TRIM_TO = 0.95;

interface AddOptions extends WriterOptions {
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
    await fenced.groups({ script: REMOVE_ENTRIES, prefix: HOME_PREFIX, before: [], groups, yields });
  };
  return {
    removeFromHomes,
    /**
     * Removes drops, and notes for listeners which of them they had: the fan-out of the drops' deletions has not read
     * their homes yet.
     */
    async removeFromHomesWithNote(all: readonly HomeRemoval[]): Promise<void> {
      const isListening = await listenersAmong(all.map(({ audience }) => audience.ids));
      if (isListening)
        for (const { audience, drops } of all)
          await eachOf(audience.ids.filter(isListening), (user) => notes.note(homeKey(user), drops));
      await removeFromHomes(all);
    },
    addToHomes: createAddToHomes(deps, options),
    /** Returns the users whose home would show a drop of that time, or was not read yet. */
    async aboveFloorAmong(users: readonly string[], time: number): Promise<string[]> {
      const floors = await floorsOf(scripts, users);
      return users.filter((_, index) => !((floors[index] ?? 0) > 0) || time > (floors[index] as number));
    },
    /** Returns the users who were notified of the drop: their home has it or had it, or was not read yet. */
    async holdersAmong(users: readonly string[], drop: string): Promise<string[]> {
      const had = await eachOf(users, (user) => notes.had(homeKey(user), drop));
      const holders = users.filter((_, index) => had[index]);
      if (!options.activeOnly || holders.length === users.length) return holders;
      // In mode `active` a user whose home was never read was still notified, although nothing was written.
      const holderSet = new Set(holders);
      const others = users.filter((user) => !holderSet.has(user));
      const floors = await floorsOf(scripts, others);
      const unread = others.filter((_, index) => floors[index] === undefined);
      if (unread.length === 0 || (await isDirect(scripts, drop))) return holders;
      return [...holders, ...unread];
    },
    /**
     * Returns the users who have read their home within a time: only reads give a home a floor, and renew its time to
     * live.
     */
    async recentReadersAmong(users: readonly string[], withinMs: number): Promise<string[]> {
      const recent = await runForHomes<number>(scripts, READ_LATELY, users, [options.ttlMs - withinMs]);
      return users.filter((_, index) => recent[index] === 1);
    },
    addShared,
    async removeShared(drops: readonly string[]): Promise<void> {
      const groups = [{ keys: [`${SHARED_TOKENS.local},${SHARED_TOKENS.global}`], items: drops.map((drop) => [drop]) }];
      await fenced.groups({ script: REMOVE_ENTRIES, prefix: SHARED_PREFIX, before: [], groups });
    },
    /** Makes rebuilds of these homes that are under way start over. Returns the homes' bounds. */
    async interruptRebuilds(users: readonly string[]): Promise<HomeBounds[]> {
      const replies = await runForHomes<readonly [floor: string, oldest: string]>(scripts, INTERRUPT_REBUILD, users);
      const timeOf = (text: string) => (text === "" ? undefined : Number(text));
      return replies.map(([floor, oldest]) => ({ floor: timeOf(floor), oldest: timeOf(oldest) }));
    },
    /** Lets other writes go first, as a write that yields does after `ms` of work. */
    yieldAfter: fenced.yieldAfter,
    ...rememberedDrops(scripts, options.ttlMs),
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

const entriesIn = (additions: readonly HomeAddition[]): number =>
  additions.reduce((sum, { audience, entries }) => sum + audience.ids.length * entries.length, 0);

const only = (additions: readonly HomeAddition[], has: (user: string) => boolean): readonly HomeAddition[] =>
  additions.map(({ audience: { ids }, entries }) => ({ audience: audienceOf(ids.filter(has)), entries }));

/** Runs a script for homes. The replies are in the order of the users. */
export async function runForHomes<T>(
  { run, byNode }: Scripts,
  called: Script,
  users: readonly string[],
  before: readonly (string | number)[] = [],
): Promise<T[]> {
  const tokens = users.map(encodeId);
  const keys = tokens.map((token) => HOME_PREFIX + token);
  const answers = await byNode(keys, KEYS_A_CALL, async (route, places) => {
    const packed = places.map((place) => tokens[place]).join(",");
    return (await run(called, route, [...before, HOME_PREFIX, packed])) as T[];
  });
  return inOrder(answers);
}

async function eachOf<T>(users: readonly string[], look: (user: string) => Promise<T>): Promise<T[]> {
  const results: T[] = [];
  for (const chunk of chunked(users, LOOKS_AT_ONCE)) results.push(...(await Promise.all(chunk.map(look))));
  return results;
}

/** Returns floors in ms since the epoch; undefined for a home that has none. */
async function floorsOf({ command }: Scripts, users: readonly string[]): Promise<(number | undefined)[]> {
  const look = (user: string) => command("zscore", (client) => client.zscore(homeKey(user), FLOOR_MEMBER));
  return (await eachOf(users, look)).map((score) => (score === null ? undefined : Number(score)));
}

/** Returns true for a direct drop: listeners who are not its recipients must not be told of its deletion. */
export const isDirect = async ({ command }: Scripts, drop: string): Promise<boolean> =>
  (await command("exists", (client) => client.exists(directDropKey(drop)))) > 0;

/** Stores the creation time of a drop that is removed next, so that its id still works as a cursor. */
export async function rememberCreation({ command }: Scripts, drop: string, time: string): Promise<void> {
  await command("set", (client) => client.set(deletedDropKey(drop), time, "PX", DELETED_DROP_TTL_MS));
}

/** Stores facts about drops that the fan-out of a deletion reads. */
function rememberedDrops(scripts: Scripts, ttlMs: number) {
  const { command } = scripts;
  return {
    /** Stores the creation times of drops that are removed next, if a timeline has them. */
    async rememberCreations(authors: ReadonlyMap<string, string | undefined>): Promise<void> {
      const drops = [...authors.keys()];
      const look = (key: string, members: readonly string[]) =>
        command("zmscore", (client) => client.zmscore(key, ...members));
      const inHomes = drops.map((drop) => {
        const author = authors.get(drop);
        return author === undefined ? [] : look(homeKey(author), [drop]);
      });
      const [local, global, ...homes] = await Promise.all([
        look(LOCAL_KEY, drops),
        look(GLOBAL_KEY, drops),
        ...inHomes,
      ]);
      const times = drops.map((_, index) => homes[index]?.[0] ?? local?.[index] ?? global?.[index]);
      await Promise.all(
        drops.flatMap((drop, index) => (times[index] == null ? [] : rememberCreation(scripts, drop, times[index]))),
      );
    },
    async rememberActor(drop: string, actor: string): Promise<void> {
      await command("set", (client) => client.set(actorKey(drop), actor, "PX", ttlMs));
    },
    async rememberReposted(authors: readonly string[]): Promise<void> {
      const remember = (author: string) =>
        command("set", (client) => client.set(repostedKey(author), "1", "PX", REPOSTED_TTL_MS));
      await Promise.all(authors.map(remember));
    },
    async rememberDirect(drop: string): Promise<void> {
      await command("set", (client) => client.set(directDropKey(drop), "1", "PX", ttlMs));
    },
  };
}
