import { expect, test } from "@jest/globals";
import type { DeadLetter } from "../../../src/delivery/dead-letter.js";
import type { Delivery, DeliveryOutcome, Handler } from "../../../src/delivery/handler.js";
import { type Attempts, createProcess, SuspectLock, type WaitingMessages } from "../../../src/delivery/process.js";
import { Returns } from "../../../src/delivery/verdict.js";
import { AppError } from "../../../src/kernel/errors.js";
import { contextWith, deliveryOf } from "../../support/deliveries.js";

/** The steps that ran, in order. */
type Trace = string[];

/** Counts names in memory; the adapter on Redis passes the same expectations in the integration tests. */
function memoryAttempts(trace: Trace, begun = new Set<string>(), failed = new Set(begun)): Attempts {
  return {
    begin: async (_, name, alone) => {
      trace.push(alone ? "begin alone" : "begin");
      begun.add(name);
      return {
        count: begun.size,
        lost: [...begun].filter((one) => one !== name && !failed.has(one)).length,
        beside: 0,
      };
    },
    fail: async (_, name) => void failed.add(name),
    refund: async (_, name) => {
      trace.push("refund");
      begun.delete(name);
    },
    forget: () => {
      trace.push("forget");
      begun.clear();
    },
  };
}

/** Attempts of earlier processes. */
const begunBefore = (times: number): Set<string> =>
  new Set(Array.from({ length: times }, (_, index) => `earlier ${index}`));

interface Setup {
  readonly handler: Handler;
  readonly attempts?: Attempts;
  readonly store?: (letter: DeadLetter) => Promise<void>;
  readonly suspectLock?: SuspectLock;
  readonly waiting?: WaitingMessages;
}

function setup({ handler, ...given }: Setup) {
  const trace: Trace = [];
  const letters: DeadLetter[] = [];
  const observed: string[] = [];
  const stopping = new AbortController();
  const process = createProcess({
    handler: async (delivery, context) => {
      trace.push("handle");
      await handler(delivery, context);
    },
    attempts: given.attempts ?? memoryAttempts(trace),
    storeDeadLetter: async (letter) => {
      trace.push("letter");
      await given.store?.(letter);
      letters.push(letter);
    },
    limits: { maxAttempts: 5, retryBaseMs: 100 },
    suspectLock: given.suspectLock ?? new SuspectLock(),
    waiting: given.waiting,
    version: "1.2.3",
    eventOf: () => "drop_created",
    observe: (what) => observed.push(what),
  });
  const run = (delivery: Delivery = deliveryOf()): Promise<DeliveryOutcome> =>
    process(delivery, contextWith(stopping.signal));
  return { run, trace, letters, observed, stopping };
}

const away = () => new AppError("unavailable", "away");
const reasonOf = (letters: readonly DeadLetter[]) => letters.map(({ headers }) => headers["Dlq-Reason"]);

// Invariant 10.
test("an attempt is counted before the handler runs, and forgotten after it returned", async () => {
  const { run, trace, letters, observed } = setup({ handler: async () => undefined });
  expect(await run()).toEqual({ kind: "ack" });
  expect(trace).toEqual(["begin", "handle", "forget"]);
  expect([letters, observed]).toEqual([[], ["acked"]]);
});

test("a failure is retried four times and the fifth is the dead letter `exhausted`", async () => {
  const { run, letters, observed } = setup({ handler: () => Promise.reject(new Error("broken")) });
  const outcomes: string[] = [];
  for (let attempt = 1; attempt <= 5; attempt++) outcomes.push((await run()).kind);
  expect(outcomes).toEqual(["retry", "retry", "retry", "retry", "ack"]);
  expect(letters.map(({ subject, headers }) => [subject, headers["Dlq-Error"], headers["Dlq-Deliveries"]])).toEqual([
    ["dlq.exhausted.drop_created", "broken", "5"],
  ]);
  expect(observed).toEqual(["retried", "retried", "retried", "retried", "dead-lettered"]);
});

test.each(["invalid", "poison"] as const)("`%s` is a letter at once", async (code) => {
  const { run, trace, letters } = setup({ handler: () => Promise.reject(new AppError(code, "x: is wrong")) });
  expect(await run()).toEqual({ kind: "ack" });
  expect(trace).toEqual(["begin", "handle", "letter", "forget"]);
  expect(reasonOf(letters)).toEqual([code]);
});

// Invariant 8.
test("an outage keeps the message in flight, spends no attempt, and acks only after the handler returned", async () => {
  let outages = 3;
  const begun = begunBefore(4);
  const trace: Trace = [];
  const { run, letters, observed } = setup({
    attempts: memoryAttempts(trace, begun),
    handler: async () => {
      expect(begun.size).toBe(5);
      if (outages-- > 0) throw away();
    },
  });
  expect(await run()).toEqual({ kind: "ack" });
  expect(trace).toEqual(["begin", "refund", "begin", "refund", "begin", "refund", "begin", "forget"]);
  expect([letters, observed]).toEqual([[], ["waited", "waited", "waited", "acked"]]);
});

// Invariant 10.
test("an outage of the counter does not let the handler run uncounted, and an answer that was lost counts once", async () => {
  const trace: Trace = [];
  const begun = begunBefore(3);
  const counting = memoryAttempts(trace, begun);
  let lost = 4;
  const attempts: Attempts = {
    ...counting,
    begin: async (delivery, name, alone) => {
      const count = await counting.begin(delivery, name, alone);
      if (lost-- > 0) throw away();
      return count;
    },
    refund: () => Promise.reject(away()),
  };
  const { run, letters } = setup({
    attempts,
    handler: async () => {
      trace.push(`handled at ${begun.size}`);
    },
  });
  expect(await run()).toEqual({ kind: "ack" });
  expect(trace).toEqual(["begin", "begin", "begin", "begin", "begin", "handled at 4", "forget"]);
  expect(letters).toEqual([]);
});

test("a handler that waits for a server hands its message back when the process stops", async () => {
  const { run, trace, stopping, letters } = setup({
    handler: async () => {
      setImmediate(() => stopping.abort());
      throw away();
    },
  });
  expect(await run()).toEqual({ kind: "release" });
  expect(trace).toEqual(["begin", "handle", "refund"]);
  expect(letters).toEqual([]);
});

// Invariant 10.
test("a message with five attempts that never ended is the dead letter `crashed`, without running", async () => {
  const trace: Trace = [];
  const { run, letters } = setup({
    attempts: memoryAttempts(trace, begunBefore(5)),
    handler: async () => void trace.push("handled"),
  });
  expect(await run()).toEqual({ kind: "ack" });
  expect(trace).toEqual(["begin", "forget"]);
  expect(letters.map(({ headers }) => [headers["Dlq-Reason"], headers["Dlq-Deliveries"]])).toEqual([["crashed", "5"]]);
});

test("the fifth attempt itself still runs", async () => {
  const trace: Trace = [];
  const { run, letters } = setup({
    attempts: memoryAttempts(trace, begunBefore(4)),
    handler: async () => void trace.push("handled"),
  });
  expect(await run()).toEqual({ kind: "ack" });
  expect([trace, letters]).toEqual([["begin", "handled", "forget"], []]);
});

test("the original is neither acked nor forgotten as long as the DLQ does not take the dead letter", async () => {
  let refusals = 1;
  const { run, trace, letters } = setup({
    handler: () => Promise.reject(new AppError("poison", "never")),
    store: () => (refusals-- > 0 ? Promise.reject(away()) : Promise.resolve()),
  });
  expect(await run()).toEqual({ kind: "ack" });
  expect(trace.indexOf("forget")).toBe(trace.length - 1);
  expect(trace.filter((step) => step === "letter")).toHaveLength(2);
  expect(letters).toHaveLength(1);
});

test("a dead letter says why its message failed however long the DLQ was unavailable", async () => {
  let refusals = 2;
  const { run, letters } = setup({
    attempts: memoryAttempts([], begunBefore(4)),
    handler: () => Promise.reject(new Error("the true reason")),
    store: () => (refusals-- > 0 ? Promise.reject(away()) : Promise.resolve()),
  });
  expect(await run()).toEqual({ kind: "ack" });
  expect(letters.map(({ headers }) => [headers["Dlq-Reason"], headers["Dlq-Error"]])).toEqual([
    ["exhausted", "the true reason"],
  ]);
});

test("a dead letter that cannot be stored while the process stops leaves the message to others", async () => {
  const { run, stopping, letters } = setup({
    handler: () => Promise.reject(new AppError("poison", "never")),
    store: () => {
      setImmediate(() => stopping.abort());
      return Promise.reject(away());
    },
  });
  expect(await run()).toEqual({ kind: "release" });
  expect(letters).toEqual([]);
});

const suspected = (trace: Trace): Attempts => memoryAttempts(trace, begunBefore(2), new Set());

// Invariant 10.
test("a message that never reported back excludes others of its kind, and nobody else", async () => {
  const suspectLock = new SuspectLock();
  const trace: Trace = [];
  const counted: Trace = [];
  let finish = (): void => undefined;
  const suspect = setup({
    suspectLock,
    attempts: suspected(counted),
    handler: async () => {
      trace.push("suspect");
      await new Promise<void>((resolve) => {
        finish = resolve;
      });
      trace.push("suspect done");
    },
  });
  const second = setup({ suspectLock, attempts: suspected([]), handler: async () => void trace.push("second") });
  const other = setup({ suspectLock, handler: async () => void trace.push("other") });
  const running = [suspect.run()];
  await new Promise(setImmediate);
  running.push(second.run());
  expect(await other.run()).toEqual({ kind: "ack" });
  expect(trace).toEqual(["suspect", "other"]);
  finish();
  expect(await Promise.all(running)).toEqual(Array(2).fill({ kind: "ack" }));
  expect(trace).toEqual(["suspect", "other", "suspect done", "second"]);
  expect(counted).toEqual(["begin", "begin alone", "forget"]);
});

// Invariant 10.
test("a suspect that waits for a server lets the next one begin, and counts as one beside others from then on", async () => {
  const suspectLock = new SuspectLock();
  const counted: Trace = [];
  let finish = (): void => undefined;
  const slow = setup({
    suspectLock,
    attempts: suspected(counted),
    handler: () =>
      new Promise<void>((resolve) => {
        finish = resolve;
      }),
  });
  const second = setup({ suspectLock, attempts: suspected([]), handler: async () => undefined });
  const running = slow.run();
  await new Promise(setImmediate);
  expect(await second.run()).toEqual({ kind: "ack" });
  expect(counted).toEqual(["begin", "begin alone", "begin"]);
  finish();
  expect(await running).toEqual({ kind: "ack" });
  expect(counted.at(-1)).toBe("forget");
});

// Invariant 10.
test("the more processes ended beside it, the longer a suspect is alone", async () => {
  const { setTimeout } = globalThis;
  const timers = new Map<number | undefined, () => void>();
  const deadly = suspected([]);
  const suspectLock = new SuspectLock();
  let finish = (): void => undefined;
  const slow = setup({
    suspectLock,
    attempts: { ...deadly, begin: async (...of) => ({ ...(await deadly.begin(...of)), beside: 3 }) },
    handler: () =>
      new Promise<void>((resolve) => {
        finish = resolve;
      }),
  });
  const second = setup({ suspectLock, attempts: suspected([]), handler: async () => undefined });
  let running: Promise<DeliveryOutcome>;
  try {
    Object.assign(globalThis, { setTimeout: (end: () => void, ms?: number) => void timers.set(ms, end) });
    running = slow.run();
    await new Promise(setImmediate);
  } finally {
    globalThis.setTimeout = setTimeout;
  }
  // 50 ms, times four for each of them.
  expect([...timers.keys()]).toEqual([3_200]);
  const next = second.run();
  await new Promise(setImmediate);
  expect(second.trace).toEqual([]);
  timers.get(3_200)?.();
  expect(await next).toEqual({ kind: "ack" });
  finish();
  expect(await running).toEqual({ kind: "ack" });
});

// Invariant 8.
test("where only the subject of a message is unavailable it goes back with a delay, and spends no attempt", async () => {
  const begun = begunBefore(4);
  const failing = () => Promise.reject(new AppError("unavailable", "away", { subject: "anna" }));
  const { run, letters, observed } = setup({ attempts: memoryAttempts([], begun), handler: failing });
  const outcomes = [await run(), await run(deliveryOf({ deliveries: 900 }))];
  expect(outcomes).toEqual(Array(2).fill({ kind: "retry", delayMs: expect.any(Number) }));
  expect([begun.size, letters, observed]).toEqual([4, [], ["waited", "waited"]]);
});

// Invariant 5.
test("a message that goes back for its subject alone is noted first, and no more when it is handled again", async () => {
  const trace: Trace = [];
  const notes: number[] = [];
  const { run } = setup({
    waiting: {
      note: async (_, delayMs) => {
        trace.push("note");
        notes.push(delayMs);
      },
      remove: async () => void trace.push("remove"),
    },
    attempts: memoryAttempts(trace),
    handler: () => Promise.reject(new AppError("unavailable", "away", { subject: "anna" })),
  });
  const first = await run();
  expect([first, trace]).toEqual([{ kind: "retry", delayMs: notes[0] }, ["begin", "refund", "note"]]);
  await run(deliveryOf({ deliveries: 2 }));
  expect(trace.slice(3)).toEqual(["remove", "begin", "refund", "note"]);
});

// Invariant 8.
test("however many wait for one subject, they come back one after the other", async () => {
  const returns = new Returns();
  const delays = Array.from({ length: 1_000 }, () => returns.delayMs("anna", 1_000));
  expect(Math.min(...delays)).toBeGreaterThanOrEqual(1_000);
  expect(Math.max(...delays)).toBeGreaterThan(10_000);
  expect(returns.delayMs("arno", 1_000)).toBe(1_000);
});

// Invariant 8.
test("where the attempt cannot be given back the message is held", async () => {
  let refusals = 1;
  const counting = memoryAttempts([]);
  const { run } = setup({
    attempts: {
      ...counting,
      refund: (...of) => (refusals-- > 0 ? Promise.reject(away()) : counting.refund(...of)),
    },
    handler: () => Promise.reject(new AppError("unavailable", "away", { subject: "anna" })),
  });
  expect((await run()).kind).toBe("retry");
  expect(refusals).toBe(-1);
});

test("a message whose failure was reported is handled beside others", async () => {
  const { run, trace } = setup({ attempts: memoryAttempts([], begunBefore(2)), handler: async () => undefined });
  expect(await run()).toEqual({ kind: "ack" });
  expect(trace).toEqual(["handle"]);
});
