import { expect, test } from "@jest/globals";
import type { OutboxEvent } from "../../../src/contracts/outbox.js";
import { silent } from "../../../src/kernel/logger.js";
import { HOUR, SECOND } from "../../../src/kernel/time.js";
import { startRelay } from "../../../src/outbox/relay.js";
import { eventually } from "../../support/eventually.js";

const EVENT: OutboxEvent = { id: 1, key: "a", subject: "log.it", messageId: "a:1", body: "{}", createdAt: 0 };

const nothing = (): undefined => undefined;

// Invariant 1.
test.each([
  { seconds: 4, released: [[1]] },
  { seconds: 11, released: [] },
])("an event still unpublished $seconds s after its claim is not published: it is claimed again", async (one) => {
  const queue = [EVENT];
  const released: (readonly number[])[] = [];
  const sent: OutboxEvent[] = [];
  const failures: number[] = [];
  const { now } = performance;
  const relay = startRelay({
    lookEveryMs: HOUR,
    store: {
      claim: async () => queue.splice(0),
      markPublished: async () => undefined,
      release: async (ids) => void released.push(ids),
      refuse: async () => 1,
    },
    prepare: async (events) => {
      performance.now = () => now.call(performance) + one.seconds * SECOND;
      return events;
    },
    publish: async (event) => void sent.push(event),
    deadLetter: async () => undefined,
    log: silent,
    observe: { published: nothing, deadLettered: nothing, failed: () => failures.push(1) },
  });
  try {
    await eventually(() => failures.length > 0, "the relay reports it");
  } finally {
    performance.now = now;
    await relay.close();
  }
  expect({ released, sent }).toEqual({ released: one.released, sent: [] });
});
