import pLimit from "p-limit";
import type { PackedKeys } from "../../contracts/keys.js";
import { inSpan, SpanKind } from "../../delivery/telemetry.js";
import { chunked } from "../../kernel/concurrency.js";
import type { RedisClock } from "./clock.js";
import { COMMAND_TIMEOUT_MS } from "./connect.js";
import type { Scripts } from "./scripts.js";

type Argument = string | number;

export interface FencedCall {
  readonly script: "trim-older" | "mark-edges" | "change-pulls";
  readonly prefix: string;
  readonly keys: PackedKeys;
  readonly before: readonly Argument[];
  readonly after: readonly Argument[];
}

export interface GroupsCall {
  readonly script: "add-entries" | "remove-entries";
  readonly prefix: string;
  readonly before: readonly Argument[];
  readonly groups: readonly Group[];
}

/** Keys, and what each of them gets: arguments an item. */
export interface Group {
  readonly keys: PackedKeys;
  readonly items: readonly (readonly Argument[])[];
}

export type FencedScript = "stage-rebuild" | "finish-rebuild" | "finish-refill" | "record-server";

/** The deadline is the command timeout, by the clock of the server written to. */
export interface Fenced {
  /** Resolves to the sum of the replies once all of them succeeded. */
  many(call: FencedCall): Promise<number>;
  /**
   * Resolves once each reply was a success. A call takes as many entries as reads can wait for. Where one fails, the
   * others have ended before it rejects: none is applied later than what its caller does next.
   */
  groups(call: GroupsCall): Promise<void>;
  /** All keys are in one slot. */
  one(script: FencedScript, keys: readonly [string, ...string[]], args: readonly Argument[]): Promise<unknown>;
}

/** Takes the server about 7 ms, for which reads wait. */
const ENTRIES_A_CALL = 1_000;
/** Lua passes about 8,000 values to a command. */
const ITEMS_A_CALL = 250;
/** A call sent later has its deadline later: its replies need not wait behind all others. */
const CALLS_AT_ONCE = 32;

// In a cluster each key is a call: the client can follow a slot that moves. A redirected call keeps its deadline.
export function createFenced(scripts: Scripts, clock: RedisClock): Fenced {
  const limit = pLimit(CALLS_AT_ONCE);
  const deadline = async (key: string): Promise<number> => (await clock.now(key)) + COMMAND_TIMEOUT_MS;
  const inScriptSpan = <T>(script: string, work: () => Promise<T>): Promise<T> =>
    inSpan(`redis ${script}`, { kind: SpanKind.CLIENT, attributes: { "db.system": "redis" } }, work);
  return {
    many: (call) => inScriptSpan(call.script, () => many(call)),
    groups: (call) => inScriptSpan(call.script, () => groups(call)),
    one: async (script, keys, args) => scripts.run(script, keys, [await deadline(keys[0]), ...args]),
  };

  async function many({ script, prefix, keys, before, after }: FencedCall): Promise<number> {
    if (!scripts.isCluster) {
      const until = await deadline(prefix);
      const replies = keys.map((packed) => scripts.run(script, [], [until, ...before, prefix, packed, ...after]));
      return sum(await Promise.all(replies));
    }
    const write = async (token: string): Promise<unknown> => {
      const key = prefix + token;
      return scripts.run(script, [key], [await deadline(key), ...before, "", "", ...after]);
    };
    return sum(await Promise.all(tokensOf(keys).map((token) => limit(() => write(token)))));
  }

  async function groups({ script, prefix, before, groups: all }: GroupsCall): Promise<void> {
    const send = (keys: readonly string[], start: string, args: readonly Argument[]): Promise<unknown> =>
      limit(async () => scripts.run(script, keys, [await deadline(keys[0] ?? prefix), ...before, start, ...args]));
    const replies = scripts.isCluster
      ? all.flatMap(({ keys, items }) =>
          chunked(items, ITEMS_A_CALL).flatMap((some) =>
            tokensOf(keys).map((token) => send([prefix + token], "", ["", some.length, ...some.flat()])),
          ),
        )
      : callsOf(all).map((args) => send([], prefix, args));
    const failed = (await Promise.allSettled(replies)).find((reply) => reply.status === "rejected");
    if (failed) throw failed.reason;
  }
}

/** Items for the same keys go together, many items to few keys a call: they share the look at each key. */
function callsOf(groups: readonly Group[]): Argument[][] {
  const merged = new Map<string, (readonly Argument[])[]>();
  for (const { keys, items } of groups) {
    for (const packed of keys) {
      const held = merged.get(packed);
      if (held) held.push(...items);
      else merged.set(packed, [...items]);
    }
  }
  const calls: Argument[][] = [];
  let room = 0;
  for (const [packed, all] of merged) {
    for (const items of chunked(all, ITEMS_A_CALL)) {
      const flat = items.flat();
      for (const part of partsOf(packed, Math.max(1, Math.floor(ENTRIES_A_CALL / items.length)))) {
        const entries = part.count * items.length;
        if (entries > room) {
          calls.push([]);
          room = ENTRIES_A_CALL;
        }
        calls.at(-1)?.push(part.packed, items.length, ...flat);
        room -= entries;
      }
    }
  }
  return calls;
}

function partsOf(packed: string, atMost: number): { packed: string; count: number }[] {
  const tokens = packed.split(",");
  if (tokens.length <= atMost) return [{ packed, count: tokens.length }];
  return chunked(tokens, atMost).map((part) => ({ packed: part.join(","), count: part.length }));
}

const tokensOf = (keys: PackedKeys): string[] => keys.flatMap((packed) => packed.split(","));

const sum = (replies: readonly unknown[]): number => replies.reduce<number>((total, reply) => total + Number(reply), 0);
