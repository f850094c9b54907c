import { listReader } from "../../contracts/lists.js";
import type { Scripts } from "../../platform/redis/scripts.js";
import { bylinesKey, FLOOR_MEMBER, listKey, removalNotesKey } from "../keys.js";
import { removeListing } from "../listeners/registry.redis.js";

/** The timelines of lists, as commands see them that know only their names. */
export function createLists(scripts: Scripts) {
  const { command } = scripts;
  return {
    /**
     * Removes the timeline of a list, and the keys beside it. A rebuild that is under way starts over. Gateways find the
     * listing of its streams gone, and then ask whether the list is.
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
