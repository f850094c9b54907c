import { type PackedKeys, packKeys } from "../contracts/keys.js";
import { encodeId } from "../kernel/ids.js";

export interface Audience {
  readonly ids: readonly string[];
  readonly keys: PackedKeys;
}

export function audienceOf(users: Iterable<string>): Audience {
  const ids = [...new Set(users)];
  return { ids, keys: packKeys(ids.map(encodeId)) };
}
