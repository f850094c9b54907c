import { attemptsKey } from "../contracts/keys.js";
import type { Delivery } from "../delivery/handler.js";
import type { AttemptCount, Attempts } from "../delivery/process.js";
import { createBatch } from "../kernel/sharing.js";
import { DAY } from "../kernel/time.js";
import { type Scripts, script } from "../platform/redis/scripts.js";

const NOTE_ATTEMPT = script("note-attempt", import.meta.url);

const KEEP_MS = DAY;
const MESSAGES_A_CALL = 256;

interface Note {
  readonly key: string;
  readonly name: string;
  readonly state: "begun" | "alone" | "failed";
}

/** Messages that begin together are counted in one call. */
export function createAttempts({ run, command, isCluster }: Scripts): Attempts {
  const keyOf = ({ stream, seq, time }: Delivery): string => attemptsKey(stream, seq, time);
  const noteAll = async (notes: readonly Note[]): Promise<AttemptCount[]> => {
    const args = notes.flatMap(({ name, state }) => [name, state]);
    const noted = (await run(
      NOTE_ATTEMPT,
      notes.map(({ key }) => key),
      [KEEP_MS, ...args],
    )) as number[];
    return notes.map((_, index) => {
      const [count = 0, lost = 0, beside = 0] = noted.slice(3 * index, 3 * index + 3);
      return { count, lost, beside };
    });
  };
  // A call in a cluster is for one slot.
  const note = isCluster
    ? async (one: Note): Promise<AttemptCount> => (await noteAll([one]))[0] as AttemptCount
    : createBatch(MESSAGES_A_CALL, noteAll);
  const unlink = (keys: readonly string[]) => command("unlink", (client) => client.unlink(...keys));
  const forget = isCluster
    ? (key: string) => unlink([key])
    : createBatch<string>(MESSAGES_A_CALL, async (keys) => void (await unlink(keys)));
  return {
    begin: (delivery, name, alone) => note({ key: keyOf(delivery), name, state: alone ? "alone" : "begun" }),
    fail: async (delivery, name) => {
      await note({ key: keyOf(delivery), name, state: "failed" });
    },
    refund: async (delivery, name) => {
      await command("hdel", (client) => client.hdel(keyOf(delivery), name));
    },
    forget: (delivery) => {
      // The count expires within a day.
      void forget(keyOf(delivery)).catch(() => undefined);
    },
  };
}
