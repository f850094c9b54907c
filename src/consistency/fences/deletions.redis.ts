import {
  actorKey,
  DELETED_PREFIX,
  DELETIONS_CHANNEL,
  EDGES_PREFIX,
  edgePart,
  edgesKey,
  homeKey,
  TOMBSTONES_KEY,
} from "../../contracts/keys.js";
import { mapLimited } from "../../kernel/concurrency.js";
import { encodeId, FLOOR_MEMBER } from "../../kernel/ids.js";
import { type Script, type Scripts, script } from "../../platform/redis/scripts.js";
import type { Deletion } from "../../records/fences.js";
import { createRemovalNotes } from "../../records/removal-notes.redis.js";
import { callsFor } from "./parts.js";

const RECORD_TOMBSTONES = script("record-tombstones", import.meta.url);
const RECORD_DELETED = script("record-deleted", import.meta.url);
const READ_DELETED = script("read-deleted", import.meta.url);

/** Reading a home costs less than looking there for each of more deleted drops. */
const MANY_DELETED = 1_000;
/** Other work waits for so many calls at most, and so many homes are in memory. */
const CALLS_AT_ONCE = 4;
const HOMES_AT_ONCE = 16;

type Authors = ReadonlyMap<string, string | undefined>;

interface Complete {
  /** This is false where something was lost, which must be refilled. */
  readonly complete: boolean;
}

type TombstonedAmong = (drops: readonly string[]) => Promise<Complete & { readonly tombstoned: ReadonlySet<string> }>;

interface AuthorFollowers {
  readonly author: string;
  readonly users: readonly string[];
}

/** The tombstones, and the deleted drops of each author, for which the part of the author's edges speaks. */
export function createDeletions(scripts: Scripts, tombstonedAmong: TombstonedAmong, rememberMs: number) {
  const { remove } = createRemovalNotes(scripts);
  const removeTombstoned = async (user: string): Promise<boolean> => {
    const held = await scripts.command("zrange", (client) => client.zrange(homeKey(user), "0", "-1"));
    const { tombstoned, complete } = await tombstonedAmong(held.filter((member) => member !== FLOOR_MEMBER));
    await remove(homeKey(user), [...tombstoned]);
    return complete || held.length === 0;
  };
  const removeFrom = async (users: readonly string[], drops: readonly string[]): Promise<boolean> => {
    if (drops.length === 0) return true;
    if (drops.length >= MANY_DELETED)
      return !(await mapLimited(users, HOMES_AT_ONCE, removeTombstoned)).includes(false);
    await mapLimited(users, HOMES_AT_ONCE, (user) => remove(homeKey(user), drops));
    return true;
  };
  const removeOf = async (all: readonly AuthorFollowers[]): Promise<boolean> => {
    for (let open = all; open.length > 0; ) {
      const authors = open.map(({ author }) => author);
      const before = [rememberMs, MANY_DELETED];
      const read = (await run(scripts, READ_DELETED, { authors, before })) as (string[] | null)[];
      for (const [at, drops] of read.entries())
        if (drops === null || !(await removeFrom((open[at] as AuthorFollowers).users, drops))) return false;
      open = open.slice(read.length);
    }
    return true;
  };
  return {
    recordTombstones: createRecord(scripts, rememberMs),
    /** Removes drops from the homes of the followers of each author. */
    async removeDeleted(followers: ReadonlyMap<string, readonly string[]>): Promise<Complete> {
      const all = [...followers].map(([author, users]) => ({ author, users }));
      const calls = callsFor(all, ({ author }) => author, scripts.isCluster);
      const done = await mapLimited(calls, CALLS_AT_ONCE, removeOf);
      return { complete: done.every(Boolean) };
    },
  };
}

function createRecord(scripts: Scripts, rememberMs: number) {
  const { command, isCluster } = scripts;
  const setTombstones = async (deletions: readonly Deletion[]): Promise<boolean> => {
    const entries = deletions.flatMap(({ drop, time }) => [time, drop]);
    const args = [rememberMs, isCluster ? "" : DELETIONS_CHANNEL, ...entries];
    return (await scripts.run(RECORD_TOMBSTONES, [TOMBSTONES_KEY], args)) === 1;
  };
  const recordUnder = async (authors: Authors, deletions: readonly Deletion[]): Promise<void> => {
    const known = deletions.flatMap(({ drop, time }) => {
      const author = authors.get(drop);
      return author === undefined ? [] : { author, of: [drop, time] };
    });
    const calls = callsFor(known, ({ author }) => author, isCluster).map((some) =>
      run(scripts, RECORD_DELETED, {
        authors: some.map(({ author }) => author),
        before: [rememberMs],
        of: some.map(({ of }) => of),
      }),
    );
    await Promise.all(calls);
  };
  const actorOf = async ({ drop }: Deletion) =>
    [drop, (await command("get", (client) => client.get(actorKey(drop)))) ?? undefined] as const;
  /** Returns the authors of the deleted drops. The actor of a received drop is remembered before the tombstone is looked for. */
  return async (deletions: readonly Deletion[]): Promise<Complete & { readonly authors: Authors }> => {
    const named = new Map(
      deletions.flatMap(({ drop, author }) => (author === undefined ? [] : [[drop, author] as const])),
    );
    const [complete] = await Promise.all([setTombstones(deletions), recordUnder(named, deletions)]);
    const unnamed = deletions.filter(({ drop }) => !named.has(drop));
    const actors = new Map(await Promise.all(unnamed.map(actorOf)));
    await recordUnder(actors, unnamed);
    return { complete, authors: new Map([...named, ...actors]) };
  };
}

interface ScriptCall {
  readonly authors: readonly string[];
  readonly before: readonly number[];
  /** Each author may have further arguments. */
  readonly of?: readonly (readonly (string | number)[])[];
}

function run(scripts: Scripts, lua: Script, { authors, before, of = [] }: ScriptCall) {
  const keys = scripts.isCluster ? authors.slice(0, 1).map(edgesKey) : [];
  const args = authors.flatMap((author, at) => [edgePart(author), encodeId(author), ...(of[at] ?? [])]);
  return scripts.run(lua, keys, [EDGES_PREFIX, DELETED_PREFIX, ...before, ...args]);
}
