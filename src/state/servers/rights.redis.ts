import type { Redis } from "ioredis";
import { oneLine } from "../../kernel/errors.js";
import { type Logger, silent } from "../../kernel/logger.js";
import { pause, SECOND } from "../../kernel/time.js";
import { mastersOf, type RedisClient } from "../../platform/redis/clusters.js";
import { lacksRight, redisError } from "../../platform/redis/errors.js";
import { noteRefusal, Refusal, refusalOf } from "../../platform/refusals.js";
import {
  analysisCacheKey,
  connectionKey,
  connectionsOfUserKey,
  DELETIONS_CHANNEL,
  GLOBAL_KEY,
  homeKey,
  LOCAL_KEY,
  RECENT_KEY,
  RIGHTS_KEY,
  TOMBSTONES_KEY,
} from "../keys.js";

const LOOK_MS = SECOND;

/** Commands that the service sends, or that its scripts call, on a key `K`. */
const COMMANDS = `time, ping, info server, dbsize, scan 0 COUNT 1, eval return(1) 0, evalsha 0 0
  exists K, get K, mget K, pttl K, object encoding K, hget K a, hmget K a, hgetall K, hexists K a, hlen K, hkeys K, hvals K, hscan K 0, hrandfield K 1
  sismember K a, smismember K a, smembers K, srandmember K, zcard K, zcount K 0 0, zscore K a, zmscore K a
  zrange K 0 0, zrangebylex K - -, zrangebyscore K 0 0, zrevrangebyscore K 0 0, zscan K 0, zinter 1 K
  set K a PX 1000, expire K 1, pexpire K 1000, hset K a 1, hsetnx K a 1, hdel K a, sadd K a, srem K a, zadd K 0 a
  zincrby K 0 a, zrem K a, zpopmin K, zremrangebyrank K 0 0, zremrangebyscore K 0 0, zdiffstore K 1 K
  zinterstore K 1 K, zunionstore K 1 K, rename K K, unlink K, del K`
  .split(/,|\n/)
  .map((command) => command.trim().split(" "));

/** Member, message and value that no key and no channel has. */
const NOTHING = "~rights";

const KEYS: readonly (readonly [pattern: string, key: string])[] = [
  ...[homeKey("a"), LOCAL_KEY, GLOBAL_KEY, TOMBSTONES_KEY, RIGHTS_KEY].map((key) => ["timeline:*", key] as const),
  ...[RECENT_KEY, connectionsOfUserKey("a"), connectionKey("a.a")].map((key) => ["sse_*", key] as const),
  ["analysis:*", analysisCacheKey("a", "a", "a")],
];

/** A question to the server, and the right that it needs beside that of the command, as ACL SETUSER takes them. */
interface Probe {
  readonly command: readonly [name: string, ...args: string[]];
  readonly needs?: string;
}

/**
 * Questions in a transaction that is discarded: a server checks the rights as it queues a command, so nothing is read
 * or written.
 */
const PROBES: readonly Probe[] = [
  { command: ["multi"] },
  ...COMMANDS.map(([name = "", ...args]) => ({
    command: [name, ...args.map((arg) => (arg === "K" ? RIGHTS_KEY : arg))] as const,
  })),
  ...KEYS.flatMap(([pattern, key]) => [
    { command: ["zscore", key, NOTHING] as const, needs: `~${pattern}` },
    { command: ["zrem", key, NOTHING] as const, needs: `~${pattern}` },
  ]),
  { command: ["publish", DELETIONS_CHANNEL, NOTHING], needs: `&${DELETIONS_CHANNEL}` },
  { command: ["discard"] },
];

/** Names of commands that the check asks for; a test compares them with those in use. */
export const CHECKED_COMMANDS: readonly string[] = [...new Set(PROBES.map(({ command }) => command[0]))];

/** @throws Refusal that names the rights which our user of Redis lacks; AppError `unavailable` */
export async function checkRights(client: RedisClient): Promise<void> {
  try {
    await Promise.all(mastersOf(client).map(checkServer));
  } catch (error) {
    if (error instanceof Refusal) throw error;
    // The client itself says only that it is not connected.
    throw refusalOf(client) ?? redisError(error);
  }
}

async function checkServer(server: Redis): Promise<void> {
  // The client's own MULTI would end with EXEC.
  const calls = PROBES.map(({ command }): [string, ...string[]] => ["call", ...command]);
  const replies = (await server.pipeline(calls).exec()) ?? [];
  const missing = replies.flatMap(([error], index) => {
    if (!error) return [];
    // Other replies, such as that a key is on another node, mean that the user has the right.
    if (error.name !== "ReplyError") throw error;
    return lacksRight(error) ? missingRight(error.message, PROBES[index] as Probe) : [];
  });
  if (missing.length === 0) return;
  const rights = [...new Set(missing)].join(" ");
  const { host, port } = server.options;
  throw new Refusal(`Redis ${host}:${port}: its user lacks these rights: ${rights}`, {
    publicMessage: "Redis does not permit a command",
    advice: `give the user these rights: ACL SETUSER <user> ${rights}`,
  });
}

/** Returns the missing right. The server names a forbidden command first, then a key or a channel. */
function missingRight(text: string, { command: [name], needs = "~timeline:*" }: Probe): string {
  return / run the /.test(text) ? `+${name}` : needs;
}

/** Marks a client as refused, and so not ready, after its user has lost rights, until the rights are restored. */
export function createRightsWatch(client: RedisClient, log: Logger = silent) {
  let isLooking = false;
  const look = async (): Promise<boolean> => {
    try {
      await checkRights(client);
      return true;
    } catch (error) {
      if (error instanceof Refusal) noteRefusal(client, error, log);
      return false;
    }
  };
  const untilGivenBack = async (): Promise<void> => {
    do await pause(LOOK_MS);
    while (client.status !== "end" && !(await look()));
    noteRefusal(client, undefined, log);
    isLooking = false;
  };
  return {
    /** Called for each command that the server did not permit. */
    lost(refusal: Refusal): void {
      if (isLooking) return;
      isLooking = true;
      noteRefusal(client, refusal, log);
      void untilGivenBack();
    },
  };
}

/**
 * Resolves to the reason why a server takes no write. Nothing is written, as the key never exists. A node that does not
 * hold the key says so, and takes writes.
 */
export async function writeFault(client: RedisClient): Promise<string | undefined> {
  try {
    await client.set(RIGHTS_KEY, "1", "XX");
    return undefined;
  } catch (error) {
    return /^(MOVED|ASK|TRYAGAIN)\b/.test((error as Error).message) ? undefined : oneLine(error);
  }
}
