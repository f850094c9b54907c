import { allOf, chunked, grouped } from "../../kernel/concurrency.js";
import { decodeId, encodeId } from "../../kernel/ids.js";
import type { RedisClock } from "../../platform/redis/clock.js";
import { type Scripts, script } from "../../platform/redis/scripts.js";
import { listenerPart, RECENT_KEY, recentKey } from "../keys.js";
import { listedSince } from "./listed.redis.js";

const FIND_LISTENING = script("find-listening", import.meta.url, { spanned: true });

const USERS_A_LOOK = 1_000;
/** Reading all listeners costs much less than a look for each user, if they are at most this share of the audiences. */
const FEW = 1 / 4;

export type IsListening = (user: string) => boolean;

/** Finds the listeners among users; resolves to undefined if nobody listens. */
export type ListenersAmong = (audiences: readonly (readonly string[])[]) => Promise<IsListening | undefined>;

export function createListenersAmong(scripts: Scripts, clock: RedisClock): ListenersAmong {
  return async function listenersAmong(audiences) {
    const since = await listedSince(clock);
    const users = audiences.reduce((sum, { length }) => sum + length, 0);
    const few = await fewListeners(scripts, since, Math.min(USERS_A_LOOK, Math.ceil(users * FEW)));
    // It is asked for each drop and follower: it has ids, since encoding one takes five times as long as the lookup.
    const found = few ?? new Set<string>();
    if (!few) await lookFor([...new Set(audiences.flat())], { scripts, since, found });
    return found.size === 0 ? undefined : (user) => found.has(user);
  };
}

/** Resolves to undefined unless there are fewer than `most`. A cluster would have to ask for them in all parts. */
async function fewListeners({ command, isCluster }: Scripts, since: number, most: number) {
  if (isCluster) return undefined;
  const few = await command("zrange", (client) =>
    client.zrange(RECENT_KEY, `(${since}`, "+inf", "BYSCORE", "LIMIT", 0, most),
  );
  return few.length < most ? new Set(few.map(decodeId)) : undefined;
}

interface Look {
  readonly scripts: Scripts;
  readonly since: number;
  readonly found: Set<string>;
}

async function lookFor(users: readonly string[], look: Look): Promise<void> {
  const { command, isCluster } = look.scripts;
  const lookIn = (inParts: boolean) => lookInParts(partsOf(users, inParts), look);
  const lookInOlder = async (): Promise<void> => {
    if ((await command("exists", (client) => client.exists(RECENT_KEY))) > 0) await lookIn(false);
  };
  await allOf([lookIn(isCluster), isCluster ? lookInOlder() : undefined]);
}

/** Users, at most as many as a call has, and the sorted set that may have them. */
interface Part {
  readonly key: string;
  readonly users: readonly string[];
}

const partsOf = (users: readonly string[], inParts: boolean): Part[] =>
  [...grouped(users, (user) => listenerPart(user, inParts))].flatMap(([part, all]) =>
    chunked(all, USERS_A_LOOK).map((some) => ({ key: recentKey(part), users: some })),
  );

async function lookInParts(parts: readonly Part[], look: Look): Promise<void> {
  const { run, byNode } = look.scripts;
  const largest = Math.max(1, ...parts.map(({ users }) => users.length));
  const keys = parts.map(({ key }) => key);
  await byNode(keys, Math.floor(USERS_A_LOOK / largest), async (route, places) => {
    const asked = places.map((place) => parts[place] as Part);
    // The script takes the server twice the time of the command.
    if (asked.length === 1) return lookInOne(asked[0] as Part, look);
    const args: (string | number)[] = [look.since];
    for (const { key, users } of asked) args.push(key, users.length, ...users.map(encodeId));
    const all = asked.flatMap(({ users }) => users);
    const listening = (await run(FIND_LISTENING, route, args)) as number[];
    for (const at of listening) look.found.add(all[at] as string);
  });
}

async function lookInOne({ key, users }: Part, { scripts: { command }, since, found }: Look): Promise<void> {
  const scores = await command("zmscore", (client) => client.zmscore(key, ...users.map(encodeId)));
  for (const [at, user] of users.entries()) if (scores[at] != null && Number(scores[at]) > since) found.add(user);
}
