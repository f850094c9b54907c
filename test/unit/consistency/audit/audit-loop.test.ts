import { expect, test } from "@jest/globals";
import type { Report } from "../../../../src/consistency/audit/audit.js";
import { startAuditLoop } from "../../../../src/consistency/audit/audit-loop.js";
import type { TimeRange } from "../../../../src/consistency/reconcile/reconcile.js";
import { silent } from "../../../../src/kernel/logger.js";
import { eventually } from "../../../support/eventually.js";

const REPORT: Report = {
  ...{ judged: 3, incomplete: 0, lagMs: 0 },
  ...{ undecided: [], failed: [], differing: [], repaired: [], remaining: [], unrepaired: [] },
};

/** An audit loop with a round every few ms; the trace says what it does. */
function scene(
  how: {
    inCharge?: boolean;
    recovering?: boolean;
    failing?: boolean;
    roundMs?: number;
    hanging?: boolean;
    settleMs?: number;
    reconciled?: (range: TimeRange) => void;
  } = {},
) {
  const trace: string[] = [];
  let looks = 0;
  const loop = startAuditLoop({
    lease: {
      hold: async () => {
        looks++;
        return how.inCharge ?? true;
      },
      release: async () => void trace.push("released"),
    },
    intervalMs: 5,
    settleMs: how.settleMs ?? 0,
    users: 3,
    recovering: () => how.recovering ?? false,
    reconcile: async (range, { stopping } = {}) => {
      trace.push("reconcile");
      how.reconciled?.(range);
      if (how.failing) throw new Error("UNAVAILABLE");
      if (how.hanging) await new Promise<void>((resolve) => stopping?.addEventListener("abort", () => resolve()));
      return { changes: 0, admitted: 0 };
    },
    auditor: {
      sample: async () => ["ada"],
      homes: async (_, { stopping } = {}) => {
        trace.push(stopping?.aborted ? "audit stopped" : "audit");
        return REPORT;
      },
      shared: async () => REPORT,
    },
    log: silent,
    observe: {
      reconciled: () => undefined,
      audited: ({ home }) => trace.push(`observed ${home?.judged}`),
    },
    ...(how.roundMs === undefined ? {} : { roundMs: how.roundMs }),
  });
  return { loop, trace, looks: () => looks };
}

test("a round reconciles and audits, and another one follows", async () => {
  const { loop, trace } = scene();
  await eventually(() => trace.length >= 6, "two rounds");
  expect(trace.slice(0, 6)).toEqual(["reconcile", "audit", "observed 3", "reconcile", "audit", "observed 3"]);
  await loop.close();
  expect(trace.at(-1)).toBe("released");
});

test("a clock that is set back puts no round off", async () => {
  const { now } = Date;
  const { loop, trace, looks } = scene();
  await eventually(() => trace.length > 0, "a round");
  Date.now = () => now() - 3_600_000;
  try {
    const [rounds, before] = [trace.length, looks()];
    await eventually(() => looks() > before + 20, "it has looked whether it is its turn");
    expect(trace.length).toBeGreaterThan(rounds + 6);
  } finally {
    Date.now = now;
    await loop.close();
  }
});

test("the audit takes place even if the reconciliation fails", async () => {
  const { loop, trace } = scene({ failing: true });
  await eventually(() => trace.includes("observed 3"), "the audit");
  await loop.close();
});

test("a round is bounded in time", async () => {
  const { loop, trace } = scene({ hanging: true, roundMs: 20 });
  await eventually(() => trace.includes("audit stopped"), "the round goes on without it");
  await loop.close();
});

test.each([
  ["another process is in charge", { inCharge: false }],
  ["lost data is recovered", { recovering: true }],
])("while %s nothing is done", async (_, how) => {
  const { loop, trace, looks } = scene(how);
  await eventually(() => looks() >= 5, "it has looked whether it is its turn");
  expect(trace).toEqual([]);
  await loop.close();
});

test("a round reconciles a quarter of an hour, however long changes take to settle", async () => {
  const ranges: number[] = [];
  const { loop } = scene({ settleMs: 3_600_000, reconciled: ({ since, until }) => ranges.push(until - since) });
  await eventually(() => ranges.length > 0, "a round");
  await loop.close();
  expect(ranges[0]).toBe(900_000);
});
