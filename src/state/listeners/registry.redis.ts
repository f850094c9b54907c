import { randomInt } from "node:crypto";
import { decodeId, encodeId } from "../../kernel/ids.js";
import { HOUR, MINUTE, SECOND } from "../../kernel/time.js";
import { inOrder, type Script, type Scripts, script } from "../../platform/redis/scripts.js";
import { type Command, sendCommands } from "../../platform/redis/send.js";
import {
  connectionKey,
  connectionsOfUserKey,
  connectionsSeenKey,
  listenerPart,
  listenerParts,
  listingKey,
  RECENT_KEY,
  recentKey,
} from "../keys.js";

/** Names the server whose clock dates the streams. */
export const LISTENERS = RECENT_KEY;

const REGISTER_STREAMS = script("register-streams", import.meta.url);
const RENEW_STREAMS = script("renew-streams", import.meta.url);
const SWEEP_STREAMS = script("sweep-streams", import.meta.url);

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

const SWEPT_AT_ONCE = 100;
/** A call of this size blocks Redis for about 1 ms. */
const FORGOTTEN_AT_ONCE = 1_000;
/** The key lives longer after the last renewal than the user is listed. */
const LISTING_TTL_MS = HOUR;

/** Contains the user, so that a sweep finds the set from which a dead pod's connection is to be removed. */
export const connectionId = (unique: string, user: string): string => `${unique}.${encodeId(user)}`;

const userOf = (id: string): string => decodeId(id.slice(id.indexOf(".") + 1));

/** The scripts change the index of listeners. Connections have keys of their own, which are on other nodes of a cluster. */
export function createStreamRegistryStore(scripts: Scripts, { podName, ttlMs, windowMs }: StoreOptions) {
  const send = createSend(scripts);
  const ttl = Math.ceil(ttlMs / SECOND);
  const ttls = [LISTING_TTL_MS, Math.ceil(windowMs / SECOND) + ttl, 10 * ttl] as const;
  const run = <T>(of: Script, some: readonly Listed[], { now, listedSince }: Moment): Promise<T[]> =>
    runForStreams(scripts, some, { of, before: [now, ...ttls, listedSince] });
  const { isCluster } = scripts;

  return {
    /** Resolves to the names of the listings; one of a user who was not seen since `listedSince` begins now. */
    register: async (some: readonly Connection[], moment: Moment): Promise<string[]> => {
      const named = some.map(({ id, user }) => ({ id, user, listing: nameListing() }));
      // A connection enters the index first: a sweep finds by it what a failure has left.
      const listings = await run<string>(REGISTER_STREAMS, named, moment);
      await send(some.flatMap((one) => commandsToKeep(one, podName, ttl)));
      return listings;
    },

    /** Resolves to the ids of those that are gone, or whose user another listing has begun for. */
    renew: async (some: readonly Connection[], moment: Moment): Promise<ReadonlySet<string>> => {
      const perConnection = some.flatMap((one) => commandsToRenew(one, ttl));
      const [listed, replies] = await Promise.all([run<number>(RENEW_STREAMS, some, moment), send(perConnection)]);
      const each = perConnection.length / some.length;
      const isGone = (at: number): boolean =>
        listed[at] === 0 || replies.slice(each * at, each * (at + 1)).some((reply) => Number(reply) === 0);
      return new Set(some.filter((_, at) => isGone(at)).map(({ id }) => id));
    },

    /** A connection leaves the index last: a sweep finds by it what a failure has left. */
    remove: async (some: readonly Connection[], moment: Moment): Promise<void> => {
      const ending = some.map(({ user, listing }) => ({ id: "", user, listing }));
      const ofUsers = some.flatMap<Command>(({ id, user }) => [
        ["SREM", connectionsOfUserKey(user), id],
        ["DEL", connectionKey(id)],
      ]);
      await Promise.all([run(RENEW_STREAMS, ending, moment), send(ofUsers)]);
      await send(some.map(({ id }) => ["ZREM", indexKeyOf(id, isCluster), id]));
    },

    removeUser: async (user: string): Promise<void> => {
      const part = listenerPart(user, isCluster);
      await send([
        ["ZREM", recentKey(part), encodeId(user)],
        ["DEL", listingKey(part, user)],
      ]);
    },

    sweep: async (now: number): Promise<Swept> => {
      const before = now - 1.5 * ttlMs;
      const { stale, more } = await findStale(scripts, before, now - windowMs - MINUTE);
      const connections = await sweepConnections(send, stale, { before, isCluster });
      return { connections, more };
    },
  };
}

/** Returns the key of the index that has the connection. */
const indexKeyOf = (id: string, isCluster: boolean): string => connectionsSeenKey(listenerPart(userOf(id), isCluster));

type Listed = Pick<Connection, "id" | "user" | "listing">;

const KEYS_A_STREAM = 3;

/** Returns what the scripts take for a stream: keys of one slot come first. */
const argsOf = ({ id, user, listing }: Listed, part: string): string[] => [
  ...[recentKey(part), connectionsSeenKey(part), listingKey(part, user)],
  ...[encodeId(user), id, listing],
];

const commandsToKeep = ({ id, user, createdAt }: Connection, podName: string, ttl: number): Command[] => [
  ["SADD", connectionsOfUserKey(user), id],
  ["EXPIRE", connectionsOfUserKey(user), 2 * ttl],
  ["HSET", connectionKey(id), "pod_name", podName, "user_id", user, "created_at", createdAt],
  ["EXPIRE", connectionKey(id), ttl],
];

/** A reply of 0 tells that something is gone. */
const commandsToRenew = ({ id, user }: Connection, ttl: number): Command[] => [
  ["HEXISTS", connectionKey(id), "pod_name"],
  ["SISMEMBER", connectionsOfUserKey(user), id],
  ["EXPIRE", connectionKey(id), ttl],
  ["EXPIRE", connectionsOfUserKey(user), 2 * ttl],
];

/** The replies are in the order of the streams. */
async function runForStreams<T>(
  { run, byNode, isCluster }: Scripts,
  some: readonly Listed[],
  { of, before }: { readonly of: Script; readonly before: readonly number[] },
): Promise<T[]> {
  const parts = some.map(({ user }) => listenerPart(user, isCluster));
  const answers = await byNode(parts.map(recentKey), some.length, async (route, places) => {
    const streams = places.map((place) => argsOf(some[place] as Listed, parts[place] as string));
    const isOneSlot = isCluster && new Set(places.map((place) => parts[place])).size === 1;
    // While a slot moves, a call that names all of its keys waits until they have moved.
    const keys = isOneSlot ? [...new Set(streams.flatMap((args) => args.slice(0, KEYS_A_STREAM)))] : route;
    return (await run(of, keys, [...before, ...streams.flat()])) as T[];
  });
  return inOrder(answers);
}

interface Swept {
  readonly connections: number;
  /** There may be more to sweep. */
  readonly more: boolean;
}

/** Forgets users last seen by the time `forgotten`, and returns connections last seen by the time `before`. */
async function findStale({ run, byNode, isCluster }: Scripts, before: number, forgotten: number) {
  const parts = listenerParts(isCluster);
  const answers = await byNode(parts.map(recentKey), parts.length, async (route, places) => {
    const keys = places
      .map((place) => parts[place] as string)
      .flatMap((part) => [recentKey(part), connectionsSeenKey(part)]);
    const args = [forgotten, before, FORGOTTEN_AT_ONCE, SWEPT_AT_ONCE, ...keys];
    const named = isCluster && places.length === 1 ? keys : route;
    return (await run(SWEEP_STREAMS, named, args)) as [users: number, ...ids: string[]];
  });
  const stale = answers.flatMap(({ reply: [, ...ids] }) => ids);
  return { stale, more: stale.length > 0 || answers.some(({ reply: [users] }) => users === FORGOTTEN_AT_ONCE) };
}

interface Sweep {
  readonly before: number;
  readonly isCluster: boolean;
}

/**
 * Removes stale connections from their users' sets, then from the index. A pod that was only slow may register them
 * again meanwhile, in the index before the set: the second read of the index shows it, and the removal is undone. An
 * index entry removed too late is written again by the pod's next renewal, which does not count its loss.
 */
async function sweepConnections(send: Send, ids: readonly string[], { before, isCluster }: Sweep): Promise<number> {
  if (ids.length === 0) return 0;
  await send(ids.map((id) => ["SREM", connectionsOfUserKey(userOf(id)), id]));
  const scores = await send(ids.map((id) => ["ZSCORE", indexKeyOf(id, isCluster), id]));
  const again = ids.map((id, at): Command => {
    const isRevived = scores[at] != null && Number(scores[at]) > before;
    return isRevived ? ["SADD", connectionsOfUserKey(userOf(id)), id] : ["ZREM", indexKeyOf(id, isCluster), id];
  });
  await send(again);
  return again.filter(([name]) => name === "ZREM").length;
}

type Send = (commands: readonly Command[]) => Promise<unknown[]>;

function createSend(scripts: Scripts): Send {
  return (commands) => scripts.command("sse registry", (client) => sendCommands(client, commands));
}
