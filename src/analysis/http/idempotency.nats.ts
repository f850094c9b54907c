import { encodeId, fingerprint } from "../../kernel/ids.js";
import { badRequest } from "../../kernel/problem.js";
import { DAY, sharedNow } from "../../kernel/time.js";
import type { Bucket } from "../../platform/nats/bucket.js";

export interface Accepted {
  readonly analysis_id: string;
  readonly status: "queued";
  readonly estimated_completion: string;
  readonly status_url: string;
}

export interface KeptAnswer {
  readonly at: string;
  /** Fingerprint of the body. */
  readonly body: string;
  readonly answer: Accepted;
  /** The request has its PubAck. */
  readonly accepted: boolean;
}

const keyOf = (user: string, key: string): string => `k.${encodeId(user)}.${fingerprint(key)}`;

const isFresh = ({ at: answeredAt }: KeptAnswer): boolean => Date.parse(answeredAt) > sharedNow() - DAY;

export type IdempotencyKeys = ReturnType<typeof createIdempotencyKeys>;

/** Each answer is kept for a day. Of several at once, the first one stays. */
export function createIdempotencyKeys(bucket: Bucket) {
  const find = async (name: string) => {
    const entry = await bucket.get(name);
    return entry && { kept: entry.value as KeptAnswer, revision: entry.revision };
  };
  const keep = async (name: string, answer: KeptAnswer, revision = 0): Promise<KeptAnswer> => {
    if (await bucket.replace(name, answer, revision)) return answer;
    const known = await find(name);
    return known && isFresh(known.kept) ? known.kept : keep(name, answer, known?.revision);
  };
  return {
    find: async (user: string, key: string) => {
      const known = await find(keyOf(user, key));
      return known && isFresh(known.kept) ? known.kept : undefined;
    },
    /** Keeps the answer unless another one is kept; resolves to the one that is kept then. */
    claim: (user: string, key: string, answer: KeptAnswer) => keep(keyOf(user, key), answer),
    accepted: (user: string, key: string, answer: KeptAnswer) =>
      bucket.put(keyOf(user, key), { ...answer, accepted: true }),
  };
}

const MAX_CHARACTERS = 255;
/** The header is a String of RFC 8941, section 3.3.3. */
const QUOTED = /^"((?:[ !#-[\]-~]|\\["\\])*)"$/;
/** Many clients leave the quotes out. A comma would be a second field. */
const BARE = /^[!#-+\--~]+$/;

/** Reads the key as in draft-ietf-httpapi-idempotency-key-header-07; undefined without one. @throws Problem 400 */
export function readIdempotencyKey(header: string | undefined): string | undefined {
  if (header === undefined) return undefined;
  const key = QUOTED.exec(header)?.[1]?.replaceAll(/\\(["\\])/g, "$1") ?? (BARE.test(header) ? header : "");
  if (key !== "" && key.length <= MAX_CHARACTERS) return key;
  const detail = `must be a string of 1 to ${MAX_CHARACTERS} ASCII characters in quotes`;
  throw badRequest([{ field: "Idempotency-Key", detail }]);
}
