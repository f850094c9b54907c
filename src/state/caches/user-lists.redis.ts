import { randomBytes } from "node:crypto";
import { MINUTE } from "../../kernel/time.js";
import type { Scripts } from "../../platform/redis/scripts.js";
import { limitKey, usersKey } from "../keys.js";
import { script } from "../scripts.redis.js";

const USERS_READ_LIST = script("users-read-list", import.meta.url);
const USERS_FILL_LIST = script("users-fill-list", import.meta.url);
const USERS_FORGET = script("users-forget", import.meta.url);

/** Maximum number of ids of a cached list. A longer list is read from the database page by page. */
export const MAX_CACHED_IDS = 5_000;

const LIST_TTL_MS = 10 * MINUTE;
const GENERATION_TTL_MS = 10 * MINUTE;

export type ListName = "following" | "followers";

type ListReply = [generation: string, isCached: number, total: number, ids: string[]];

const keysOf = (list: ListName, user: string): [string, string, string] => [
  usersKey(list, user),
  usersKey(`${list}-count`, user),
  usersKey(`${list}-generation`, user),
];

export type ListCache = ReturnType<typeof createListCache>;

/** Caches lists. A change renews the generation of a list, so that results read before the change are not stored. */
export function createListCache({ run, command }: Scripts) {
  const process = randomBytes(9).toString("base64url");
  let made = 0;
  const newGeneration = (): string => `${process}.${++made}`;
  /** Resolves to false if the list has another generation: then nothing is stored. */
  const store = async (list: ListName, user: string, generation: string, values: readonly (string | number)[]) =>
    (await run(USERS_FILL_LIST, keysOf(list, user), [generation, LIST_TTL_MS, ...values])) === 1;
  return {
    read: async (list: ListName, user: string, after: string, limit: number) => {
      const args = [`(${after}`, limit, newGeneration(), GENERATION_TTL_MS];
      const reply = (await run(USERS_READ_LIST, keysOf(list, user), args)) as ListReply;
      const [generation, isCached, total, ids] = reply;
      return { generation, ids: isCached === 1 ? ids : undefined, total: total < 0 ? undefined : total };
    },
    fill: (list: ListName, user: string, generation: string, ids: readonly string[]): Promise<boolean> =>
      store(list, user, generation, ["", ...ids]),
    fillTotal: (list: ListName, user: string, generation: string, total: number): Promise<boolean> =>
      store(list, user, generation, [total]),
    discard: async (list: ListName, user: string): Promise<void> => {
      const [ids, count, generation] = keysOf(list, user);
      await run(USERS_FORGET, [generation, ids, count], [newGeneration(), GENERATION_TTL_MS]);
    },
    /**
     * Removes all keys of an erased user. Results that were read earlier are not stored, since the generation is gone.
     */
    forget: async (user: string): Promise<void> => {
      const keys = [...keysOf("following", user), ...keysOf("followers", user), limitKey("follows", user)];
      await command("del", (client) => client.del(...keys));
    },
  };
}
