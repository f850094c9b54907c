import { AppError } from "../../kernel/errors.js";
import type { RedisClient } from "./clusters.js";
import { redisError } from "./errors.js";

export type Command = readonly [name: string, ...args: (string | number)[]];

/**
 * Sends commands in one round trip; in a cluster, if the keys are on several nodes, in any order. The replies are in
 * the order of the commands. Names are sent in lower case, since the client flattens replies by them.
 */
export async function sendCommands(client: RedisClient, commands: readonly Command[]): Promise<unknown[]> {
  const calls = commands.map(([name, ...args]): [string, ...(string | number)[]] => [name.toLowerCase(), ...args]);
  if (client.isCluster) return Promise.all(calls.map((call) => client.call(...call)));
  const replies = await client.pipeline(calls).exec();
  if (!replies) throw new AppError("unavailable", "Redis executed no command");
  return replies.map(([error, reply]) => {
    if (error) throw redisError(error);
    return reply;
  });
}
