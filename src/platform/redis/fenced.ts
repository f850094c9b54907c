import type { PackedKeys } from "../../contracts/keys.js";
import { inSpan, SpanKind } from "../../delivery/telemetry.js";
import type { RedisClock } from "./clock.js";
import { COMMAND_TIMEOUT_MS } from "./connect.js";
import type { Scripts } from "./scripts.js";

/** What a script that writes to many keys is given. */
export interface FencedCall {
  readonly script: "add-entries" | "remove-entries" | "trim-older" | "mark-edges";
  readonly prefix: string;
  readonly keys: PackedKeys;
  /** Arguments between the deadline and the keys. */
  readonly before: readonly (string | number)[];
  /** Arguments after the keys. */
  readonly after: readonly (string | number)[];
}

/** Scripts that write to keys of one slot and take a deadline as their first argument. */
export type FencedScript = "stage-rebuild" | "finish-rebuild" | "finish-refill" | "record-server";

/** Runs scripts under a deadline: as long as a command may take to be answered, by the clock of the server written to. */
export interface Fenced {
  /** Writes to many keys; resolves to the sum of the replies after every one of them was a success. */
  many(call: FencedCall): Promise<number>;
  /** Writes to one key, or to several of one slot; resolves to the reply. */
  one(script: FencedScript, keys: readonly [string, ...string[]], args: readonly (string | number)[]): Promise<unknown>;
}

/**
 * Makes what runs write scripts under a deadline.
 *
 * One Redis takes a packed list of keys a call. In a cluster each key is a call of its
 * own, so that the client can follow a slot that moves; every reply is awaited. A call that the
 * client redirects meanwhile keeps the deadline of the server it was meant for.
 */
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
