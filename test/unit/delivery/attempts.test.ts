import { expect, test } from "@jest/globals";
import type { DeadLetter } from "../../../src/delivery/dead-letter.js";
import type { DeliveryOutcome } from "../../../src/delivery/handler.js";
import { type Attempts, createProcess, SuspectLock } from "../../../src/delivery/process.js";
import { AppError } from "../../../src/kernel/errors.js";
import { contextWith, deliveryOf } from "../../support/deliveries.js";

/** Counts by message, as the adapter on Redis does, whose keys name stream, sequence and time. */
function countedByMessage(): Attempts & { begun(seq: number): number } {
  const names = new Map<number, Set<string>>();
  const of = (seq: number): Set<string> => {
    const held = names.get(seq) ?? new Set();
    names.set(seq, held);
    return held;
  };
  return {
    begun: (seq) => of(seq).size,
    begin: async ({ seq }, name) => ({ count: of(seq).add(name).size, lost: 0, beside: 0 }),
    fail: async () => undefined,
    refund: async ({ seq }, name) => void of(seq).delete(name),
    forget: ({ seq }) => of(seq).clear(),
  };
}

function setup(handler: (seq: number) => Promise<void>) {
  const attempts = countedByMessage();
  const letters: DeadLetter[] = [];
  const process = createProcess({
    handler: ({ seq }) => handler(seq),
    attempts,
    storeDeadLetter: async (letter) => void letters.push(letter),
    limits: { maxAttempts: 3, retryBaseMs: 100 },
    suspectLock: new SuspectLock(),
    version: "1.2.3",
    eventOf: () => "drop_created",
    observe: () => undefined,
  });
  const run = (seq: number, deliveries: number): Promise<DeliveryOutcome> =>
    process(deliveryOf({ seq, deliveries }), contextWith());
  return { run, letters, attempts };
}

// Invariant 10.
test("how often the server has handed a message out says nothing: its first failure is its first", async () => {
  const { run, letters } = setup(() => Promise.reject(new Error("broken")));
  expect([(await run(1, 900)).kind, (await run(1, 901)).kind, letters.length]).toEqual(["retry", "retry", 0]);
  expect((await run(1, 902)).kind).toBe("ack");
  expect(letters.map(({ headers }) => [headers["Dlq-Reason"], headers["Dlq-Deliveries"]])).toEqual([
    ["exhausted", "3"],
  ]);
});

// Invariant 10.
test("the attempts of one message are not charged to another", async () => {
  const { run, letters } = setup((seq) => (seq === 1 ? Promise.reject(new Error("broken")) : Promise.resolve()));
  for (let time = 1; time <= 2; time++) expect((await run(1, time)).kind).toBe("retry");
  expect(await run(2, 3)).toEqual({ kind: "ack" });
  expect((await run(1, 3)).kind).toBe("ack");
  expect(letters).toHaveLength(1);
  expect(letters[0]?.headers["Dlq-Stream-Seq"]).toBe("1");
});

// Invariant 8.
test("outages between two failures leave the count where it was", async () => {
  const failures = ["failed", "unavailable", "unavailable", "failed", "unavailable", "failed"] as const;
  let call = 0;
  const counts: number[] = [];
  const { run, letters, attempts } = setup(async () => {
    counts.push(attempts.begun(1));
    throw new AppError(failures[call++] ?? "failed", "not now");
  });
  const outcomes: string[] = [];
  for (let time = 1; time <= 3; time++) outcomes.push((await run(1, time)).kind);
  expect(outcomes).toEqual(["retry", "retry", "ack"]);
  expect(counts).toEqual([1, 2, 2, 2, 3, 3]);
  expect(letters.map(({ headers }) => headers["Dlq-Deliveries"])).toEqual(["3"]);
});
