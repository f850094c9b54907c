import { expect, test } from "@jest/globals";
import { createReconciliation, type TimeRange } from "../../../../src/consistency/reconcile/reconcile.js";
import { messageId, type TimelineEvent } from "../../../../src/contracts/events.js";
import { DAY, HOUR, MINUTE } from "../../../../src/kernel/time.js";

const CHANGED_AT = Date.parse("2026-01-01T12:00:00Z");
const change: TimelineEvent = {
  name: "drop_created",
  payload: { drop_id: "late", user_id: "ada", visibility: "public", created_at: CHANGED_AT },
};

/** Reconciles the ten minutes from the change on, with a log that admitted it at `time`. */
async function reconcileWith(time: number): Promise<number> {
  const reconcile = createReconciliation({
    readChanges: async function* () {
      yield change;
    },
    readLogged: async function* ({ since, until }: TimeRange) {
      if (since <= time && time < until) yield { event: change, seq: 1, time };
    },
    admit: async () => undefined,
  });
  return (await reconcile({ since: CHANGED_AT, until: CHANGED_AT + 10 * MINUTE })).admitted;
}

test.each([
  ["half a minute before its change, by another clock", -MINUTE / 2],
  ["at once", 0],
  ["45 minutes later", 45 * MINUTE],
  ["an hour later", HOUR],
])("an event that was admitted %s is not admitted again", async (_, lag) => {
  expect(await reconcileWith(CHANGED_AT + lag)).toBe(0);
});

test("an event that is not in the log is admitted", async () => {
  expect(await reconcileWith(Number.POSITIVE_INFINITY)).toBe(1);
});

test("a quiet week is read in a few slices, a busy time within it in slices of ten minutes", async () => {
  const busy = { since: 3 * DAY, until: 3 * DAY + 30 * MINUTE };
  const asked: TimeRange[] = [];
  const admitted = new Set<string>();
  const reconcile = createReconciliation({
    readChanges: async function* ({ since, until }) {
      asked.push({ since, until });
      for (let at = Math.max(since, busy.since); at < Math.min(until, busy.until); at += 100)
        yield { ...change, payload: { ...change.payload, drop_id: `drop-${at}`, created_at: at } } as TimelineEvent;
    },
    readLogged: async function* () {},
    admit: async (event, silent) => void (silent && admitted.add(messageId(event))),
  });
  expect(await reconcile({ since: 0, until: 7 * DAY })).toEqual({ changes: 18_000, admitted: 18_000 });
  expect(admitted.size).toBe(18_000);
  // 1,008 of ten minutes each are in a week.
  expect(asked.length).toBeLessThan(60);
});

test("of a range up to now, what changed more than ten minutes ago is admitted silently, and the rest is news", async () => {
  const now = Date.now();
  const told: [string, boolean][] = [];
  const reconcile = createReconciliation({
    readChanges: async function* ({ since, until }) {
      for (const minutes of [12, 9]) {
        const at = now - minutes * MINUTE;
        const payload = { drop_id: `${minutes} minutes ago`, user_id: "ada" };
        if (since <= at && at < until) yield { name: "drop_deleted", payload };
      }
    },
    readLogged: async function* () {},
    admit: async (event, silent) => void told.push([messageId(event), silent]),
  });
  await reconcile({ since: now - DAY, until: now + MINUTE });
  expect(told.map(([, silent]) => silent)).toEqual([true, false]);
});

test("however many changes one slice has, some thousands are in memory, each is admitted once and read at the rate", async () => {
  const count = 25_000;
  const admitted = new Set<string>();
  const weights: number[] = [];
  let [read, most] = [0, 0];
  const reconcile = createReconciliation({
    readChanges: async function* () {
      for (; read < count; read++) {
        most = Math.max(most, read - admitted.size);
        yield { ...change, payload: { ...change.payload, drop_id: `drop-${read}` } } as TimelineEvent;
      }
    },
    readLogged: () => {
      throw new Error("the log is not asked");
    },
    admit: async (event, silent) => void (silent && admitted.add(messageId(event))),
  });
  const throttle = async (_?: AbortSignal, weight = 1) => void weights.push(weight);
  const range = { since: Date.now() - MINUTE, until: Date.now() };
  const found = await reconcile(range, { throttle, unlogged: true, silent: true, sliceMs: HOUR });
  expect([found, admitted.size]).toEqual([{ changes: count, admitted: count }, count]);
  expect(most).toBeLessThanOrEqual(10_000);
  expect(weights.reduce((sum, weight) => sum + weight, 0)).toBe(count);
});
