import { createCache } from "../../contracts/caches.js";
import {
  type Byline,
  bylineBytes,
  bylineOf,
  bylineText,
  listedBylineText,
  type TimelineEntry,
} from "../../contracts/timelines.js";
import { chunked } from "../../kernel/concurrency.js";
import type { Scripts } from "../../platform/redis/scripts.js";
import { bylinesKey, kindOf } from "../keys.js";

const DROPS_A_CALL = 1_000;

/** Stores and reads the bylines of a timeline's drops. The byline of a drop never changes. */
export function createBylines({ command }: Pick<Scripts, "command">, ttlOf: (key: string) => number) {
  const cached = createCache<Byline>("bylines", { sizeOf: bylineBytes });
  return {
    async keep(key: string, entries: readonly TimelineEntry[]): Promise<void> {
      const bylines = bylinesKey(key);
      const textOf = kindOf(key) === "list" ? listedBylineText : bylineText;
      const signed = entries.flatMap(({ drop, by }) => (by ? [[drop, textOf(by)] as const] : []));
      for (const chunk of chunked(signed, DROPS_A_CALL))
        await command("hset", (client) => client.hset(bylines, new Map(chunk)));
      const ttl = ttlOf(key);
      if (ttl > 0 && signed.length > 0) await command("pexpire", (client) => client.pexpire(bylines, ttl));
    },
    /** Returns the bylines of these drops that are stored. */
    async of(key: string, drops: readonly string[]): Promise<ReadonlyMap<string, Byline>> {
      const missing = drops.filter((drop) => !cached.has(drop));
      for (const chunk of chunked(missing, DROPS_A_CALL)) {
        const texts = await command("hmget", (client) => client.hmget(bylinesKey(key), ...chunk));
        for (const [index, drop] of chunk.entries()) {
          const text = texts[index];
          if (text != null) cached.set(drop, bylineOf(text));
        }
      }
      return new Map(
        drops.flatMap((drop) => {
          const by = cached.get(drop);
          return by ? [[drop, by] as const] : [];
        }),
      );
    },
  };
}
