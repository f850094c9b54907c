import { describe, expect, test } from "@jest/globals";
import fc from "fast-check";
import { createLanes, type Lanes, Window, type WindowBounds } from "../../../src/kernel/lanes.js";

const BOUNDS: WindowBounds = { least: 500, most: 8_000, targetMs: 2 };
const WEIGHT = 250;

const weight = fc.integer({ min: 1, max: 2_000 });
const latency = fc.double({ min: 0, max: 5_000, noNaN: true });
const pastCalls = fc.array(fc.record({ weight, ms: latency, isFull: fc.boolean(), failed: fc.boolean() }), {
  maxLength: 200,
});

describe("a window", () => {
  const windowAfter = (calls: readonly { weight: number; ms: number; isFull: boolean; failed: boolean }[]) => {
    const window = new Window(BOUNDS);
    let now = 0;
    for (const { failed, ...call } of calls) {
      now += call.ms;
      if (failed) window.failed(call.weight);
      else window.ended({ ...call, now });
    }
    return { window, now };
  };
  const end = (window: Window, ms: number, now: number) => window.ended({ weight: WEIGHT, ms, isFull: true, now });

  // Invariant 11.
  test("a window stays between its minimum and its maximum", () => {
    fc.assert(
      fc.property(pastCalls, (calls) => {
        const { size } = windowAfter(calls).window;
        expect(size).toBeGreaterThanOrEqual(BOUNDS.least);
        expect(size).toBeLessThanOrEqual(BOUNDS.most);
      }),
    );
  });

  test("recovers to its most whatever was before, once calls take no longer than the shortest one", () => {
    fc.assert(
      fc.property(pastCalls, (calls) => {
        const { window, now } = windowAfter(calls);
        for (let n = 0; n < 100; n++) end(window, 0, now);
        expect(window.size).toBe(BOUNDS.most);
      }),
    );
  });

  test("a window shrinks to its minimum while calls take longer than the target allows", () => {
    fc.assert(
      fc.property(pastCalls, fc.double({ min: 2.1, max: 1_000, noNaN: true }), (calls, delay) => {
        const { window, now } = windowAfter(calls);
        end(window, 0, now);
        for (let n = 0; n < 5_000 && window.size > BOUNDS.least; n++) end(window, delay, now);
        expect(window.size).toBe(BOUNDS.least);
      }),
    );
  });

  test("takes the latency of a server that became slower as its baseline after two minutes", () => {
    const window = new Window(BOUNDS);
    for (let n = 0; n < 100; n++) end(window, 1, n);
    expect(window.size).toBe(BOUNDS.most);
    for (let n = 0; n < 100; n++) end(window, 50, 1_000 + n);
    expect(window.size).toBe(BOUNDS.least);
    for (let second = 2; second <= 240; second++) end(window, 50, second * 1_000);
    expect(window.size).toBe(BOUNDS.most);
  });

  test("does not grow while it is not used up", () => {
    const window = new Window(BOUNDS);
    for (let n = 0; n < 100; n++) window.ended({ weight: WEIGHT, ms: 1, isFull: false, now: n });
    expect(window.size).toBe(BOUNDS.least);
  });
});

describe("lanes", () => {
  /** A third of a call. */
  const BESIDE = WEIGHT / 3;

  /** A server that does one call after another, `perUnit` ms for each unit of weight, by a clock of its own. */
  function simulated(perUnit = 0.004) {
    let now = 0;
    const served: { readonly end: () => void; readonly weight: number }[] = [];
    const due: { readonly at: number; readonly call: () => void }[] = [];
    const lanes = createLanes(
      { prompt: { least: 2_000, most: 32_000, targetMs: 20 }, yielding: BOUNDS, beside: BESIDE },
      { now: () => now, after: (ms, call) => void due.push({ at: now + ms, call }) },
    );
    const underWay = { prompt: 0, yielding: 0 };
    const most = { prompt: 0, yielding: 0 };
    const order: string[] = [];
    const call = (lane: keyof Lanes, weight: number, name: string = lane): Promise<void> =>
      lanes[lane].run(weight, async () => {
        order.push(name);
        underWay[lane] += weight;
        most[lane] = Math.max(most[lane], underWay[lane]);
        await new Promise<void>((end) => served.push({ end, weight }));
        underWay[lane] -= weight;
      });
    const turn = () => new Promise((resolve) => setImmediate(resolve));
    /** Ends a call, or goes on to the next time that something is due. */
    const serve = async (): Promise<boolean> => {
      await turn();
      due.sort((one, other) => one.at - other.at);
      const [soonest] = due;
      const [next] = served;
      const end = next ? now + next.weight * perUnit : Number.POSITIVE_INFINITY;
      if (!next && !soonest) return false;
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
    const at = (time: number, what: () => void) => void due.push({ at: time, call: what });
    return { lanes, call, serve, at, order, most, underWay, now: () => now };
  }

  const load = fc.array(
    fc.record({
      lane: fc.constantFrom("prompt" as const, "yielding" as const),
      weight: fc.integer({ min: 1, max: 300 }),
    }),
    { minLength: 1, maxLength: 100 },
  );

  // Invariant 11.
  test("every call ends, in the order of its lane, and no more than the bounds are under way", async () => {
    await fc.assert(
      fc.asyncProperty(load, async (calls) => {
        const { call, serve, order, most, lanes } = simulated();
        const ends = calls.map(({ lane, weight }, n) => call(lane, weight, `${lane} ${n}`));
        while (await serve());
        await Promise.all(ends);
        for (const lane of ["prompt", "yielding"] as const) {
          const begun = order.filter((name) => name.startsWith(lane));
          expect(begun).toEqual(calls.flatMap((one, n) => (one.lane === lane ? `${lane} ${n}` : [])));
          expect(lanes[lane].waiting).toBe(0);
        }
        expect(most.prompt).toBeLessThanOrEqual(32_000);
        expect(most.yielding).toBeLessThanOrEqual(BOUNDS.most);
      }),
      { numRuns: 50 },
    );
  });

  // Invariant 11.
  test("a prompt call never waits for more of the other lane than its window, however much of it waits", async () => {
    await fc.assert(
      fc.asyncProperty(fc.integer({ min: 20, max: 200 }), fc.integer({ min: 1, max: 40 }), async (large, before) => {
        const { call, serve, order, lanes, now } = simulated();
        const ends = Array.from({ length: large }, () => call("yielding", WEIGHT));
        for (let n = 0; n < Math.min(before, large - 1); n++) await serve();
        const [asked, window] = [now(), lanes.yielding.window];
        let took = Number.POSITIVE_INFINITY;
        const prompt = call("prompt", 100).then(() => {
          took = now() - asked;
        });
        while (await serve());
        await Promise.all([...ends, prompt]);
        expect(order).toContain("prompt");
        expect(took).toBeLessThanOrEqual((window + 100) * 0.004 + 1e-9);
      }),
      { numRuns: 50 },
    );
  });

  // Invariant 11.
  test("while prompt calls wait, the other lane goes on with one call at a time", async () => {
    const { call, serve, lanes, order, most } = simulated();
    const small = Array.from({ length: 100 }, () => call("prompt", 1_000));
    const large = Array.from({ length: 100 }, () => call("yielding", WEIGHT));
    while (lanes.prompt.waiting > 0) {
      await serve();
      if (lanes.prompt.waiting > 0) expect(most.yielding).toBeLessThanOrEqual(WEIGHT);
    }
    expect(order.filter((lane) => lane === "yielding").length).toBeGreaterThan(5);
    while (await serve());
    await Promise.all([...large, ...small]);
  });

  // Invariant 11.
  test("while prompt calls come, the other lane rests as its window is smaller than a call; later it has all of it", async () => {
    const { call, serve, at, underWay, now } = simulated();
    const large = Array.from({ length: 2_000 }, () => call("yielding", WEIGHT));
    const small: Promise<void>[] = [];
    for (let n = 1; n <= 50; n++) at(n * 20, () => void small.push(call("prompt", 1)));
    const busy = { beside: 0, all: 0, later: 0 };
    while (now() < 1_500) {
      const [before, isBusy] = [now(), underWay.yielding > 0];
      if (!(await serve())) break;
      const ms = now() - before;
      if (before > 20 && now() < 1_000) {
        busy.all += ms;
        if (isBusy) busy.beside += ms;
      }
      if (before > 1_200 && isBusy) busy.later = Math.max(busy.later, underWay.yielding);
    }
    expect(busy.beside / busy.all).toBeCloseTo(BESIDE / WEIGHT, 1);
    expect(busy.later).toBeGreaterThan(WEIGHT);
    while (await serve());
    await Promise.all([...large, ...small]);
  });

  test("a call that fails gives its place to the next, and makes the window no larger", async () => {
    const { lanes, call, serve } = simulated();
    const broken = () => lanes.yielding.run(WEIGHT, () => Promise.reject(new Error("broken")));
    await Promise.all(Array.from({ length: 20 }, () => expect(broken()).rejects.toThrow("broken")));
    expect(lanes.yielding.window).toBe(BOUNDS.least);
    const next = call("yielding", WEIGHT);
    while (await serve());
    await next;
  });
});
