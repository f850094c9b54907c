import { expect, test } from "@jest/globals";
import { createReconciliation, type TimeRange } from "../../../../src/consistency/reconcile/reconcile.js";
import { messageId, type TimelineEvent } from "../../../../src/contracts/events.js";
import { HOUR, MINUTE } from "../../../../src/kernel/time.js";

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
    readAdmittedIds: async function* ({ since, until }: TimeRange) {
      if (since <= time && time < until) yield messageId(change);
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
