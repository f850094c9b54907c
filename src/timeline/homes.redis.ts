import {
  AUTHOR_PREFIX,
  HOME_PREFIX,
  packKeys,
  SHARED_PREFIX,
  SHARED_TOKENS,
  TRIMMED_KEY,
  userOfHomeKey,
} from "../contracts/keys.js";
import { invalid } from "../kernel/errors.js";
import { encodeId } from "../kernel/ids.js";
import { DAY } from "../kernel/time.js";
import { type Scripts, script } from "../platform/redis/scripts.js";
import { dataNodes } from "../platform/redis/servers.js";
import type { Fenced } from "../records/fenced.redis.js";
import type { PulledAuthors } from "../records/pulled.js";

const TRIM_OLDER = script("trim-older", import.meta.url);

export interface Homes {
  readonly users: readonly string[];
  /** A later call takes this as `after`. */
  readonly position: string;
}

const HOMES_A_STEP = 500;
const PLACE = /^(\w+)-(\d+)$/;

/**
 * Lists each home timeline at least once; timelines written or removed meanwhile may be missing. `after` is the position
 * of an earlier run, valid until a server restarts or a slot moves to another.
 *
 * @throws AppError `invalid` for a position that is no longer valid, `unavailable` where Redis is unavailable
 */
export async function* listHomes(scripts: Scripts, after?: string): AsyncGenerator<Homes> {
  const nodes = await dataNodes(scripts);
  const [, runId, start = "0"] = after === undefined ? [] : (PLACE.exec(after) ?? []);
  const first = after === undefined ? 0 : nodes.findIndex((node) => node.runId === runId);
  if (first < 0) throw invalid("--after", "this position is no longer valid; start from the beginning");
  for (const [index, node] of nodes.slice(first).entries()) {
    let cursor = index === 0 ? start : "0";
    do {
      const { next, keys } = await node.scan(cursor, HOME_PREFIX, HOMES_A_STEP);
      const users = [...new Set(keys)].map(userOfHomeKey).filter((user) => user !== undefined);
      yield { users, position: `${node.runId}-${cursor}` };
      cursor = next;
    } while (cursor !== "0");
  }
}

export type TrimStore = ReturnType<typeof createTrimStore>;

export function createTrimStore(scripts: Scripts, fenced: Fenced, pulled: PulledAuthors) {
  const trim = (prefix: string, tokens: readonly string[], before: number): Promise<number> =>
    fenced.many({ script: TRIM_OLDER, prefix, keys: packKeys(tokens), before: [before] });
  return {
    /** Resolves to ms since the epoch, or to 0 if the last trimming was more than a day ago. */
    trimmedTo: async (): Promise<number> =>
      Number((await scripts.command("get", (client) => client.get(TRIMMED_KEY))) ?? 0),
    recordTrimmed: async (before: number): Promise<void> => {
      await scripts.command("set", (client) => client.set(TRIMMED_KEY, before, "PX", DAY));
    },
    /** Yields the number of drops removed. */
    async *trimAll(before: number): AsyncGenerator<number> {
      yield await trim(SHARED_PREFIX, Object.values(SHARED_TOKENS), before);
      yield await trim(AUTHOR_PREFIX, [...(await pulled.refresh()).keys()].map(encodeId), before);
      for await (const { users } of listHomes(scripts)) yield await trim(HOME_PREFIX, users.map(encodeId), before);
    },
  };
}
