import { expect, test } from "@jest/globals";
import fc from "fast-check";
import { v7 } from "uuid";
import { monthNamed, monthOf, monthsFrom } from "../../../../src/posts/drops/ids.js";

const ms = fc.integer({ min: 0, max: Date.UTC(2200, 0) });

test("a month holds exactly the ids of its time", () => {
  fc.assert(
    fc.property(ms, (at) => {
      const month = monthOf(at);
      const id = v7({ msecs: at });
      expect(month.start <= at && at < month.end).toBe(true);
      expect(month.firstId <= id && id < month.endId).toBe(true);
      expect(month.name).toBe(new Date(at).toISOString().slice(0, 7).replace("-", "_"));
      expect(monthNamed(month.name)).toEqual(month);
      expect(monthOf(month.end).firstId).toBe(month.endId);
    }),
  );
});

test("months follow each other without a gap, over the end of a year and from the last day of one", () => {
  const months = monthsFrom(Date.UTC(2027, 10, 30, 23, 59), 5);
  expect(months.map(({ name }) => name)).toEqual(["2027_11", "2027_12", "2028_01", "2028_02", "2028_03"]);
  for (const [index, month] of months.entries()) {
    const next = months[index + 1];
    if (next) expect([month.end, month.endId]).toEqual([next.start, next.firstId]);
  }
});

test("other names are no month", () => {
  for (const name of ["", "2027-11", "2027_1", "x2027_11", "drops", "abcd_ef"])
    expect(monthNamed(name)).toBeUndefined();
});
