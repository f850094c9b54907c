import type { Redis } from "ioredis";
import { expectTimelines } from "./oracle.js";
import { created, followed, type TimelineEvent } from "./timeline-events.js";
import type { World } from "./world.js";

const AUTHOR = "alice";
const START = Date.now() - 3_600_000;

/** So many public drops of one author, numbered from `from` on. Her readers followed her before any event. */
export function drops(world: World, readers: readonly string[], from: number, count: number): TimelineEvent[] {
  for (const reader of readers) if (!world.follows(reader, AUTHOR)) world.follow(reader, AUTHOR);
  const fresh = Array.from({ length: count }, (_, number) => ({
    drop_id: `load-${from + number}`,
    user_id: AUTHOR,
    visibility: "public" as const,
    created_at: START + from + number,
  }));
  world.post(...fresh);
  return fresh.map(created);
}

/** Compares the shared timelines and the homes of the author and her readers with what they must hold by now. */
export function expectLoaded(
  redis: Redis,
  readers: readonly string[],
  history: readonly TimelineEvent[],
): Promise<void> {
  const edges = readers.map((reader) => followed(reader, AUTHOR, 1));
  return expectTimelines(redis, [AUTHOR, ...readers], [...edges, ...history]);
}
