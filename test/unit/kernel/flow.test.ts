import { expect, test } from "@jest/globals";
import fc from "fast-check";
import { chunked, mapLimited } from "../../../src/kernel/concurrency.js";
import { coalesce, oncePerTurn, SingleFlight } from "../../../src/kernel/sharing.js";
import { backoff, pause } from "../../../src/kernel/time.js";

/** Work that ends when it is told to. */
class Controlled {
  readonly started: { at: number; end: (error?: Error) => void }[] = [];
  #clock = 0;

  tick(): number {
    return ++this.#clock;
  }

  readonly work = (): Promise<number> =>
    new Promise((resolve, reject) => {
      const at = this.tick();
      this.started.push({ at, end: (error) => (error ? reject(error) : resolve(at)) });
    });

  async endAll(): Promise<void> {
    for (let ended = 0; ended < this.started.length; ended++) {
      this.started[ended]?.end();
      await settle();
    }
  }
}

/** Lets every microtask that is ready run. */
const settle = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

test("backoff stays between half the base and its ceiling, and uses the room between", () => {
  fc.assert(
    fc.property(
      fc.integer({ min: 1, max: 100 }),
      fc.integer({ min: 1, max: 10_000 }),
      fc.integer({ min: 1, max: 60_000 }),
      (attempt, base, cap) => {
        const ceiling = Math.min(cap, base * 2 ** (attempt - 1));
        const delay = backoff(attempt, base, cap);
        expect(delay).toBeLessThanOrEqual(Math.ceil(ceiling));
        expect(delay).toBeGreaterThanOrEqual(Math.floor(Math.min(base / 2, ceiling)));
        expect(Number.isInteger(delay)).toBe(true);
      },
    ),
  );
  const spread = Array.from({ length: 500 }, () => backoff(4, 100, 60_000));
  expect(Math.min(...spread)).toBeLessThan(200);
  expect(Math.max(...spread)).toBeGreaterThan(600);
});

test("a pause ends at once when it is aborted, and never begins when it already was", async () => {
  const stop = new AbortController();
  const paused = pause(3_600_000, stop.signal);
  stop.abort();
  await paused;
  await pause(3_600_000, stop.signal);
});

test("oncePerTurn: callers of one turn share a call made after it; later ones get another, and so do those after a failure", async () => {
  const calls: number[] = [];
  let turns = 0;
  const ask = oncePerTurn(async () => {
    calls.push(turns);
    if (calls.length === 2) throw new Error("the second fails");
    return calls.length;
  });
  const first = [ask(), ask()];
  expect(calls).toEqual([]);
  turns = 1;
  expect(await Promise.all(first)).toEqual([1, 1]);
  expect(calls).toEqual([1]);
  await expect(Promise.all([ask(), ask()])).rejects.toThrow("the second fails");
  expect([await ask(), calls]).toEqual([3, [1, 1, 1]]);
});

test("coalesce hands out no run that had started before the caller asked", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(fc.constantFrom("ask", "end", "fail"), { maxLength: 30 }), async (steps) => {
      const controlled = new Controlled();
      const ask = coalesce(controlled.work);
      const asked: Promise<void>[] = [];
      for (const step of steps) {
        if (step === "ask") {
          const since = controlled.tick();
          asked.push(
            ask()
              .then((at) => expect(at).toBeGreaterThan(since))
              .catch((error: Error) => expect(error.message).toBe("no")),
          );
        } else {
          controlled.started.at(-1)?.end(step === "fail" ? new Error("no") : undefined);
          await settle();
        }
      }
      const done = Promise.all(asked);
      await controlled.endAll();
      await done;
    }),
  );
});

test("coalesce shares one run among those who come while another is under way", async () => {
  const controlled = new Controlled();
  const ask = coalesce(controlled.work);
  const first = ask();
  const late = [ask(), ask(), ask()];
  expect(controlled.started).toHaveLength(1);
  controlled.started[0]?.end();
  await first;
  await settle();
  expect(controlled.started).toHaveLength(2);
  controlled.started[1]?.end();
  expect(new Set(await Promise.all(late)).size).toBe(1);
});

test("coalesce: those who wait behind a run that fails get one of their own", async () => {
  const controlled = new Controlled();
  const ask = coalesce(controlled.work);
  const failing = ask();
  const behind = ask();
  controlled.started[0]?.end(new Error("no"));
  await expect(failing).rejects.toThrow("no");
  await settle();
  controlled.started[1]?.end();
  await expect(behind).resolves.toBeGreaterThan(0);
});

test("SingleFlight runs once a key at a time, shares the outcome, and forgets it", async () => {
  const flight = new SingleFlight<number>();
  const controlled = new Controlled();
  const [one, same, other] = ["a", "a", "b"].map((key) => flight.run(key, controlled.work));
  expect(controlled.started).toHaveLength(2);
  controlled.started[0]?.end(new Error("no"));
  controlled.started[1]?.end();
  await expect(one).rejects.toThrow("no");
  await expect(same).rejects.toThrow("no");
  await other;
  const again = flight.run("a", controlled.work);
  expect(controlled.started).toHaveLength(3);
  controlled.started[2]?.end();
  await again;
});

test("mapLimited keeps the order, calls each item once and never more than the limit at a time", async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.integer({ min: 8, max: 12 }), { maxLength: 40 }),
      fc.integer({ min: 1, max: 9 }),
      async (turns, limit) => {
        let running = 0;
        let most = 0;
        const seen: number[] = [];
        const results = await mapLimited(turns, limit, async (count, index) => {
          seen.push(index);
          most = Math.max(most, ++running);
          for (let turn = 0; turn < count; turn++) await Promise.resolve();
          running--;
          return `${index}:${count}`;
        });
        expect(results).toEqual(turns.map((count, index) => `${index}:${count}`));
        expect(seen.sort((a, b) => a - b)).toEqual(turns.map((_, index) => index));
        expect(most).toBe(Math.min(limit, turns.length));
      },
    ),
  );
});

test("mapLimited rejects with the first failure and starts nothing after it", async () => {
  const started: number[] = [];
  const controlled = new Controlled();
  const mapped = mapLimited([0, 1, 2, 3, 4], 2, async (index) => {
    started.push(index);
    await controlled.work();
  });
  controlled.started[1]?.end(new Error("second"));
  await expect(mapped).rejects.toThrow("second");
  controlled.started[0]?.end();
  await settle();
  expect(started).toEqual([0, 1]);
});

test("chunked keeps everything in order in pieces of at most the size", () => {
  fc.assert(
    fc.property(fc.array(fc.integer()), fc.integer({ min: 1, max: 7 }), (items, size) => {
      const pieces = chunked(items, size);
      expect(pieces.flat()).toEqual(items);
      expect(pieces.every((piece) => piece.length > 0 && piece.length <= size)).toBe(true);
      expect(pieces).toHaveLength(Math.ceil(items.length / size));
    }),
  );
});
