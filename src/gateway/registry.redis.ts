import { randomInt } from "node:crypto";
import { CONNECTIONS_SEEN_KEY, connectionKey, connectionsOfUserKey, RECENT_KEY } from "../contracts/keys.js";
import { AppError } from "../kernel/errors.js";
import { decodeId, encodeId } from "../kernel/ids.js";
import { HOUR, MINUTE, SECOND } from "../kernel/time.js";
import { redisError } from "../platform/redis/connect.js";
import { type Scripts, script } from "../platform/redis/scripts.js";

const REGISTER_STREAMS = script("register-streams", import.meta.url);
const RENEW_STREAMS = script("renew-streams", import.meta.url);
const TOUCH_LISTED = script("touch-listed", import.meta.url);

/** While a user is not listed, no notifications are stored for them: a listing is the time of which all are stored. */
const nameListing = (): string => randomInt(36 ** 8).toString(36);

export interface Connection {
  readonly id: string;
  readonly user: string;
  readonly createdAt: number;
  /** The last registration returned this name of the user's listing. */
  readonly listing: string;
}

/** Times are ms since the epoch, by the clock of Redis. */
export interface Moment {
  readonly now: number;
  /** A user who was not seen since then is not listed any more. */
  readonly listedSince: number;
}

export type StreamRegistryStore = ReturnType<typeof createStreamRegistryStore>;

interface StoreOptions {
  readonly podName: string;
  readonly ttlMs: number;
  readonly windowMs: number;
}

type Command = readonly [name: string, ...args: (string | number)[]];

const SWEPT_AT_ONCE = 100;
/** A call of this size blocks Redis for about 1 ms. */
const FORGOTTEN_AT_ONCE = 1_000;
/** The key lives longer after the last renewal than the user is listed. */
const LISTING_TTL_MS = HOUR;

const listingKey = (user: string): string => `sse_recent:listing:${encodeId(user)}`;

/** Contains the user, so that a sweep finds the set from which a dead pod's connection is to be removed. */
export const connectionId = (unique: string, user: string): string => `${unique}.${encodeId(user)}`;

const userOf = (id: string): string => decodeId(id.slice(id.indexOf(".") + 1));

/** In a cluster the keys of a stream are on several nodes. */
export function createStreamRegistryStore(scripts: Scripts, { podName, ttlMs, windowMs }: StoreOptions) {
  const send = createSend(scripts);
  const ttl = Math.ceil(ttlMs / SECOND);
  const fixed: Fixed = { podName, ttl, listTtl: Math.ceil(windowMs / SECOND) + ttl };
  const { isCluster } = scripts;

  return {
    /** Resolves to the names of the listings; one of a user who was not seen since `listedSince` begins now. */
    register: (some: readonly Connection[], moment: Moment): Promise<string[]> => {
      const times = { ...fixed, ...moment };
      return isCluster
        ? Promise.all(some.map((one) => registerStepwise(send, one, times)))
        : registerTogether(scripts, some, times);
    },

    /** Resolves to the ids of those that are gone, or whose user another listing has begun for. */
    renew: async (some: readonly Connection[], moment: Moment): Promise<ReadonlySet<string>> => {
      const times = { ...fixed, ...moment };
      const gone = isCluster
        ? await renewSingly(scripts, send, some, times)
        : await renewTogether(scripts, some, times);
      return new Set(gone);
    },

    /** A connection leaves the index last: a sweep finds by it what a failure has left. */
    remove: async (some: readonly Connection[], moment: Moment): Promise<void> => {
      const ofUsers = some.flatMap<Command>(({ id, user }) => [
        ["SREM", connectionsOfUserKey(user), id],
        ["DEL", connectionKey(id)],
      ]);
      await Promise.all([touchListed(scripts, some, moment), send(ofUsers)]);
      await send([["ZREM", CONNECTIONS_SEEN_KEY, ...some.map(({ id }) => id)]]);
    },

    sweep: (now: number) => sweep(send, now, { staleMs: 1.5 * ttlMs, forgetMs: windowMs + MINUTE }),
  };
}

interface Fixed {
  readonly podName: string;
  /** The time to live is in seconds. */
  readonly ttl: number;
  readonly listTtl: number;
}

/** Resolves to whether each user is listed. */
async function touchListed(
  scripts: Scripts,
  some: readonly Connection[],
  { now, listedSince }: Moment,
): Promise<readonly boolean[]> {
  const users = some.map(({ user }) => encodeId(user));
  const replies = await scripts.run(TOUCH_LISTED, [RECENT_KEY], [now, listedSince, ...users]);
  return (replies as number[]).map((reply) => reply === 1);
}

interface Times extends Fixed, Moment {}

async function registerTogether(scripts: Scripts, some: readonly Connection[], times: Times): Promise<string[]> {
  const { podName, ttl, listTtl, now, listedSince } = times;
  const keys = [RECENT_KEY, CONNECTIONS_SEEN_KEY];
  const args: (string | number)[] = [now, LISTING_TTL_MS, ttl, listTtl, podName, listedSince];
  for (const { id, user, createdAt } of some) {
    keys.push(listingKey(user), connectionsOfUserKey(user), connectionKey(id));
    args.push(encodeId(user), id, nameListing(), user, createdAt);
  }
  return (await scripts.run(REGISTER_STREAMS, keys, args)) as string[];
}

/** Does what `register-streams` does, with single commands. */
async function registerStepwise(send: Send, { id, user, createdAt }: Connection, times: Times): Promise<string> {
  const { podName, ttl, now, listedSince } = times;
  const [seen, stored] = await send([
    ["ZSCORE", RECENT_KEY, encodeId(user)],
    ["GET", listingKey(user)],
  ]);
  const isListed = typeof stored === "string" && seen != null && Number(seen) >= listedSince;
  const listing = isListed ? stored : nameListing();
  await send([
    ...(isListed ? [] : [["SET", listingKey(user), listing, "PX", LISTING_TTL_MS] as Command]),
    ["ZADD", CONNECTIONS_SEEN_KEY, now, id],
  ]);
  await send([
    ["SADD", connectionsOfUserKey(user), id],
    ["EXPIRE", connectionsOfUserKey(user), 2 * ttl],
    ["HSET", connectionKey(id), "pod_name", podName, "user_id", user, "created_at", createdAt],
    ["EXPIRE", connectionKey(id), ttl],
    ["ZADD", RECENT_KEY, now, encodeId(user)],
    ...keepIndexes(times),
  ]);
  return listing;
}

const keepIndexes = ({ ttl, listTtl }: Fixed): Command[] => [
  ["EXPIRE", RECENT_KEY, listTtl],
  ["EXPIRE", CONNECTIONS_SEEN_KEY, 10 * ttl],
];

async function renewTogether(scripts: Scripts, some: readonly Connection[], times: Times): Promise<string[]> {
  const { ttl, listTtl, now, listedSince } = times;
  const keys = some.flatMap(({ id, user }) => [listingKey(user), connectionsOfUserKey(user), connectionKey(id)]);
  const args = some.flatMap(({ id, user, listing }) => [encodeId(user), id, listing]);
  const all = [RECENT_KEY, CONNECTIONS_SEEN_KEY, ...keys];
  const first = [now, ttl, listTtl, LISTING_TTL_MS, listedSince];
  return (await scripts.run(RENEW_STREAMS, all, [...first, ...args])) as string[];
}

/** Does what `renew-streams` does, with single commands. */
async function renewSingly(scripts: Scripts, send: Send, some: readonly Connection[], times: Times): Promise<string[]> {
  const { now, ttl } = times;
  const perConnection = some.flatMap<Command>(({ id, user }) => [
    ["GET", listingKey(user)],
    ["PEXPIRE", listingKey(user), LISTING_TTL_MS],
    ["HEXISTS", connectionKey(id), "pod_name"],
    ["SISMEMBER", connectionsOfUserKey(user), id],
    ["EXPIRE", connectionKey(id), ttl],
    ["EXPIRE", connectionsOfUserKey(user), 2 * ttl],
  ]);
  const [listed, replies] = await Promise.all([
    touchListed(scripts, some, times),
    send(perConnection),
    send([["ZADD", CONNECTIONS_SEEN_KEY, ...some.flatMap(({ id }) => [now, id])], ...keepIndexes(times)]),
  ]);
  const isGone = ({ listing }: Connection, at: number): boolean =>
    replies[at] !== listing || replies.slice(at + 1, at + 5).some((n) => Number(n) === 0);
  return some.filter((one, n) => !listed[n] || isGone(one, 6 * n)).map(({ id }) => id);
}

interface Swept {
  readonly connections: number;
  /** There may be more to sweep. */
  readonly more: boolean;
}

/**
 * Removes stale connections from their users' sets, then from the index. A pod that was only slow may register them
 * again meanwhile, in the index before the set: the second read of the index shows it, and the removal is undone. An
 * index entry removed too late is written again by the pod's next renewal, which does not count its loss.
 */
async function sweep(
  send: Send,
  now: number,
  { staleMs, forgetMs }: { staleMs: number; forgetMs: number },
): Promise<Swept> {
  const before = now - staleMs;
  const forgotten = now - forgetMs;
  const [listed, last] = await send([
    ["ZRANGEBYSCORE", CONNECTIONS_SEEN_KEY, "-inf", before, "LIMIT", 0, SWEPT_AT_ONCE],
    ["ZRANGE", RECENT_KEY, "-inf", forgotten, "BYSCORE", "LIMIT", FORGOTTEN_AT_ONCE - 1, 1, "WITHSCORES"],
  ]);
  // Users are removed by time, so that one who is seen again meanwhile stays.
  const [, upTo = forgotten] = last as string[];
  await send([["ZREMRANGEBYSCORE", RECENT_KEY, "-inf", upTo]]);
  const ids = listed as string[];
  return { connections: await sweepConnections(send, ids, before), more: ids.length > 0 || upTo !== forgotten };
}

async function sweepConnections(send: Send, ids: readonly string[], before: number): Promise<number> {
  if (ids.length === 0) return 0;
  await send(ids.map((id) => ["SREM", connectionsOfUserKey(userOf(id)), id]));
  const [again] = await send([["ZMSCORE", CONNECTIONS_SEEN_KEY, ...ids]]);
  const scores = again as unknown[];
  const revived = ids.filter((_, i) => scores[i] != null && Number(scores[i]) > before);
  const dead = ids.filter((id) => !revived.includes(id));
  await send([
    ...revived.map<Command>((id) => ["SADD", connectionsOfUserKey(userOf(id)), id]),
    ...(dead.length > 0 ? [["ZREM", CONNECTIONS_SEEN_KEY, ...dead] as Command] : []),
  ]);
  return dead.length;
}

type Send = (commands: readonly Command[]) => Promise<unknown[]>;

/**
 * Sends the commands in one round trip; in a cluster, where the keys are on several nodes, in any order. The client
 * flattens replies by names in lower case.
 */
function createSend(scripts: Scripts): Send {
  return (commands) =>
    scripts.command("sse registry", async (client) => {
      const calls = commands.map(([name, ...args]): [string, ...(string | number)[]] => [name.toLowerCase(), ...args]);
      if (scripts.isCluster) return Promise.all(calls.map((call) => client.call(...call)));
      const replies = await client.pipeline(calls).exec();
      if (!replies) throw new AppError("unavailable", "Redis executed no command");
      return replies.map(([error, reply]) => {
        if (error) throw redisError(error);
        return reply;
      });
    });
}
