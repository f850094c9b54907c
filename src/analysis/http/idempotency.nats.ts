import { encodeId, fingerprint } from "../../kernel/ids.js";
import { DAY, sharedNow } from "../../kernel/time.js";
import type { Bucket } from "../bucket.nats.js";
import type { IdempotencyKeys, KeptAnswer } from "./ask.js";

const keyOf = (user: string, key: string): string => `k.${encodeId(user)}.${fingerprint(key)}`;

const isFresh = ({ at }: KeptAnswer): boolean => Date.parse(at) > sharedNow() - DAY;

/** Each answer is kept for a day. Of several at once, the first one stays. */
export function createIdempotencyKeys(bucket: Bucket): IdempotencyKeys {
  const find = async (name: string) => {
    const entry = await bucket.get(name);
    return entry && { kept: entry.value as KeptAnswer, revision: entry.revision };
  };
  const keep = async (name: string, answer: KeptAnswer, revision = 0): Promise<KeptAnswer> => {
    if (await bucket.replace(name, answer, revision)) return answer;
    const held = await find(name);
    return held && isFresh(held.kept) ? held.kept : keep(name, answer, held?.revision);
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
