import { AUTHOR_PREFIX, authorKey, deletedDropKey, PULLS_PREFIX, packKeys, pullsToken } from "../contracts/keys.js";
import type { TimelineEntry } from "../contracts/timelines.js";
import { encodeId, FLOOR_MEMBER } from "../kernel/ids.js";
import type { Fenced } from "../platform/redis/fenced.js";
import { createRemovalNotes } from "../platform/redis/removal-notes.js";
import type { Scripts } from "../platform/redis/scripts.js";
import { DELETED_DROP_TTL_MS, limitsOf, type WriterOptions } from "./store.redis.js";

export type AuthorWriter = ReturnType<typeof createAuthorWriter>;

/** The timelines of pulled authors, and the sets of the pulled authors that users follow. */
export function createAuthorWriter(scripts: Scripts, fenced: Fenced, options: Omit<WriterOptions, "activeOnly">) {
  const { command } = scripts;
  const notes = createRemovalNotes(scripts);
  const before = limitsOf({ ...options, activeOnly: false }, options.ttlMs);
  const changePulls = async (author: string, users: readonly string[], how: "add" | "remove"): Promise<void> => {
    if (users.length === 0) return;
    const keys = packKeys(users.map(pullsToken));
    await fenced.many({
      script: "change-pulls",
      prefix: PULLS_PREFIX,
      keys,
      before: [],
      after: [how, encodeId(author)],
    });
  };
  return {
    async add(author: string, { drop, score }: TimelineEntry): Promise<void> {
      const groups = [{ keys: [encodeId(author)], items: [[score, drop]] }];
      await fenced.groups({ script: "add-entries", prefix: AUTHOR_PREFIX, before, groups });
    },
    async remove(author: string, drop: string): Promise<void> {
      const groups = [{ keys: [encodeId(author)], items: [[drop]] }];
      await fenced.groups({ script: "remove-entries", prefix: AUTHOR_PREFIX, before: [], groups });
    },
    /** As `remove`, before fan-out of the drop's deletion looks here. */
    removeNoted: (author: string, drop: string) => notes.remove(authorKey(author), [drop]),
    /**
     * True where the timeline has the drop, whose id then still works as a cursor once it is removed, or had it lately;
     * undefined where it lacks the drop and is not complete: readers may have seen it before the timeline was lost or
     * forgotten.
     */
    async rememberCreation(author: string, drop: string): Promise<boolean | undefined> {
      const members = [drop, FLOOR_MEMBER];
      const [score, floor] = await command("zmscore", (client) => client.zmscore(authorKey(author), ...members));
      if (score == null)
        return (await notes.wasRemoved(authorKey(author), drop)) || (isComplete(floor) ? false : undefined);
      await command("set", (client) => client.set(deletedDropKey(drop), score, "PX", DELETED_DROP_TTL_MS));
      return true;
    },
    async forget(author: string): Promise<void> {
      await command("del", (client) => client.del(authorKey(author)));
    },
    addToPulls: (author: string, users: readonly string[]) => changePulls(author, users, "add"),
    removeFromPulls: (author: string, users: readonly string[]) => changePulls(author, users, "remove"),
  };
}

const isComplete = (floor: string | null | undefined): boolean => floor != null && Number(floor) >= 0;
