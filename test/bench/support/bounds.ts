import { chunked } from "../../../src/kernel/concurrency.js";
import type { Servers } from "./bench.js";
import { countMembers, dropIds } from "./homes.js";
import { measured } from "./measure.js";
import { check } from "./result.js";

const ENTRIES_A_CALL = 1_000;
const CALLS_AT_ONCE = 8;
const DROPS_EACH = 10;
/** None that another part of a benchmark uses. */
const FIRST_ID = 900_000_000;
const CHECKED_KEYS = 500;
const NO_CAP = 1_000_000;

const REMOVE = `for _, key in ipairs(KEYS) do redis.call('ZREM', key, unpack(ARGV)) end`;

/** What no home can do without: a look whether the entry is above its floor, the entry, its size, and trimming. */
const ADD = `local call = redis.call
for _, key in ipairs(KEYS) do
  if call('ZCOUNT', key, '-inf', '(' .. ARGV[1]) > 0 then
    call('ZADD', key, ARGV[1], ARGV[2])
    local size = call('ZCARD', key) - 1
    if size > tonumber(ARGV[3]) then
      local cut = size - tonumber(ARGV[4])
      local last = call('ZRANGE', key, cut, cut, 'WITHSCORES')
      call('ZREMRANGEBYRANK', key, 0, cut)
      call('ZADD', key, last[2], '~floor')
    end
  end
end`;

/**
 * Time in which as many members leave all these sorted sets, each of which is looked at once for all of them. They come one
 * after the other, as posts do: members of one set that lie side by side in memory would go twice as fast.
 */
export async function timeOfRemovals(servers: Of, keys: readonly string[], count: number): Promise<Bound> {
  const { redis } = servers;
  const drops = dropIds(count, FIRST_ID);
  await run(servers, ADD, { keys, entries: 1, args: drops.map((drop) => [Date.now(), drop, NO_CAP, NO_CAP]) });
  check((await countMembers(redis, keys, drops)) === keys.length * count, "each set holds all that is to be removed");
  const bound = await run(servers, REMOVE, { keys, entries: count, args: [drops] });
  check((await countMembers(redis, keys, drops)) === 0, "nothing is left of what was removed");
  return bound;
}

/** Time of an entry each into all these sorted sets, which are full: first one each, unmeasured, for which they are trimmed. */
export async function timeOfAdditions(servers: Of, keys: readonly string[], cap: number): Promise<Bound> {
  const { redis } = servers;
  const ids = dropIds(1 + DROPS_EACH, FIRST_ID);
  const low = Math.ceil(0.95 * cap);
  const [first, ...args] = ids.map((drop) => [Date.now(), drop, cap, low]);
  await run(servers, ADD, { keys, entries: 1, args: [first as (string | number)[]] });
  const bound = await run(servers, ADD, { keys, entries: 1, args });
  const checked = keys.slice(0, CHECKED_KEYS);
  const kept = ids.slice(-low);
  check((await countMembers(redis, checked, kept)) === checked.length * kept.length, "each entry is there");
  return bound;
}

interface Work {
  readonly keys: readonly string[];
  /** Of a key in a call. */
  readonly entries: number;
  /** Each goes to all keys. */
  readonly args: readonly (readonly (string | number)[])[];
}

type Of = Pick<Servers, "redis" | "redisServer">;

/** Of one entry in all keys: a second's part, and µs of CPU time of Redis. */
export interface Bound {
  readonly seconds: number;
  readonly cpu: Readonly<Record<string, number>>;
}

/** Packs entries as the service does. */
async function run({ redis, redisServer }: Of, script: string, { keys, entries, args }: Work): Promise<Bound> {
  const sha = String(await redis.script("LOAD", script));
  const parts = chunked(keys, Math.ceil(ENTRIES_A_CALL / entries));
  const calls = args.flatMap((some) => parts.map((part) => () => redis.evalsha(sha, part.length, ...part, ...some)));
  const units = args.length * entries;
  const { seconds, cpu } = await measured({ processes: { redis: redisServer.pid }, units }, () =>
    Promise.all(
      Array.from({ length: CALLS_AT_ONCE }, async () => {
        for (let next = calls.shift(); next; next = calls.shift()) await next();
      }),
    ),
  );
  return { seconds: seconds / units, cpu };
}
