import { encodeId, fingerprint } from "../../kernel/ids.js";
import { DAY } from "../../kernel/time.js";
import type { Bucket } from "../bucket.nats.js";
import type { IdempotencyKeys, KeptAnswer } from "./ask.js";

const keyOf = (user: string, key: string): string => `k.${encodeId(user)}.${fingerprint(key)}`;

const isFresh = ({ at }: KeptAnswer): boolean => Date.parse(at) > Date.now() - DAY;

/** Each answer is kept for a day. Of several at once, the first one stays. */
export function createIdempotencyKeys(bucket: Bucket): IdempotencyKeys {
  const find = async (name: string) => {
    const entry = await bucket.get(name);
    return entry && { kept: entry.value as KeptAnswer, revision: entry.revision };
  };
  const keep = async (name: string, answer: KeptAnswer): Promise<KeptAnswer> => {
    const held = await find(name);
    if (held && isFresh(held.kept)) return held.kept;
    const won = held ? await bucket.replace(name, answer, held.revision) : await bucket.create(name, answer);
    return won ? answer : keep(name, answer);
  };
  return {
    find: async (user, key) => {
      const held = await find(keyOf(user, key));
      return held && isFresh(held.kept) ? held.kept : undefined;
    },
    claim: (user, key, answer) => keep(keyOf(user, key), answer),
    accepted: (user, key, answer) => bucket.put(keyOf(user, key), { ...answer, accepted: true }),
  };
}
