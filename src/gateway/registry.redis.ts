import { CONNECTIONS_SEEN_KEY, connectionKey, connectionsOfUserKey, RECENT_KEY } from "../contracts/keys.js";
import { AppError } from "../kernel/errors.js";
import { decodeId, encodeId } from "../kernel/ids.js";
import { HOUR, MINUTE, SECOND } from "../kernel/time.js";
import { redisError } from "../platform/redis/connect.js";
import type { Scripts } from "../platform/redis/scripts.js";
import { formatPosition, parsePosition, type StreamPosition } from "./notification.js";

export interface Connection {
  readonly id: string;
  readonly user: string;
  readonly createdAt: number;
}

export type RegistryStore = ReturnType<typeof createRegistryStore>;

interface StoreOptions {
  readonly podName: string;
  readonly ttlMs: number;
  readonly windowMs: number;
}

type Command = readonly [name: string, ...args: (string | number)[]];

const SWEPT_AT_ONCE = 500;
/** Outlives every position that it could be compared with. */
const RESUMABLE_FROM_TTL_MS = HOUR;

const resumableFromKey = (user: string): string => `sse_recent:from:${encodeId(user)}`;

/** Contains the user, so that a sweep finds the set from which a dead pod's connection is to be removed. */
export const connectionId = (unique: string, user: string): string => `${unique}.${encodeId(user)}`;

const userOf = (id: string): string => decodeId(id.slice(id.indexOf(".") + 1));

export function createRegistryStore(scripts: Scripts, options: StoreOptions) {
  const send = createSend(scripts, true);
  const seconds = (ms: number): number => Math.ceil(ms / SECOND);
  const ttl = seconds(options.ttlMs);
  const keepIndexes = (): Command[] => [
    ["EXPIRE", RECENT_KEY, seconds(options.windowMs) + ttl],
    ["EXPIRE", CONNECTIONS_SEEN_KEY, 10 * ttl],
  ];

  return {
    /** `lastSeen`: when a gateway last had a stream of the user, in ms since the epoch. */
    async listing(user: string) {
      const [seen, from] = await send([
        ["ZSCORE", RECENT_KEY, encodeId(user)],
        ["GET", resumableFromKey(user)],
      ]);
      return { lastSeen: numberOf(seen), resumableFrom: typeof from === "string" ? parsePosition(from) : undefined };
    },

    async setResumableFrom(user: string, position: StreamPosition): Promise<void> {
      await send([["SET", resumableFromKey(user), formatPosition(position), "PX", RESUMABLE_FROM_TTL_MS]]);
    },

    async add({ id, user, createdAt }: Connection): Promise<void> {
      const now = Date.now();
      const hash = connectionKey(id);
      await send([
        ["ZADD", CONNECTIONS_SEEN_KEY, now, id],
        ["SADD", connectionsOfUserKey(user), id],
        ["EXPIRE", connectionsOfUserKey(user), 2 * ttl],
        ["HSET", hash, "pod_name", options.podName, "user_id", user, "created_at", createdAt],
        ["EXPIRE", hash, ttl],
        ["ZADD", RECENT_KEY, now, encodeId(user)],
        ...keepIndexes(),
      ]);
    },

    renew: (connections: readonly Connection[]) => renew(createSend(scripts, false), connections, { ttl, keepIndexes }),

    async remove({ id, user }: Connection): Promise<void> {
      await send([
        ["SREM", connectionsOfUserKey(user), id],
        ["DEL", connectionKey(id)],
        ["ZREM", CONNECTIONS_SEEN_KEY, id],
        // Only where the user is still listed: this must not hide a lost listing.
        ["ZADD", RECENT_KEY, "XX", Date.now(), encodeId(user)],
      ]);
    },

    sweep: () => sweep(send, { staleMs: 1.5 * options.ttlMs, forgetMs: options.windowMs + MINUTE }),
  };
}

interface Renewal {
  readonly ttl: number;
  keepIndexes(): Command[];
}

async function renew(
  send: Send,
  connections: readonly Connection[],
  { ttl, keepIndexes }: Renewal,
): Promise<ReadonlySet<string>> {
  if (connections.length === 0) return new Set();
  const now = Date.now();
  const users = connections.map(({ user }) => encodeId(user));
  const perConnection = connections.flatMap<Command>(({ id, user }) => [
    ["EXPIRE", connectionKey(id), ttl],
    ["EXPIRE", connectionsOfUserKey(user), 2 * ttl],
    ["SISMEMBER", connectionsOfUserKey(user), id],
  ]);
  const [listed, , , ...replies] = await send([
    ["ZMSCORE", RECENT_KEY, ...users],
    ["ZADD", RECENT_KEY, "XX", ...users.flatMap((user) => [now, user])],
    ["ZADD", CONNECTIONS_SEEN_KEY, ...connections.flatMap(({ id }) => [now, id])],
    ...perConnection,
    ...keepIndexes(),
  ]);
  const scores = listed as unknown[];
  const gone = connections.filter(
    (_, i) => scores[i] == null || Number(replies[3 * i]) === 0 || Number(replies[3 * i + 2]) === 0,
  );
  return new Set(gone.map(({ id }) => id));
}

/**
 * Removes stale connections from their users' sets, then from the index. A pod that was only slow may register them
 * again meanwhile, in the index before the set: the second read of the index shows it, and the removal is undone. An
 * index entry removed too late is written again by the pod's next renewal, which does not count its loss.
 */
async function sweep(send: Send, { staleMs, forgetMs }: { staleMs: number; forgetMs: number }): Promise<number> {
  const before = Date.now() - staleMs;
  const [listed] = await send([
    ["ZRANGEBYSCORE", CONNECTIONS_SEEN_KEY, "-inf", before, "LIMIT", 0, SWEPT_AT_ONCE],
    ["ZREMRANGEBYSCORE", RECENT_KEY, "-inf", Date.now() - forgetMs],
  ]);
  const ids = listed as string[];
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

const numberOf = (reply: unknown): number | undefined => (reply == null ? undefined : Number(reply));

type Send = (commands: readonly Command[]) => Promise<unknown[]>;

/** One round trip; in a cluster one per command, as the keys are on several nodes, one after the other if `ordered`. */
function createSend(scripts: Scripts, ordered: boolean): Send {
  return async (commands) => {
    if (commands.length === 0) return [];
    return scripts.command("sse registry", async (client) => {
      if (!scripts.isCluster) return pipelined(client, commands);
      const call = ([name, ...args]: Command): Promise<unknown> => client.call(name, ...args);
      if (!ordered) return Promise.all(commands.map(call));
      const replies: unknown[] = [];
      for (const command of commands) replies.push(await call(command));
      return replies;
    });
  };
}

async function pipelined(client: Scripts["client"], commands: readonly Command[]): Promise<unknown[]> {
  const replies = await client.pipeline(commands.map(([name, ...args]) => [name.toLowerCase(), ...args])).exec();
  if (!replies) throw new AppError("unavailable", "Redis took no commands");
  return replies.map(([error, reply]) => {
    if (error) throw redisError(error);
    return reply;
  });
}
