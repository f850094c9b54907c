import { listOfReader, listReader } from "../../contracts/lists.js";
import { NOTIFY_WINDOW_MS } from "../../contracts/times.js";
import { allOf, chunked, mapLimited, paced } from "../../kernel/concurrency.js";
import { AppError, codeOf } from "../../kernel/errors.js";
import { decodeId, encodeId } from "../../kernel/ids.js";
import { createBatch } from "../../kernel/sharing.js";
import { SECOND } from "../../kernel/time.js";
import type { RedisClock } from "../../platform/redis/clock.js";
import type { Scripts } from "../../platform/redis/scripts.js";
import type { Fences } from "../fences/types.js";
import { PULLS_PREFIX, pullsToken } from "../keys.js";
import { script } from "../scripts.redis.js";
import { allRecentKeys, listedSince } from "./listed.redis.js";

const COUNT_LISTENERS = script("count-listeners", import.meta.url);
const FIND_PULLING = script("find-pulling", import.meta.url);

/**
 * Listeners have a stream open, or closed one less than the window of NOTIFY ago. The gateway's index lists them, and the
 * readers of lists that have such streams.
 */
export interface Listeners {
  /** Returns an upper bound of the number of listeners. */
  count(): Promise<number>;
  /** Yields all users who listen, and the readers of lists with the author, up to 1,000 at a time; one may come twice. */
  pages(author: string): AsyncIterable<readonly string[]>;
  /**
   * Visits the listeners who pull an author, and the readers of lists with the author, up to 1,000 at a time; one may be
   * visited twice. Those whose pulled authors are not known come last, once they are. Resolves once every visit has.
   *
   * @throws AppError `unavailable`; then some may have been visited
   */
  visit(author: string, visit: Visit): Promise<void>;
}

type Visit = (users: readonly string[]) => Promise<void>;

interface ListenersDeps {
  readonly scripts: Scripts;
  readonly clock: RedisClock;
  readonly unfollowedAmong: Fences["unfollowedAmong"];
  /** Resolves once the user's pulled authors are known. */
  readonly fillPulls: (user: string) => Promise<void>;
  /** Reads the ids of the lists with a member. */
  readonly findLists: (member: string) => Promise<readonly string[]>;
}

interface AuthorVisit {
  readonly author: string;
  readonly visit: Visit;
}

const USERS_A_PAGE = 1_000;
const KEYS_AT_ONCE = 32;
const PAGES_AT_ONCE = 4;
/** Maximum number of users in a call, which blocks Redis. */
const USERS_A_CALL = 250;
const AUTHORS_A_WALK = 16;
/** Time after which the next scan begins: users whose pulled authors are not known may take longer than all others. */
const LATE_MS = SECOND;
const FILLS_AT_ONCE = 32;

/** Opens the visits. Authors asked for at the same time share a scan of the index. */
export function createListeners(deps: ListenersDeps): Listeners {
  const { scripts } = deps;
  const walk = createBatch<AuthorVisit>(AUTHORS_A_WALK, (visits) => walkListeners(deps, visits), LATE_MS);
  return {
    count: () => countListeners(scripts),
    pages: (author) => pagesFor(deps, author),
    visit: (author, visit) => walk({ author, visit }),
  };
}

async function countListeners({ run, byNode, isCluster }: Scripts): Promise<number> {
  const keys = allRecentKeys(isCluster);
  const answers = await byNode(keys, keys.length, async (route, indexes) => {
    return (await run(
      COUNT_LISTENERS,
      route,
      indexes.map((index) => keys[index] as string),
    )) as number;
  });
  return answers.reduce((sum, { reply }) => sum + reply, 0);
}

async function walkListeners(deps: ListenersDeps, visits: readonly AuthorVisit[]): Promise<void> {
  const unknown: string[] = [];
  const readers = new Set<string>();
  await paced(listenerPages(deps), { atOnce: PAGES_AT_ONCE }, async (listeners) => {
    unknown.push(...(await visitFollowers(deps, usersAmong(listeners, readers), visits)));
  });
  await mapLimited(visits, PAGES_AT_ONCE, (visit) => visitReaders(deps, readers, visit));
  for (const users of chunked(unknown, USERS_A_PAGE)) {
    const isKnown = await mapLimited(users, FILLS_AT_ONCE, (user) => fill(deps, user));
    const known = users.filter((_, index) => isKnown[index]);
    if ((await visitFollowers(deps, known, visits)).length > 0)
      throw new AppError("unavailable", "the pulled authors of a listener changed while they were read");
  }
}

async function* pagesFor(deps: ListenersDeps, author: string): AsyncGenerator<readonly string[]> {
  const readers = new Set<string>();
  for await (const listeners of listenerPages(deps)) yield usersAmong(listeners, readers);
  yield* readersWith(deps, readers, author);
}

/** Returns the users among listeners, and adds the readers of lists to `readers`. */
function usersAmong(listeners: readonly string[], readers: Set<string>): readonly string[] {
  const users = listeners.filter((listener) => listOfReader(listener) === undefined);
  if (users.length < listeners.length)
    for (const listener of listeners) if (listOfReader(listener) !== undefined) readers.add(listener);
  return users;
}

async function visitReaders(
  deps: ListenersDeps,
  listening: ReadonlySet<string>,
  { author, visit }: AuthorVisit,
): Promise<void> {
  for await (const part of readersWith(deps, listening, author)) await visit(part);
}

/** Yields the readers of the lists with the author. The users service is asked only while one of any list listens. */
async function* readersWith(
  { findLists }: ListenersDeps,
  listening: ReadonlySet<string>,
  author: string,
): AsyncGenerator<readonly string[]> {
  if (listening.size === 0) return;
  yield* chunked(
    (await findLists(author)).map(listReader).filter((reader) => listening.has(reader)),
    USERS_A_PAGE,
  );
}

/** Resolves to false if the followings of a listener cannot be read: that does not fail the others. */
async function fill({ fillPulls }: ListenersDeps, user: string): Promise<boolean> {
  try {
    await fillPulls(user);
    return true;
  } catch (error) {
    if (codeOf(error) === "unavailable") throw error;
    return false;
  }
}

/** Yields up to 1,000 listeners at a time, some of them twice. */
async function* listenerPages({ scripts, clock }: ListenersDeps): AsyncGenerator<readonly string[]> {
  const since = await listedSince(clock);
  for (const keys of chunked(allRecentKeys(scripts.isCluster), KEYS_AT_ONCE)) {
    let open = keys.map((key) => pagesOf(scripts, key, since));
    while (open.length > 0) {
      const read = await allOf(open.map(async (pages) => ({ pages, next: await pages.next() })));
      const more = read.flatMap(({ pages, next }) => (next.done ? [] : [{ pages, users: next.value }]));
      yield* chunked(
        more.flatMap(({ users }) => users),
        USERS_A_PAGE,
      );
      open = more.map(({ pages }) => pages);
    }
  }
}

/**
 * Yields listeners of a sorted set in the order of the times they were last seen. A listener who is seen again
 * meanwhile moves to pages still to be read: none is missed.
 */
async function* pagesOf({ command }: Scripts, key: string, since: number): AsyncGenerator<readonly string[]> {
  const until = String(since + 2 * NOTIFY_WINDOW_MS);
  let from = `(${since}`;
  let before: ReadonlySet<string> = new Set();
  for (let size = USERS_A_PAGE; ; ) {
    const flat = await command("zrange", (client) =>
      client.zrange(key, from, until, "BYSCORE", "LIMIT", 0, size, "WITHSCORES"),
    );
    const tokens = flat.filter((_, index) => index % 2 === 0);
    yield tokens.filter((token) => !before.has(token)).map(decodeId);
    if (tokens.length < size) return;
    const last = flat.at(-1) as string;
    // More users may have been seen in one ms than a page has.
    size = last === from ? 2 * size : USERS_A_PAGE;
    from = last;
    before = new Set(tokens);
  }
}

/** Visits the users who follow the authors. Returns the users whose pulled authors are not known. */
async function visitFollowers(
  { scripts, unfollowedAmong }: ListenersDeps,
  users: readonly string[],
  visits: readonly AuthorVisit[],
): Promise<readonly string[]> {
  if (users.length === 0) return [];
  const authors = visits.map(({ author }) => author);
  const { unknown, pulling } = await findPulling(scripts, users, authors);
  const visitOne = async ({ author, visit }: AuthorVisit, index: number): Promise<void> => {
    const users = pulling[index] ?? [];
    const gone = new Set(await unfollowedAmong(author, users));
    const following = users.filter((user) => !gone.has(user));
    if (following.length > 0) await visit(following);
  };
  await Promise.all(visits.map(visitOne));
  return unknown;
}

/** Returns for each author those of the users who pull them, and the users whose pulled authors are not known. */
async function findPulling({ run, byNode }: Scripts, users: readonly string[], authors: readonly string[]) {
  const names = authors.map(encodeId);
  const tokens = users.map(pullsToken);
  const keys = tokens.map((token) => PULLS_PREFIX + token);
  const answers = await byNode(keys, USERS_A_CALL, async (route, indexes) => {
    const packed = indexes.map((index) => tokens[index]).join(",");
    return (await run(FIND_PULLING, route, [PULLS_PREFIX, packed, ...names])) as number[][];
  });
  const usersAt = (list: number): string[] =>
    answers.flatMap(({ indexes, reply }) =>
      (reply[list] ?? []).map((position) => users[indexes[position] as number] as string),
    );
  return { unknown: usersAt(0), pulling: authors.map((_, index) => usersAt(index + 1)) };
}
