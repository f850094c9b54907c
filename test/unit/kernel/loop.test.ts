import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { expect, test } from "@jest/globals";
import { type Lease, renewing, underLease } from "../../../src/kernel/lease.js";
import { startLoop } from "../../../src/kernel/loop.js";
import { eventually } from "../../support/eventually.js";

const FAR = 3_600_000;

test("rounds follow one another until the loop is closed", async () => {
  let rounds = 0;
  const loop = startLoop({ everyMs: 1, work: async () => ++rounds && undefined });
  await eventually(() => rounds >= 3, "three rounds");
  await loop.close();
  const done = rounds;
  await new Promise((resolve) => setTimeout(resolve, 20));
  expect(rounds).toBe(done);
});

test("a round that resolves to a number sets the delay until the next", async () => {
  let rounds = 0;
  const loop = startLoop({ everyMs: FAR, work: async () => (++rounds < 3 ? 0 : FAR) });
  await eventually(() => rounds === 3, "three rounds");
  await loop.close();
});

test("a wake begins the next round, also one that came while a round was under way", async () => {
  let rounds = 0;
  let finish: () => void = () => undefined;
  const loop = startLoop({
    everyMs: FAR,
    work: () =>
      new Promise<void>((resolve) => {
        rounds++;
        finish = resolve;
      }),
  });
  loop.wake();
  finish();
  await eventually(() => rounds === 2, "the second round");
  finish();
  await new Promise((resolve) => setTimeout(resolve, 20));
  expect(rounds).toBe(2);
  loop.wake();
  await eventually(() => rounds === 3, "the third round");
  finish();
  await loop.close();
});

test("failures are told with their count in a row, and a wake does not shorten the backoff", async () => {
  const failed: number[] = [];
  const loop = startLoop({
    everyMs: 1,
    backoffCapMs: FAR,
    work: () => Promise.reject(new Error("away")),
    failed: (_, failures) => void failed.push(failures),
  });
  await eventually(() => failed.length === 1, "a failure");
  loop.wake();
  await new Promise((resolve) => setTimeout(resolve, 50));
  expect(failed).toEqual([1]);
  await loop.close();
});

test("closing aborts the round under way, and waits for its end no longer than it may", async () => {
  let aborted = false;
  const patient = startLoop({
    everyMs: 1,
    work: (stopping) =>
      new Promise<void>((resolve) =>
        stopping.addEventListener("abort", () => {
          aborted = true;
          resolve();
        }),
      ),
  });
  await patient.close();
  expect(aborted).toBe(true);
  const stuck = startLoop({ everyMs: 1, closeMs: 1, work: () => new Promise(() => undefined) });
  await stuck.close();
});

// Invariant 11.
test("rounds leave nothing behind in memory", async () => {
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc") as () => void;
  let rounds = 0;
  const loop = startLoop({ everyMs: FAR, work: async () => void rounds++ });
  const bytesAfter = async (more: number): Promise<number> => {
    for (const until = rounds + more; rounds < until; ) {
      loop.wake();
      await new Promise((resolve) => setImmediate(resolve));
    }
    collect();
    return process.memoryUsage().heapUsed;
  };
  let before = await bytesAfter(10_000);
  const grown: number[] = [];
  for (let time = 0; time < 4; time++) {
    const after = await bytesAfter(10_000);
    grown.push(after - before);
    before = after;
  }
  // Other things of the process may grow or shrink once, but not each time.
  const [, usual] = grown.sort((a, b) => a - b);
  expect(usual).toBeLessThan(200_000);
  await loop.close();
});

function leaseOf(free: boolean): Lease & { readonly log: string[] } {
  const log: string[] = [];
  return {
    log,
    hold: async () => {
      log.push("hold");
      return free;
    },
    release: async () => void log.push("release"),
  };
}

test("work runs under a lease, and gives it back also where it fails", async () => {
  const free = leaseOf(true);
  await expect(underLease(free, () => Promise.reject(new Error("broken")))).rejects.toThrow("broken");
  expect(free.log).toEqual(["hold", "release"]);
  const taken = leaseOf(false);
  expect(await underLease(taken, () => Promise.reject(new Error("must not run")))).toBe(false);
  expect(taken.log).toEqual(["hold"]);
  const kept = leaseOf(true);
  expect(await renewing(kept, async () => 7)).toBe(7);
  expect(kept.log).toEqual([]);
});
