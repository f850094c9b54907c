import { createCache } from "../contracts/caches.js";
import type { Affected } from "../contracts/timelines.js";
import { type IdPage, readPages } from "../kernel/paging.js";

type ReadFollowing = (user: string, token: string, deadline: number) => Promise<IdPage>;

/**
 * Returns a function that tells if a user's home may lack changes that a recovery skipped. A home may if its user is a
 * named reader, or follows a named author.
 */
export function createIsAffected(affected: () => readonly Affected[], readFollowing: ReadFollowing) {
  const known = createCache<boolean>("affectedReaders", { sizeOf: () => 0 });
  let [latest, names]: [readonly Affected[], string] = [[], ""];
  const current = (): readonly Affected[] => {
    const now = affected();
    if (now === latest) return now;
    latest = now;
    const changed = now.map(({ kind, user }) => `${kind} ${user}`).join("\n");
    if (changed !== names) known.clear();
    names = changed;
    return now;
  };
  /** @throws if the users service does not list whom the user follows */
  return async (user: string, deadline: number): Promise<boolean> => {
    const now = current();
    if (now.length === 0) return false;
    const answer = known.get(user) ?? (await look(now, user, deadline));
    if (now === latest) known.set(user, answer);
    return answer;
  };

  async function look(now: readonly Affected[], user: string, deadline: number): Promise<boolean> {
    if (now.some((reader) => reader.user === user)) return true;
    const authors = new Set(now.flatMap((entity) => (entity.kind === "author" ? entity.user : [])));
    if (authors.size === 0) return false;
    for await (const { ids } of readPages((token) => readFollowing(user, token, deadline)))
      if (ids.some((id) => authors.has(id))) return true;
    return false;
  }
}
