import { collect } from "./collect.js";
import type { Sources } from "./ports.js";
import type { TakeSnapshot } from "./rebuild.js";

/** Whose drops a home timeline is made of: the user's own, and those of everybody followed. `deadline` is in ms since the epoch. */
export async function authorsFor(sources: Sources, user: string, deadline: number): Promise<string[]> {
  return [...new Set([user, ...(await sources.following(user, deadline))])];
}

/** What a home timeline should hold, as the upstreams say. */
export function homeSnapshot(
  { sources, maxEntries }: { readonly sources: Sources; readonly maxEntries: number },
  reader: string,
): TakeSnapshot {
  return async (deadline) => {
    const authors = await authorsFor(sources, reader, deadline);
    // One more than fits shows down to when the timeline is complete.
    const { entries } = await collect(sources, { reader, authors, deadline, count: maxEntries + 1 });
    const beyond = entries[maxEntries];
    return { entries: entries.slice(0, maxEntries), floor: beyond ? Math.max(beyond.score, 1) : 0 };
  };
}
