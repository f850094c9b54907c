import { randomBytes } from "node:crypto";
import { MINUTE } from "../../kernel/time.js";
import { type Scripts, script } from "../../platform/redis/scripts.js";
import { limitKey, usersKey } from "../keys.js";

const USERS_READ_LIST = script("users-read-list", import.meta.url);
const USERS_FILL_LIST = script("users-fill-list", import.meta.url);
const USERS_FORGET = script("users-forget", import.meta.url);

/** A longer list is read from the database page by page. */
export const MAX_CACHED_IDS = 5_000;

const LIST_TTL_MS = 10 * MINUTE;
const GENERATION_TTL_MS = 10 * MINUTE;

export type ListName = "following" | "followers";

type ListReply = [generation: string, held: number, total: number, ids: string[]];

const keysOf = (list: ListName, user: string): [string, string, string] => [
  usersKey(list, user),
  usersKey(`${list}-count`, user),
  usersKey(`${list}-generation`, user),
];

export type ListCache = ReturnType<typeof createListCache>;

/** A change raises the generation of a list, which keeps results read before it from being stored. */
export function createListCache({ run, command }: Scripts) {
  const process = randomBytes(9).toString("base64url");
  let made = 0;
  const newGeneration = (): string => `${process}.${++made}`;
  /** Resolves to false where the generation has passed, and nothing was stored. */
  const store = async (list: ListName, user: string, generation: string, values: readonly (string | number)[]) =>
    (await run(USERS_FILL_LIST, keysOf(list, user), [generation, LIST_TTL_MS, ...values])) === 1;
  return {
    read: async (list: ListName, user: string, after: string, limit: number) => {
      const args = [`(${after}`, limit, newGeneration(), GENERATION_TTL_MS];
      const reply = (await run(USERS_READ_LIST, keysOf(list, user), args)) as ListReply;
      const [generation, held, total, ids] = reply;
      return { generation, ids: held === 1 ? ids : undefined, total: total < 0 ? undefined : total };
    },
    fill: (list: ListName, user: string, generation: string, ids: readonly string[]): Promise<boolean> =>
      store(list, user, generation, ["", ...ids]),
    fillTotal: (list: ListName, user: string, generation: string, total: number): Promise<boolean> =>
      store(list, user, generation, [total]),
    discard: async (list: ListName, user: string): Promise<void> => {
      const [held, count, generation] = keysOf(list, user);
      await run(USERS_FORGET, [generation, held, count], [newGeneration(), GENERATION_TTL_MS]);
    },
    /** Removes all keys of an erased user; what was read before is not stored, since the generation is gone. */
    forget: async (user: string): Promise<void> => {
      const keys = [...keysOf("following", user), ...keysOf("followers", user), limitKey("follows", user)];
      await command("del", (client) => client.del(...keys));
    },
  };
}
