import type { Redis } from "ioredis";
import { expectTimelines } from "./oracle.js";
import { created, followed, type TimelineEvent } from "./timeline-events.js";
import type { World } from "./world.js";

export const AUTHOR = "alice";
const START = Date.now() - 3_600_000;

export const drops = (world: World, readers: readonly string[], from: number, count: number): TimelineEvent[] =>
  dropsOf(AUTHOR, world, readers, { from, count });

/** So many public drops of one author, numbered from `from` on. The readers followed the author before any event. */
export function dropsOf(
  author: string,
  world: World,
  readers: readonly string[],
  { from, count }: { readonly from: number; readonly count: number },
): TimelineEvent[] {
  for (const reader of readers) if (!world.follows(reader, author)) world.follow(reader, author);
  const fresh = Array.from({ length: count }, (_, number) => ({
    drop_id: `load-${from + number}`,
    user_id: author,
    visibility: "public" as const,
    created_at: START + from + number,
  }));
  world.post(...fresh);
  return fresh.map(created);
}

/** Compares the shared timelines and the homes of the authors and their readers with what they must hold by now. */
export function expectLoaded(
  redis: Redis,
  readers: readonly string[],
  history: readonly TimelineEvent[],
  authors: readonly string[] = [AUTHOR],
): Promise<void> {
  const edges = authors.flatMap((author) => readers.map((reader) => followed(reader, author, 1)));
  return expectTimelines(redis, [...authors, ...readers], [...edges, ...history]);
}
