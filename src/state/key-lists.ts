import { createCache, textBytes } from "../contracts/caches.js";
import { chunked, grouped } from "../kernel/concurrency.js";
import type { PackedKeys } from "./keys.js";

type Argument = string | number;

/** Each of the keys gets all items, as arguments of the script. */
export interface Group {
  readonly keys: PackedKeys;
  readonly items: readonly (readonly Argument[])[];
}

/** The rests of keys, and the same joined as scripts take them. */
export interface Keys {
  readonly tokens: readonly string[];
  readonly packed: string;
}

export interface KeyList {
  readonly keys: Keys;
  readonly items: Group["items"];
}

/** Slots of a cluster, and which node has them now. */
export interface Slots {
  readonly isCluster: boolean;
  slotOf(key: string): number;
  nodeAt(slot: number): string;
}

/** Lua passes about 8,000 values to a command. */
const ITEMS_A_CALL = 250;

/** Memory of a token beside its text: the string that names its part of the list, and the arrays that hold it. */
const TOKEN_BYTES = 40;
/** A cluster keeps a list twice: for homes, and for what stands beside them. */
const COPIES = { server: 1, cluster: 2 };

const keysOf = (tokens: readonly string[]): Keys => ({ tokens, packed: tokens.join(",") });

interface Placed {
  readonly slots: readonly number[];
  readonly nodes: readonly string[];
  readonly parts: ReadonlyMap<string, Keys>;
}

/** Batches of drops have the same audiences: their keys are split once, and sorted by node again only where a slot has moved. */
export function createKeyLists({ isCluster, slotOf, nodeAt }: Slots) {
  const copies = isCluster ? COPIES.cluster : COPIES.server;
  const known = createCache<{ readonly keys: Keys; readonly placed: Map<string, Placed> }>("keyLists", {
    sizeOf: ({ keys }) => copies * (textBytes(keys.packed) + TOKEN_BYTES * keys.tokens.length),
  });
  const knownOf = (packed: string) => {
    const held = known.get(packed);
    if (held) return held;
    const one = { keys: { packed, tokens: packed.split(",") }, placed: new Map<string, Placed>() };
    known.set(packed, one);
    return one;
  };
  const partsOf = (prefix: string, packed: string): ReadonlyMap<string, Keys> => {
    const { keys, placed } = knownOf(packed);
    const held = placed.get(prefix);
    const slots = held?.slots ?? keys.tokens.map((token) => slotOf(prefix + token));
    if (held && slots.every((slot, at) => nodeAt(slot) === held.nodes[at])) return held.parts;
    const nodes = slots.map(nodeAt);
    const places = grouped([...keys.tokens.keys()], (at) => nodes[at] as string);
    const parts = new Map(
      [...places].map(([node, some]) => [node, keysOf(some.map((at) => keys.tokens[at] as string))]),
    );
    placed.set(prefix, { slots, nodes, parts });
    return parts;
  };
  return {
    merged(groups: readonly Group[]): KeyList[] {
      const lists = new Map<string, (readonly Argument[])[]>();
      for (const { keys, items } of groups) {
        for (const packed of keys) {
          const held = lists.get(packed);
          if (held) held.push(...items);
          else lists.set(packed, [...items]);
        }
      }
      return [...lists].map(([packed, items]) => ({ keys: knownOf(packed).keys, items }));
    },
    /** Returns for each server the lists of the keys that it holds. */
    byNode(prefix: string, lists: readonly KeyList[]): ReadonlyMap<string, readonly KeyList[]> {
      if (!isCluster) return new Map([["", lists]]);
      const nodes = new Map<string, KeyList[]>();
      for (const { keys, items } of lists) {
        for (const [node, part] of partsOf(prefix, keys.packed)) {
          const held = nodes.get(node);
          if (held) held.push({ keys: part, items });
          else nodes.set(node, [{ keys: part, items }]);
        }
      }
      return nodes;
    },
  };
}

/** A key of several lists gets their items at once. Calls that yield do not need this: their chunks share no key. */
export function byKey(lists: readonly KeyList[]): readonly KeyList[] {
  if (lists.length <= 1) return lists;
  // A state is the lists that a key has been found in so far; all keys begin in the first.
  const states: number[][] = [[]];
  const following = new Map<number, number>();
  const stateOf = new Map<string, number>();
  let count = 0;
  for (const [at, { keys }] of lists.entries()) {
    for (const token of keys.tokens) {
      const state = stateOf.get(token) ?? 0;
      const step = state * lists.length + at;
      let next = following.get(step);
      if (next === undefined) {
        next = states.push([...(states[state] as number[]), at]) - 1;
        following.set(step, next);
      }
      stateOf.set(token, next);
      count++;
    }
  }
  if (stateOf.size === count) return lists;
  const tokensOf: string[][] = states.map(() => []);
  for (const [token, state] of stateOf) tokensOf[state]?.push(token);
  return tokensOf.flatMap((tokens, state) => {
    if (tokens.length === 0) return [];
    const items = (states[state] as number[]).flatMap((at) => (lists[at] as KeyList).items);
    return [{ keys: keysOf(tokens), items }];
  });
}

/** The lists of each call, with at most `most` entries; it has many items for few keys, which share the look at each key. */
export function callsOf(lists: readonly KeyList[], most: number): KeyList[][] {
  const calls: KeyList[][] = [];
  const itemsACall = Math.min(ITEMS_A_CALL, most);
  let entries = Number.POSITIVE_INFINITY;
  for (const list of lists) {
    for (const items of list.items.length <= itemsACall ? [list.items] : chunked(list.items, itemsACall)) {
      for (const keys of parted(list.keys, Math.max(1, Math.floor(most / items.length)))) {
        const more = keys.tokens.length * items.length;
        if (entries + more > most) {
          calls.push([]);
          entries = 0;
        }
        calls.at(-1)?.push({ keys, items });
        entries += more;
      }
    }
  }
  return calls;
}

const parted = (keys: Keys, atMost: number): readonly Keys[] =>
  keys.tokens.length <= atMost ? [keys] : chunked(keys.tokens, atMost).map(keysOf);

/** One key each. */
export const singly = (lists: readonly KeyList[]): KeyList[] =>
  lists.flatMap(({ keys, items }) => keys.tokens.map((token) => ({ keys: keysOf([token]), items })));
