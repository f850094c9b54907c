import { chunked } from "../../kernel/concurrency.js";
import { authorKey, deletedKey, FLOOR_MEMBER, postedKey } from "../keys.js";
import type { OwnDrops, Send } from "./holdings.js";

const DROPS_A_CALL = 5_000;
/** So many take some 25 MB; more are asked for in Redis each time. */
const MOST_HELD = 250_000;

/** The drops are those that the fences have recorded as deleted under the users. */
export async function readOwnDrops(send: Send, users: readonly string[], mostHeld = MOST_HELD): Promise<OwnDrops> {
  const held = new Set<string>();
  const asked: string[] = [];
  const counts = (await send(users.map((user) => ["zcard", deletedKey(user)]))).map(Number);
  const authors = users.filter((_, at) => counts[at] !== 0);
  for (const [index, user] of users.entries()) {
    const [key, count] = [deletedKey(user), counts[index] as number];
    if (held.size + count > mostHeld) asked.push(key);
    else
      for (let at = 0; at < count; at += DROPS_A_CALL) {
        const [drops] = await send([["zrange", key, at, at + DROPS_A_CALL - 1]]);
        for (const drop of drops as string[]) held.add(drop);
      }
  }
  const ownAmong: OwnDrops["ownAmong"] = async (drops) => {
    const own = await Promise.all(asked.map((key) => askRedis(send, key, drops)));
    return new Set([...drops.filter((drop) => held.has(drop)), ...own.flat()]);
  };
  return { ownAmong, authors };
}

/** Resolves to the drops of a big author that their own timeline and the list of their newest drops hold. */
export async function readStoredDrops(send: Send, user: string): Promise<string[]> {
  const lists = (await send([authorKey(user), postedKey(user)].map((key) => ["zrange", key, 0, -1]))) as string[][];
  return lists.flat().filter((member) => member !== FLOOR_MEMBER);
}

async function askRedis(send: Send, key: string, drops: readonly string[]): Promise<string[]> {
  const own: string[] = [];
  for (const some of chunked([...new Set(drops)], DROPS_A_CALL)) {
    const [scores] = await send([["zmscore", key, ...some]]);
    for (const [at, score] of (scores as (string | null)[]).entries()) if (score !== null) own.push(some[at] as string);
  }
  return own;
}
