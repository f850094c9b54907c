import { invalid } from "../../kernel/errors.js";
import type { Scripts } from "../../platform/redis/scripts.js";
import { dataNodes } from "../../platform/redis/servers.js";
import { READERS_PATTERN, readerOfKey } from "../keys.js";

export interface Homes {
  /** Users, and readers of lists. */
  readonly users: readonly string[];
  /** Position, which a later call takes as `after`. */
  readonly position: string;
}

const HOMES_A_STEP = 500;
const POSITION = /^(\w+)-(\d+)$/;

/**
 * Lists each home timeline and each list at least once; those written or removed meanwhile may be missing. `after` is the
 * position of an earlier run, valid until a server restarts or a slot moves to another.
 *
 * @throws AppError `invalid` for a position that is no longer valid, `unavailable` if Redis is unavailable
 */
export async function* listHomes(scripts: Scripts, after?: string): AsyncGenerator<Homes> {
  const nodes = await dataNodes(scripts);
  const [, runId, start = "0"] = after === undefined ? [] : (POSITION.exec(after) ?? []);
  const first = after === undefined ? 0 : nodes.findIndex((node) => node.runId === runId);
  if (first < 0) throw invalid("--after", "this position is no longer valid; start from the beginning");
  for (const [index, node] of nodes.slice(first).entries()) {
    let cursor = index === 0 ? start : "0";
    do {
      const { next, keys } = await node.scan(cursor, READERS_PATTERN, HOMES_A_STEP);
      const users = [...new Set(keys)].map(readerOfKey).filter((user) => user !== undefined);
      yield { users, position: `${node.runId}-${cursor}` };
      cursor = next;
    } while (cursor !== "0");
  }
}
