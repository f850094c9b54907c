import { allOf, chunked, grouped } from "../../kernel/concurrency.js";
import { decodeId, encodeId } from "../../kernel/ids.js";
import type { RedisClock } from "../../platform/redis/clock.js";
import type { Scripts } from "../../platform/redis/scripts.js";
import { listenerPart, RECENT_KEY, recentKey } from "../keys.js";
import { script } from "../scripts.redis.js";
import { listedSince } from "./listed.redis.js";

const FIND_LISTENING = script("find-listening", import.meta.url, { spanned: true });

const USERS_A_LOOK = 1_000;
/** Share of the audiences up to which all listeners are read, which costs much less than a look for each user. */
const FEW = 1 / 4;

export type IsListening = (user: string) => boolean;

/** Finds the listeners among users. Resolves to undefined if nobody listens. */
export type ListenersAmong = (audiences: readonly (readonly string[])[]) => Promise<IsListening | undefined>;

export function createListenersAmong(scripts: Scripts, clock: RedisClock): ListenersAmong {
  return async function listenersAmong(audiences) {
    const since = await listedSince(clock);
    const users = audiences.reduce((sum, { length }) => sum + length, 0);
    const few = await fewListeners(scripts, since, Math.min(USERS_A_LOOK, Math.ceil(users * FEW)));
    // The function is called for each drop and follower. The set has ids, since encoding one takes five times as long
    // as the lookup.
    const listening = few ?? new Set<string>();
    if (!few) await lookFor([...new Set(audiences.flat())], { scripts, since, listening });
    return listening.size === 0 ? undefined : (user) => listening.has(user);
  };
}

/** Resolves to the listeners if there are fewer than `most`. A cluster would have to read all parts. */
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
  readonly listening: Set<string>;
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
interface UsersOfKey {
  readonly key: string;
  readonly users: readonly string[];
}

const partsOf = (users: readonly string[], inParts: boolean): UsersOfKey[] =>
  [...grouped(users, (user) => listenerPart(user, inParts))].flatMap(([part, all]) =>
    chunked(all, USERS_A_LOOK).map((chunk) => ({ key: recentKey(part), users: chunk })),
  );

async function lookInParts(parts: readonly UsersOfKey[], look: Look): Promise<void> {
  const { run, byNode } = look.scripts;
  const largest = Math.max(1, ...parts.map(({ users }) => users.length));
  const keys = parts.map(({ key }) => key);
  await byNode(keys, Math.floor(USERS_A_LOOK / largest), async (route, indexes) => {
    const asked = indexes.map((index) => parts[index] as UsersOfKey);
    // The script takes the server twice the time of the command.
    if (asked.length === 1) return lookInOne(asked[0] as UsersOfKey, look);
    const args: (string | number)[] = [look.since];
    for (const { key, users } of asked) args.push(key, users.length, ...users.map(encodeId));
    const all = asked.flatMap(({ users }) => users);
    const positions = (await run(FIND_LISTENING, route, args)) as number[];
    for (const position of positions) look.listening.add(all[position] as string);
  });
}

async function lookInOne({ key, users }: UsersOfKey, { scripts: { command }, since, listening }: Look): Promise<void> {
  const scores = await command("zmscore", (client) => client.zmscore(key, ...users.map(encodeId)));
  for (const [index, user] of users.entries())
    if (scores[index] != null && Number(scores[index]) > since) listening.add(user);
}
