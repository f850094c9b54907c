import { createCache } from "../contracts/caches.js";
import type { Affected } from "../contracts/timelines.js";
import { type IdPage, readPages } from "../kernel/paging.js";

type ReadFollowing = (user: string, token: string, deadline: number) => Promise<IdPage>;

/**
 * Makes the function that tells whether a user's home may lack what a recovery has set aside: it may if the user is a
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
  /** @throws where the users service does not say whom the user follows */
  return async (user: string, deadline: number): Promise<boolean> => {
    const now = current();
    if (now.length === 0) return false;
    const answer = known.get(user) ?? (await look(now, user, deadline));
    if (now === latest) known.set(user, answer);
    return answer;
  };

  async function look(now: readonly Affected[], user: string, deadline: number): Promise<boolean> {
    if (now.some((one) => one.user === user)) return true;
    const authors = new Set(now.flatMap((one) => (one.kind === "author" ? one.user : [])));
    if (authors.size === 0) return false;
    for await (const { ids } of readPages((token) => readFollowing(user, token, deadline)))
      if (ids.some((id) => authors.has(id))) return true;
    return false;
  }
}
