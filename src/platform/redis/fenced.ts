import type { PackedKeys } from "../../contracts/keys.js";
import { inSpan, SpanKind } from "../../delivery/telemetry.js";
import type { RedisClock } from "./clock.js";
import { COMMAND_TIMEOUT_MS } from "./connect.js";
import type { Scripts } from "./scripts.js";

export interface FencedCall {
  readonly script: "add-entries" | "remove-entries" | "trim-older" | "mark-edges";
  readonly prefix: string;
  readonly keys: PackedKeys;
  readonly before: readonly (string | number)[];
  readonly after: readonly (string | number)[];
}

export type FencedScript = "stage-rebuild" | "finish-rebuild" | "finish-refill" | "record-server";

/** The deadline is the command timeout, by the clock of the server written to. */
export interface Fenced {
  /** Resolves to the sum of the replies once all of them succeeded. */
  many(call: FencedCall): Promise<number>;
  /** All keys are in one slot. */
  one(script: FencedScript, keys: readonly [string, ...string[]], args: readonly (string | number)[]): Promise<unknown>;
}

// In a cluster each key is a call: the client can follow a slot that moves. A redirected call keeps its deadline.
export function createFenced(scripts: Scripts, clock: RedisClock): Fenced {
  const deadline = async (key: string): Promise<number> => (await clock.now(key)) + COMMAND_TIMEOUT_MS;
  return {
    many: (call) =>
      inSpan(`redis ${call.script}`, { kind: SpanKind.CLIENT, attributes: { "db.system": "redis" } }, () => many(call)),
    one: async (script, keys, args) => scripts.run(script, keys, [await deadline(keys[0]), ...args]),
  };

  async function many({ script, prefix, keys, before, after }: FencedCall): Promise<number> {
    if (!scripts.isCluster) {
      const until = await deadline(prefix);
      const replies = keys.map((packed) => scripts.run(script, [], [until, ...before, prefix, packed, ...after]));
      return sum(await Promise.all(replies));
    }
    const write = async (key: string): Promise<unknown> =>
      scripts.run(script, [key], [await deadline(key), ...before, "", "", ...after]);
    let total = 0;
    for (const packed of keys) {
      const tokens = packed.split(",");
      total += sum(await Promise.all(tokens.map((token) => write(prefix + token))));
    }
    return total;
  }
}

const sum = (replies: readonly unknown[]): number => replies.reduce<number>((total, reply) => total + Number(reply), 0);
