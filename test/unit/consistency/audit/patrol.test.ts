import { expect, test } from "@jest/globals";
import type { Report } from "../../../../src/consistency/audit/audit.js";
import { startPatrol } from "../../../../src/consistency/audit/patrol.js";
import { silent } from "../../../../src/kernel/logger.js";
import { eventually } from "../../../support/facts.js";

const REPORT: Report = {
  ...{ judged: 3, incomplete: 0, lagMs: 0 },
  ...{ undecided: [], failed: [], differing: [], repaired: [], remaining: [], unrepaired: [] },
};

/** A patrol every few ms that notes what it does. */
function scene(
  how: { inCharge?: boolean; busy?: boolean; failing?: boolean; roundMs?: number; hanging?: boolean } = {},
) {
  const trace: string[] = [];
  let looks = 0;
  const patrol = startPatrol({
    lease: {
      hold: async () => {
        looks++;
        return how.inCharge ?? true;
      },
      release: async () => void trace.push("released"),
    },
    intervalMs: 5,
    busy: () => how.busy ?? false,
    reconcile: async (stopping) => {
      trace.push("reconcile");
      if (how.failing) throw new Error("UNAVAILABLE");
      if (how.hanging) await new Promise<void>((resolve) => stopping.addEventListener("abort", () => resolve()));
    },
    audit: async (stopping) => {
      trace.push(stopping.aborted ? "audit stopped" : "audit");
      return { home: REPORT };
    },
    log: silent,
    observe: ({ home }) => trace.push(`observed ${home?.judged}`),
    ...(how.roundMs === undefined ? {} : { roundMs: how.roundMs }),
  });
  return { patrol, trace, looks: () => looks };
}

test("a round reconciles and audits, and another one follows", async () => {
  const { patrol, trace } = scene();
  await eventually(() => trace.length >= 6, "two rounds");
  expect(trace.slice(0, 6)).toEqual(["reconcile", "audit", "observed 3", "reconcile", "audit", "observed 3"]);
  await patrol.close();
  expect(trace.at(-1)).toBe("released");
});

test("where the first half fails the second is done all the same", async () => {
  const { patrol, trace } = scene({ failing: true });
  await eventually(() => trace.includes("observed 3"), "the audit");
  await patrol.close();
});

test("a round is bounded in time", async () => {
  const { patrol, trace } = scene({ hanging: true, roundMs: 20 });
  await eventually(() => trace.includes("audit stopped"), "the round goes on without it");
  await patrol.close();
});

test.each([
  ["another process is in charge", { inCharge: false }],
  ["data is being mended", { busy: true }],
])("while %s nothing is done", async (_, how) => {
  const { patrol, trace, looks } = scene(how);
  await eventually(() => looks() >= 5, "it has looked whether it is its turn");
  expect(trace).toEqual([]);
  await patrol.close();
});
