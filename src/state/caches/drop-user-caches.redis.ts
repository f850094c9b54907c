import { mapLimited } from "../../kernel/concurrency.js";
import type { Scripts } from "../../platform/redis/scripts.js";
import { dataNodes } from "../../platform/redis/servers.js";
import { USERS_PREFIX } from "../keys.js";

const KEYS_A_STEP = 500;
const AT_ONCE = 32;

/** Removes the lists that the users service caches, after its database has lost them. */
export async function dropUserCaches(scripts: Scripts): Promise<void> {
  for (const node of await dataNodes(scripts)) {
    let cursor = "0";
    do {
      const { next, keys } = await node.scan(cursor, USERS_PREFIX, KEYS_A_STEP);
      await mapLimited(keys, AT_ONCE, (key) => scripts.command("unlink", (client) => client.unlink(key)));
      cursor = next;
    } while (cursor !== "0");
  }
}
