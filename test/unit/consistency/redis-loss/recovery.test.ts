import { expect, test } from "@jest/globals";
import type { TimeRange } from "../../../../src/consistency/reconcile/reconcile.js";
import { createRecovery } from "../../../../src/consistency/redis-loss/recovery.js";
import { replay, retrying } from "../../../../src/consistency/replay.js";
import type { DeadLetter } from "../../../../src/delivery/dead-letter.js";
import type { Delivery } from "../../../../src/delivery/handler.js";
import { AppError } from "../../../../src/kernel/errors.js";
import { silent } from "../../../../src/kernel/logger.js";
import { DAY, HOUR, MINUTE } from "../../../../src/kernel/time.js";
import { deliveryOf } from "../../../support/deliveries.js";

/** A log in memory, of so many events; says how many were handed out. */
function logOf(count: number): { read: () => AsyncIterable<Delivery>; handed: () => number } {
  let handed = 0;
  const read = async function* () {
    for (let seq = 1; seq <= count; seq++) {
      handed++;
      yield deliveryOf({ seq });
    }
  };
  return { read, handed: () => handed };
}

test("every event is applied once, many at a time, and all are done when it resolves", async () => {
  const applied: number[] = [];
  let underWay = 0;
  let most = 0;
  const apply = async ({ seq }: Delivery): Promise<void> => {
    most = Math.max(most, ++underWay);
    await new Promise(setImmediate);
    underWay--;
    applied.push(seq);
  };
  const events = await replay(logOf(200).read(), apply);
  expect([events, applied.length, new Set(applied).size, underWay]).toEqual([200, 200, 200, 0]);
  expect([most > 1, most <= 32]).toEqual([true, true]);
});

test("the first failure ends a replay after the applications under way, and is thrown", async () => {
  const { read, handed } = logOf(10_000);
  let underWay = 0;
  const apply = async ({ seq }: Delivery): Promise<void> => {
    underWay++;
    await new Promise(setImmediate);
    underWay--;
    if (seq === 7) throw new Error("seven");
  };
  await expect(replay(read(), apply)).rejects.toThrow("seven");
  expect([underWay, handed() < 200]).toEqual([0, true]);
});

test("a replay stops when the process does", async () => {
  const { read, handed } = logOf(10_000);
  const stopping = new AbortController();
  await replay(read(), async ({ seq }) => void (seq === 5 && stopping.abort()), { stopping: stopping.signal });
  expect(handed()).toBeLessThan(100);
});

/** Applies with one outcome a call, the last for ever; says what was told. */
function retries(outcomes: readonly (Error | undefined)[]) {
  const told: string[] = [];
  const stopping = new AbortController();
  let calls = 0;
  const apply = retrying(
    async () => {
      const outcome = outcomes[Math.min(calls++, outcomes.length - 1)];
      if (outcome) throw outcome;
    },
    {
      delayMs: 1,
      stopping: stopping.signal,
      leftOut: ({ seq }, error) => void told.push(`left out ${seq}: ${(error as Error).message}`),
      waiting: (error) => told.push(`waiting: ${error}`),
    },
  );
  return { apply: () => apply(deliveryOf({ seq: 7 })), told, stopping, calls: () => calls };
}

const away = new AppError("unavailable", "away");

// Invariant 8.
test("a server that is unavailable is waited for, however often it fails", async () => {
  const { apply, told, calls } = retries([...Array.from({ length: 6 }, () => away), undefined]);
  await apply();
  expect([calls(), new Set(told)]).toEqual([7, new Set(["waiting: away"])]);
});

test("an event that fails is tried three times, and then left out; outages between do not count", async () => {
  const failed = new Error("shard 7");
  const { apply, told, calls } = retries([failed, away, failed, away, failed]);
  await apply();
  expect([calls(), told.at(-1)]).toEqual([5, "left out 7: shard 7"]);
});

test.each(["invalid", "poison"] as const)("an event that is %s is left out at once", async (code) => {
  const { apply, told, calls } = retries([new AppError(code, "no")]);
  await apply();
  expect([calls(), told]).toEqual([1, ["left out 7: no"]]);
});

test("a stop while waiting rejects: the event is not applied", async () => {
  const { apply, stopping } = retries([away]);
  const applying = apply();
  stopping.abort();
  await expect(applying).rejects.toThrow("away");
});

// Invariant 8.
test("without a wait, an outage is thrown at once; an event that fails for another reason is still left out", async () => {
  const leftOut: string[] = [];
  const failing = (error: Error) =>
    retrying(
      async () => {
        throw error;
      },
      {
        delayMs: 1,
        stopping: new AbortController().signal,
        leftOut: async ({ seq }, _, attempts) => void leftOut.push(`${seq} after ${attempts}`),
      },
    )(deliveryOf({ seq: 7 }));
  await expect(failing(away)).rejects.toThrow("away");
  expect(leftOut).toEqual([]);
  await failing(new Error("shard 7"));
  await failing(new AppError("invalid", "no"));
  expect(leftOut).toEqual(["7 after 3", "7 after 1"]);
});

test("an event that cannot be left out either rejects", async () => {
  const applying = retrying(
    async () => {
      throw new AppError("poison", "no");
    },
    { stopping: new AbortController().signal, leftOut: () => Promise.reject(new Error("no DLQ")) },
  );
  await expect(applying(deliveryOf())).rejects.toThrow("no DLQ");
});

const NOTHING_ASIDE = { readmit: async () => 0, isUpstreamAway: () => false, beginFill: async () => undefined };

// Invariant 5.
test("what an upstream holds up is admitted again once all else is applied; very much is an outage", async () => {
  const steps: string[] = [];
  const recovering = (authors: number) =>
    createRecovery({
      readRange: async function* () {
        for (let seq = 1; seq <= authors; seq++) {
          const json = { drop_id: `d${seq}`, user_id: `author-${seq}`, visibility: "public", created_at: 1 };
          yield deliveryOf({ seq, subject: "drops.created", json });
        }
        yield deliveryOf({
          seq: 900,
          subject: "graph.followed",
          json: { follower_id: "bob", following_id: "ada", version: 1 },
        });
        yield deliveryOf({ seq: 901, subject: "drops.deleted", json: { drop_id: "dead" } });
        yield deliveryOf({ seq: 902, subject: "drops.deleted", json: { drop_id: "other" } });
      },
      apply: async ({ seq }) => {
        if (seq < 902) throw away;
        steps.push(`applied ${seq}`);
      },
      readmit: async ({ seq }) => {
        steps.push(`again ${seq}`);
        return 1_000 + seq;
      },
      isUpstreamAway: (error) => error === away,
      beginFill: async () => undefined,
      reconcile: async () => ({ changes: 0, admitted: 0 }),
      storeDeadLetter: async () => undefined,
      ...{ version: "1", retryBaseMs: 1, log: silent, isBusy: () => false },
    });
  const loss = { since: 0, redis: true, log: false };
  const { events, setAside } = await recovering(1)(loss, new AbortController().signal);
  expect([events, steps]).toEqual([4, ["applied 902", "again 1", "again 900", "again 901"]]);
  expect(setAside.map(({ kind, user, seq }) => [kind, user, seq])).toEqual([
    ["author", "author-1", 1_901],
    ["reader", "bob", 1_901],
  ]);
  await expect(recovering(300)(loss, new AbortController().signal)).rejects.toBe(away);
});

// Invariant 1.
test("an event that leaves no room for the headers of its dead letter is kept cut, and ends no recovery", async () => {
  const kept: DeadLetter[] = [];
  const recover = createRecovery({
    readRange: async function* () {
      yield deliveryOf({ seq: 7, subject: "drops.created", body: Buffer.alloc(1_000_000) });
    },
    apply: () => Promise.reject(new Error("shard 7")),
    reconcile: async () => ({ changes: 0, admitted: 0 }),
    storeDeadLetter: async (deadLetter) => {
      if (deadLetter.body.byteLength > 100_000) throw new AppError("invalid", "too large");
      kept.push(deadLetter);
    },
    ...{ version: "1", retryBaseMs: 1, log: silent, isBusy: () => false },
    ...NOTHING_ASIDE,
  });
  const loss = { since: 0, redis: true, log: false };
  expect(await recover(loss, new AbortController().signal)).toEqual({ events: 1, setAside: [] });
  expect(kept).toMatchObject([{ subject: "dlq.toolarge.drop_created", headers: { "Dlq-Size": "1000000" } }]);
});

test("after a loss of the log the last hour is admitted at once, and the week before it in the background", async () => {
  const asked: TimeRange[] = [];
  const fills: TimeRange[] = [];
  const recover = createRecovery({
    readRange: async function* () {},
    apply: async () => undefined,
    reconcile: async (range) => {
      asked.push(range);
      return { changes: 0, admitted: 0 };
    },
    storeDeadLetter: async () => undefined,
    ...{ version: "1", retryBaseMs: 1, log: silent, isBusy: () => false },
    ...NOTHING_ASIDE,
    beginFill: async (range) => void fills.push(range),
  });
  const now = Date.now();
  await recover({ since: now, redis: false, log: true }, new AbortController().signal);
  // Clocks of upstreams may be ahead.
  expect(asked[0]?.until).toBeGreaterThanOrEqual(now + MINUTE);
  expect(fills).toEqual([{ since: expect.any(Number), until: now - HOUR - MINUTE }]);
  expect(fills[0]?.since).toBeLessThanOrEqual(Date.now() - 7 * DAY);
  await recover({ since: now, redis: true, log: false }, new AbortController().signal);
  expect(fills).toHaveLength(1);
});
