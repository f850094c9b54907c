import type { StoredTimelinesConfig } from "../../contracts/config.js";
import type { TimelineEntry } from "../../contracts/timelines.js";
import { chunked } from "../../kernel/concurrency.js";
import { MINUTE } from "../../kernel/time.js";
import { createLease } from "../../platform/redis/lease.js";
import type { Scripts } from "../../platform/redis/scripts.js";
import { currentOf } from "../big-authors/pulled.js";
import type { Erased } from "../erased/erasures.js";
import type { Fenced } from "../fenced.redis.js";
import {
  AUTHOR_PREFIX,
  bylinesKey,
  deletedDropKey,
  FLOOR_MEMBER,
  followsKeyOfHome,
  followsStagedKey,
  GLOBAL_KEY,
  hiddenKeyOfHome,
  kindOf,
  LOCAL_KEY,
  pullsKeyOfHome,
  REMOTE_KEY,
  rebuildLeaseKey,
  removalNotesKey,
  stagedKey,
  standingBylinesKey,
  userOfHomeKey,
} from "../keys.js";
import { script } from "../scripts.redis.js";
import { createViews } from "../standing/unlisted.js";
import { createBylines } from "./bylines.redis.js";
import type { Follows } from "./follows.js";
import { createFollowsStore, forgetErased } from "./follows.redis.js";
import { createReadList } from "./list-reader.js";
import { PageReader, type PageReaderOptions } from "./page-reader.redis.js";
import { createRemovalNotes } from "./removal-notes.redis.js";

const BEGIN_REBUILD = script("begin-rebuild", import.meta.url, { spanned: true });
const STAGE_REBUILD = script("stage-rebuild", import.meta.url, { spanned: true });
const KEEP_REMOTE = script("keep-remote", import.meta.url, { spanned: true });
const FINISH_REBUILD = script("finish-rebuild", import.meta.url, { spanned: true });

export interface Snapshot {
  readonly entries: readonly TimelineEntry[];
  /** The entries are complete down to this time, in ms; 0: from the start. */
  readonly floor: number;
  /**
   * Global leaves out remote drops created up to this time, ms; 0: it leaves out none; undefined: there is no share.
   */
  readonly remoteFloor?: number | undefined;
  /** Of a home: what judged its replies; undefined: it shows all of them. */
  readonly follows?: Follows | undefined;
}

export type TimelineStore = ReturnType<typeof createTimelineStore>;

type Begun = readonly string[] | "complete" | "hidden unknown";

interface Rebuilt {
  readonly mark: number;
  readonly gone: readonly string[];
  readonly snapshot: Snapshot;
}

const DROPS_A_CALL = 5_000;

const STAGED_TTL_MS = MINUTE;

interface StoreOptions extends Omit<PageReaderOptions, "ttlMs" | "bylinesOf" | "standingBylinesOf" | "followedAmong"> {
  readonly config: Pick<StoredTimelinesConfig, "maxEntries" | "ttlMs">;
  readonly erased: Pick<Erased, "among">;
}

export function createTimelineStore(scripts: Scripts, fenced: Fenced, { config, ...options }: StoreOptions) {
  const { command } = scripts;
  const ttl = (key: string): number => (key === LOCAL_KEY || key === GLOBAL_KEY ? 0 : config.ttlMs);
  const { keepBylines, ...bylines } = createBylines(scripts, { erased: options.erased, ttlOf: ttl });
  const copies = createFollowsStore(scripts, options.judgesReplies);
  const beside = { ...bylines, followedAmong: copies.followedAmong };
  const reader = new PageReader(scripts, { ttlMs: config.ttlMs, ...beside, ...options });
  const notes = createRemovalNotes(scripts);
  const keepRemote = createKeepRemote(fenced);
  const score = (key: string, member: string) => command("zscore", (client) => client.zscore(key, member));
  /** Returns the keys of the timelines that are merged into a home; none if the set is not complete. */
  const mergedKeysOf = async (home: string): Promise<string[]> => {
    if ((await currentOf(options.authorStates)).size === 0) return [];
    const members = await command("smembers", (client) => client.smembers(pullsKeyOfHome(home)));
    return members.filter((member) => !member.startsWith("~")).map((token) => AUTHOR_PREFIX + token);
  };
  return {
    ...pagesOf(reader, options),
    repostWindow: options.repostWindow ?? 0,
    ...createViews(options.standings),
    mergedKeysOf,
    async isComplete(key: string): Promise<boolean> {
      const [floor, user] = [await score(key, FLOOR_MEMBER), userOfHomeKey(key)];
      if (Number(floor ?? -1) < 0) return false;
      return user === undefined || ((await copies.isRight(key)) && (await options.hidden.held(user)) !== undefined);
    },
    /**
     * Reads the creation time of a drop from this timeline, from those merged into it, and from recent deletions.
     * Undefined if none of them has the drop.
     */
    async createdAt(key: string, drop: string): Promise<number | undefined> {
      const [stored, deleted] = await Promise.all([
        score(key, drop),
        command("get", (client) => client.get(deletedDropKey(drop))),
      ]);
      const keys = stored === null && deleted === null && kindOf(key) === "home" ? await mergedKeysOf(key) : [];
      const others = await Promise.all(keys.map((merged) => score(merged, drop)));
      const known = stored ?? deleted ?? others.find((other) => other !== null);
      return known == null ? undefined : Number(known);
    },
    beginRebuild: createBeginRebuild(scripts, ttl, options.judgesReplies),
    /** Returns false if the mark is gone: then the snapshot is outdated. */
    async finishRebuild(key: string, { mark, gone, snapshot }: Rebuilt): Promise<boolean> {
      const copy = followsStagedKey(key, mark);
      const ofHome = kindOf(key) === "home" ? [followsKeyOfHome(key), copy] : [];
      const keys = [key, stagedKey(key, mark, "add"), stagedKey(key, mark, "remove")] as const;
      const parts = partsOf(gone, snapshot.entries);
      const last = parts.pop() ?? [0];
      await keepBylines(key, snapshot.entries);
      if (!(await keepRemote(key, mark, snapshot))) return false;
      const kept = new Set(snapshot.entries.map(({ drop }) => drop));
      const removed = gone.filter((drop) => !kept.has(drop));
      await notes.note(key, removed);
      const fields = await copies.stage(copy, snapshot.follows);
      let staged = 0;
      for (const part of parts) {
        staged = Number(await fenced.one(STAGE_REBUILD, keys, [mark, STAGED_TTL_MS, ...part]));
        if (staged === 0) return false;
      }
      const rest = [mark, snapshot.floor, config.maxEntries, staged, fields, ...last];
      if ((await fenced.one(FINISH_REBUILD, [...keys, ...ofHome], rest)) !== 1) return false;
      await forgetErased(scripts, options.erased, { home: key, follows: snapshot.follows });
      return true;
    },
    remove: notes.remove,
    /** Removes a timeline, and the keys beside it. */
    forget: (key: string): Promise<number> => command("del", (client) => client.del(key, ...keysBeside(key))),
    ...beside,
    keepBylines,
    rebuildLease: (key: string) => createLease(scripts, rebuildLeaseKey(key)),
    async rebuildLeaseLeft(key: string): Promise<number> {
      return Math.max(0, await command("pttl", (client) => client.pttl(rebuildLeaseKey(key))));
    },
  };
}

const keysBeside = (key: string): readonly string[] => [
  ...[removalNotesKey(key), bylinesKey(key), standingBylinesKey(key), followsKeyOfHome(key)],
];

/** Marks an incomplete timeline, or any if `afresh`. Returns its drops, or the reason why it was not marked. */
const createBeginRebuild =
  ({ run }: Pick<Scripts, "run">, ttl: (key: string) => number, judgesReplies: boolean) =>
  async (key: string, mark: number, afresh = false): Promise<Begun> => {
    const ofHome = kindOf(key) === "home" ? [hiddenKeyOfHome(key), followsKeyOfHome(key)] : [];
    const args = [mark, ttl(key), afresh ? 1 : 0, judgesReplies ? 1 : 0];
    const reply = (await run(BEGIN_REBUILD, [key, ...ofHome], args)) as string[] | 0 | null;
    return reply === null ? "complete" : reply === 0 ? "hidden unknown" : reply;
  };

const pagesOf = (
  { read, readFirstPage, readHidden }: PageReader,
  { authorStates }: Pick<StoreOptions, "authorStates">,
) => ({
  read,
  readFirstPage,
  readHidden,
  readList: createReadList({ read, authorStates }),
});

/** Returns a function that resolves to false if the mark is gone. */
const createKeepRemote =
  (fenced: Fenced) =>
  async (key: string, mark: number, { entries, remoteFloor }: Snapshot): Promise<boolean> => {
    if (remoteFloor === undefined) return true;
    const remote = entries.filter((entry) => entry.remote);
    for (const part of remote.length === 0 ? [[]] : chunked(remote, DROPS_A_CALL)) {
      const rest = [mark, remoteFloor, ...part.flatMap(({ score, drop }) => [score, drop])];
      if ((await fenced.one(KEEP_REMOTE, [key, REMOTE_KEY], rest)) !== 1) return false;
    }
    return true;
  };

/** Returns the arguments of the scripts in parts: the number of ids to remove, those ids, and entries to add. */
function partsOf(gone: readonly string[], entries: readonly TimelineEntry[]): (string | number)[][] {
  const removals = chunked(gone, DROPS_A_CALL).map((drops) => [drops.length, ...drops]);
  const additions = chunked(entries, DROPS_A_CALL).map((part) => part.flatMap(({ score, drop }) => [score, drop]));
  const isSmall = gone.length + entries.length <= DROPS_A_CALL;
  if (isSmall) return [[gone.length, ...gone, ...additions.flat()]];
  return [...removals, ...additions.map((part) => [0, ...part])];
}
