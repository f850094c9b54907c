import { HOME_PREFIX, userOfHomeKey } from "../contracts/keys.js";
import { AppError } from "../kernel/errors.js";
import { dataNodes } from "../platform/redis/nodes.js";
import type { Scripts } from "../platform/redis/scripts.js";

/** Users who have a home timeline, and the place to go on from once these are done. */
export interface Homes {
  readonly users: readonly string[];
  /** Where these begin: doing them again and what follows leaves nobody out. */
  readonly at: string;
}

const A_STEP = 500;
const PLACE = /^(\w+)-(\d+)$/;

/**
 * Goes through every home timeline there is, each at least once; those that
 * come or go meanwhile may or may not be among them. A place holds as long as
 * no server is restarted, and no slot moves to another.
 *
 * @param after a place an earlier run was at; undefined: from the beginning
 * @throws AppError `invalid` for a place that holds no longer, `unavailable` where Redis is away
 */
export async function* allHomes(scripts: Scripts, after?: string): AsyncGenerator<Homes> {
  const nodes = await dataNodes(scripts);
  const [, runId, start = "0"] = after === undefined ? [] : (PLACE.exec(after) ?? []);
  const first = after === undefined ? 0 : nodes.findIndex((node) => node.runId === runId);
  if (first < 0) throw new AppError("invalid", "after: the Redis it names is not there any more; begin anew");
  for (const [index, node] of nodes.slice(first).entries()) {
    let cursor = index === 0 ? start : "0";
    do {
      const { next, keys } = await node.scan(cursor, HOME_PREFIX, A_STEP);
      const users = [...new Set(keys)].map(userOfHomeKey).filter((user) => user !== undefined);
      yield { users, at: `${node.runId}-${cursor}` };
      cursor = next;
    } while (cursor !== "0");
  }
}
