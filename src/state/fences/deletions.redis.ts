import { chunked, mapLimited } from "../../kernel/concurrency.js";
import type { Scripts } from "../../platform/redis/scripts.js";
import { createRemovalNotes } from "../entries/removal-notes.redis.js";
import { actorKey, DELETED_PREFIX, DELETIONS_CHANNEL, FLOOR_MEMBER, homeKey, TOMBSTONES_KEY } from "../keys.js";
import { script } from "../scripts.redis.js";
import { runForAuthors } from "./parts.redis.js";
import type { Deletion } from "./types.js";

const RECORD_TOMBSTONES = script("record-tombstones", import.meta.url);
const RECORD_DELETED = script("record-deleted", import.meta.url);
const READ_DELETED = script("read-deleted", import.meta.url);

/** Number of deleted drops above which a home is read whole, which costs less than a look for each drop. */
const MANY_DELETED = 1_000;
/** Maximum number of calls at a time, which other work waits for. */
const CALLS_AT_ONCE = 4;
const AUTHORS_AT_ONCE = 200;
/** Maximum number of homes in memory at a time. */
const HOMES_AT_ONCE = 16;

type AuthorAndUsers = readonly [author: string, users: readonly string[]];
type Authors = ReadonlyMap<string, string | undefined>;

type TombstonedAmong = (drops: readonly string[]) => Promise<ReadonlySet<string> | undefined>;

/**
 * Opens the tombstones, and the deleted drops of each author. The part of the author's edges tells if these are
 * complete.
 */
export function createDeletions(scripts: Scripts, tombstonedAmong: TombstonedAmong, rememberMs: number) {
  const { remove } = createRemovalNotes(scripts);
  /** Removes deleted drops from a home. Resolves to false if the fences were lost. */
  const removeTombstoned = async (user: string): Promise<boolean> => {
    const members = await scripts.command("zrange", (client) => client.zrange(homeKey(user), "0", "-1"));
    const tombstoned = await tombstonedAmong(members.filter((member) => member !== FLOOR_MEMBER));
    if (tombstoned) await remove(homeKey(user), [...tombstoned]);
    return tombstoned !== undefined;
  };
  const removeFrom = async (users: readonly string[], drops: readonly string[]): Promise<boolean> => {
    if (drops.length >= MANY_DELETED)
      return !(await mapLimited(users, HOMES_AT_ONCE, removeTombstoned)).includes(false);
    if (drops.length > 0) await mapLimited(users, HOMES_AT_ONCE, (user) => remove(homeKey(user), drops));
    return true;
  };
  const removeOf = async (all: readonly AuthorAndUsers[]): Promise<boolean> => {
    for (let open = all; open.length > 0; ) {
      const before = [DELETED_PREFIX, rememberMs, MANY_DELETED];
      const authors = open.map(([author]) => [author] as const);
      const read = await runForAuthors<(string[] | null)[]>(scripts, { script: READ_DELETED, before, authors });
      for (const { indexes, reply } of read)
        for (const [position, drops] of reply.entries())
          if (drops === null || !(await removeFrom(open[indexes[position] as number]?.[1] ?? [], drops))) return false;
      // A reply ends early if it has enough drops.
      const remaining = read.flatMap(({ indexes, reply }) => indexes.slice(reply.length));
      open = remaining.map((index) => open[index] as AuthorAndUsers);
    }
    return true;
  };
  return {
    recordTombstones: createRecord(scripts, rememberMs),
    /** Removes drops from the homes of the followers of each author. Resolves to undefined if the fences were lost. */
    async removeDeleted(followers: ReadonlyMap<string, readonly string[]>): Promise<true | undefined> {
      const done = await mapLimited(chunked([...followers], AUTHORS_AT_ONCE), CALLS_AT_ONCE, removeOf);
      return done.includes(false) ? undefined : true;
    },
  };
}

function createRecord(scripts: Scripts, rememberMs: number) {
  const { command } = scripts;
  const setTombstones = async (deletions: readonly Deletion[]): Promise<boolean> => {
    const entries = deletions.flatMap(({ drop, time }) => [time, drop]);
    const args = [rememberMs, DELETIONS_CHANNEL, ...entries];
    return (await scripts.run(RECORD_TOMBSTONES, [TOMBSTONES_KEY], args)) === 1;
  };
  const recordUnder = async (authors: Authors, deletions: readonly Deletion[]): Promise<void> => {
    const known = deletions.flatMap(({ drop, time }) => {
      const author = authors.get(drop);
      return author === undefined ? [] : [[author, drop, time] as const];
    });
    await runForAuthors(scripts, { script: RECORD_DELETED, before: [DELETED_PREFIX, rememberMs], authors: known });
  };
  const actorOf = async ({ drop }: Deletion) =>
    [drop, (await command("get", (client) => client.get(actorKey(drop)))) ?? undefined] as const;
  /**
   * Records deletions. Resolves to the authors of the deleted drops, or to undefined if the tombstones were lost. A
   * publication stores the actor of a received drop before it reads the tombstone.
   */
  return async (deletions: readonly Deletion[]): Promise<Authors | undefined> => {
    const named = new Map(
      deletions.flatMap(({ drop, author }) => (author === undefined ? [] : [[drop, author] as const])),
    );
    const [isComplete] = await Promise.all([setTombstones(deletions), recordUnder(named, deletions)]);
    const unnamed = deletions.filter(({ drop }) => !named.has(drop));
    const actors = new Map(await Promise.all(unnamed.map(actorOf)));
    await recordUnder(actors, unnamed);
    return isComplete ? new Map([...named, ...actors]) : undefined;
  };
}
