import { fingerprint } from "../kernel/ids.js";
import type { Use } from "../records/limits.redis.js";
import type { PostsConfig } from "./config.js";
import type { NewDrop } from "./drops.sql.js";

type Limits = Pick<PostsConfig, "limitDrops" | "limitSameBody">;

/** A new drop counts as one of its author, and as one with this text for this audience, whatever it replies to. */
export function usesOfDrop(drop: NewDrop, { limitDrops, limitSameBody }: Limits): Use[] {
  const { user_id: user, visibility, recipients, summary, body } = drop;
  const text = fingerprint(JSON.stringify([visibility, [...recipients].sort(), summary, body]));
  return [
    { kind: "drops", user, limit: limitDrops },
    { kind: "same-body", user, of: text, limit: limitSameBody },
  ];
}
