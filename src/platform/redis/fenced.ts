import type { PackedKeys } from "../../contracts/keys.js";
import { inSpan, SpanKind } from "../../delivery/traced.js";
import { leftOut } from "../../kernel/failpoints.js";
import type { Clock } from "../../kernel/time.js";
import type { RedisClock } from "./clock.js";
import { COMMAND_TIMEOUT_MS } from "./connect.js";
import type { Scripts } from "./scripts.js";

/** What a script that writes to many keys is given. */
export interface FencedCall {
  readonly script: "add-entries" | "remove-entries";
  readonly prefix: string;
  readonly keys: PackedKeys;
  /** Arguments between the deadline and the keys. */
  readonly before: readonly (string | number)[];
  /** Arguments after the keys. */
  readonly after: readonly (string | number)[];
}

/** Runs a call; resolves to the sum of the replies after every one of them was a success. */
export type FencedRun = (call: FencedCall) => Promise<number>;

/**
 * Makes the function that runs write scripts under a deadline by the server's
 * clock: as long as a command may take to be answered, and no longer.
 *
 * One Redis takes a packed list of keys a call. In a cluster each key is a call of its
 * own, so that the client can follow a slot that moves; every reply is awaited.
 */
export function createFencedRun(scripts: Scripts, clock: RedisClock): FencedRun {
  const deadline: Clock = () => Math.floor(clock.now()) + COMMAND_TIMEOUT_MS;
  return (call) =>
    tolerating(
      inSpan(`redis ${call.script}`, { kind: SpanKind.CLIENT, attributes: { "db.system": "redis" } }, () => run(call)),
    );

  async function run({ script, prefix, keys, before, after }: FencedCall): Promise<number> {
    if (!scripts.isCluster) {
      const replies = keys.map((packed) => scripts.run(script, [], [deadline(), ...before, prefix, packed, ...after]));
      return sum(await Promise.all(replies));
    }
    let total = 0;
    for (const packed of keys) {
      const replies = packed
        .split(",")
        .map((token) => scripts.run(script, [prefix + token], [deadline(), ...before, "", "", ...after]));
      total += sum(await Promise.all(replies));
    }
    return total;
  }
}

/** A reply that says that nothing was written is an error of the call; a test leaves that out. */
const tolerating = (replies: Promise<number>): Promise<number> =>
  leftOut("write-replies") ? replies.catch(() => 0) : replies;

const sum = (replies: readonly unknown[]): number => replies.reduce<number>((total, reply) => total + Number(reply), 0);
