import { randomBytes } from "node:crypto";
import { usersKey } from "../contracts/keys.js";
import { MINUTE } from "../kernel/time.js";
import { type Scripts, script } from "../platform/redis/scripts.js";
import type { CurrentFollowers } from "./edges.sql.js";
import type { Count, ListName, Profile } from "./reads.sql.js";

const USERS_READ_LIST = script("users-read-list", import.meta.url);
const USERS_GENERATION = script("users-generation", import.meta.url);
const USERS_FILL_LIST = script("users-fill-list", import.meta.url);
const USERS_FORGET = script("users-forget", import.meta.url);
const USERS_CHANGE_LIST = script("users-change-list", import.meta.url);
const USERS_READ_PROFILE = script("users-read-profile", import.meta.url);
const USERS_FILL_PROFILE = script("users-fill-profile", import.meta.url);

/** A longer list is read from the database page by page. */
export const MAX_CACHED_IDS = 5_000;

const LIST_TTL_MS = 10 * MINUTE;
const GENERATION_TTL_MS = 10 * MINUTE;
/** Profiles have no events: this bounds how long a process that died before it dropped one leaves it outdated. */
const PROFILE_TTL_MS = MINUTE;

function createGenerations(): () => string {
  const mine = randomBytes(9).toString("base64url");
  let made = 0;
  return () => `${mine}.${++made}`;
}

type ListReply = [generation: string, held: number, total: number, ids: string[]];

const keysOf = (list: ListName, user: string): [string, string, string] => [
  usersKey(list, user),
  usersKey(`${list}-count`, user),
  usersKey(`${list}-generation`, user),
];

export type ListCache = ReturnType<typeof createListCache>;

/** A change raises the generation of a list, which keeps results read before it from being stored. */
export function createListCache({ run }: Scripts, maxCachedIds = MAX_CACHED_IDS) {
  const newGeneration = createGenerations();
  return {
    /** Resolves to undefined where the list is not cached. */
    read: async (list: ListName, user: string, after: string, limit: number) => {
      const args = [`(${after}`, limit, newGeneration(), GENERATION_TTL_MS];
      const reply = (await run(USERS_READ_LIST, keysOf(list, user), args)) as ListReply;
      const [generation, held, total, ids] = reply;
      return { generation, ids: held === 1 ? ids : undefined, total: total < 0 ? undefined : total };
    },
    generation: async (list: ListName, user: string): Promise<string | undefined> => {
      const [, , key] = keysOf(list, user);
      return ((await run(USERS_GENERATION, [key], [])) as string | null) ?? undefined;
    },
    /** Resolves to false where the generation has passed, and nothing was stored. */
    fill: async (list: ListName, user: string, generation: string, ids: readonly string[]): Promise<boolean> =>
      (await run(USERS_FILL_LIST, keysOf(list, user), [generation, LIST_TTL_MS, "", 0, ...ids])) === 1,
    fillCount: async (list: ListName, user: string, generation: string, { total, revision }: Count): Promise<boolean> =>
      (await run(USERS_FILL_LIST, keysOf(list, user), [generation, LIST_TTL_MS, total, revision])) === 1,
    drop: async (list: ListName, user: string): Promise<void> => {
      const [held, count, generation] = keysOf(list, user);
      await run(USERS_FORGET, [generation, held, count], [newGeneration(), GENERATION_TTL_MS]);
    },
    /** Updates a cached list in place; removes it where it changed otherwise since `generation`. */
    change: async (list: ListName, user: string, generation: string, current: CurrentFollowers) => {
      const { total, revision, present, gone } = current;
      const next = [generation, newGeneration(), GENERATION_TTL_MS, total, revision, maxCachedIds];
      await run(USERS_CHANGE_LIST, keysOf(list, user), [...next, present.length, ...present, ...gone]);
    },
  };
}

export type ProfileCache = ReturnType<typeof createProfileCache>;

/** "missing": the user has no profile. */
export function createProfileCache({ run }: Scripts) {
  const newGeneration = createGenerations();
  const keys = (user: string): [string, string] => [usersKey("profile", user), usersKey("profile-generation", user)];
  return {
    read: async (user: string) => {
      const reply = (await run(USERS_READ_PROFILE, keys(user), [newGeneration(), GENERATION_TTL_MS])) as string[];
      const [generation = "", held] = reply;
      if (held === undefined) return { generation };
      return { generation, profile: held === "" ? ("missing" as const) : (JSON.parse(held) as Profile) };
    },
    fill: async (user: string, generation: string, profile: Profile | "missing"): Promise<boolean> => {
      const value = profile === "missing" ? "" : JSON.stringify(profile);
      return (await run(USERS_FILL_PROFILE, keys(user), [generation, PROFILE_TTL_MS, value])) === 1;
    },
    drop: async (user: string): Promise<void> => {
      const [held, generation] = keys(user);
      await run(USERS_FORGET, [generation, held], [newGeneration(), GENERATION_TTL_MS]);
    },
  };
}
