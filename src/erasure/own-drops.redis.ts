import { deletedKey } from "../contracts/keys.js";
import { chunked } from "../kernel/concurrency.js";
import type { Send } from "./holdings.js";

/** Tells which of some drops are deleted drops of the user. */
export type OwnAmong = (drops: readonly string[]) => Promise<ReadonlySet<string>>;

const DROPS_A_CALL = 5_000;
/** So many take some 25 MB; more are asked for in Redis each time. */
const MOST_HELD = 250_000;

/** The drops are those that the fences have recorded as deleted under the user. */
export async function readOwnDrops(send: Send, user: string, mostHeld = MOST_HELD): Promise<OwnAmong> {
  const key = deletedKey(user);
  const held = new Set<string>();
  const [count] = await send([["zcard", key]]);
  if (Number(count) > mostHeld) return askRedis(send, key);
  for (let at = 0; at < Number(count); at += DROPS_A_CALL) {
    const [drops] = await send([["zrange", key, at, at + DROPS_A_CALL - 1]]);
    for (const drop of drops as string[]) held.add(drop);
  }
  return async (drops) => new Set(drops.filter((drop) => held.has(drop)));
}

function askRedis(send: Send, key: string): OwnAmong {
  return async (drops) => {
    const own = new Set<string>();
    for (const some of chunked([...new Set(drops)], DROPS_A_CALL)) {
      const [scores] = await send([["zmscore", key, ...some]]);
      for (const [at, score] of (scores as (string | null)[]).entries())
        if (score !== null) own.add(some[at] as string);
    }
    return own;
  };
}
