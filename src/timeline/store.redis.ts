import type { StoredTimelinesConfig } from "../contracts/config.js";
import {
  deletedDropKey,
  GLOBAL_KEY,
  LOCAL_KEY,
  rebuildLeaseKey,
  stagedKey,
  TOMBSTONES_KEY,
} from "../contracts/keys.js";
import type { TimelineEntry } from "../contracts/timelines.js";
import { MAX_IDLE_MS } from "../contracts/times.js";
import { chunked } from "../kernel/concurrency.js";
import { SharedRuns } from "../kernel/sharing.js";
import { MINUTE } from "../kernel/time.js";
import type { Fenced } from "../platform/redis/fenced.js";
import { createLease } from "../platform/redis/lease.js";
import type { Scripts } from "../platform/redis/scripts.js";
import { type EncodedPage, encodedPage } from "./page-response.js";

interface Range {
  readonly key: string;
  readonly direction: "older" | "newer";
  /** Exclusive; undefined: from the end. */
  readonly from: TimelineEntry | undefined;
  readonly count: number;
  /** Asks for an encoded page of so many drops where none of them is hidden; those older than `since` (ms) are. */
  readonly page?: { readonly drops: number; readonly since: number } | undefined;
}

export interface Stored {
  /** In ms; undefined: the timeline must be rebuilt. */
  readonly floor: number | undefined;
  /** Those nearest to `from` first, complete down to `floor`. */
  readonly entries: readonly TimelineEntry[];
  /** False: the entries must be compared with the tombstones. */
  readonly areAlive: boolean;
  /** Then there are no entries. */
  readonly page?: EncodedPage;
}

export interface Snapshot {
  readonly entries: readonly TimelineEntry[];
  /** Complete down to this, in ms; 0: from the start. */
  readonly floor: number;
}

export type TimelineStore = ReturnType<typeof createTimelineStore>;

interface Rebuilt {
  readonly mark: number;
  readonly gone: readonly string[];
  readonly snapshot: Snapshot;
}

const DROPS_A_CALL = 5_000;

const STAGED_TTL_MS = MINUTE;

export function createTimelineStore(scripts: Scripts, fenced: Fenced, config: StoredTimelinesConfig) {
  const { run, runBytes, command, isCluster } = scripts;
  const reads = new SharedRuns<Stored>();
  const ttl = (key: string): number => (key === LOCAL_KEY || key === GLOBAL_KEY ? 0 : config.ttlMs);
  return {
    read({ key, direction, from, count, page = { drops: 0, since: 0 } }: Range): Promise<Stored> {
      const position = from ? [from.score, from.drop] : ["", ""];
      const args = [direction, count, ttl(key), MAX_IDLE_MS, ...position, page.drops, page.since];
      return reads.run(JSON.stringify([key, ...args]), async () => {
        const reply = await runBytes("read-page", isCluster ? [key] : [key, TOMBSTONES_KEY], args);
        if (Buffer.isBuffer(reply)) return { floor: 0, entries: [], areAlive: true, page: encodedPage(reply) };
        const [floor, alive, ...held] = (reply as Buffer[]).map(String);
        const ascending = entriesOf(held);
        const nearest = direction === "older" ? ascending.toReversed() : ascending;
        const isComplete = floor !== "" && Number(floor) >= 0;
        return {
          floor: isComplete ? Number(floor) : undefined,
          entries: nearest.slice(0, count),
          areAlive: alive === "1",
        };
      });
    },
    /** From this timeline or from a recent deletion; undefined if neither knows the drop. */
    async createdAt(key: string, drop: string): Promise<number | undefined> {
      const [stored, deleted] = await Promise.all([
        command("zscore", (client) => client.zscore(key, drop)),
        command("get", (client) => client.get(deletedDropKey(drop))),
      ]);
      const score = stored ?? deleted;
      return score == null ? undefined : Number(score);
    },
    /** Marks an incomplete timeline, or any if `afresh`. Returns its drops; undefined if it was not marked. */
    async beginRebuild(key: string, mark: number, afresh = false): Promise<readonly string[] | undefined> {
      const held = (await run("begin-rebuild", [key], [mark, ttl(key), afresh ? "1" : ""])) as string[] | null;
      return held ?? undefined;
    },
    /** Returns false if the mark is gone: the snapshot is outdated. */
    async finishRebuild(key: string, { mark, gone, snapshot }: Rebuilt): Promise<boolean> {
      const keys = [key, stagedKey(key, mark, "add"), stagedKey(key, mark, "remove")] as const;
      const parts = partsOf(gone, snapshot.entries);
      const last = parts.pop() ?? [0];
      let staged = 0;
      for (const part of parts) {
        staged = Number(await fenced.one("stage-rebuild", keys, [mark, STAGED_TTL_MS, ...part]));
        if (staged === 0) return false;
      }
      const rest = [mark, snapshot.floor, config.maxEntries, staged, ...last];
      return (await fenced.one("finish-rebuild", keys, rest)) === 1;
    },
    async remove(key: string, drops: readonly string[]): Promise<void> {
      for (const part of chunked(drops, DROPS_A_CALL)) await command("zrem", (client) => client.zrem(key, ...part));
    },
    rebuildLease: (key: string) => createLease(scripts, rebuildLeaseKey(key)),
    async rebuildLeaseLeft(key: string): Promise<number> {
      return Math.max(0, await command("pttl", (client) => client.pttl(rebuildLeaseKey(key))));
    },
  };
}

/** Arguments of the scripts, in parts: the number of ids to remove, those ids, and entries to add. */
function partsOf(gone: readonly string[], entries: readonly TimelineEntry[]): (string | number)[][] {
  const removals = chunked(gone, DROPS_A_CALL).map((drops) => [drops.length, ...drops]);
  const additions = chunked(entries, DROPS_A_CALL).map((part) => part.flatMap(({ score, drop }) => [score, drop]));
  const isSmall = gone.length + entries.length <= DROPS_A_CALL;
  if (isSmall) return [[gone.length, ...gone, ...additions.flat()]];
  return [...removals, ...additions.map((part) => [0, ...part])];
}

function entriesOf(flat: readonly string[]): TimelineEntry[] {
  const entries: TimelineEntry[] = [];
  for (let at = 0; at < flat.length; at += 2) entries.push({ drop: flat[at] as string, score: Number(flat[at + 1]) });
  return entries;
}
