import { expect, test } from "@jest/globals";
import { createHeldDeadLetters } from "../../../src/bridge/held-dead-letters.js";
import type { DeadLetter } from "../../../src/delivery/dead-letter.js";
import { AppError } from "../../../src/kernel/errors.js";
import { eventually } from "../../support/eventually.js";

const FULL = new AppError("unavailable", "maximum messages exceeded");
const AWAY = new AppError("unavailable", "no connection");

function setup() {
  const stored: string[] = [];
  const alarms: object[] = [];
  const line = (): void => undefined;
  const state: { failure: AppError | undefined } = { failure: undefined };
  const deadLetters = createHeldDeadLetters({
    store: async ({ id }) => {
      if (state.failure) throw state.failure;
      stored.push(id);
    },
    isRefusal: (error) => error === FULL,
    log: {
      debug: line,
      info: line,
      warn: line,
      error: (fields) => void alarms.push(fields),
      isLevelEnabled: () => true,
      logsAccess: () => true,
    },
  });
  const take = (id: number, bytes = 1) => {
    const deadLetter: DeadLetter = {
      subject: "dlq.invalid.drop_created",
      id: `${id}`,
      headers: {},
      body: Buffer.alloc(bytes),
    };
    return deadLetters.take(deadLetter);
  };
  return { state, stored, alarms, deadLetters, take };
}

test("a dead letter the DLQ takes is stored at once; while NATS is unavailable nothing is held", async () => {
  const { state, stored, deadLetters, take } = setup();
  expect([await take(1), stored, deadLetters.notReady()]).toEqual(["stored", ["1"], undefined]);
  state.failure = AWAY;
  await expect(take(2)).rejects.toBe(AWAY);
});

// Invariant 1.
test("256 dead letters are held while the DLQ is full; the others are refused, with one alarm, and readiness is lost", async () => {
  const { state, stored, alarms, deadLetters, take } = setup();
  state.failure = FULL;
  const outcomes: string[] = [];
  for (let n = 0; n < 300; n++) outcomes.push(await take(n));
  expect(outcomes).toEqual([...Array(256).fill("held"), ...Array(44).fill("refused")]);
  expect(alarms).toHaveLength(1);
  expect(deadLetters.notReady()).toContain("DLQ");
  state.failure = undefined;
  await eventually(() => deadLetters.notReady() === undefined, "it is ready again");
  expect(stored.map(Number).sort((a, b) => a - b)).toEqual(Array.from({ length: 256 }, (_, n) => n));
  expect(await take(1_000)).toBe("stored");
});

test("held dead letters are bounded in bytes too", async () => {
  const { state, take } = setup();
  state.failure = FULL;
  const outcomes: string[] = [];
  for (let n = 0; n < 6; n++) outcomes.push(await take(n, 1024 * 1024));
  expect(outcomes).toEqual(["held", "held", "held", "held", "refused", "refused"]);
});

test("closing waits for what is held, but not longer than the grace", async () => {
  const { state, stored, alarms, deadLetters, take } = setup();
  state.failure = FULL;
  await take(1);
  state.failure = undefined;
  await deadLetters.close(5_000);
  expect(stored).toEqual(["1"]);
  const other = setup();
  other.state.failure = FULL;
  await other.take(1);
  await other.deadLetters.close(20);
  expect([alarms, other.alarms]).toEqual([[], [{ count: 1 }]]);
});
