import { pause } from "../kernel/time.js";
import type { Scripts } from "../platform/redis/scripts.js";
import { dataNodes } from "../platform/redis/servers.js";

/** Step of a scan: at most 100,000 keys a second of each server are read, so that other calls are served meanwhile. */
const KEYS_A_STEP = 1_000;
const STEP_MS = 10;

/**
 * Yields the keys of all servers that begin with `prefix`, some of them twice, and about how many keys are left to
 * scan.
 */
export async function* scanKeys(
  scripts: Scripts,
  prefix = "",
): AsyncGenerator<{ readonly keys: readonly string[]; readonly left: number }> {
  const nodes = await dataNodes(scripts);
  const sizes = await Promise.all(nodes.map((node) => node.size()));
  let remaining = sizes.reduce((sum, size) => sum + size, 0);
  for (const node of nodes) {
    let cursor = "0";
    do {
      const { next, keys } = await node.scan(cursor, prefix, KEYS_A_STEP);
      remaining = Math.max(0, remaining - keys.length);
      yield { keys: [...new Set(keys)], left: remaining };
      await pause(STEP_MS);
      cursor = next;
    } while (cursor !== "0");
  }
}
