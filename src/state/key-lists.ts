import { createCache, textBytes } from "../contracts/caches.js";
import { chunked, grouped } from "../kernel/concurrency.js";
import type { PackedKeys } from "./keys.js";

type Argument = string | number;

/** Keys, and the items that each of them gets, as arguments of the script. */
export interface Group {
  readonly keys: PackedKeys;
  readonly items: readonly (readonly Argument[])[];
}

/** Ends of keys, and the same joined as scripts take them. */
export interface Keys {
  readonly tokens: readonly string[];
  readonly packed: string;
}

export interface KeyList {
  readonly keys: Keys;
  readonly items: Group["items"];
}

/** Slots of a cluster, and their current nodes. */
export interface Slots {
  readonly isCluster: boolean;
  slotOf(key: string): number;
  nodeAt(slot: number): string;
}

/** Maximum number of items in a call: Lua passes about 8,000 values to a command. */
const ITEMS_A_CALL = 250;

/** Memory of a token beside its text: the string that names its part of the list, and the arrays that hold it. */
const TOKEN_BYTES = 40;
/** Number of copies of a list: a cluster has one for homes, and one for the keys beside them. */
const COPIES = { server: 1, cluster: 2 };

const keysOf = (tokens: readonly string[]): Keys => ({ tokens, packed: tokens.join(",") });

interface Placed {
  readonly slots: readonly number[];
  readonly nodes: readonly string[];
  readonly parts: ReadonlyMap<string, Keys>;
}

/**
 * Splits lists of keys, and sorts them by node. Batches of drops have the same audiences: their keys are split once,
 * and sorted again only if a slot has moved.
 */
export function createKeyLists({ isCluster, slotOf, nodeAt }: Slots) {
  const copies = isCluster ? COPIES.cluster : COPIES.server;
  const known = createCache<{ readonly keys: Keys; readonly placed: Map<string, Placed> }>("keyLists", {
    sizeOf: ({ keys }) => copies * (textBytes(keys.packed) + TOKEN_BYTES * keys.tokens.length),
  });
  const knownOf = (packed: string) => {
    const cached = known.get(packed);
    if (cached) return cached;
    const entry = { keys: { packed, tokens: packed.split(",") }, placed: new Map<string, Placed>() };
    known.set(packed, entry);
    return entry;
  };
  const partsOf = (prefix: string, packed: string): ReadonlyMap<string, Keys> => {
    const { keys, placed } = knownOf(packed);
    const cached = placed.get(prefix);
    const slots = cached?.slots ?? keys.tokens.map((token) => slotOf(prefix + token));
    if (cached && slots.every((slot, index) => nodeAt(slot) === cached.nodes[index])) return cached.parts;
    const nodes = slots.map(nodeAt);
    const byNode = grouped([...keys.tokens.keys()], (index) => nodes[index] as string);
    const parts = new Map(
      [...byNode].map(([node, indexes]) => [node, keysOf(indexes.map((index) => keys.tokens[index] as string))]),
    );
    placed.set(prefix, { slots, nodes, parts });
    return parts;
  };
  return {
    merged(groups: readonly Group[]): KeyList[] {
      const lists = new Map<string, (readonly Argument[])[]>();
      for (const { keys, items } of groups) {
        for (const packed of keys) {
          const merged = lists.get(packed);
          if (merged) merged.push(...items);
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
          const onNode = nodes.get(node);
          if (onNode) onNode.push({ keys: part, items });
          else nodes.set(node, [{ keys: part, items }]);
        }
      }
      return nodes;
    },
  };
}

/**
 * Merges lists, so that a key of several lists gets their items at once. Calls that yield do not need this: their
 * chunks share no key.
 */
export function byKey(lists: readonly KeyList[]): readonly KeyList[] {
  if (lists.length <= 1) return lists;
  // A state is the set of lists that a key is in so far; all keys begin in the first.
  const states: number[][] = [[]];
  const following = new Map<number, number>();
  const stateOf = new Map<string, number>();
  let count = 0;
  for (const [index, { keys }] of lists.entries()) {
    for (const token of keys.tokens) {
      const state = stateOf.get(token) ?? 0;
      const step = state * lists.length + index;
      let next = following.get(step);
      if (next === undefined) {
        next = states.push([...(states[state] as number[]), index]) - 1;
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
    const items = (states[state] as number[]).flatMap((index) => (lists[index] as KeyList).items);
    return [{ keys: keysOf(tokens), items }];
  });
}

/**
 * Returns the lists of each call, with at most `most` entries. A call has many items for few keys, so that they share
 * the look at each key.
 */
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

/** Returns lists of one key each. */
export const singly = (lists: readonly KeyList[]): KeyList[] =>
  lists.flatMap(({ keys, items }) => keys.tokens.map((token) => ({ keys: keysOf([token]), items })));
