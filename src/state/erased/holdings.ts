import { namesPerson, type People, parsedJson } from "../../contracts/people.js";
import { decodeId } from "../../kernel/ids.js";
import type { Holding } from "../declared.js";
import { FLOOR_MEMBER, HIDDEN_STATE } from "../keys.js";

type Command = readonly [name: string, ...args: (string | number)[]];

/** Sends commands to Redis in one round trip. Resolves to their replies in the same order. */
export type Send = (commands: readonly Command[]) => Promise<unknown[]>;

export interface OwnDrops {
  /** Resolves to those of the drops that are deleted drops of one of the users. */
  readonly ownAmong: (drops: readonly string[]) => Promise<ReadonlySet<string>>;
  /** Users who have deleted drops. */
  readonly authors: readonly string[];
}

export interface Subjects extends People, OwnDrops {
  /** Callback: called for each drop of these people that the scan finds, including drops that no index lists. */
  readonly met: (drop: string, user: string) => void;
}

export interface Look {
  /** Maximum number of keys in a call, which takes a server some ms. */
  readonly atOnce: number;
  /** Resolves to the items of each key that name one of the people, or are their drops. */
  readonly find: (send: Send, keys: readonly string[], subjects: Subjects) => Promise<readonly (readonly string[])[]>;
  readonly remove: "srem" | "zrem" | "hdel" | "unlink" | "forget-unfollowers" | "forget-beside-home";
}

const NOTHING: readonly string[] = [];

const everything = (): string => "*";

const membersOf = (
  ask: "smismember" | "zmscore" | "hmget",
  membersIn: (people: People) => Iterable<string>,
): Look["find"] => {
  return async (send, keys, subjects) => {
    const members = [...membersIn(subjects)];
    const replies = (await send(keys.map((key) => [ask, key, ...members]))) as (string | number | null)[][];
    return replies.map((reply) => members.filter((_, index) => reply[index] != null && reply[index] !== 0));
  };
};

const ENTRIES_A_STEP = 1_000;

/** Scans all entries of each key, page by page: fields with their values, or members with their scores. */
const scanning = (
  scan: "hscan" | "zscan",
  patternIn: (token: string) => string,
  isFound: (entry: readonly [name: string, value: string], subjects: Subjects) => boolean | Promise<boolean>,
): Look["find"] => {
  const scanned = async (send: Send, key: string, subjects: Subjects): Promise<string[]> => {
    const matches = new Set<string>();
    const [only, ...more] = subjects.tokens;
    const pattern = only === undefined || more.length > 0 ? everything() : patternIn(only);
    let cursor = "0";
    do {
      const [reply] = await send([[scan, key, cursor, "MATCH", pattern, "COUNT", ENTRIES_A_STEP]]);
      const [next, flat] = reply as [string, string[]];
      for (let index = 0; index < flat.length; index += 2) {
        const [name, value] = [flat[index] as string, flat[index + 1] as string];
        if (await isFound([name, value], subjects)) matches.add(name);
      }
      cursor = next;
    } while (cursor !== "0");
    return [...matches];
  };
  return (send, keys, subjects) => Promise.all(keys.map((key) => scanned(send, key, subjects)));
};

const findDrops: Look["find"] = async (send, keys, { ownAmong }) => {
  const stored = (await send(keys.map((key) => ["zrange", key, 0, -1]))) as string[][];
  const deleted = await ownAmong(stored.flat());
  if (deleted.size === 0) return keys.map(() => NOTHING);
  return stored.map((drops) => drops.filter((drop) => drop !== FLOOR_MEMBER && deleted.has(drop)));
};

/**
 * The field of an edge has the tokens of the followed user and the follower. `~deleted` belongs to the tombstones of
 * the followed user.
 */
const isEdgeOf = ([field]: readonly [string, string], { tokens }: People): boolean => {
  const [followed = "", follower = ""] = field.split(":");
  return (tokens.has(followed) && follower !== "~deleted") || tokens.has(follower);
};

const isBylineOf = ([drop, value]: readonly [string, string], { tokens, met }: Subjects): boolean => {
  const users = value.split(",").slice(0, 3);
  if (tokens.has(users[0] ?? "")) met(drop, decodeId(users[0] ?? ""));
  return users.some((user) => tokens.has(user));
};

/**
 * Finds users in copies of whom users follow. Without its state a copy has the replies that came beside a rebuild, with
 * whom they answer. The rebuild may end meanwhile, and name them by a field.
 */
const findFollows: Look["find"] = async (send, keys, subjects) => {
  const named = await findFields(send, keys, subjects);
  const open = keys.filter((_, index) => !named[index]?.includes(HIDDEN_STATE));
  const replies = await findReplies(send, open, subjects);
  const repliesOf = new Map(open.map((key, index) => [key, replies[index] as readonly string[]]));
  return keys.map((key, index) => {
    const came = repliesOf.get(key) ?? NOTHING;
    const users = came.length > 0 ? [...subjects.tokens] : (named[index] as readonly string[]);
    return [...came, ...users.filter((field) => field !== HIDDEN_STATE)];
  });
};
const findFields = membersOf("hmget", ({ tokens }) => [HIDDEN_STATE, ...tokens]);
const findReplies = scanning(
  "hscan",
  everything,
  ([field, parent], { tokens }) => field[0] === "?" && tokens.has(parent),
);

const isWaitingFor = async ([, value]: readonly [string, string], { all, ownAmong }: Subjects): Promise<boolean> => {
  const noted = parsedJson(value);
  if (all.some((person) => namesPerson(noted, person))) return true;
  const { drop } = (noted ?? {}) as { readonly drop?: unknown };
  return typeof drop === "string" && (await ownAmong([drop])).size > 0;
};

const isConnectionOf = ([id]: readonly [string, string], { tokens }: People): boolean =>
  tokens.has(id.slice(id.indexOf(".") + 1));

/** Finds drops of remote users, which are stored with their actors. */
const findActors: Look["find"] = async (send, keys, { users, met }) => {
  const actors = (await send(keys.map((key) => ["get", key]))) as (string | null)[];
  return keys.map((key, index) => {
    const actor = actors[index] ?? "";
    if (!users.has(actor)) return NOTHING;
    met(decodeId(key.slice(key.lastIndexOf(":") + 1)), actor);
    return [actor];
  });
};

const tokensIn = ({ tokens }: People): Iterable<string> => tokens;

const KEYS_AT_ONCE = 250;

export const LOOKS: Readonly<Record<Holding, Look>> = {
  set: { atOnce: KEYS_AT_ONCE, find: membersOf("smismember", tokensIn), remove: "srem" },
  "sorted set": { atOnce: KEYS_AT_ONCE, find: membersOf("zmscore", tokensIn), remove: "zrem" },
  hash: { atOnce: KEYS_AT_ONCE, find: membersOf("hmget", tokensIn), remove: "hdel" },
  follows: { atOnce: KEYS_AT_ONCE, find: findFollows, remove: "forget-beside-home" },
  hidden: { atOnce: KEYS_AT_ONCE, find: membersOf("hmget", tokensIn), remove: "forget-beside-home" },
  ids: { atOnce: KEYS_AT_ONCE, find: membersOf("zmscore", ({ users }) => users), remove: "zrem" },
  unfollowers: {
    atOnce: KEYS_AT_ONCE,
    find: membersOf("zmscore", tokensIn),
    remove: "forget-unfollowers",
  },
  connections: { atOnce: 1, find: scanning("zscan", (token) => `*.${token}`, isConnectionOf), remove: "zrem" },
  drops: { atOnce: 20, find: findDrops, remove: "zrem" },
  bylines: { atOnce: 20, find: scanning("hscan", everything, isBylineOf), remove: "hdel" },
  edges: { atOnce: 8, find: scanning("hscan", (token) => `*${token}*`, isEdgeOf), remove: "hdel" },
  waiting: { atOnce: 1, find: scanning("hscan", everything, isWaitingFor), remove: "hdel" },
  actor: { atOnce: KEYS_AT_ONCE, find: findActors, remove: "unlink" },
};
