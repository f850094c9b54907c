import { expect, test } from "@jest/globals";
import { checked, compareVersions, examine, type Finding, report } from "../../../src/doctor/doctor.js";

test.each([
  ["2.9.10", "2.9.10", 0],
  ["2.9.9", "2.9.10", -1],
  ["2.10.0", "2.9.10", 1],
  ["2.10.0-rc.1", "2.10.0", 0],
  ["7", "6.2.0", 1],
  ["", "0.0.0", 0],
])("version %j against %j is %i", (a, b, sign) => {
  expect(Math.sign(compareVersions(a, b))).toBe(sign);
});

test("a check that throws is a fault with advice, and no reason to stop the others", async () => {
  const good: Finding = { what: "Redis", state: "ok", says: "version 7" };
  const findings = await examine([
    checked("NATS", "start it", () => Promise.reject(new Error("refused"))),
    async () => [good],
  ]);
  expect(findings).toEqual([{ what: "NATS", state: "fault", says: "refused", advice: "start it" }, good]);
});

test("the report aligns, and advises only where something is wrong", () => {
  const text = report([
    { what: "NATS", state: "ok", says: "fine", advice: "not needed" },
    { what: "Redis 1", state: "fault", says: "gone", advice: "start it" },
    { what: "x", state: "warning", says: "old" },
  ]);
  expect(text.split("\n")).toEqual([
    "✓ NATS     fine",
    "✗ Redis 1  gone",
    `${" ".repeat(11)}→ start it`,
    "! x        old",
  ]);
});
