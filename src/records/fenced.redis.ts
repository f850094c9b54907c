import { LRUCache } from "lru-cache";
import pLimit from "p-limit";
import type { PackedKeys } from "../contracts/keys.js";
import { inSpan, SpanKind } from "../delivery/telemetry.js";
import { allOf, chunked } from "../kernel/concurrency.js";
import { createLanes } from "../kernel/lanes.js";
import type { RedisClock } from "../platform/redis/clock.js";
import { COMMAND_TIMEOUT_MS } from "../platform/redis/connect.js";
import type { Script, Scripts } from "../platform/redis/scripts.js";
import { observeLane } from "./observe.js";

type Argument = string | number;

interface KeysWrite {
  readonly script: Script;
  readonly prefix: string;
  readonly keys: PackedKeys;
  readonly before: readonly Argument[];
}

interface GroupsWrite {
  readonly script: Script;
  readonly prefix: string;
  readonly before: readonly Argument[];
  readonly groups: readonly Group[];
  /** This marks a fan-out that others must not wait for. */
  readonly yields?: boolean;
}

/** Each of the keys gets all items, as arguments of the script. */
export interface Group {
  readonly keys: PackedKeys;
  readonly items: readonly (readonly Argument[])[];
}

/** The deadline is the command timeout, by the clock of the server written to. */
export interface Fenced {
  /** Resolves to the sum of the replies once all of them succeeded. Where one fails, the others have ended, as below. */
  many(write: KeysWrite): Promise<number>;
  /**
   * Resolves once each reply was a success. A call takes as many entries as reads can wait for. Where one fails, the
   * others have ended before it rejects: none is applied later than what its caller does next.
   */
  groups(write: GroupsWrite): Promise<number>;
  /** Pauses as the lane `yielding` does after a call that took `ms`: not at all while the other lane is idle. */
  yieldAfter(ms: number): Promise<void>;
  /** The keys must be in one slot. */
  one(script: Script, keys: readonly [string, ...string[]], args: readonly Argument[]): Promise<unknown>;
}

/** Calls of this size take the server up to 7 ms and 1 ms; reads wait meanwhile. */
const ENTRIES_A_CALL = { prompt: 1_000, yielding: 125 };
/** Lua passes about 8,000 values to a command. */
const ITEMS_A_CALL = 250;
/** Calls under way in a lane. The server has the next one when it is done with the first; reads wait for all of them. */
const CALLS_UNDER_WAY = { prompt: 8, yielding: 2 };
/** A call has one key there, and there are several servers. */
const CALLS_UNDER_WAY_IN_CLUSTER = { prompt: 640, yielding: 160 };

/** So many take some 10 MB. */
const MOST_TOKENS = 250_000;

// Each key is a call in a cluster: the client can follow a slot that moves. A redirected call keeps its deadline.
export function createFenced(scripts: Scripts, clock: RedisClock): Fenced {
  const most = scripts.isCluster ? CALLS_UNDER_WAY_IN_CLUSTER : CALLS_UNDER_WAY;
  const lanes = createLanes(most);
  const split = createSplit();
  const deadline = async (key: string): Promise<number> => (await clock.now(key)) + COMMAND_TIMEOUT_MS;
  const inScriptSpan = <T>({ name }: Script, work: () => Promise<T>): Promise<T> =>
    inSpan(`redis ${name}`, { kind: SpanKind.CLIENT, attributes: { "db.system": "redis" } }, work);
  return {
    many: (write) => inScriptSpan(write.script, () => many(write)),
    groups: (write) => inScriptSpan(write.script, () => groups(write)),
    yieldAfter: lanes.yieldAfter,
    one: async (script, keys, args) => scripts.run(script, keys, [await deadline(keys[0]), ...args]),
  };

  async function many({ script, prefix, keys, before }: KeysWrite): Promise<number> {
    if (!scripts.isCluster) {
      const until = await deadline(prefix);
      const replies = keys.map((packed) => scripts.run(script, [], [until, ...before, prefix, packed]));
      return sum(await allOf(replies));
    }
    const write = async (token: string): Promise<unknown> => {
      const key = prefix + token;
      return scripts.run(script, [key], [await deadline(key), ...before, prefix, token]);
    };
    return sum(await allOf(tokensOf(keys).map((token) => lanes.prompt.run(() => write(token)))));
  }

  async function groups({ script, prefix, before, groups: all, yields = false }: GroupsWrite): Promise<number> {
    const name = yields ? "yielding" : "prompt";
    const send = (keys: readonly string[], args: readonly Argument[]): Promise<unknown> =>
      lanes[name].run(async () =>
        scripts.run(script, keys, [await deadline(keys[0] ?? prefix), ...before, prefix, ...args]),
      );
    // Calls of other writes come between those of a large one.
    const inLine = pLimit(most[name]);
    const lists = yields ? merged(all) : byKey(merged(all), split);
    const replies = scripts.isCluster
      ? [...lists].flatMap(([packed, items]) =>
          chunked(items, ITEMS_A_CALL).flatMap((some) => {
            const argsOf = (token: string) => [token, some.length, ...some.flat()];
            return packed.split(",").map((token) => inLine(() => send([prefix + token], argsOf(token))));
          }),
        )
      : callsOf(lists, ENTRIES_A_CALL[name], split).map(({ args }) => inLine(() => send([], args)));
    observeLane(name, lanes[name]);
    return sum(await allOf(replies).finally(() => observeLane(name, lanes[name])));
  }
}

/** The arguments of one call of a script. */
interface Call {
  readonly args: Argument[];
  entries: number;
}

/** A call has many items for few keys: these share the look at each key. */
function callsOf(lists: ReadonlyMap<string, Items>, most: number, split: Split): Call[] {
  const calls: Call[] = [];
  const itemsACall = Math.min(ITEMS_A_CALL, most);
  for (const [packed, all] of lists) {
    for (const items of all.length <= itemsACall ? [all] : chunked(all, itemsACall)) {
      for (const part of partsOf(packed, Math.max(1, Math.floor(most / items.length)), split)) {
        const entries = part.count * items.length;
        const last = calls.at(-1);
        const call = last && last.entries + entries <= most ? last : { args: [], entries: 0 };
        if (call !== last) calls.push(call);
        call.args.push(part.packed, items.length);
        for (const item of items) call.args.push(...item);
        call.entries += entries;
      }
    }
  }
  return calls;
}

type Items = Group["items"][number][];
type Split = (packed: string) => readonly string[];

/** Items for the same packed keys go together. */
function merged(groups: readonly Group[]): ReadonlyMap<string, Items> {
  const lists = new Map<string, Items>();
  for (const { keys, items } of groups) {
    for (const packed of keys) {
      const held = lists.get(packed);
      if (held) held.push(...items);
      else lists.set(packed, [...items]);
    }
  }
  return lists;
}

/**
 * A key of several lists gets the items of all at once, together with the other keys of the same lists. Calls that yield
 * are spared this: the chunks of a large fan-out share no key.
 */
function byKey(lists: ReadonlyMap<string, Items>, split: Split): ReadonlyMap<string, Items> {
  if (lists.size === 1) return lists;
  const all = [...lists.values()];
  // A state is the lists that a key has been found in so far; all keys begin in the first.
  const states: number[][] = [[]];
  const following = new Map<number, number>();
  const stateOf = new Map<string, number>();
  let keys = 0;
  for (const [at, packed] of [...lists.keys()].entries()) {
    for (const key of split(packed)) {
      const state = stateOf.get(key) ?? 0;
      const step = state * all.length + at;
      let next = following.get(step);
      if (next === undefined) {
        next = states.push([...(states[state] as number[]), at]) - 1;
        following.set(step, next);
      }
      stateOf.set(key, next);
      keys++;
    }
  }
  if (stateOf.size === keys) return lists;
  const keysOf: string[][] = states.map(() => []);
  for (const [key, state] of stateOf) keysOf[state]?.push(key);
  const together = new Map<string, Items>();
  for (const [state, some] of keysOf.entries())
    if (some.length > 0)
      together.set(
        some.join(","),
        (states[state] as number[]).flatMap((at) => all[at] as Items),
      );
  return together;
}

function partsOf(packed: string, atMost: number, split: Split): { packed: string; count: number }[] {
  const tokens = split(packed);
  if (tokens.length <= atMost) return [{ packed, count: tokens.length }];
  return chunked(tokens, atMost).map((part) => ({ packed: part.join(","), count: part.length }));
}

const tokensOf = (keys: PackedKeys): string[] => keys.flatMap((packed) => packed.split(","));

/** Batches of drops have the same audiences: their keys are split once. */
function createSplit(): Split {
  const known = new LRUCache<string, readonly string[]>({
    maxSize: MOST_TOKENS,
    sizeCalculation: (tokens) => tokens.length,
  });
  return (packed) => {
    const held = known.get(packed);
    if (held) return held;
    const tokens = packed.split(",");
    known.set(packed, tokens);
    return tokens;
  };
}

const sum = (replies: readonly unknown[]): number => replies.reduce<number>((total, reply) => total + Number(reply), 0);
