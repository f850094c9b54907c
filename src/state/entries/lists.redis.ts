import { listReader } from "../../contracts/lists.js";
import type { Scripts } from "../../platform/redis/scripts.js";
import { bylinesKey, FLOOR_MEMBER, listKey, removalNotesKey } from "../keys.js";
import { removeListing } from "../listeners/registry.redis.js";

/** Removes and renews timelines of lists, for callers that know only the list. */
export function createLists(scripts: Scripts) {
  const { command } = scripts;
  return {
    /**
     * Removes the timeline of a list, and the keys beside it. A rebuild under way starts over. The listing of its streams
     * is removed, too, so that gateways ask whether the list exists.
     */
    forget: async (list: string): Promise<void> => {
      const key = listKey(list);
      await command("del", (client) => client.del(key, removalNotesKey(key), bylinesKey(key)));
      await removeListing(scripts, listReader(list));
    },
    /** Makes the next read of a list rebuild its timeline, and a rebuild that is under way start over. */
    renew: async (list: string): Promise<void> =>
      void (await command("zrem", (client) => client.zrem(listKey(list), FLOOR_MEMBER))),
  };
}
