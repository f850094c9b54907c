import { decodeId, FLOOR_MEMBER } from "../kernel/ids.js";
import type { Holding } from "./kinds.js";
import { namesPerson, type Person, parsedJson } from "./values.js";

type Command = readonly [name: string, ...args: (string | number)[]];

/** Sends commands to Redis together; resolves to their replies in the same order. */
export type Send = (commands: readonly Command[]) => Promise<unknown[]>;

export interface Subject extends Person {
  readonly ownAmong: (drops: readonly string[]) => Promise<ReadonlySet<string>>;
  /** Is told of a drop that is by the user, whether it is known as the user's or not. */
  readonly met: (drop: string) => void;
}

export interface Look {
  /** So many keys are looked at together: a server takes some ms for them. */
  readonly atOnce: number;
  /** Resolves to what in each of the keys names the user, or holds their drops. */
  readonly find: (send: Send, keys: readonly string[], subject: Subject) => Promise<readonly (readonly string[])[]>;
  readonly remove: "srem" | "zrem" | "hdel" | "unlink" | "forget-unfollowers";
}

const NOTHING: readonly string[] = [];

const memberOf = (ask: "sismember" | "zscore" | "hexists", memberIn: (person: Person) => string): Look["find"] => {
  return async (send, keys, subject) => {
    const member = memberIn(subject);
    const replies = await send(keys.map((key) => [ask, key, member]));
    return replies.map((reply) => (reply === null || reply === 0 ? NOTHING : [member]));
  };
};

const ENTRIES_A_STEP = 1_000;

/** Looks at all entries of each key, some at a time: fields with their values, or members with their scores. */
const scanning = (
  scan: "hscan" | "zscan",
  patternIn: (person: Person) => string,
  isFound: (entry: readonly [name: string, value: string], subject: Subject) => boolean | Promise<boolean>,
): Look["find"] => {
  const scanned = async (send: Send, key: string, subject: Subject): Promise<string[]> => {
    const found = new Set<string>();
    let cursor = "0";
    do {
      const [reply] = await send([[scan, key, cursor, "MATCH", patternIn(subject), "COUNT", ENTRIES_A_STEP]]);
      const [next, flat] = reply as [string, string[]];
      for (let at = 0; at < flat.length; at += 2) {
        const [name, value] = [flat[at] as string, flat[at + 1] as string];
        if (await isFound([name, value], subject)) found.add(name);
      }
      cursor = next;
    } while (cursor !== "0");
    return [...found];
  };
  return async (send, keys, subject) => {
    const found: string[][] = [];
    for (const key of keys) found.push(await scanned(send, key, subject));
    return found;
  };
};

const findDrops: Look["find"] = async (send, keys, { ownAmong }) => {
  const held = (await send(keys.map((key) => ["zrange", key, 0, -1]))) as string[][];
  const own = await ownAmong(held.flat());
  if (own.size === 0) return keys.map(() => NOTHING);
  return held.map((drops) => drops.filter((drop) => drop !== FLOOR_MEMBER && own.has(drop)));
};

/** A field is the tokens of a followed user and a follower. `~deleted` belongs to the tombstones of the followed one. */
const isEdgeOf = ([field]: readonly [string, string], { token }: Person): boolean => {
  const [followed, follower] = field.split(":");
  return (followed === token && follower !== "~deleted") || follower === token;
};

const isBylineOf = ([drop, value]: readonly [string, string], { token, met }: Subject): boolean => {
  const [author, original] = value.split(",");
  if (author === token) met(drop);
  return author === token || original === token;
};

const isWaitingFor = async ([, value]: readonly [string, string], subject: Subject): Promise<boolean> => {
  const noted = parsedJson(value);
  if (namesPerson(noted, subject)) return true;
  const { drop } = (noted ?? {}) as { readonly drop?: unknown };
  return typeof drop === "string" && (await subject.ownAmong([drop])).size > 0;
};

const isConnectionOf = ([id]: readonly [string, string], { token }: Person): boolean =>
  id.slice(id.indexOf(".") + 1) === token;

const everything = (): string => "*";

/** Drops of remote users are noted with their actors. */
const findActors: Look["find"] = async (send, keys, { user, met }) => {
  const actors = await send(keys.map((key) => ["get", key]));
  return keys.map((key, at) => {
    if (actors[at] !== user) return NOTHING;
    met(decodeId(key.slice(key.lastIndexOf(":") + 1)));
    return [user];
  });
};

const KEYS_AT_ONCE = 250;

export const LOOKS: Readonly<Record<Holding, Look>> = {
  set: { atOnce: KEYS_AT_ONCE, find: memberOf("sismember", ({ token }) => token), remove: "srem" },
  "sorted set": { atOnce: KEYS_AT_ONCE, find: memberOf("zscore", ({ token }) => token), remove: "zrem" },
  hash: { atOnce: KEYS_AT_ONCE, find: memberOf("hexists", ({ token }) => token), remove: "hdel" },
  ids: { atOnce: KEYS_AT_ONCE, find: memberOf("zscore", ({ user }) => user), remove: "zrem" },
  unfollowers: {
    atOnce: KEYS_AT_ONCE,
    find: memberOf("zscore", ({ token }) => token),
    remove: "forget-unfollowers",
  },
  connections: { atOnce: 1, find: scanning("zscan", ({ token }) => `*.${token}`, isConnectionOf), remove: "zrem" },
  drops: { atOnce: 20, find: findDrops, remove: "zrem" },
  bylines: { atOnce: 1, find: scanning("hscan", everything, isBylineOf), remove: "hdel" },
  edges: { atOnce: 8, find: scanning("hscan", ({ token }) => `*${token}*`, isEdgeOf), remove: "hdel" },
  waiting: { atOnce: 1, find: scanning("hscan", everything, isWaitingFor), remove: "hdel" },
  actor: { atOnce: KEYS_AT_ONCE, find: findActors, remove: "unlink" },
};
