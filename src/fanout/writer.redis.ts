import {
  actorKey,
  deletedDropKey,
  directDropKey,
  GLOBAL_KEY,
  HOME_PREFIX,
  homeKey,
  LOCAL_KEY,
  packKeys,
  SHARED_PREFIX,
  SHARED_TOKENS,
} from "../contracts/keys.js";
import type { TimelineEntry } from "../contracts/timelines.js";
import { chunked } from "../kernel/concurrency.js";
import { encodeId, FLOOR_MEMBER } from "../kernel/ids.js";
import { DAY } from "../kernel/time.js";
import { type Scripts, script } from "../platform/redis/scripts.js";
import type { Fenced } from "../records/fenced.redis.js";
import { createRemovalNotes } from "../records/removal-notes.redis.js";
import type { Audience } from "./audience.js";
import type { ListenersAmong } from "./listeners.redis.js";

export const ADD_ENTRIES = script("add-entries", import.meta.url);
export const REMOVE_ENTRIES = script("remove-entries", import.meta.url);
const READ_LATELY = script("read-lately", import.meta.url);
const INTERRUPT_REBUILD = script("interrupt-rebuild", import.meta.url);

export interface HomeEntries {
  readonly audience: Audience;
  readonly entries: readonly TimelineEntry[];
}

export interface HomeDrops {
  readonly audience: Audience;
  readonly drops: readonly string[];
}

export interface SharedEntry {
  readonly timelines: readonly Shared[];
  readonly entry: TimelineEntry;
}

/** The current floor, and the time of the oldest drop, in ms since the epoch. */
export interface HomeBounds {
  readonly floor: number | undefined;
  readonly oldest: number | undefined;
}

type Shared = keyof typeof SHARED_TOKENS;

export type TimelineWriter = ReturnType<typeof createTimelineWriter>;

export interface WriterOptions {
  readonly maxEntries: number;
  /** Time to live of a home timeline that is not read. */
  readonly ttlMs: number;
  /** Write only to home timelines that were read since they were last lost. */
  readonly activeOnly: boolean;
}

interface WriterDeps {
  readonly scripts: Scripts;
  readonly fenced: Fenced;
  readonly listenersAmong: ListenersAmong;
}

export const DELETED_DROP_TTL_MS = DAY;
const LOOKS_AT_ONCE = 500;

/** Trimming one entry at every insert halves the rate on full timelines; five percent at once does not. */
const TRIM_TO = 0.95;

/** The limits that the script `add-entries` takes; a time to live of 0: none. */
export const limitsOf = (options: Omit<WriterOptions, "ttlMs">, ttlMs: number): (string | number)[] => [
  options.maxEntries,
  Math.ceil(options.maxEntries * TRIM_TO),
  ttlMs,
  options.activeOnly ? "1" : "0",
];

/** Every method resolves only after each reply was a success. `yields`: others do not wait for the call. */
export function createTimelineWriter({ scripts, fenced, listenersAmong }: WriterDeps, options: WriterOptions) {
  const homeLimits = limitsOf(options, options.ttlMs);
  const sharedLimits = limitsOf({ ...options, activeOnly: false }, 0);
  const itemOf = ({ drop, score }: TimelineEntry) => [score, drop];
  const notes = createRemovalNotes(scripts);
  const removeHome = async (all: readonly HomeDrops[], yields = false): Promise<void> => {
    const groups = all.map(({ audience: { keys }, drops }) => ({ keys, items: drops.map((drop) => [drop]) }));
    await fenced.groups({ script: REMOVE_ENTRIES, prefix: HOME_PREFIX, before: [], groups, yields });
  };
  return {
    removeHome,
    /** As `removeHome`, before fan-out of the drops' deletions looks which listeners had them. */
    async removeHomeNoted(all: readonly HomeDrops[]): Promise<void> {
      const isListening = await listenersAmong(all.map(({ audience }) => audience.ids));
      if (isListening)
        for (const { audience, drops } of all)
          for (const some of chunked(audience.ids.filter(isListening), LOOKS_AT_ONCE))
            await Promise.all(some.map((user) => notes.note(homeKey(user), drops)));
      await removeHome(all);
    },
    /** True where every home took every entry, as new; false where some had it, or may have refused it. */
    async addHome(all: readonly HomeEntries[], yields = false): Promise<boolean> {
      const groups = all.map(({ audience: { keys }, entries }) => ({ keys, items: entries.map(itemOf) }));
      const call = { script: ADD_ENTRIES, prefix: HOME_PREFIX, before: homeLimits, groups, yields } as const;
      const sent = all.reduce((sum, { audience, entries }) => sum + audience.ids.length * entries.length, 0);
      return (await fenced.groups(call)) === sent;
    },
    /** Users whose home would show a drop of that time, or was not read yet. */
    async aboveFloorAmong(users: readonly string[], time: number): Promise<string[]> {
      const floors = await floorsOf(scripts, users);
      return users.filter((_, at) => !((floors[at] ?? 0) > 0) || time > (floors[at] as number));
    },
    async holdersAmong(users: readonly string[], drop: string): Promise<string[]> {
      const holders = await filtered(users, (user) => notes.had(homeKey(user), drop));
      if (!options.activeOnly || holders.length === users.length) return holders;
      // A home that was never read took nothing, and its user was told all the same.
      const held = new Set(holders);
      const others = users.filter((user) => !held.has(user));
      const floors = await floorsOf(scripts, others);
      const unread = others.filter((_, at) => floors[at] === undefined);
      if (unread.length === 0 || (await isDirect(scripts, drop))) return holders;
      return [...holders, ...unread];
    },
    /** Users whose home was read within a time. Only reads renew its time to live, and only a read gives it a floor. */
    async recentAmong(users: readonly string[], withinMs: number): Promise<string[]> {
      const left = options.ttlMs - withinMs;
      const calls = scripts.isCluster
        ? users.map((user) => scripts.run(READ_LATELY, [homeKey(user)], [left]))
        : packKeys(users.map(encodeId)).map((keys) => scripts.run(READ_LATELY, [], [left, HOME_PREFIX, keys]));
      const recent = (await Promise.all(calls)).flat();
      return users.filter((_, at) => recent[at] === 1);
    },
    async addShared(all: readonly SharedEntry[]): Promise<void> {
      const groups = all.map(({ timelines, entry }) => {
        return { keys: [timelines.map((name) => SHARED_TOKENS[name]).join(",")], items: [itemOf(entry)] };
      });
      await fenced.groups({ script: ADD_ENTRIES, prefix: SHARED_PREFIX, before: sharedLimits, groups });
    },
    async removeShared(drops: readonly string[]): Promise<void> {
      const groups = [{ keys: [`${SHARED_TOKENS.local},${SHARED_TOKENS.global}`], items: drops.map((drop) => [drop]) }];
      await fenced.groups({ script: REMOVE_ENTRIES, prefix: SHARED_PREFIX, before: [], groups });
    },
    /** Makes rebuilds under way start over; returns the bounds of each timeline. */
    async interruptRebuilds(users: readonly string[]): Promise<HomeBounds[]> {
      const calls = scripts.isCluster
        ? users.map((user) => scripts.run(INTERRUPT_REBUILD, [homeKey(user)], []))
        : packKeys(users.map(encodeId)).map((keys) => scripts.run(INTERRUPT_REBUILD, [], [HOME_PREFIX, keys]));
      const held = (await Promise.all(calls)).flat() as string[];
      const timeOf = (text: string | undefined) => (text ? Number(text) : undefined);
      return users.map((_, at) => ({ floor: timeOf(held[2 * at]), oldest: timeOf(held[2 * at + 1]) }));
    },
    /** Lets others go first, after `ms` of work for writes that yield. */
    yieldAfter: fenced.yieldAfter,
    ...memories(scripts, options.ttlMs),
  };
}

async function filtered(users: readonly string[], test: (user: string) => Promise<boolean>): Promise<string[]> {
  const passed: string[] = [];
  for (const some of chunked(users, LOOKS_AT_ONCE)) {
    const results = await Promise.all(some.map(test));
    passed.push(...some.filter((_, at) => results[at]));
  }
  return passed;
}

/** In ms since the epoch; undefined where a home has none. */
async function floorsOf({ command }: Scripts, users: readonly string[]): Promise<(number | undefined)[]> {
  const floors: (number | undefined)[] = [];
  for (const some of chunked(users, LOOKS_AT_ONCE)) {
    const looks = some.map((user) => command("zscore", (client) => client.zscore(homeKey(user), FLOOR_MEMBER)));
    floors.push(...(await Promise.all(looks)).map((score) => (score === null ? undefined : Number(score))));
  }
  return floors;
}

/** Listeners to whom a direct drop may not be addressed must not learn of its deletion. */
const isDirect = async ({ command }: Scripts, drop: string): Promise<boolean> =>
  (await command("exists", (client) => client.exists(directDropKey(drop)))) > 0;

function memories({ command }: Scripts, ttlMs: number) {
  return {
    /** Keeps the creation time of a drop that is about to be removed, so that its id still works as a cursor. */
    async rememberCreations(authors: ReadonlyMap<string, string | undefined>): Promise<void> {
      const drops = [...authors.keys()];
      const look = (key: string, some: readonly string[]) =>
        command("zmscore", (client) => client.zmscore(key, ...some));
      const [local, global, ...own] = await Promise.all([
        ...[LOCAL_KEY, GLOBAL_KEY].map((key) => look(key, drops)),
        ...drops.map((drop) =>
          authors.get(drop) === undefined ? [] : look(homeKey(authors.get(drop) as string), [drop]),
        ),
      ]);
      const remember = async (drop: string, at: number): Promise<void> => {
        const score = own[at]?.[0] ?? local?.[at] ?? global?.[at];
        if (score != null)
          await command("set", (client) => client.set(deletedDropKey(drop), score, "PX", DELETED_DROP_TTL_MS));
      };
      await Promise.all(drops.map(remember));
    },
    async rememberActor(drop: string, actor: string): Promise<void> {
      await command("set", (client) => client.set(actorKey(drop), actor, "PX", ttlMs));
    },
    async rememberDirect(drop: string): Promise<void> {
      await command("set", (client) => client.set(directDropKey(drop), "1", "PX", ttlMs));
    },
  };
}
