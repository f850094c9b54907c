import { randomInt } from "node:crypto";
import { decodeId, encodeId } from "../../kernel/ids.js";
import { HOUR, MINUTE, SECOND } from "../../kernel/time.js";
import { inOrder, type Script, type Scripts } from "../../platform/redis/scripts.js";
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
import { script } from "../scripts.redis.js";

/** Key on the server whose clock dates the streams. */
export const LISTENERS = RECENT_KEY;

const REGISTER_STREAMS = script("register-streams", import.meta.url);
const RENEW_STREAMS = script("renew-streams", import.meta.url);
const SWEEP_STREAMS = script("sweep-streams", import.meta.url);

/**
 * Returns a name for a listing: a time for which all notifications of a user are stored. While a user is not listed,
 * none are.
 */
const nameListing = (): string => randomInt(36 ** 8).toString(36);

export interface Connection {
  readonly id: string;
  readonly user: string;
  readonly createdAt: number;
  /** Name of the user's listing, as the last registration returned it. */
  readonly listing: string;
}

/** Times in ms since the epoch, by the clock of Redis. */
export interface Moment {
  readonly now: number;
  /** A user who was not seen since this time is not listed any more. */
  readonly listedSince: number;
}

export type StreamRegistryStore = ReturnType<typeof createStreamRegistryStore>;

export interface RegistryOptions {
  readonly podName: string;
  readonly ttlMs: number;
  readonly windowMs: number;
}

const SWEPT_AT_ONCE = 100;
/** Maximum number of users in a call, which blocks Redis for about 1 ms. */
const FORGOTTEN_AT_ONCE = 1_000;
/** Lifetime of the key after the last renewal: longer than the user is listed. */
const LISTING_TTL_MS = HOUR;

/**
 * Returns an id that contains the user, so that a sweep finds the set from which a dead pod's connection is to be
 * removed.
 */
export const connectionId = (unique: string, user: string): string => `${unique}.${encodeId(user)}`;

const userOf = (id: string): string => decodeId(id.slice(id.indexOf(".") + 1));

/**
 * Opens the registry. Scripts change the index of listeners. Connections have keys of their own, which are on other
 * nodes of a cluster.
 */
export function createStreamRegistryStore(scripts: Scripts, { podName, ttlMs, windowMs }: RegistryOptions) {
  const send = createSend(scripts);
  const ttl = Math.ceil(ttlMs / SECOND);
  const ttls = [LISTING_TTL_MS, Math.ceil(windowMs / SECOND) + ttl, 10 * ttl] as const;
  const run = <T>(called: Script, listed: readonly Listed[], { now, listedSince }: Moment): Promise<T[]> =>
    runForStreams(scripts, listed, { called, before: [now, ...ttls, listedSince] });
  const { isCluster } = scripts;

  return {
    /** Resolves to the names of the listings. That of a user who was not seen since `listedSince` begins now. */
    register: async (connections: readonly Connection[], moment: Moment): Promise<string[]> => {
      const named = connections.map(({ id, user }) => ({ id, user, listing: nameListing() }));
      // A connection enters the index first: a sweep finds by it what a failure has left.
      const listings = await run<string>(REGISTER_STREAMS, named, moment);
      await send(connections.flatMap((connection) => commandsToKeep(connection, podName, ttl)));
      return listings;
    },

    /** Resolves to the ids of connections that are gone, or whose user has another listing. */
    renew: async (connections: readonly Connection[], moment: Moment): Promise<ReadonlySet<string>> => {
      const perConnection = connections.flatMap((connection) => commandsToRenew(connection, ttl));
      const [listed, replies] = await Promise.all([
        run<number>(RENEW_STREAMS, connections, moment),
        send(perConnection),
      ]);
      const each = perConnection.length / connections.length;
      const isGone = (index: number): boolean =>
        listed[index] === 0 || replies.slice(each * index, each * (index + 1)).some((reply) => Number(reply) === 0);
      return new Set(connections.filter((_, index) => isGone(index)).map(({ id }) => id));
    },

    /** Removes connections. They leave the index last: a sweep finds by it what a failure has left. */
    remove: async (connections: readonly Connection[], moment: Moment): Promise<void> => {
      const ending = connections.map(({ user, listing }) => ({ id: "", user, listing }));
      const ofUsers = connections.flatMap<Command>(({ id, user }) => [
        ["SREM", connectionsOfUserKey(user), id],
        ["DEL", connectionKey(id)],
      ]);
      await Promise.all([run(RENEW_STREAMS, ending, moment), send(ofUsers)]);
      await send(connections.map(({ id }) => ["ZREM", indexKeyOf(id, isCluster), id]));
    },

    removeUser: (user: string): Promise<void> => removeListing(scripts, user),

    sweep: async (now: number): Promise<Swept> => {
      const before = now - 1.5 * ttlMs;
      const { stale, more } = await findStale(scripts, before, now - windowMs - MINUTE);
      const connections = await sweepConnections(send, stale, { before, isCluster });
      return { connections, more };
    },
  };
}

/** Ends the listing of a user, or of the reader of a list. Their open streams are listed anew, with a reset. */
export async function removeListing(scripts: Scripts, user: string): Promise<void> {
  const part = listenerPart(user, scripts.isCluster);
  await createSend(scripts)([
    ["ZREM", recentKey(part), encodeId(user)],
    ["DEL", listingKey(part, user)],
  ]);
}

/** Returns the key of the index that has the connection. */
const indexKeyOf = (id: string, isCluster: boolean): string => connectionsSeenKey(listenerPart(userOf(id), isCluster));

type Listed = Pick<Connection, "id" | "user" | "listing">;

const KEYS_A_STREAM = 3;

/** Returns the arguments of the scripts for a stream: keys of one slot come first. */
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

/** Returns commands whose reply is 0 if a key or member is gone. */
const commandsToRenew = ({ id, user }: Connection, ttl: number): Command[] => [
  ["HEXISTS", connectionKey(id), "pod_name"],
  ["SISMEMBER", connectionsOfUserKey(user), id],
  ["EXPIRE", connectionKey(id), ttl],
  ["EXPIRE", connectionsOfUserKey(user), 2 * ttl],
];

/** Runs a script for streams. The replies are in their order. */
async function runForStreams<T>(
  { run, byNode, isCluster }: Scripts,
  listed: readonly Listed[],
  { called, before }: { readonly called: Script; readonly before: readonly number[] },
): Promise<T[]> {
  const parts = listed.map(({ user }) => listenerPart(user, isCluster));
  const answers = await byNode(parts.map(recentKey), listed.length, async (route, indexes) => {
    const streams = indexes.map((index) => argsOf(listed[index] as Listed, parts[index] as string));
    const isOneSlot = isCluster && new Set(indexes.map((index) => parts[index])).size === 1;
    // While a slot moves, a call that names all of its keys waits until they have moved.
    const keys = isOneSlot ? [...new Set(streams.flatMap((args) => args.slice(0, KEYS_A_STREAM)))] : route;
    return (await run(called, keys, [...before, ...streams.flat()])) as T[];
  });
  return inOrder(answers);
}

interface Swept {
  readonly connections: number;
  /** True if there may be more to sweep. */
  readonly more: boolean;
}

/** Removes users last seen by the time `forgotten`, and returns connections last seen by the time `before`. */
async function findStale({ run, byNode, isCluster }: Scripts, before: number, forgotten: number) {
  const parts = listenerParts(isCluster);
  const answers = await byNode(parts.map(recentKey), parts.length, async (route, indexes) => {
    const keys = indexes
      .map((index) => parts[index] as string)
      .flatMap((part) => [recentKey(part), connectionsSeenKey(part)]);
    const args = [forgotten, before, FORGOTTEN_AT_ONCE, SWEPT_AT_ONCE, ...keys];
    const named = isCluster && indexes.length === 1 ? keys : route;
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
  const again = ids.map((id, index): Command => {
    const isRevived = scores[index] != null && Number(scores[index]) > before;
    return isRevived ? ["SADD", connectionsOfUserKey(userOf(id)), id] : ["ZREM", indexKeyOf(id, isCluster), id];
  });
  await send(again);
  return again.filter(([name]) => name === "ZREM").length;
}

type Send = (commands: readonly Command[]) => Promise<unknown[]>;

function createSend(scripts: Scripts): Send {
  return (commands) => scripts.command("sse registry", (client) => sendCommands(client, commands));
}
