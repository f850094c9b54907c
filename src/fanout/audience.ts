import { LRUCache } from "lru-cache";
import { type PackedKeys, packKeys } from "../contracts/keys.js";
import { encodeId } from "../kernel/ids.js";
import type { IdPage } from "../kernel/paging.js";

/** Users whose home timelines one write concerns, and their keys, packed once. */
export interface Audience {
  readonly ids: readonly string[];
  readonly keys: PackedKeys;
}

export type ReadFollowers = (author: string, token: string) => Promise<IdPage>;

/** Prepares a list of users for writing; each of them once. */
export function audienceOf(users: Iterable<string>): Audience {
  const ids = [...new Set(users)];
  return { ids, keys: packKeys(ids.map(encodeId)) };
}

/** What a cached audience is good for: only for the generation it was read under. */
interface Cached {
  readonly generation: string;
  readonly audience: Audience;
}

/** At most this many ids are kept, of all authors together: about 200 MB at 36 bytes an id. */
const MAX_CACHED_IDS = 1_000_000;

/**
 * Hands out an author's followers page by page. Authors whose followers fit on
 * one page are remembered as long as their generation stands.
 *
 * @param includeAuthor whether the first page also holds the author, for the author's own home
 */
export class Followers {
  readonly #cache = new LRUCache<string, Cached>({
    maxSize: MAX_CACHED_IDS,
    sizeCalculation: ({ audience }) => audience.ids.length + 1,
  });

  constructor(private readonly read: ReadFollowers) {}

  async *pages(of: {
    author: string;
    generation: string;
    includeAuthor: boolean;
  }): AsyncGenerator<Audience & { only: boolean }> {
    const { author, generation, includeAuthor } = of;
    const name = `${includeAuthor ? "+" : "-"}${author}`;
    const cached = this.#cache.get(name);
    if (cached?.generation === generation) {
      yield { ...cached.audience, only: true };
      return;
    }
    let token = "";
    for (let first = true; first || token !== ""; first = false) {
      const page = await this.read(author, token);
      // The author is on the first page, and on no other, whoever follows themselves.
      const others = page.ids.filter((id) => id !== author);
      const audience = audienceOf(first && includeAuthor ? [author, ...others] : others);
      const only = first && page.next === "";
      if (only) this.#cache.set(name, { generation, audience });
      yield { ...audience, only };
      token = page.next;
    }
  }
}
