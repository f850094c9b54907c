import {
  ALL_EDGE_PARTS,
  EDGES_PREFIX,
  edgeField,
  edgePart,
  edgesKey,
  generationKey,
  packKeys,
  REFILL_LEASE_KEY,
  TOMBSTONES_KEY,
  UNFOLLOWERS_PREFIX,
  unfollowersKey,
} from "../../contracts/keys.js";
import { LOG_AGE_MS } from "../../contracts/times.js";
import { chunked } from "../../kernel/concurrency.js";
import { decodeId, encodeId, FLOOR_MEMBER } from "../../kernel/ids.js";
import { HOUR, sharedNow } from "../../kernel/time.js";
import { createLease } from "../../platform/redis/lease.js";
import { type Scripts, script } from "../../platform/redis/scripts.js";
import type { Fenced } from "../../records/fenced.redis.js";
import type { Deletion, EdgeChange, EdgeState } from "../../records/fences.js";
import { createDeletions } from "./deletions.redis.js";
import { callsFor } from "./parts.js";

const BEGIN_REFILL = script("begin-refill", import.meta.url);
const FINISH_REFILL = script("finish-refill", import.meta.url);
const MARK_EDGES = script("mark-edges", import.meta.url);
const CHANGE_EDGES = script("change-edges", import.meta.url);
const READ_RECENT_UNFOLLOWERS = script("read-recent-unfollowers", import.meta.url);

/** Fences live longer than the log keeps events. */
const REMEMBER_MS = LOG_AGE_MS + 12 * HOUR;
const UNFOLLOWERS_A_PAGE = 1_000;
const DROPS_A_CALL = 5_000;
const PARTS = packKeys(ALL_EDGE_PARTS);

interface Tombstoned {
  readonly tombstoned: ReadonlySet<string>;
  readonly complete: boolean;
}

export interface RefillBatch {
  readonly deletions: readonly Deletion[];
  readonly edges: readonly EdgeChange[];
}

export type FenceStore = ReturnType<typeof createFenceStore>;

/** Each key holds a floor that is lost with it: then `complete` is false, and an answer undefined. */
export function createFenceStore(scripts: Scripts, fenced: Fenced) {
  const { run, command, isCluster } = scripts;
  const tombstonedAmong = async (drops: readonly string[]): Promise<Tombstoned> => {
    const tombstoned = new Set<string>();
    let complete = true;
    for (const part of chunked(drops, DROPS_A_CALL)) {
      const [floor, ...scores] = await command("zmscore", (client) =>
        client.zmscore(TOMBSTONES_KEY, FLOOR_MEMBER, ...part),
      );
      for (const [index, drop] of part.entries()) if (scores[index] != null) tombstoned.add(drop);
      complete &&= stands(floor);
    }
    return { tombstoned, complete };
  };
  const deletions = createDeletions(scripts, tombstonedAmong, REMEMBER_MS);
  // A call in a cluster is for one slot.
  const read = (keys: readonly string[]): Promise<(string | null)[]> =>
    isCluster
      ? Promise.all(keys.map((key) => command("get", (client) => client.get(key))))
      : command("mget", (client) => client.mget(...keys));
  const markEdges = (step: "begin" | "finish", mark: number): Promise<number> =>
    fenced.many({ script: MARK_EDGES, prefix: EDGES_PREFIX, keys: PARTS, before: [step, mark] });
  return {
    tombstonedAmong,
    ...deletions,
    ...edgesIn(scripts),
    async generations(authors: readonly string[], nameNew: () => string): Promise<Map<string, string>> {
      const held = authors.length === 0 ? [] : await read(authors.map(generationKey));
      const names = new Map<string, string>();
      const unnamed = authors.filter((author, at) => {
        const name = held[at];
        if (name) names.set(author, name);
        return !name;
      });
      await Promise.all(
        unnamed.map(async (author) => {
          const key = generationKey(author);
          const name = nameNew();
          await command("set", (client) => client.set(key, name, "PX", REMEMBER_MS, "NX"));
          names.set(author, (await command("get", (client) => client.get(key))) ?? name);
        }),
      );
      return names;
    },
    async setGenerations(names: readonly (readonly [author: string, name: string])[]): Promise<void> {
      const set = ([author, name]: readonly [string, string]) =>
        command("set", (client) => client.set(generationKey(author), name, "PX", REMEMBER_MS));
      await Promise.all(names.map(set));
    },
    /** Sets a negative floor in each lost key; returns how many there are. */
    async beginRefill(mark: number): Promise<number> {
      return Number(await run(BEGIN_REFILL, [TOMBSTONES_KEY], [mark])) + (await markEdges("begin", mark));
    },
    async refill({ deletions: deleted, edges }: RefillBatch): Promise<void> {
      await Promise.all([
        deleted.length > 0 ? deletions.recordTombstones(deleted) : undefined,
        ...callsFor(edges, authorOf, scripts.isCluster).map((some) => changeEdges(scripts, some, "refill")),
      ]);
    },
    /** Declares the keys complete that still have the mark; returns how many: fewer if some were lost again. */
    async finishRefill(mark: number): Promise<number> {
      const edges = await markEdges("finish", mark);
      return edges + Number(await fenced.one(FINISH_REFILL, [TOMBSTONES_KEY], [mark, sharedNow() - REMEMBER_MS]));
    },
    lease: createLease(scripts, REFILL_LEASE_KEY),
  };
}

const stands = (floor: string | null | undefined): boolean => floor != null && Number(floor) >= 0;

function edgesIn(scripts: Scripts) {
  return {
    async changeEdges(
      changes: readonly EdgeChange[],
      how: "record" | "look" | "replace" = "record",
    ): Promise<readonly EdgeState[] | undefined> {
      const states = new Map<EdgeChange, EdgeState>();
      const recorded = callsFor(changes, authorOf, scripts.isCluster).map(async (some) => {
        const held = await changeEdges(scripts, some, how);
        for (const [at, change] of some.entries())
          if (held[2 * at]) states.set(change, { version: Number(held[2 * at]), follows: held[2 * at + 1] === "1" });
      });
      await Promise.all(recorded);
      const all = changes.flatMap((change) => states.get(change) ?? []);
      return all.length === changes.length ? all : undefined;
    },
    async unfollowedAmong(author: string, users: readonly string[]): Promise<string[] | undefined> {
      const start = edgeField(author);
      const fields = users.map((user) => start + encodeId(user));
      const [floor, ...held] = await scripts.command("hmget", (client) =>
        client.hmget(edgesKey(author), FLOOR_MEMBER, ...fields),
      );
      return stands(floor) ? users.filter((_, index) => held[index]?.split(":")[1] === "0") : undefined;
    },
    /**
     * Reads one page of those recorded at `from` or later. The next page begins at `next`, which is undefined after the
     * last one.
     */
    async recentUnfollowers(
      author: string,
      from: number,
    ): Promise<{ users: string[]; next: number | undefined } | undefined> {
      // Scores are unique, and a user who is recorded again moves towards the pages still to be read: none is missed.
      const [complete, ...held] = (await scripts.run(
        READ_RECENT_UNFOLLOWERS,
        [edgesKey(author), unfollowersKey(author)],
        [edgeField(author), REMEMBER_MS, from, UNFOLLOWERS_A_PAGE],
      )) as string[];
      if (complete !== "1") return undefined;
      const users = held.filter((_, index) => index % 2 === 0);
      return {
        users: users.map(decodeId),
        next: users.length < UNFOLLOWERS_A_PAGE ? undefined : Number(held.at(-1)) + 1,
      };
    },
  };
}

const authorOf = ({ following }: EdgeChange): string => following;

async function changeEdges(
  { run, isCluster }: Scripts,
  edges: readonly EdgeChange[],
  how: "record" | "refill" | "look" | "replace",
): Promise<string[]> {
  const keys = isCluster ? edges.slice(0, 1).map(({ following }) => edgesKey(following)) : [];
  const args = edges.flatMap(({ follower, following, version, follows }) => [
    ...[edgePart(following), encodeId(following), encodeId(follower), version, follows ? "1" : "0"],
  ]);
  return (await run(CHANGE_EDGES, keys, [
    ...[EDGES_PREFIX, UNFOLLOWERS_PREFIX, REMEMBER_MS, how],
    ...args,
  ])) as string[];
}
