import { PULLS_PREFIX, pullsToken, RECENT_KEY } from "../contracts/keys.js";
import { NOTIFY_WINDOW_MS } from "../contracts/times.js";
import { chunked, mapLimited, paced } from "../kernel/concurrency.js";
import { AppError, codeOf } from "../kernel/errors.js";
import { decodeId, encodeId } from "../kernel/ids.js";
import { createBatch } from "../kernel/sharing.js";
import { SECOND } from "../kernel/time.js";
import type { RedisClock } from "../platform/redis/clock.js";
import { type Scripts, script } from "../platform/redis/scripts.js";
import type { Fences } from "../records/fences.js";
import { listedSince } from "../records/listed.redis.js";

const FIND_PULLING = script("find-pulling", import.meta.url);

/** A listener has a stream open, or closed one less than the window of NOTIFY ago. The gateway's index lists them. */
export interface Listeners {
  /** Returns a number that is not below that of the listeners. */
  count(): Promise<number>;
  /**
   * Visits the listeners who pull an author, up to 1,000 at a time; one may be visited twice. Those whose pulled authors
   * are not known come last, once they are. Resolves once every visit has.
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
}

interface AuthorVisit {
  readonly author: string;
  readonly visit: Visit;
}

const USERS_A_LOOK = 1_000;
/** Reading all listeners costs much less than a look for each user, if they are at most this share of the audiences. */
const FEW = 1 / 4;
const USERS_A_PAGE = 1_000;
const PAGES_AT_ONCE = 4;
/** A call of this size blocks Redis. */
const USERS_A_CALL = 250;
const AUTHORS_A_WALK = 16;
/** Users whose pulled authors are not known may take longer than all others: the next walk does not wait for them. */
const LATE_MS = SECOND;
const FILLS_AT_ONCE = 32;

/** Authors asked for together share a walk through the index. */
export function createListeners(deps: ListenersDeps): Listeners {
  const { scripts } = deps;
  const walk = createBatch<AuthorVisit>(AUTHORS_A_WALK, (visits) => walkListeners(deps, visits), LATE_MS);
  return {
    count: () => scripts.command("zcard", (client) => client.zcard(RECENT_KEY)),
    visit: (author, visit) => walk({ author, visit }),
  };
}

async function walkListeners(deps: ListenersDeps, visits: readonly AuthorVisit[]): Promise<void> {
  const unknown: string[] = [];
  await paced(listenerPages(deps), { atOnce: PAGES_AT_ONCE }, async (users) => {
    unknown.push(...(await visitFollowers(deps, users, visits)));
  });
  for (const users of chunked(unknown, USERS_A_PAGE)) {
    const isKnown = await mapLimited(users, FILLS_AT_ONCE, (user) => fill(deps, user));
    const known = users.filter((_, at) => isKnown[at]);
    if ((await visitFollowers(deps, known, visits)).length > 0)
      throw new AppError("unavailable", "the pulled authors of a listener changed while they were read");
  }
}

/** A listener whose followings cannot be read does not fail the others. */
async function fill({ fillPulls }: ListenersDeps, user: string): Promise<boolean> {
  try {
    await fillPulls(user);
    return true;
  } catch (error) {
    if (codeOf(error) === "unavailable") throw error;
    return false;
  }
}

/**
 * Yields listeners in the order of the times they were last seen. One who is seen again meanwhile moves on to pages still
 * to be read: none is missed.
 */
async function* listenerPages({ scripts: { command }, clock }: ListenersDeps): AsyncGenerator<readonly string[]> {
  const since = await listedSince(clock);
  const until = String(since + 2 * NOTIFY_WINDOW_MS);
  let from = `(${since}`;
  let before: ReadonlySet<string> = new Set();
  for (let size = USERS_A_PAGE; ; ) {
    const held = await command("zrange", (client) =>
      client.zrange(RECENT_KEY, from, until, "BYSCORE", "LIMIT", 0, size, "WITHSCORES"),
    );
    const tokens = held.filter((_, at) => at % 2 === 0);
    yield tokens.filter((token) => !before.has(token)).map(decodeId);
    if (tokens.length < size) return;
    const last = held.at(-1) as string;
    // More users may have been seen in one ms than a page has.
    size = last === from ? 2 * size : USERS_A_PAGE;
    from = last;
    before = new Set(tokens);
  }
}

/** Returns the users whose pulled authors are not known. */
async function visitFollowers(
  { scripts, unfollowedAmong }: ListenersDeps,
  users: readonly string[],
  visits: readonly AuthorVisit[],
): Promise<readonly string[]> {
  if (users.length === 0) return [];
  const authors = visits.map(({ author }) => author);
  const { unknown, pulling } = await findPulling(scripts, users, authors);
  const visitOne = async ({ author, visit }: AuthorVisit, at: number): Promise<void> => {
    const some = pulling[at] ?? [];
    const gone = new Set(await unfollowedAmong(author, some));
    const following = some.filter((user) => !gone.has(user));
    if (following.length > 0) await visit(following);
  };
  await Promise.all(visits.map(visitOne));
  return unknown;
}

/** Returns for each author those of the users who pull them, and the users whose pulled authors are not known. */
async function findPulling({ run, isCluster }: Scripts, users: readonly string[], authors: readonly string[]) {
  const tokens = authors.map(encodeId);
  const parts = chunked(users, isCluster ? 1 : USERS_A_CALL);
  const calls = parts.map((part) => {
    const keys = part.map(pullsToken).join(",");
    return run(FIND_PULLING, isCluster ? [PULLS_PREFIX + keys] : [], [PULLS_PREFIX, keys, ...tokens]);
  });
  const replies = (await Promise.all(calls)) as number[][][];
  const usersAt = (list: number): string[] =>
    parts.flatMap((part, call) => (replies[call]?.[list] ?? []).map((place) => part[place] as string));
  return { unknown: usersAt(0), pulling: authors.map((_, at) => usersAt(at + 1)) };
}

export type IsListening = (user: string) => boolean;

/** Finds the listeners among users; resolves to undefined if nobody listens. */
export type ListenersAmong = (audiences: readonly (readonly string[])[]) => Promise<IsListening | undefined>;

export function createListenersAmong({ command }: Scripts, clock: RedisClock): ListenersAmong {
  return async function listenersAmong(audiences) {
    const since = await listedSince(clock);
    const users = audiences.reduce((sum, { length }) => sum + length, 0);
    const most = Math.min(USERS_A_LOOK, Math.ceil(users * FEW));
    const few = await command("zrange", (client) =>
      client.zrange(RECENT_KEY, `(${since}`, "+inf", "BYSCORE", "LIMIT", 0, most),
    );
    // It is asked for each drop and follower: it has ids, since encoding one takes five times as long as the lookup.
    const found = new Set(few.map(decodeId));
    const look = async (some: readonly string[]): Promise<void> => {
      const scores = await command("zmscore", (client) => client.zmscore(RECENT_KEY, ...some.map(encodeId)));
      for (const [index, user] of some.entries()) {
        if (scores[index] != null && Number(scores[index]) > since) found.add(user);
      }
    };
    if (few.length === most) await Promise.all(chunked([...new Set(audiences.flat())], USERS_A_LOOK).map(look));
    return found.size === 0 ? undefined : (user) => found.has(user);
  };
}
