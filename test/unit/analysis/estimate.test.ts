import { expect, test } from "@jest/globals";
import { createEstimate } from "../../../src/analysis/http/estimate.js";

/** A queue under a clock of the test; `ask` waits for the look that it may have begun. */
function bench() {
  const state = { now: 0, looks: 0, queue: { waiting: 0, done: 0 }, away: false };
  const look = async () => {
    state.looks++;
    if (state.away) throw new Error("NATS is away");
    return state.queue;
  };
  const estimate = createEstimate(look, () => state.now);
  const ask = async (now: number, queue = state.queue) => {
    Object.assign(state, { now, queue });
    const ms = estimate();
    await new Promise(setImmediate);
    return ms;
  };
  return { state, ask };
}

test("an empty queue, and one that nobody has looked at, take the time of one analysis", async () => {
  const { ask } = bench();
  expect(await ask(0, { waiting: 900, done: 0 })).toBe(5_000);
  expect(await ask(10, { waiting: 0, done: 900 })).toBe(5_000);
});

test("the estimate multiplies waiting analyses by the recent duration of one", async () => {
  const { ask } = bench();
  await ask(0, { waiting: 1, done: 0 });
  await ask(5_000, { waiting: 300, done: 50 });
  expect(await ask(5_001)).toBe(5_000 + 300 * 100);
  await ask(10_000, { waiting: 200, done: 250 });
  expect(await ask(10_001)).toBe(5_000 + 200 * 25);
  await ask(3_600_000, { waiting: 100, done: 260 });
  expect(await ask(3_600_001)).toBe(5_000 + 100 * 25);
});

test("a queue that stands still takes longer and longer, at most a day", async () => {
  const { ask } = bench();
  const stuck = { waiting: 10_000, done: 7 };
  await ask(0, stuck);
  await ask(5_000, stuck);
  expect(await ask(5_001)).toBe(5_000 + 10_000 * 5_000);
  await ask(600_000, stuck);
  expect(await ask(600_001)).toBe(86_400_000);
});

test("a consumer that was made anew has no pace: the last one stays", async () => {
  const { ask } = bench();
  await ask(0, { waiting: 1, done: 900 });
  await ask(5_000, { waiting: 300, done: 950 });
  await ask(10_000, { waiting: 300, done: 10 });
  expect(await ask(10_001)).toBe(5_000 + 300 * 100);
});

test("there is at most one look in five seconds, and none is waited for or fails a request", async () => {
  const { state, ask } = bench();
  state.away = true;
  for (let now = 0; now < 10_000; now += 100) expect(await ask(now)).toBe(5_000);
  expect(state.looks).toBe(2);
});
