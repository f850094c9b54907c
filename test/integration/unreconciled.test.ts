import { afterEach, expect, test } from "@jest/globals";
import { createReconcileRequests, type Reconcile, type TimeRange } from "../../src/consistency/reconcile/reconcile.js";
import { AppError } from "../../src/kernel/errors.js";
import { silent } from "../../src/kernel/logger.js";
import { DAY, HOUR, MINUTE } from "../../src/kernel/time.js";
import { UNRECONCILED_KEY } from "../../src/state/keys.js";
import { createUnreconciled, type Unreconciled } from "../../src/state/messages/reconciled.redis.js";
import { eventually } from "../support/eventually.js";
import { redisOfFile } from "../support/redis-of-file.js";

const redis = redisOfFile();
const closes: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of closes.splice(0)) await close();
});

const NOW = Date.now();
const NOTHING = { changes: 0, admitted: 0 };
const noted = () => redis.raw.zcard(UNRECONCILED_KEY);

/** A bridge, and from when on it has reconciled or tried to. */
function openBridge(reconcile: Reconcile = async () => NOTHING, unreconciled?: Unreconciled) {
  const asked: number[] = [];
  const requests = createReconcileRequests({
    reconcile: async (range: TimeRange) => {
      asked.push(range.since + MINUTE);
      return reconcile(range);
    },
    unreconciled: unreconciled ?? createUnreconciled(redis.scripts),
    log: silent,
  });
  closes.push(requests.close);
  return { ...requests, asked };
}

const away = async (): Promise<never> => {
  throw new AppError("unavailable", "UserService is unavailable");
};

// Invariant 5.
test("what a bridge did not reconcile before it ended is reconciled by the next one, once", async () => {
  const ending = openBridge(away);
  ending.request(NOW - 5 * HOUR, "start");
  await eventually(() => ending.asked.length > 0, "the upstreams are asked");
  await ending.close();
  const next = openBridge();
  next.request(NOW - HOUR, "start");
  await eventually(async () => next.asked.length === 1 && (await noted()) === 0, "it is reconciled");
  next.request(NOW, "reconnect");
  await eventually(() => next.asked.length === 2, "the next request is reconciled");
  expect([...new Set(ending.asked), ...next.asked]).toEqual([NOW - 5 * HOUR, NOW - 5 * HOUR, NOW]);
});

// Invariant 5.
test("what is requested while a bridge reconciles is not forgotten with what it reconciles", async () => {
  let finish = (): void => undefined;
  const first = new Promise<void>((resolve) => {
    finish = resolve;
  });
  const ending = openBridge(() => (ending.asked.length === 1 ? first.then(() => NOTHING) : away()));
  ending.request(NOW - 5 * HOUR, "start");
  await eventually(() => ending.asked.length === 1, "the upstreams are asked");
  ending.request(NOW - HOUR, "reconnect");
  finish();
  await eventually(() => ending.asked.length > 1, "the upstreams are asked again");
  await ending.close();
  const next = openBridge();
  next.request(NOW, "start");
  await eventually(async () => next.asked.length === 1 && (await noted()) === 0, "it is reconciled");
  expect(next.asked).toEqual([NOW - HOUR]);
});

test("requests of one round are noted once, and as long as the log keeps events", async () => {
  const bridge = openBridge(away);
  for (let at = 0; at < 1_000; at++) bridge.request(NOW + at, "overflow");
  await eventually(() => bridge.asked.length > 0, "the upstreams are asked");
  expect(await noted()).toBe(1);
  expect(await redis.raw.pttl(UNRECONCILED_KEY)).toBeGreaterThan(6 * DAY);
});

// Invariant 5.
test("a time ahead of this clock is reconciled from now: the clocks of others differ", async () => {
  const bridge = openBridge();
  bridge.request(NOW + HOUR, "start");
  await eventually(() => bridge.asked.length > 0, "the upstreams are asked");
  expect(bridge.asked[0]).toBeLessThanOrEqual(Date.now());
});

test("while Redis is unavailable requests are reconciled all the same", async () => {
  const bridge = openBridge(undefined, { note: away, read: away, forget: away });
  bridge.request(NOW - HOUR, "start");
  await eventually(() => bridge.asked.length > 0, "the upstreams are asked");
  expect(bridge.asked).toEqual([NOW - HOUR]);
});
