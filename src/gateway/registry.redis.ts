import { CONNECTIONS_SEEN_KEY, connectionKey, connectionsOfUserKey, RECENT_KEY } from "../contracts/keys.js";
import { AppError } from "../kernel/errors.js";
import { decodeId, encodeId } from "../kernel/ids.js";
import { HOUR, MINUTE, SECOND } from "../kernel/time.js";
import { redisError } from "../platform/redis/errors.js";
import type { Scripts } from "../platform/redis/scripts.js";
import type { Connection, RegistryStore } from "./ports.js";
import { idOf, readId } from "./position.js";

export type { Scripts };

/** Whose registrations, and how long they hold. */
export interface StoreOptions {
  readonly podName: string;
  /** A registration that is not renewed is gone after this. */
  readonly ttlMs: number;
  /** How long after their last stream people still get notifications stored. */
  readonly windowMs: number;
}

type Command = readonly [name: string, ...args: (string | number)[]];

/** Stale entries cleaned a sweep; what is left waits for the next. */
const SWEPT_AT_ONCE = 500;
/** Longer than any position lives that it could be compared with. */
const GOOD_FROM_TTL_MS = HOUR;

const goodFromKey = (user: string): string => `sse_recent:from:${encodeId(user)}`;

/** A connection's id names its user, so that whoever cleans up after a dead pod knows whose set to clean. */
export const connectionId = (unique: string, user: string): string => `${unique}.${encodeId(user)}`;

const userOf = (id: string): string => decodeId(id.slice(id.indexOf(".") + 1));

/** Keeps registrations in Redis. */
export function createRegistryStore(scripts: Scripts, options: StoreOptions): RegistryStore {
  const send = createSend(scripts, true);
  const seconds = (ms: number): number => Math.ceil(ms / SECOND);
  const ttl = seconds(options.ttlMs);
  const keepIndexes = (): Command[] => [
    ["EXPIRE", RECENT_KEY, seconds(options.windowMs) + ttl],
    ["EXPIRE", CONNECTIONS_SEEN_KEY, 10 * ttl],
  ];

  return {
    async listing(user) {
      const [seen, from] = await send([
        ["ZSCORE", RECENT_KEY, encodeId(user)],
        ["GET", goodFromKey(user)],
      ]);
      return { lastSeen: numberOf(seen), goodFrom: typeof from === "string" ? readId(from) : undefined };
    },

    async setGoodFrom(user, position) {
      await send([["SET", goodFromKey(user), idOf(position), "PX", GOOD_FROM_TTL_MS]]);
    },

    async add({ id, user, createdAt }) {
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

    renew: (connections) => renew(createSend(scripts, false), connections, { ttl, keepIndexes }),

    async remove({ id, user }) {
      await send([
        ["SREM", connectionsOfUserKey(user), id],
        ["DEL", connectionKey(id)],
        ["ZREM", CONNECTIONS_SEEN_KEY, id],
        // Only where the user still stands: a listing that was lost must not look as if it never had been.
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
    // Only those still listed: adding one here would hide that it was lost.
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
 * Takes stale connections out of their users' sets, and then out of the index.
 *
 * A pod that was only held up may register them again meanwhile. It writes the index
 * before the set, so that the second look at the index, after the removal from the set,
 * shows it, and the removal is undone. An index entry removed too late is written again
 * by the pod's next renewal, which does not count a missing one as a loss.
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

/** Runs commands of one key each; resolves to their replies after every one was a success. */
type Send = (commands: readonly Command[]) => Promise<unknown[]>;

/**
 * One round trip. In a cluster the keys lie on several nodes, so that each command goes its
 * own way: one after the other where `ordered`, since some are only right in their order.
 */
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
