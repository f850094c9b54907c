import { expect, test } from "@jest/globals";
import type { DeadLetter } from "../../../src/delivery/dead-letter.js";
import type { BatchHandler, Delivery, DeliveryOutcome, Handler } from "../../../src/delivery/handler.js";
import { type Attempts, createBatchProcess, createProcess, SuspectLock } from "../../../src/delivery/process.js";
import { AppError } from "../../../src/kernel/errors.js";
import { contextWith, deliveryOf } from "../../support/deliveries.js";

const MAX_ATTEMPTS = 5;

/** Counts names by sequence; those of `lost` were begun by processes that ended. */
function memoryAttempts(lost: number): Attempts & { readonly begun: number[] } {
  const names = new Set(Array.from({ length: lost }, (_, index) => `earlier ${index}`));
  const failed = new Set<string>();
  const begun: number[] = [];
  return {
    begun,
    begin: async ({ seq }, name) => {
      begun.push(seq);
      names.add(name);
      return {
        count: names.size,
        lost: [...names].filter((one) => one !== name && !failed.has(one)).length,
        beside: 0,
      };
    },
    fail: async (_, name) => void failed.add(name),
    refund: async (_, name) => void names.delete(name),
    forget: () => names.clear(),
  };
}

interface Setup {
  readonly together?: BatchHandler;
  readonly one?: Handler;
  readonly lost?: number;
  readonly maxAttempts?: number;
}

function setup({ together, one, lost = 0, maxAttempts = MAX_ATTEMPTS }: Setup) {
  const attempts = memoryAttempts(lost);
  const letters: DeadLetter[] = [];
  const observed: [string, number][] = [];
  const suspectLock = new SuspectLock();
  const observe = (what: string, _: Delivery, count = 1) => void observed.push([what, count]);
  const alone = createProcess({
    handler: one ?? (async () => undefined),
    attempts,
    storeDeadLetter: async (letter) => void letters.push(letter),
    limits: { maxAttempts, retryBaseMs: 1 },
    suspectLock,
    version: "1.2.3",
    eventOf: () => "drop_created",
    observe,
    batched: true,
  });
  const batch = createBatchProcess({ handler: together ?? (async () => []), observe });
  return { alone, batch, attempts, letters, observed };
}

const deliveries = (count: number): Delivery[] => Array.from({ length: count }, (_, at) => deliveryOf({ seq: at + 1 }));

test("a batch that succeeds counts no attempt, and returns what its handler leaves", async () => {
  const all = deliveries(3);
  const { batch, attempts, observed } = setup({ together: async ([first]) => (first ? [first] : []) });
  expect(await batch(all, contextWith())).toEqual([all[0]]);
  expect([attempts.begun, observed]).toEqual([[], [["acked", 2]]]);
});

// Invariant 10.
test("a batch that fails spends no attempt: its messages are handled alone, and the bad one is dead-lettered", async () => {
  const fails = async ({ seq }: Delivery): Promise<void> => {
    if (seq === 2) throw new AppError("poison", "is wrong");
  };
  const { batch, alone, attempts, letters } = setup({
    together: async (all) => {
      for (const one of all) await fails(one);
      return [];
    },
    one: fails,
  });
  const all = deliveries(3);
  const left = await batch(all, contextWith());
  expect([left, attempts.begun]).toEqual([all, []]);
  for (const one of left) expect(await alone(one, contextWith())).toEqual({ kind: "ack" });
  expect(letters.map(({ headers }) => [headers["Dlq-Stream-Seq"], headers["Dlq-Deliveries"]])).toEqual([["2", "1"]]);
});

// Invariant 10.
test("a delivery in a batch that never reported back counts towards `crashed`, and not towards `exhausted`", async () => {
  const again = deliveryOf({ deliveries: MAX_ATTEMPTS });
  const killer = setup({ lost: MAX_ATTEMPTS - 1, one: () => Promise.reject(new Error("not reached")) });
  expect(await killer.alone(again, contextWith())).toEqual({ kind: "ack" });
  expect(killer.letters.map(({ headers }) => [headers["Dlq-Reason"], headers["Dlq-Deliveries"]])).toEqual([
    ["crashed", "5"],
  ]);
  const broken = setup({ one: () => Promise.reject(new Error("broken")) });
  const outcomes: DeliveryOutcome["kind"][] = [];
  for (let attempt = 1; attempt <= MAX_ATTEMPTS; attempt++)
    outcomes.push((await broken.alone(again, contextWith())).kind);
  expect(outcomes).toEqual(["retry", "retry", "retry", "retry", "ack"]);
  expect(broken.letters.map(({ headers }) => headers["Dlq-Reason"])).toEqual(["exhausted"]);
});

// Invariant 10.
test("a delivery in a batch that never reported back counts nothing alone: a deploy may be the reason", async () => {
  const ran: number[] = [];
  const { alone, letters } = setup({ maxAttempts: 1, one: async ({ seq }) => void ran.push(seq) });
  expect(await alone(deliveryOf({ deliveries: 9 }), contextWith())).toEqual({ kind: "ack" });
  expect([ran.length, letters]).toEqual([1, []]);
});
