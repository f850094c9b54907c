import type { Scripts } from "../../platform/redis/scripts.js";
import { bylinesKey, FLOOR_MEMBER, listKey, removalNotesKey } from "../keys.js";

/** The timelines of lists, as commands see them that know only their names. */
export function createLists({ command }: Pick<Scripts, "command">) {
  return {
    /** Removes the timeline of a list, and the keys beside it. A rebuild that is under way starts over. */
    forget: async (list: string): Promise<void> => {
      const key = listKey(list);
      await command("del", (client) => client.del(key, removalNotesKey(key), bylinesKey(key)));
    },
    /** Makes the next read of a list rebuild its timeline, and a rebuild that is under way start over. */
    renew: async (list: string): Promise<void> =>
      void (await command("zrem", (client) => client.zrem(listKey(list), FLOOR_MEMBER))),
  };
}
