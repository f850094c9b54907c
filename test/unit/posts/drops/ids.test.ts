import { expect, test } from "@jest/globals";
import fc from "fast-check";
import { v7 } from "uuid";
import { dateOfId, isUuid } from "../../../../src/kernel/ids.js";
import {
  createDropIds,
  createdAtOf,
  FIRST_ID,
  importedId,
  LAST_ID,
  lowestId,
  spanOf,
} from "../../../../src/posts/drops/ids.js";

const MAX_MS = 2 ** 48 - 1;
const ms = fc.integer({ min: 0, max: MAX_MS });

test("ids come in their order, within a millisecond and after a small step back of the clock", () => {
  const next = createDropIds();
  const times = [5_000_000, 5_000_000, 5_000_000, 4_999_000, 4_940_001, 5_000_000, 5_000_001];
  const ids = times.map(next);
  expect(ids).toEqual([...ids].sort());
  expect(ids.map(createdAtOf)).toEqual([...Array(6).fill(5_000_000), 5_000_001]);
});

test("a clock that stepped back far is followed", () => {
  const next = createDropIds();
  next(50_000_000);
  const ids = [next(40_000_000), next(40_000_000), next(40_000_001)];
  expect(ids.map(createdAtOf)).toEqual([40_000_000, 40_000_000, 40_000_001]);
  expect(ids).toEqual([...ids].sort());
});

test("the lowest id of a millisecond is below all of it and above all before", () => {
  fc.assert(
    fc.property(ms, (at) => {
      const lowest = lowestId(at);
      expect(dateOfId(lowest)).toBe(at);
      expect(lowest <= v7({ msecs: at })).toBe(true);
      expect(lowest <= importedId(at)).toBe(true);
      if (at > 0) expect(v7({ msecs: at - 1, seq: 0xffff_ffff }) < lowest).toBe(true);
      expect(FIRST_ID < lowest && lowest < LAST_ID).toBe(true);
    }),
  );
  expect(lowestId(MAX_MS + 1)).toBe(LAST_ID);
  expect(lowestId(Number.MAX_SAFE_INTEGER)).toBe(LAST_ID);
});

test("the span of ids", () => {
  const ids = [3, 1, 2].map((at) => importedId(at));
  expect(spanOf(ids)).toEqual([ids[1], ids[0]]);
  expect(spanOf([])).toEqual([LAST_ID, FIRST_ID]);
});

test("only lower case is compared", () => {
  const id = v7();
  expect([isUuid(id), isUuid(id.toUpperCase()), isUuid(`${id} `), isUuid("")]).toEqual([true, false, false, false]);
});
