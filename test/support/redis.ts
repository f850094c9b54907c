import { Redis } from "ioredis";
import { STORED_TIMELINES_VARIABLES } from "../../src/contracts/config.js";
import { AppError } from "../../src/kernel/errors.js";
import { silent } from "../../src/kernel/logger.js";
import { followClock, type RedisClock } from "../../src/platform/redis/clock.js";
import type { RedisClient } from "../../src/platform/redis/clusters.js";
import { connectRedis } from "../../src/platform/redis/connect.js";
import { createNodeCalls, createScripts, type Scripts } from "../../src/platform/redis/scripts.js";
import type { Broker } from "../../src/sandbox/brokers/index.js";
import { createAuthorWriter } from "../../src/state/big-authors/author-writer.redis.js";
import type { PulledAuthors } from "../../src/state/big-authors/pulled.js";
import { createPulls } from "../../src/state/big-authors/pulls.redis.js";
import type { merge as mergeTimelines } from "../../src/state/entries/merge.js";
import type { PageCache } from "../../src/state/entries/page-cache.js";
import { createTimelineStore } from "../../src/state/entries/store.redis.js";
import { createTimelineWriter } from "../../src/state/entries/writer.redis.js";
import type { Erased } from "../../src/state/erased/erasures.js";
import { createFenced, type Fenced } from "../../src/state/fenced.redis.js";
import { createFenceStore } from "../../src/state/fences/store.redis.js";
import type { TombstoneCopy } from "../../src/state/fences/tombstone-copy.redis.js";
import type { ChangeSources } from "../../src/state/hidden/changes.redis.js";
import type { Hiding } from "../../src/state/hidden/hidden.js";
import { createHiddenStore, type ReadHidden } from "../../src/state/hidden/hidden.redis.js";
import { createRelationWriter } from "../../src/state/hidden/relations.redis.js";
import { createListenersAmong } from "../../src/state/listeners/listening.redis.js";
import { createStandings } from "../../src/state/standing/standings.redis.js";
import { createVeiled } from "../../src/state/standing/veiled.redis.js";
import { privateRedis } from "./brokers.js";
import { eventually } from "./eventually.js";

/** A private Redis, our scripts on it as the service has them, and a connection of the test's own. */
export interface RedisBench {
  readonly broker: Broker;
  readonly raw: Redis;
  readonly client: RedisClient;
  readonly scripts: Scripts;
  close(): Promise<void>;
}

/** Starts it; call `close` in the end. */
export async function openRedis(options: Parameters<typeof privateRedis>[0] = {}): Promise<RedisBench> {
  const broker = await privateRedis(options);
  const raw = new Redis(broker.url);
  // Tests end connections from the server's side on purpose.
  raw.on("error", () => undefined);
  const client = connectRedis([broker.url], silent);
  await eventually(() => client.status === "ready", "Redis is connected");
  return {
    broker,
    raw,
    client,
    scripts: createScripts(client),
    close: async () => {
      raw.disconnect();
      client.disconnect();
      await broker.stop();
    },
  };
}

/** One server in the place of a cluster of which each node has one of the keys. */
export function asCluster(scripts: Scripts): Scripts {
  const slots: string[] = [];
  const slotOf = (key: string): number => (slots.includes(key) ? slots.indexOf(key) : slots.push(key) - 1);
  const nodes = {
    isCluster: true,
    slotOf,
    nodeAt: (slot: number) => slots[slot] as string,
    nodeOf: (key: string) => key,
  };
  return { ...scripts, ...nodes, ...createNodeCalls(nodes, silent) };
}

const FENCED = new WeakMap<Scripts, Fenced>();
const CLOCKS = new WeakMap<Scripts, RedisClock>();

/** The clock of one Redis. */
export function clockOn(scripts: Scripts): RedisClock {
  const known = CLOCKS.get(scripts);
  if (known) return known;
  const clock = followClock(scripts);
  clock.close();
  CLOCKS.set(scripts, clock);
  return clock;
}

/** Write scripts under a deadline, on one Redis. */
export function fencedOn(scripts: Scripts): Fenced {
  const known = FENCED.get(scripts);
  if (known) return known;
  const fenced = createFenced(scripts, clockOn(scripts));
  FENCED.set(scripts, fenced);
  return fenced;
}

/** A registry of pulled authors that stays empty. */
const NOBODY: PulledAuthors = { copy: () => new Map(), refresh: async () => new Map() };

/** Nobody is erased. */
export const NOBODY_ERASED: Pick<Erased, "among"> = { among: async () => new Set() };

/** Merges the timelines of pulled authors into a home. */
export type Merge = typeof mergeTimelines;

/** Reads all hidden users of a user at once. */
export type ReadHiddenOnce = (user: string) => Promise<ReadonlyMap<string, Hiding>>;

export const inOnePage = (read: ReadHiddenOnce): ReadHidden =>
  async function* (user) {
    yield { hidings: await read(user) };
  };

/** The adapters of fan-out, fences and reads on one Redis. */
export function adaptersOn(
  scripts: Scripts,
  {
    cache,
    tombstones,
    merge,
    repostWindow = 0,
    readHidden = async () => new Map<string, Hiding>(),
    erased = NOBODY_ERASED,
    changeSources = {
      readHidings: async (user, targets) => {
        const hidden = await readHidden(user);
        return targets.map((target) => ({ hiding: hidden.get(target) }));
      },
      isApart: async () => false,
    },
    patienceMs,
    judgesReplies = false,
    isFollowing = async () => {
      throw new AppError("unavailable", "GetFollowingList");
    },
    ...options
  }: {
    readonly maxEntries: number;
    /** True: homes leave out replies to those whom their users do not follow. Default: they have all replies. */
    readonly judgesReplies?: boolean;
    /** The default fails. */
    readonly isFollowing?: (user: string, other: string) => Promise<boolean>;
    /** Time limit of an answer about whom a user hides. */
    readonly patienceMs?: number | undefined;
    /** Remote drops have no bound in global by default. */
    readonly remoteCap?: number | undefined;
    readonly activeOnly?: boolean;
    readonly cache?: PageCache;
    readonly tombstones?: Pick<TombstoneCopy, "upToDate">;
    readonly merge?: Merge | undefined;
    readonly repostWindow?: number | undefined;
    /** Whose drops a user does not see. The default hides nobody. */
    readonly readHidden?: ReadHiddenOnce;
    readonly erased?: Pick<Erased, "among">;
    /** The default asks `readHidden`, and takes each home for one that has drops of anybody. */
    readonly changeSources?: Omit<ChangeSources, "readAllHidings">;
  },
  authorStates: PulledAuthors = NOBODY,
) {
  const ttlMs = Number(STORED_TIMELINES_VARIABLES.ttlMs.default);
  const fenced = fencedOn(scripts);
  const listenersAmong = createListenersAmong(scripts, clockOn(scripts));
  const standings = createStandings(scripts);
  const veiled = createVeiled(scripts, standings);
  const hidden = createHiddenStore(scripts, inOnePage(readHidden), erased, ttlMs);
  return {
    writer: createTimelineWriter(
      { scripts, fenced, erased, listenersAmong },
      { activeOnly: false, ttlMs, judgesReplies, ...options },
    ),
    authors: createAuthorWriter(scripts, fenced, { ttlMs, maxEntries: options.maxEntries }),
    store: createTimelineStore(scripts, fenced, {
      config: { ttlMs, maxEntries: options.maxEntries },
      ...{
        authorStates,
        cache,
        tombstones,
        hidden,
        erased,
        standings,
        veiled,
        repostWindow,
        judgesReplies,
        ...(merge && { merge }),
      },
    }),
    ...{ hidden, standings, veiled, listenersAmong },
    relations: createRelationWriter(
      { scripts, hidden, sources: { ...changeSources, isFollowing }, judgesReplies },
      ttlMs,
      patienceMs,
    ),
    pulls: createPulls(scripts, authorStates, erased, ttlMs),
    fenceStore: createFenceStore(scripts, fenced),
  };
}
