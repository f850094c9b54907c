import { expect, test } from "@jest/globals";
import fc from "fast-check";
import { createLanes, type LaneName } from "../../../src/kernel/lanes.js";

const MOST = { prompt: 8, yielding: 2 };

/** A server that does one call after another, by a clock of its own. */
function simulated() {
  let now = 0;
  const served: { readonly end: () => void; readonly ms: number }[] = [];
  const due: { readonly at: number; readonly call: () => void }[] = [];
  const at = (time: number, call: () => void): void => void due.push({ at: time, call });
  const pause = (ms: number) => new Promise<void>((resolve) => at(now + ms, resolve));
  const lanes = createLanes(MOST, { now: () => now, pause });
  const underWay = { prompt: 0, yielding: 0 };
  const most = { prompt: 0, yielding: 0 };
  const order: string[] = [];
  const call = (lane: LaneName, ms: number, name: string = lane): Promise<void> =>
    lanes[lane].run(async () => {
      order.push(name);
      most[lane] = Math.max(most[lane], ++underWay[lane]);
      await new Promise<void>((end) => served.push({ end, ms }));
      underWay[lane]--;
    });
  const turn = () => new Promise((resolve) => setImmediate(resolve));
  /** Ends a call, or goes on to the next time that something is due. */
  const serve = async (): Promise<boolean> => {
    await turn();
    due.sort((one, other) => one.at - other.at);
    const [[soonest], [next]] = [due, served];
    if (!next && !soonest) return false;
    const end = next ? now + next.ms : Number.POSITIVE_INFINITY;
    if (soonest && soonest.at <= end) {
      due.shift();
      now = Math.max(now, soonest.at);
      soonest.call();
    } else {
      served.shift();
      now = end;
      next?.end();
    }
    await turn();
    return true;
  };
  return { lanes, call, serve, at, order, most, underWay, now: () => now };
}

const load = fc.array(
  fc.record({ lane: fc.constantFrom<LaneName>("prompt", "yielding"), ms: fc.double({ min: 0, max: 10, noNaN: true }) }),
  { minLength: 1, maxLength: 100 },
);

// Invariant 11.
test("every call ends, in the order of its lane, and no more than the limits are under way", async () => {
  await fc.assert(
    fc.asyncProperty(load, async (calls) => {
      const { call, serve, order, most, lanes } = simulated();
      const ends = calls.map(({ lane, ms }, n) => call(lane, ms, `${lane} ${n}`));
      while (await serve());
      await Promise.all(ends);
      for (const lane of ["prompt", "yielding"] as const) {
        const begun = order.filter((name) => name.startsWith(lane));
        expect(begun).toEqual(calls.flatMap((one, n) => (one.lane === lane ? `${lane} ${n}` : [])));
        expect(lanes[lane].waiting).toBe(0);
        expect(most[lane]).toBeLessThanOrEqual(MOST[lane]);
      }
    }),
    { numRuns: 50 },
  );
});

// Invariant 11.
test("a prompt call never waits for more than two calls of the other lane, however many of them wait", async () => {
  await fc.assert(
    fc.asyncProperty(fc.integer({ min: 20, max: 200 }), fc.integer({ min: 1, max: 40 }), async (large, before) => {
      const { call, serve, now } = simulated();
      const ends = Array.from({ length: large }, () => call("yielding", 1));
      for (let n = 0; n < Math.min(before, large - 1); n++) await serve();
      const asked = now();
      let took = Number.POSITIVE_INFINITY;
      const prompt = call("prompt", 0.4).then(() => {
        took = now() - asked;
      });
      while (await serve());
      await Promise.all([...ends, prompt]);
      expect(took).toBeLessThanOrEqual(MOST.yielding + 0.4 + 1e-9);
    }),
    { numRuns: 50 },
  );
});

// Invariant 11.
test("while prompt calls wait, the other lane goes on with one call at a time", async () => {
  const { call, serve, lanes, order, most } = simulated();
  const small = Array.from({ length: 200 }, () => call("prompt", 4));
  const large = Array.from({ length: 100 }, () => call("yielding", 1));
  while (lanes.prompt.waiting > 0) {
    await serve();
    if (lanes.prompt.waiting > 0) expect(most.yielding).toBe(1);
  }
  expect(order.filter((lane) => lane === "yielding").length).toBeGreaterThan(5);
  while (await serve());
  await Promise.all([...large, ...small]);
});

// Invariant 11.
test("while prompt calls come, the other lane is busy for a third of the time; later it does not pause", async () => {
  const { lanes, call, serve, at, underWay, now } = simulated();
  const large = Array.from({ length: 2_000 }, () => call("yielding", 1));
  const small: Promise<void>[] = [];
  for (let n = 1; n <= 50; n++) at(n * 20, () => void small.push(call("prompt", 0.01)));
  const busy = { beside: 0, all: 0, later: 0 };
  while (now() < 1_500) {
    const [before, isBusy] = [now(), underWay.yielding > 0];
    if (!(await serve())) break;
    const ms = now() - before;
    if (before > 20 && now() < 1_000) {
      busy.all += ms;
      if (isBusy) busy.beside += ms;
    }
    if (before > 1_200) busy.later = Math.max(busy.later, underWay.yielding);
  }
  expect(busy.beside / busy.all).toBeCloseTo(1 / 3, 1);
  expect(busy.later).toBe(MOST.yielding);
  const paused = lanes.yieldAfter(10);
  while (await serve());
  await Promise.all([...large, ...small, paused]);
});

test("a call that fails gives its place to the next", async () => {
  const { lanes, call, serve } = simulated();
  const broken = (lane: LaneName) => lanes[lane].run(() => Promise.reject(new Error("broken")));
  for (const lane of ["prompt", "yielding"] as const) {
    const all = Array.from({ length: 20 }, () => expect(broken(lane)).rejects.toThrow("broken"));
    while (await serve());
    await Promise.all(all);
    const next = call(lane, 1);
    while (await serve());
    await next;
  }
});
