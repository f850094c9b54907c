import { randomUUID } from "node:crypto";
import { oneLine } from "../../../src/kernel/errors.js";
import type { Wraps } from "../../../src/roles/role.js";

/** Services with one broken part each; the oracle of the fault suite must notice every one of them. */
export const MUTANTS = {
  /** No drop is known to be deleted. */
  "tombstone-check": {
    state: { fences: (usual) => ({ ...usual, tombstonedAmong: async () => new Set<string>() }) },
  },
  /** A write to many keys of which one failed counts as done. */
  "write-replies": {
    state: { fenced: (usual) => ({ ...usual, groups: (call) => usual.groups(call).catch(() => 0) }) },
  },
  /** A message is acknowledged when its handling begins. */
  "ack-last": {
    process: (usual) => async (delivery, context) => {
      void usual(delivery, context);
      return { kind: "ack" };
    },
    batch: () => async (deliveries) => deliveries,
  },
  /** A message is acknowledged before the DLQ has stored its dead letter. */
  "dlq-ack": {
    connections: (usual) => ({
      ...usual,
      storeDeadLetter: async (letter) => {
        usual.storeDeadLetter(letter).catch(() => undefined);
        return { stream: "DLQ", seq: 0, duplicate: false };
      },
    }),
  },
  /** A message that is published again has another id. */
  "message-ids": {
    connections: (usual) => ({
      ...usual,
      publish: (message) => usual.publish({ ...message, id: randomUUID() }),
    }),
  },
  /** An attempt that failed because a server is unavailable counts. */
  refund: {
    handler: (usual) => (delivery, context) =>
      usual(delivery, context).catch((error: unknown) => {
        throw new Error(oneLine(error));
      }),
  },
} as const satisfies Readonly<Record<string, Wraps>>;

export type Mutant = keyof typeof MUTANTS;
