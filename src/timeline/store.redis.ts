import { buriedKey, GLOBAL_KEY, LOCAL_KEY, rebuildLeaseKey, stagedKey } from "../contracts/keys.js";
import type { TimelineEntry } from "../contracts/timelines.js";
import { MAX_IDLE_MS } from "../contracts/times.js";
import { chunked } from "../kernel/mapped.js";
import { MINUTE } from "../kernel/time.js";
import type { Fenced } from "../platform/redis/fenced.js";
import type { Scripts } from "../platform/redis/scripts.js";
import type { TimelineStore } from "./ports.js";

interface StoreOptions {
  readonly maxEntries: number;
  /** Time to live a read gives a home timeline, in ms. */
  readonly ttlMs: number;
}

/** Drops that one command names at most. */
const DROPS_A_CALL = 5_000;

/** What a rebuild that dies has put aside goes after this time. */
const STAGED_TTL_MS = MINUTE;

/** Reads and rebuilds timelines in Redis. */
export function createTimelineStore(scripts: Scripts, fenced: Fenced, options: StoreOptions): TimelineStore {
  const { run, command } = scripts;
  // Local and global are everybody's: they stay.
  const ttl = (key: string): number => (key === LOCAL_KEY || key === GLOBAL_KEY ? 0 : options.ttlMs);
  return {
    async read({ key, direction, from, count }) {
      const args = [direction, count, ttl(key), MAX_IDLE_MS, from ? from.score : "", from ? from.drop : ""];
      const [floor, ...held] = (await run("read-page", [key], args)) as string[];
      const ascending = entriesOf(held);
      const nearest = direction === "older" ? ascending.toReversed() : ascending;
      return { floor: floor === "" || Number(floor) < 0 ? undefined : Number(floor), entries: nearest.slice(0, count) };
    },
    async createdAt(key, drop) {
      const [held, buried] = await Promise.all([
        command("zscore", (client) => client.zscore(key, drop)),
        command("get", (client) => client.get(buriedKey(drop))),
      ]);
      const score = held ?? buried;
      return score == null ? undefined : Number(score);
    },
    async beginRebuild(key, mark, afresh = false) {
      const held = (await run("begin-rebuild", [key], [mark, ttl(key), afresh ? "1" : ""])) as string[] | null;
      return held ?? undefined;
    },
    async finishRebuild(key, { mark, gone, snapshot }) {
      const keys = [key, stagedKey(key, mark, "add"), stagedKey(key, mark, "remove")] as const;
      const parts = partsOf(gone, snapshot.entries);
      const last = parts.pop() ?? [0];
      let staged = 0;
      for (const part of parts) {
        staged = Number(await fenced.one("stage-rebuild", keys, [mark, STAGED_TTL_MS, ...part]));
        if (staged === 0) return false;
      }
      const rest = [mark, snapshot.floor, options.maxEntries, staged, ...last];
      return (await fenced.one("finish-rebuild", keys, rest)) === 1;
    },
    async remove(key, drops) {
      for (const part of chunked(drops, DROPS_A_CALL)) await command("zrem", (client) => client.zrem(key, ...part));
    },
    async lease(key, owner, ttlMs) {
      return (await run("hold-lease", [rebuildLeaseKey(key)], [owner, ttlMs])) === 1;
    },
    async leaseLeft(key) {
      return Math.max(0, await command("pttl", (client) => client.pttl(rebuildLeaseKey(key))));
    },
    async release(key, owner) {
      await run("release-lease", [rebuildLeaseKey(key)], [owner]).catch(() => undefined);
    },
  };
}

/** What a rebuild writes, in parts as its scripts take them: how many ids are to go, those, and entries to be added. */
function partsOf(gone: readonly string[], entries: readonly TimelineEntry[]): (string | number)[][] {
  const removals = chunked(gone, DROPS_A_CALL).map((drops) => [drops.length, ...drops]);
  const additions = chunked(entries, DROPS_A_CALL).map((part) => part.flatMap(({ score, drop }) => [score, drop]));
  const small = gone.length + entries.length <= DROPS_A_CALL;
  if (small) return [[gone.length, ...gone, ...additions.flat()]];
  return [...removals, ...additions.map((part) => [0, ...part])];
}

function entriesOf(flat: readonly string[]): TimelineEntry[] {
  const entries: TimelineEntry[] = [];
  for (let at = 0; at < flat.length; at += 2) entries.push({ drop: flat[at] as string, score: Number(flat[at + 1]) });
  return entries;
}
