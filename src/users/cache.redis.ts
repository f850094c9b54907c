import { randomBytes } from "node:crypto";
import { usersKey } from "../contracts/keys.js";
import { MINUTE } from "../kernel/time.js";
import type { Scripts } from "../platform/redis/scripts.js";
import type { ListCache, ListName, Profile, ProfileCache } from "./ports.js";

/** Longer lists are read from the database page by page. */
export const MOST_REMEMBERED = 5_000;

const LIST_TTL_MS = 10 * MINUTE;
const GENERATION_TTL_MS = 10 * MINUTE;
/** No event repeats what a process that died, or was cut off from Redis, could not forget. */
const PROFILE_TTL_MS = MINUTE;

/** Names nobody else has made, in this process or another. */
function createNames(): () => string {
  const mine = randomBytes(9).toString("base64url");
  let made = 0;
  return () => `${mine}.${++made}`;
}

type ListReply = [generation: string, held: number, total: number, ids: string[]];

/** The list, its length, its generation. */
const keysOf = (list: ListName, user: string): [string, string, string] => [
  usersKey(list, user),
  usersKey(`${list}-count`, user),
  usersKey(`${list}-generation`, user),
];

/**
 * Remembers lists in Redis, those that grow longer than `mostRemembered` only by their length. A change bumps the generation and so keeps what was read before it from
 * being stored.
 */
export function createListCache({ run }: Scripts, mostRemembered = MOST_REMEMBERED): ListCache {
  const newName = createNames();
  return {
    read: async (list, user, after, limit) => {
      const args = [`(${after}`, limit, newName(), GENERATION_TTL_MS];
      const reply = (await run("users-read-list", keysOf(list, user), args)) as ListReply;
      const [generation, held, total, ids] = reply;
      return { generation, ids: held === 1 ? ids : undefined, total: total < 0 ? undefined : total };
    },
    generation: async (list, user) => {
      const [, , key] = keysOf(list, user);
      return ((await run("users-generation", [key], [])) as string | null) ?? undefined;
    },
    fill: async (list, user, generation, ids) =>
      (await run("users-fill-list", keysOf(list, user), [generation, LIST_TTL_MS, "", 0, ...ids])) === 1,
    fillCount: async (list, user, generation, { total, revision }) =>
      (await run("users-fill-list", keysOf(list, user), [generation, LIST_TTL_MS, total, revision])) === 1,
    drop: async (list, user) => {
      const [held, count, generation] = keysOf(list, user);
      await run("users-forget", [generation, held, count], [newName(), GENERATION_TTL_MS]);
    },
    change: async (list, user, generation, { count, follows }) => {
      const present = [...follows].filter(([, active]) => active).map(([id]) => id);
      const gone = [...follows].filter(([, active]) => !active).map(([id]) => id);
      const next = [generation, newName(), GENERATION_TTL_MS, count.total, count.revision, mostRemembered];
      await run("users-change-list", keysOf(list, user), [...next, present.length, ...present, ...gone]);
    },
  };
}

/** Remembers profiles in Redis, as JSON. */
export function createProfileCache({ run }: Scripts): ProfileCache {
  const newName = createNames();
  const keys = (user: string): [string, string] => [usersKey("profile", user), usersKey("profile-generation", user)];
  return {
    read: async (user) => {
      const reply = (await run("users-read-profile", keys(user), [newName(), GENERATION_TTL_MS])) as string[];
      const [generation = "", held] = reply;
      const profile = held === "" ? "missing" : held === undefined ? undefined : (JSON.parse(held) as Profile);
      return { generation, profile };
    },
    fill: async (user, generation, profile) => {
      const value = profile === "missing" ? "" : JSON.stringify(profile);
      return (await run("users-fill-profile", keys(user), [generation, PROFILE_TTL_MS, value])) === 1;
    },
    drop: async (user) => {
      const [held, generation] = keys(user);
      await run("users-forget", [generation, held], [newName(), GENERATION_TTL_MS]);
    },
  };
}
