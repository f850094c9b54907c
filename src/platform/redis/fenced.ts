import pLimit from "p-limit";
import type { PackedKeys } from "../../contracts/keys.js";
import { inSpan, SpanKind } from "../../delivery/telemetry.js";
import { chunked } from "../../kernel/concurrency.js";
import { codeOf } from "../../kernel/errors.js";
import type { RedisClock } from "./clock.js";
import { COMMAND_TIMEOUT_MS } from "./connect.js";
import type { Scripts } from "./scripts.js";

type Argument = string | number;

export interface FencedCall {
  readonly script: "trim-older" | "mark-edges";
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
   * Resolves once each reply of its groups was a success. Groups asked for together share calls, of which each takes
   * as many entries as reads can wait for; where one fails other than by an outage, each caller's groups go alone.
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
  const shared = createSharedCalls(({ script, prefix, before }, args) =>
    limit(async () => scripts.run(script, [], [await deadline(prefix), ...before, prefix, ...args])),
  );
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
    return eachKey(keys, async (token) => {
      const key = prefix + token;
      return scripts.run(script, [key], [await deadline(key), ...before, "", "", ...after]);
    });
  }

  async function groups(call: GroupsCall): Promise<void> {
    const { script, prefix, before } = call;
    if (!scripts.isCluster) return shared(call);
    for (const { keys, items } of call.groups) {
      for (const some of chunked(items, ITEMS_A_CALL)) {
        await eachKey(keys, async (token) => {
          const key = prefix + token;
          return scripts.run(script, [key], [await deadline(key), ...before, "", "", some.length, ...some.flat()]);
        });
      }
    }
  }
}

interface Waiting {
  readonly call: GroupsCall;
  readonly resolve: () => void;
  readonly reject: (error: unknown) => void;
}

type Send = (call: GroupsCall, args: readonly Argument[]) => Promise<unknown>;

function createSharedCalls(send: Send): (call: GroupsCall) => Promise<void> {
  const waiting = new Map<string, Waiting[]>();
  const write = (all: readonly Waiting[]): void => {
    const sent = new Map(all.map((one) => [one, [] as Promise<unknown>[]]));
    for (const { args, owners } of callsOf(all)) {
      const reply = send((all[0] as Waiting).call, args);
      for (const owner of owners) sent.get(owner)?.push(reply);
    }
    for (const [one, replies] of sent) {
      Promise.all(replies).then(one.resolve, (error: unknown) => {
        if (all.length > 1 && codeOf(error) !== "unavailable") write([one]);
        else one.reject(error);
      });
    }
  };
  return (call) =>
    new Promise((resolve, reject) => {
      const name = [call.script, call.prefix, ...call.before].join(" ");
      const others = waiting.get(name);
      if (others) return void others.push({ call, resolve, reject });
      const all = [{ call, resolve, reject }];
      waiting.set(name, all);
      setImmediate(() => {
        waiting.delete(name);
        write(all);
      });
    });
}

interface Merged {
  readonly items: (readonly Argument[])[];
  readonly owners: Set<Waiting>;
}

interface Call {
  readonly args: Argument[];
  readonly owners: Set<Waiting>;
}

/** Items for the same keys go together, many items to few keys a call: they share the look at each key. */
function callsOf(all: readonly Waiting[]): Call[] {
  const merged = new Map<string, Merged>();
  for (const one of all) {
    for (const { keys, items } of one.call.groups) {
      for (const packed of keys) {
        const group = merged.get(packed) ?? { items: [], owners: new Set() };
        merged.set(packed, group);
        group.items.push(...items);
        group.owners.add(one);
      }
    }
  }
  const calls: Call[] = [];
  let room = 0;
  for (const [packed, group] of merged) {
    for (const items of chunked(group.items, ITEMS_A_CALL)) {
      const flat = items.flat();
      for (const part of partsOf(packed, Math.max(1, Math.floor(ENTRIES_A_CALL / items.length)))) {
        const entries = part.count * items.length;
        if (entries > room) {
          calls.push({ args: [], owners: new Set() });
          room = ENTRIES_A_CALL;
        }
        const call = calls.at(-1) as Call;
        call.args.push(part.packed, items.length, ...flat);
        for (const owner of group.owners) call.owners.add(owner);
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

async function eachKey(keys: PackedKeys, write: (token: string) => Promise<unknown>): Promise<number> {
  let total = 0;
  for (const packed of keys) total += sum(await Promise.all(packed.split(",").map(write)));
  return total;
}

const sum = (replies: readonly unknown[]): number => replies.reduce<number>((total, reply) => total + Number(reply), 0);
