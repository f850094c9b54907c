import { compareEntries } from "../contracts/timelines.js";
import { annotate } from "../delivery/traced.js";
import { collect } from "./collect.js";
import type { OpenSources, Snapshot, Sources } from "./ports.js";
import type { TakeSnapshot } from "./rebuild.js";

/** Whose drops a home timeline is made of: the user's own, and those of everybody followed. `deadline` is in ms since the epoch. */
export async function authorsFor(sources: Sources, user: string, deadline: number): Promise<string[]> {
  return [...new Set([user, ...(await sources.following(user, deadline))])];
}

/** What a home timeline should hold, as the upstreams say. */
export function homeSnapshot(
  { openSources, maxEntries }: { readonly openSources: OpenSources; readonly maxEntries: number },
  reader: string,
): TakeSnapshot {
  return async (deadline) => {
    const opened = openSources();
    let reads = 0;
    const drops: Sources["drops"] = (...of) => {
      reads++;
      return opened.drops(...of);
    };
    const sources = { ...opened, drops };
    const authors = await authorsFor(sources, reader, deadline);
    // One more than fits shows down to when the timeline is complete.
    const { entries } = await collect(sources, { reader, authors, deadline, count: maxEntries + 1 });
    annotate({ "timeline.authors": authors.length, "timeline.author_reads": reads });
    const beyond = entries[maxEntries];
    return { entries: entries.slice(0, maxEntries), floor: beyond ? Math.max(beyond.score, 1) : 0 };
  };
}

/** Continues a snapshot below its floor with what another holds there. */
export function withOlder(snapshot: Snapshot, older: Snapshot, maxEntries: number): Snapshot {
  if (older.floor >= snapshot.floor) return snapshot;
  const known = new Set(snapshot.entries.map(({ drop }) => drop));
  const below = older.entries
    .filter(({ drop, score }) => score <= snapshot.floor && score > older.floor && !known.has(drop))
    .sort((a, b) => compareEntries(b, a));
  const entries = [...snapshot.entries.filter(({ score }) => score > snapshot.floor), ...below];
  const beyond = entries[maxEntries];
  return { entries: entries.slice(0, maxEntries), floor: beyond ? Math.max(beyond.score, 1) : older.floor };
}
