import type { Delivery } from "../../delivery/handler.js";
import type { AttemptCount, Attempts } from "../../delivery/process.js";
import { createBatch } from "../../kernel/sharing.js";
import { DAY } from "../../kernel/time.js";
import { inOrder, type Scripts } from "../../platform/redis/scripts.js";
import { attemptsKey } from "../keys.js";
import { script } from "../scripts.redis.js";

const NOTE_ATTEMPT = script("note-attempt", import.meta.url);

const KEEP_MS = DAY;
const MESSAGES_A_CALL = 256;

interface Note {
  readonly key: string;
  readonly name: string;
  readonly state: "begun" | "alone" | "failed";
}

/**
 * Counts attempts. Messages that begin at the same time are counted in one call; in a cluster those whose counts are on
 * one node.
 */
export function createAttempts({ run, command, byNode, nodeOf, isCluster }: Scripts): Attempts {
  const keyOf = ({ stream, seq, time }: Delivery): string => attemptsKey(stream, seq, time);
  const noteAll = async (notes: readonly Note[]): Promise<AttemptCount[]> => {
    const keys = notes.map(({ key }) => key);
    const answers = await byNode(keys, MESSAGES_A_CALL, async (route, indexes) => {
      const args = indexes.flatMap((index) => {
        const { key, name, state } = notes[index] as Note;
        return [key, name, state];
      });
      return (await run(NOTE_ATTEMPT, route, [KEEP_MS, ...args])) as (readonly [number, number, number])[];
    });
    return inOrder(answers).map(([count, lost, beside]) => ({ count, lost, beside }));
  };
  const batches = new Map<string, (entry: Note) => Promise<AttemptCount>>();
  const note = (entry: Note): Promise<AttemptCount> => {
    const node = nodeOf(entry.key);
    const batch = batches.get(node) ?? createBatch(MESSAGES_A_CALL, noteAll);
    batches.set(node, batch);
    return batch(entry);
  };
  const unlink = (keys: readonly string[]) => command("unlink", (client) => client.unlink(...keys));
  // A command in a cluster is for one slot.
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
