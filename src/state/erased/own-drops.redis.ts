import { chunked } from "../../kernel/concurrency.js";
import { authorKey, deletedKey, FLOOR_MEMBER, postedKey } from "../keys.js";
import type { OwnDrops, Send } from "./holdings.js";

const DROPS_A_CALL = 5_000;
/** Maximum number of drops in memory, about 25 MB. More are looked up in Redis each time. */
const MOST_HELD = 250_000;

/** Reads the drops that the fences have recorded as deleted under the users. */
export async function readOwnDrops(send: Send, users: readonly string[], mostHeld = MOST_HELD): Promise<OwnDrops> {
  const inMemory = new Set<string>();
  const asked: string[] = [];
  const counts = (await send(users.map((user) => ["zcard", deletedKey(user)]))).map(Number);
  const authors = users.filter((_, index) => counts[index] !== 0);
  for (const [index, user] of users.entries()) {
    const [key, count] = [deletedKey(user), counts[index] as number];
    if (inMemory.size + count > mostHeld) asked.push(key);
    else
      for (let offset = 0; offset < count; offset += DROPS_A_CALL) {
        const [drops] = await send([["zrange", key, offset, offset + DROPS_A_CALL - 1]]);
        for (const drop of drops as string[]) inMemory.add(drop);
      }
  }
  const ownAmong: OwnDrops["ownAmong"] = async (drops) => {
    const answers = await Promise.all(asked.map((key) => askRedis(send, key, drops)));
    return new Set([...drops.filter((drop) => inMemory.has(drop)), ...answers.flat()]);
  };
  return { ownAmong, authors };
}

/** Resolves to the drops of a big author in their timeline and in the list of their newest drops. */
export async function readStoredDrops(send: Send, user: string): Promise<string[]> {
  const lists = (await send([authorKey(user), postedKey(user)].map((key) => ["zrange", key, 0, -1]))) as string[][];
  return lists.flat().filter((member) => member !== FLOOR_MEMBER);
}

async function askRedis(send: Send, key: string, drops: readonly string[]): Promise<string[]> {
  const matches: string[] = [];
  for (const chunk of chunked([...new Set(drops)], DROPS_A_CALL)) {
    const [scores] = await send([["zmscore", key, ...chunk]]);
    for (const [index, score] of (scores as (string | null)[]).entries())
      if (score !== null) matches.push(chunk[index] as string);
  }
  return matches;
}
