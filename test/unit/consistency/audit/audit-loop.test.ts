import { expect, test } from "@jest/globals";
import type { Report } from "../../../../src/consistency/audit/audit.js";
import { startAuditLoop } from "../../../../src/consistency/audit/audit-loop.js";
import type { Reconcile, TimeRange } from "../../../../src/consistency/reconcile/reconcile.js";
import { silent } from "../../../../src/kernel/logger.js";
import { DAY, HOUR, MINUTE } from "../../../../src/kernel/time.js";
import { eventually } from "../../../support/eventually.js";

const REPORT: Report = {
  ...{ judged: 3, incomplete: 0, lagMs: 0 },
  ...{
    unknown: [],
    undecided: [],
    failed: [],
    differing: [],
    repaired: [],
    repairMs: [],
    remaining: [],
    unrepaired: [],
  },
};

const NOTHING = { changes: 0, admitted: 0 };

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
    reconcile?: Reconcile;
    intervalMs?: number;
    /** Up to when an earlier process has reconciled. */
    upTo?: number;
  } = {},
) {
  const trace: string[] = [];
  let { upTo } = how;
  let looks = 0;
  const loop = startAuditLoop({
    lease: {
      hold: async () => {
        looks++;
        return how.inCharge ?? true;
      },
      release: async () => void trace.push("released"),
    },
    intervalMs: how.intervalMs ?? 5,
    settleMs: how.settleMs ?? 0,
    recovering: () => how.recovering ?? false,
    reconciledUpTo: {
      read: async () => upTo,
      write: async (reached) => {
        upTo = reached;
      },
    },
    reconcile: async (range, { progress, stopping } = {}) => {
      trace.push("reconcile");
      how.reconciled?.(range);
      if (how.reconcile) return how.reconcile(range, { progress, stopping });
      if (how.failing) throw new Error("UNAVAILABLE");
      if (how.hanging) await new Promise<void>((resolve) => stopping?.addEventListener("abort", () => resolve()));
      progress?.(NOTHING, range.until);
      return NOTHING;
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
    audited: ({ home }) => void trace.push(`observed ${home?.judged}`),
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

/** Rounds of a loop whose clock goes on by ten minutes a round; each reconciles as much of its range as `reaches` says. */
async function roundsOf(reaches: readonly ((range: TimeRange) => number | Error)[], upTo?: number) {
  const { now } = Date;
  const rounds: TimeRange[] = [];
  const times = reaches.map((_, round) => now() + 10 * MINUTE * round);
  Date.now = () => times[Math.min(rounds.length, times.length - 1)] as number;
  const { loop } = scene({
    ...(upTo === undefined ? {} : { upTo }),
    reconcile: async (range, { progress } = {}) => {
      const reached = reaches[rounds.length]?.(range) ?? range.until;
      rounds.push(range);
      if (reached instanceof Error) throw reached;
      progress?.(NOTHING, reached);
      return NOTHING;
    },
  });
  try {
    await eventually(() => rounds.length > reaches.length, "the rounds are over");
  } finally {
    Date.now = now;
    await loop.close();
  }
  return { rounds: rounds.slice(0, reaches.length), times };
}

const whole = ({ until }: TimeRange): number => until;
const failing = (): Error => new Error("UNAVAILABLE");

// Invariant 5.
test.each([
  ["failed", failing],
  ["was cut off", ({ since }: TimeRange) => since + 5 * MINUTE],
])("after a round that %s the next one begins where an earlier one ended", async (_, second) => {
  const { rounds, times } = await roundsOf([whole, second, whole]);
  expect(rounds[2]?.since).toBe((times[0] as number) - MINUTE);
});

test("rounds that fail from the first on leave no time out, and none reconciles more than the log can tell of", async () => {
  const { rounds, times } = await roundsOf([failing, failing, failing, whole]);
  expect(rounds[3]?.since).toBe((times[0] as number) - 16 * MINUTE);
  const old = await roundsOf([whole], Date.now() - 8 * DAY);
  expect(old.rounds[0]?.since).toBe((old.times[0] as number) - 7 * DAY);
});

test("a process that takes over begins when the next round of the one before it is due", async () => {
  const late = scene({ intervalMs: HOUR, upTo: Date.now() - 2 * HOUR });
  await eventually(() => late.trace.includes("observed 3"), "a round");
  await late.loop.close();
  expect(late.trace.filter((step) => step === "reconcile")).toHaveLength(1);
  const early = scene({ intervalMs: 40, upTo: Date.now() + HOUR });
  await eventually(() => early.trace.length > 0, "a clock that was ahead puts it off by an interval only");
  await early.loop.close();
});
