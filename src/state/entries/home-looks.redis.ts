import { isListReader, listOfReader } from "../../contracts/lists.js";
import type { Byline } from "../../contracts/timelines.js";
import { bylineOf } from "../../contracts/timelines.js";
import { chunked } from "../../kernel/concurrency.js";
import { encodeId } from "../../kernel/ids.js";
import { inOrder, type Script, type Scripts } from "../../platform/redis/scripts.js";
import { bylinesKey, FLOOR_MEMBER, HOME_PREFIX, KEYS_A_CALL, listKey, readerKey } from "../keys.js";
import { script } from "../scripts.redis.js";
import { isDirect } from "./drop-facts.redis.js";
import { createRemovalNotes } from "./removal-notes.redis.js";

const READ_LATELY = script("read-lately", import.meta.url);
const INTERRUPT_REBUILD = script("interrupt-rebuild", import.meta.url);

/** Maximum number of commands about single homes at a time. */
const LOOKS_AT_ONCE = 500;

/** Bounds of a home, in ms since the epoch; undefined if it has none. */
export interface HomeBounds {
  readonly floor: number | undefined;
  /** Creation time of the oldest drop. */
  readonly oldest: number | undefined;
}

interface HomeOptions {
  readonly ttlMs: number;
  readonly activeOnly: boolean;
  /** True: homes leave out replies to those whom their users do not follow. */
  readonly judgesReplies: boolean;
}

/** A user whom the owner of a home follows now, or does not any more. */
interface ChangedFollow {
  readonly following: string;
  readonly follows: boolean;
}

/** Answers what fan-out asks about the homes of many users, and about lists by the names of their readers. */
export function createHomeLooks(scripts: Scripts, { ttlMs, activeOnly, judgesReplies }: HomeOptions) {
  const notes = createRemovalNotes(scripts);
  const unreadAmong = async (users: readonly string[]): Promise<string[]> => {
    const floors = await floorsOf(scripts, users);
    return users.filter((_, index) => floors[index] === undefined);
  };
  return {
    /** Returns the users whose home would show a drop of that time, or was not read yet. */
    async aboveFloorAmong(users: readonly string[], time: number): Promise<string[]> {
      const floors = await floorsOf(scripts, users);
      return users.filter((_, index) => !((floors[index] ?? 0) > 0) || time > (floors[index] as number));
    },
    /** Returns the users who were notified of the drop: their home has it or had it, or was not read yet. */
    async holdersAmong(users: readonly string[], drop: string): Promise<string[]> {
      const had = await eachOf(users, (user) => notes.had(readerKey(user), drop));
      const holders = users.filter((_, index) => had[index]);
      if (holders.length === users.length) return holders;
      // In mode `active` a user whose home was never read was still notified, although nothing was written. So were the
      // streams of a list without a floor: the gateway judges what it tells them.
      const holderSet = new Set(holders);
      const unread = await unreadAmong(
        users.filter((user) => !holderSet.has(user) && (activeOnly || isListReader(user))),
      );
      if (unread.length === 0) return holders;
      return [...holders, ...((await isDirect(scripts, drop)) ? unread.filter(isListReader) : unread)];
    },
    /** Returns the users whose home has the drop now, and the lists that have it or have no floor. */
    async havingAmong(users: readonly string[], drop: string): Promise<string[]> {
      const look = (user: string) => scripts.command("zscore", (client) => client.zscore(readerKey(user), drop));
      const scores = await eachOf(users, look);
      const having = users.filter((_, index) => scores[index] !== null);
      const unread = await unreadAmong(users.filter((user, index) => scores[index] === null && isListReader(user)));
      return unread.length === 0 ? having : [...having, ...unread];
    },
    /** Returns the byline of a drop as one of these lists has it; undefined if none has. */
    async listedByline(readers: readonly string[], drop: string): Promise<Byline | undefined> {
      const keys = readers.map((reader) => bylinesKey(listKey(listOfReader(reader) as string)));
      const texts = await eachOf(keys, (key) => scripts.command("hget", (client) => client.hget(key, drop)));
      const text = texts.find((each) => each !== null);
      return text == null ? undefined : bylineOf(text);
    },
    /**
     * Returns the users who have read their home within a time: only reads give a home a floor, and renew its time to
     * live.
     */
    async recentReadersAmong(users: readonly string[], withinMs: number): Promise<string[]> {
      const recent = await runForHomes<number>(scripts, READ_LATELY, users, { before: [ttlMs - withinMs] });
      return users.filter((_, index) => recent[index] === 1);
    },
    /**
     * Makes rebuilds of these homes that are under way start over, and changes the copies of whom their users follow.
     * Homes whose replies change are not complete any more. Returns the bounds that the homes had.
     */
    async interruptRebuilds(
      users: readonly string[],
      changesOf: (user: string) => readonly ChangedFollow[] = () => [],
    ): Promise<HomeBounds[]> {
      type Bounds = readonly [floor: string, oldest: string];
      const before = [judgesReplies ? 1 : 0];
      const after = (user: string): string =>
        changesOf(user)
          .map(({ following, follows }) => (follows ? "1" : "0") + encodeId(following))
          .join(",");
      const replies = await runForHomes<Bounds>(scripts, INTERRUPT_REBUILD, users, { before, after });
      const timeOf = (text: string) => (text === "" ? undefined : Number(text));
      return replies.map(([floor, oldest]) => ({ floor: timeOf(floor), oldest: timeOf(oldest) }));
    },
  };
}

interface HomeArguments {
  readonly before: readonly (string | number)[];
  /** Argument about one home, after the names of all. */
  readonly after?: (user: string) => string;
}

/** Runs a script for homes. The replies are in the order of the users. */
export async function runForHomes<T>(
  { run, byNode }: Scripts,
  called: Script,
  users: readonly string[],
  { before, after }: HomeArguments,
): Promise<T[]> {
  const tokens = users.map(encodeId);
  const keys = tokens.map((token) => HOME_PREFIX + token);
  const answers = await byNode(keys, KEYS_A_CALL, async (route, indexes) => {
    const packed = indexes.map((index) => tokens[index]).join(",");
    const abouts = after ? indexes.map((index) => after(users[index] as string)) : [];
    return (await run(called, route, [...before, HOME_PREFIX, packed, ...abouts])) as T[];
  });
  return inOrder(answers);
}

export async function eachOf<T>(users: readonly string[], look: (user: string) => Promise<T>): Promise<T[]> {
  const results: T[] = [];
  for (const chunk of chunked(users, LOOKS_AT_ONCE)) results.push(...(await Promise.all(chunk.map(look))));
  return results;
}

/** Returns floors in ms since the epoch; undefined for a home that has none. */
async function floorsOf({ command }: Scripts, users: readonly string[]): Promise<(number | undefined)[]> {
  const look = (user: string) => command("zscore", (client) => client.zscore(readerKey(user), FLOOR_MEMBER));
  return (await eachOf(users, look)).map((score) => (score === null ? undefined : Number(score)));
}
