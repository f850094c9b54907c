import type { HeldDrop } from "../../contracts/timelines.js";
import type { Scripts } from "../../platform/redis/scripts.js";
import { FLOOR_MEMBER, LOCAL_KEY } from "../keys.js";
import { entriesIn } from "./scored.js";

type Command = Pick<Scripts, "command">;

/** Resolves to the newest drops of local that were created up to `until`, ms since the epoch, oldest first. */
export async function newestOfLocal(
  { command }: Command,
  { until, count }: { readonly until: number; readonly count: number },
): Promise<HeldDrop[]> {
  const flat = await command("zrevrangebyscore", (client) =>
    client.zrevrangebyscore(LOCAL_KEY, until, 0, "WITHSCORES", "LIMIT", 0, count),
  );
  const entries = entriesIn(flat).filter(({ drop }) => drop !== FLOOR_MEMBER);
  return entries.reverse().map(({ drop, score }) => ({ drop, createdAt: score }));
}

/** Resolves to those of the drops that local has. */
export async function amongLocal({ command }: Command, drops: readonly string[]): Promise<ReadonlySet<string>> {
  if (drops.length === 0) return new Set();
  const scores = await command("zmscore", (client) => client.zmscore(LOCAL_KEY, ...drops));
  return new Set(drops.filter((_, index) => scores[index] != null));
}
