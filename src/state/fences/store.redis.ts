import { LOG_AGE_MS } from "../../contracts/times.js";
import { type Version, versionOf } from "../../contracts/versions.js";
import { chunked } from "../../kernel/concurrency.js";
import { decodeId, encodeId } from "../../kernel/ids.js";
import { HOUR, sharedNow } from "../../kernel/time.js";
import { createLease } from "../../platform/redis/lease.js";
import { inOrder, type Scripts } from "../../platform/redis/scripts.js";
import type { Fenced } from "../fenced.redis.js";
import {
  ALL_EDGE_PARTS,
  EDGES_PREFIX,
  edgeField,
  edgesKey,
  FLOOR_MEMBER,
  generationKey,
  REFILL_LEASE_KEY,
  TOMBSTONES_KEY,
  UNFOLLOWERS_PREFIX,
  unfollowersKey,
} from "../keys.js";
import { script } from "../scripts.redis.js";
import { createDeletions } from "./deletions.redis.js";
import { runForAuthors } from "./parts.redis.js";
import { type Deletion, type EdgeChange, type EdgeState, nameGeneration } from "./types.js";

const MARK_TOMBSTONES = script("mark-tombstones", import.meta.url);
const MARK_EDGES = script("mark-edges", import.meta.url);
const CHANGE_EDGES = script("change-edges", import.meta.url);
const READ_RECENT_UNFOLLOWERS = script("read-recent-unfollowers", import.meta.url);

/** Lifetime of fences: longer than that of events in the log. */
const REMEMBER_MS = LOG_AGE_MS + 12 * HOUR;
const UNFOLLOWERS_A_PAGE = 1_000;
const DROPS_A_CALL = 5_000;

export interface RefillBatch {
  readonly deletions: readonly Deletion[];
  readonly edges: readonly EdgeChange[];
}

export type FenceStore = ReturnType<typeof createFenceStore>;

/** Opens the fences in Redis. Each key holds a floor that is lost with it: then an answer is undefined. */
export function createFenceStore(scripts: Scripts, fenced: Fenced) {
  const tombstonedAmong = async (drops: readonly string[]): Promise<ReadonlySet<string> | undefined> => {
    const tombstoned = new Set<string>();
    for (const part of chunked(drops, DROPS_A_CALL)) {
      const [floor, ...scores] = await scripts.command("zmscore", (client) =>
        client.zmscore(TOMBSTONES_KEY, FLOOR_MEMBER, ...part),
      );
      if (!stands(floor)) return undefined;
      for (const [index, drop] of part.entries()) if (scores[index] != null) tombstoned.add(drop);
    }
    return tombstoned;
  };
  const deletions = createDeletions(scripts, tombstonedAmong, REMEMBER_MS);
  return {
    /** Number of keys that `mark` reads. */
    keys: ALL_EDGE_PARTS.length + 1,
    tombstonedAmong,
    ...deletions,
    ...generationsIn(scripts),
    ...edgesIn(scripts),
    /**
     * Marks the keys: `begin` gives each lost key the mark as its floor, `finish` declares the keys complete that still
     * have it. Returns the number of these keys: fewer if some were lost again.
     */
    async mark(step: "begin" | "finish", mark: number): Promise<number> {
      const edges = await fenced.many({
        script: MARK_EDGES,
        prefix: EDGES_PREFIX,
        tokens: ALL_EDGE_PARTS,
        before: [step, mark],
      });
      const args = [step, mark, sharedNow() - REMEMBER_MS];
      return edges + Number(await fenced.one(MARK_TOMBSTONES, [TOMBSTONES_KEY], args));
    },
    async refill({ deletions: deleted, edges }: RefillBatch): Promise<void> {
      await Promise.all([
        deleted.length > 0 ? deletions.recordTombstones(deleted) : undefined,
        changeEdges(scripts, edges, "refill"),
      ]);
    },
    lease: createLease(scripts, REFILL_LEASE_KEY),
  };
}

const stands = (floor: string | null | undefined): boolean => floor != null && Number(floor) >= 0;

function generationsIn({ command, isCluster }: Scripts) {
  // A call in a cluster is for one slot.
  const read = (keys: readonly string[]): Promise<(string | null)[]> =>
    isCluster
      ? Promise.all(keys.map((key) => command("get", (client) => client.get(key))))
      : command("mget", (client) => client.mget(...keys));
  return {
    async generations(authors: readonly string[]): Promise<Map<string, string>> {
      const names = authors.length === 0 ? [] : await read(authors.map(generationKey));
      const named = authors.map(async (author, index) => {
        if (names[index]) return [author, names[index]] as const;
        const [key, name] = [generationKey(author), nameGeneration()];
        await command("set", (client) => client.set(key, name, "PX", REMEMBER_MS, "NX"));
        return [author, (await command("get", (client) => client.get(key))) ?? name] as const;
      });
      return new Map(await Promise.all(named));
    },
    async renewGenerations(authors: readonly string[]): Promise<void> {
      const renew = (author: string) =>
        command("set", (client) => client.set(generationKey(author), nameGeneration(), "PX", REMEMBER_MS));
      await Promise.all(authors.map(renew));
    },
  };
}

/** Parses a version. An entry of an older process may have digits that it rounded. */
const exact = (digits: string): Version => versionOf(digits) ?? Number(digits);

/**
 * Field of an edge. Tokens hold no "~": other fields of a part say when an author's unfollowers and deletions were
 * recorded.
 */
const FIELD = /^([^:~]+):([^:~]+)$/;
const VALUE = /^(\d+):([01])/;

function edgesIn(scripts: Scripts) {
  const { command, run } = scripts;
  return {
    async changeEdges(
      changes: readonly EdgeChange[],
      how: "record" | "look" | "replace" = "record",
    ): Promise<readonly EdgeState[] | undefined> {
      const replies = await changeEdges(scripts, changes, how);
      const states = replies.map(([version, state]) => ({ version: exact(version), follows: state === "1" }));
      return replies.some(([version]) => version === "") ? undefined : states;
    },
    /** Yields the newest versions of all edges, including changes that the log may have lost. */
    async *allEdges(): AsyncGenerator<EdgeChange> {
      for (const part of ALL_EDGE_PARTS) {
        const hash = await command("hgetall", (client) => client.hgetall(EDGES_PREFIX + part));
        for (const [field, value] of Object.entries(hash)) {
          const [, author, user] = FIELD.exec(field) ?? [];
          const [, version, state] = VALUE.exec(value) ?? [];
          if (author === undefined || user === undefined || version === undefined) continue;
          const [follower, following] = [decodeId(user), decodeId(author)];
          yield { follower, following, version: exact(version), follows: state === "1" };
        }
      }
    },
    async unfollowedAmong(author: string, users: readonly string[]): Promise<string[] | undefined> {
      const start = edgeField(author);
      const fields = users.map((user) => start + encodeId(user));
      const [floor, ...values] = await command("hmget", (client) =>
        client.hmget(edgesKey(author), FLOOR_MEMBER, ...fields),
      );
      return stands(floor) ? users.filter((_, index) => values[index]?.split(":")[1] === "0") : undefined;
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
      const [complete, ...flat] = (await run(
        READ_RECENT_UNFOLLOWERS,
        [edgesKey(author), unfollowersKey(author)],
        [edgeField(author), REMEMBER_MS, from, UNFOLLOWERS_A_PAGE],
      )) as string[];
      if (complete !== "1") return undefined;
      const users = flat.filter((_, index) => index % 2 === 0);
      const next = users.length < UNFOLLOWERS_A_PAGE ? undefined : Number(flat.at(-1)) + 1;
      return { users: users.map(decodeId), next };
    },
  };
}

/** Returns for each edge the version and the state in force; both are "" if they were lost. */
async function changeEdges(
  scripts: Scripts,
  edges: readonly EdgeChange[],
  how: "record" | "refill" | "look" | "replace",
): Promise<(readonly [version: string, state: string])[]> {
  const authors = edges.map(
    ({ following, follower, version, follows }) =>
      [following, encodeId(follower), version, follows ? "1" : "0"] as const,
  );
  const before = [UNFOLLOWERS_PREFIX, REMEMBER_MS, how];
  return inOrder(await runForAuthors(scripts, { script: CHANGE_EDGES, before, authors }));
}
