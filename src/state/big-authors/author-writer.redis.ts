import { bylineOf, type TimelineEntry } from "../../contracts/timelines.js";
import { encodeId } from "../../kernel/ids.js";
import type { Scripts } from "../../platform/redis/scripts.js";
import { isDirect, rememberCreation } from "../entries/drop-facts.redis.js";
import { createRemovalNotes } from "../entries/removal-notes.redis.js";
import {
  ADD_ENTRIES,
  addOptionsOf,
  itemOf,
  REMOVE_ENTRIES,
  type SignedEntry,
  type WriterOptions,
} from "../entries/writer.redis.js";
import type { Fenced } from "../fenced.redis.js";
import { AUTHOR_PREFIX, authorKey, bylinesKey, FLOOR_MEMBER, PULLS_PREFIX, packKeys, pullsToken } from "../keys.js";
import { script } from "../scripts.redis.js";

const CHANGE_PULLS = script("change-pulls", import.meta.url);

export type AuthorWriter = ReturnType<typeof createAuthorWriter>;

/** For each author, the users whose sets of pulled authors change. */
type UsersOf = ReadonlyMap<string, readonly string[]>;

/** Writes the timelines of pulled authors, and the sets of the pulled authors that users follow. */
export function createAuthorWriter(
  scripts: Scripts,
  fenced: Fenced,
  options: Omit<WriterOptions, "activeOnly" | "judgesReplies">,
) {
  const { command } = scripts;
  const notes = createRemovalNotes(scripts);
  const before = addOptionsOf({ ...options, activeOnly: false, kind: "reposts" });
  const changePulls = (how: "add" | "remove") => async (users: UsersOf) => {
    const groups = [...users].map(([author, followers]) => {
      return { keys: packKeys(followers.map(pullsToken)), items: [[encodeId(author)]] };
    });
    await fenced.groups({ script: CHANGE_PULLS, prefix: PULLS_PREFIX, before: [how], groups });
  };
  return {
    async add(author: string, entry: SignedEntry): Promise<void> {
      const groups = [{ keys: [encodeId(author)], items: [itemOf(entry)] }];
      await fenced.groups({ script: ADD_ENTRIES, prefix: AUTHOR_PREFIX, before, groups });
    },
    async remove(author: string, drop: string): Promise<void> {
      const groups = [{ keys: [encodeId(author)], items: [[drop]] }];
      await fenced.groups({ script: REMOVE_ENTRIES, prefix: AUTHOR_PREFIX, before: [], groups });
    },
    /** Removes a drop and notes that the timeline had it: the fan-out of its deletion has not read the timeline yet. */
    removeWithNote: (author: string, drop: string) => notes.remove(authorKey(author), [drop]),
    /**
     * Resolves to true if the timeline has the drop, or had it lately. The drop's id still works as a cursor once it is
     * removed. Resolves to undefined if that is unknown: the timeline was lost or forgotten, the drop is not direct,
     * and readers may have seen it before.
     */
    async heldBeforeDeletion(author: string, drop: string): Promise<boolean | undefined> {
      const members = [drop, FLOOR_MEMBER];
      const [score, floor] = await command("zmscore", (client) => client.zmscore(authorKey(author), ...members));
      if (score == null) {
        if (await notes.wasRemoved(authorKey(author), drop)) return true;
        return isComplete(floor) || (await isDirect(scripts, drop)) ? false : undefined;
      }
      await rememberCreation(scripts, drop, score);
      return true;
    },
    /** Returns the entries of those of the drops that the timeline has now. Replies have their bylines. */
    async holdingAmong(author: string, drops: readonly string[]): Promise<ReadonlyMap<string, TimelineEntry>> {
      const key = authorKey(author);
      const [scores, texts] = await Promise.all([
        command("zmscore", (client) => client.zmscore(key, ...drops)),
        command("hmget", (client) => client.hmget(bylinesKey(key), ...drops)),
      ]);
      return new Map(
        drops.flatMap((drop, index) => {
          const [score, text] = [scores[index], texts[index]];
          if (score == null) return [];
          return [[drop, { drop, score: Number(score), by: text == null ? undefined : bylineOf(text) }] as const];
        }),
      );
    },
    /** Resolves to the author of the parent of a drop that is a reply to somebody else. */
    async parentOf(author: string, drop: string): Promise<string | undefined> {
      const text = await command("hget", (client) => client.hget(bylinesKey(authorKey(author)), drop));
      return text == null ? undefined : bylineOf(text).parent;
    },
    async forget(author: string): Promise<void> {
      await command("del", (client) => client.del(authorKey(author)));
    },
    addToPulls: changePulls("add"),
    removeFromPulls: changePulls("remove"),
  };
}

const isComplete = (floor: string | null | undefined): boolean => floor != null && Number(floor) >= 0;
