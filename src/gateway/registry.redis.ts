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
  const listTtl = seconds(options.windowMs) + ttl;
  const keepIndexes = (): Command[] => [
    ["EXPIRE", RECENT_KEY, listTtl],
    ["EXPIRE", CONNECTIONS_SEEN_KEY, 10 * ttl],
  ];

  return {
    /** Stores `from` first where the user was not seen since `listedSince`; resolves to what is stored. */
    async register(connection: Connection, from: StreamPosition, listedSince: number) {
      const values = { ...options, ttl, listTtl, from, listedSince };
      const stored = scripts.isCluster
        ? await registerStepwise(send, connection, values)
        : await register(scripts, connection, values);
      return typeof stored === "string" ? parsePosition(stored) : undefined;
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

interface Registering {
  readonly podName: string;
  /** Seconds. */
  readonly ttl: number;
  readonly listTtl: number;
  readonly from: StreamPosition;
  readonly listedSince: number;
}

const fieldsOf = ({ user, createdAt }: Connection, podName: string) =>
  ["pod_name", podName, "user_id", user, "created_at", createdAt] as const;

function register(scripts: Scripts, connection: Connection, options: Registering): Promise<unknown> {
  const { ttl, listTtl, from, listedSince, podName } = options;
  const { id, user } = connection;
  const own = [connectionsOfUserKey(user), connectionKey(id)];
  const keys = [RECENT_KEY, resumableFromKey(user), CONNECTIONS_SEEN_KEY, ...own];
  const subject = [encodeId(user), id, Date.now(), listedSince];
  const position = [from.seq, from.incarnation, RESUMABLE_FROM_TTL_MS];
  const args = [...subject, ...position, ttl, listTtl, ...fieldsOf(connection, podName)];
  return scripts.run("register-stream", keys, args);
}

/** In a cluster the keys are on several nodes. As `register-stream` does, one command after the other. */
async function registerStepwise(send: Send, connection: Connection, options: Registering): Promise<unknown> {
  const { ttl, listTtl, from, listedSince, podName } = options;
  const { id, user } = connection;
  const now = Date.now();
  let [seen, stored] = await send([
    ["ZSCORE", RECENT_KEY, encodeId(user)],
    ["GET", resumableFromKey(user)],
  ]);
  if (seen == null || Number(seen) < listedSince) {
    const known = typeof stored === "string" ? parsePosition(stored) : undefined;
    const seq = known?.incarnation === from.incarnation ? Math.max(known.seq, from.seq) : from.seq;
    stored = formatPosition({ seq, incarnation: from.incarnation });
    await send([["SET", resumableFromKey(user), stored as string, "PX", RESUMABLE_FROM_TTL_MS]]);
  }
  await send([
    ["ZADD", CONNECTIONS_SEEN_KEY, now, id],
    ["EXPIRE", CONNECTIONS_SEEN_KEY, 10 * ttl],
    ["SADD", connectionsOfUserKey(user), id],
    ["EXPIRE", connectionsOfUserKey(user), 2 * ttl],
    ["HSET", connectionKey(id), ...fieldsOf(connection, podName)],
    ["EXPIRE", connectionKey(id), ttl],
    ["ZADD", RECENT_KEY, now, encodeId(user)],
    ["EXPIRE", RECENT_KEY, listTtl],
  ]);
  return stored;
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
