import { expect, test } from "@jest/globals";
import { createOperations } from "../../../../src/operators/dead-letters/operations.js";
import {
  FILTERS,
  matches,
  RATE,
  SEQ,
  type Selection,
  selectionFault,
} from "../../../../src/operators/dead-letters/selection.js";
import { deadLetterWith, FAILED_AT, redriveBench } from "../../../support/dead-letters.js";

const { deps } = redriveBench([
  deadLetterWith({ seq: 2 }),
  deadLetterWith({ seq: 5, subject: "dlq.poison.drop_created", headers: { "Dlq-Error": "loops" } }),
  deadLetterWith({ seq: 9, subject: "dlq.exhausted.fanout_job", headers: { "Dlq-Failed-At": "2026-01-03T00:00:00Z" } }),
]);
const { select } = createOperations(deps);

test.each<[Selection, number[]]>([
  [{ all: true }, [2, 5, 9]],
  [{ reason: "exhausted" }, [2, 9]],
  [{ event: "drop_created" }, [2, 5]],
  [{ error: "INTERNAL" }, [2, 9]],
  [{ since: FAILED_AT + 1 }, [9]],
  [{ since: FAILED_AT }, [2, 5, 9]],
  [{ reason: "exhausted", event: "drop_created" }, [2]],
  [{ reason: "invalid" }, []],
  [{ all: true, limit: 2 }, [2, 5]],
  [{ seqs: [9, 2, 9] }, [2, 9]],
])("%j selects the dead letters %j", async (selection, seqs) => {
  expect(await select(selection)).toEqual(seqs);
});

test("missing dead letters are named, and nothing is selected", async () => {
  await expect(select({ seqs: [2, 3, 4] })).rejects.toMatchObject({
    ...{ code: "notfound", message: expect.stringContaining("3, 4") },
  });
});

test.each<[Selection, boolean]>([
  [{}, false],
  [{ seqs: [] }, false],
  [{ limit: 5 }, false],
  [{ seqs: [1] }, true],
  [{ all: true }, true],
  [{ since: 0 }, true],
  [{ all: true, reason: "invalid" }, true],
  [{ seqs: [1], all: true }, false],
  [{ seqs: [1], error: "x" }, false],
])("to change dead letters by %j is allowed: %j", (selection, allowed) => {
  expect(selectionFault(selection) === undefined).toBe(allowed);
});

test.each([
  ["30s", 30_000],
  ["15m", 900_000],
  ["2h", 7_200_000],
  ["7d", 604_800_000],
])("since %s is that long ago", (text, ago) => {
  const before = Date.now();
  const since = FILTERS.since.schema.parse(text);
  expect(since).toBeGreaterThanOrEqual(before - ago);
  expect(since).toBeLessThanOrEqual(Date.now() - ago);
});

test.each([
  ["2026-01-02", "2026-01-02T00:00:00Z"],
  ["2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z"],
  ["2026-01-02T03:04:05.5+02:00", "2026-01-02T01:04:05.500Z"],
])("since %s is that date", (text, date) => {
  expect(FILTERS.since.schema.parse(text)).toBe(Date.parse(date));
});

test.each(["", "15", "m", "-1h", "1w", "1.5h", "yesterday", "2026-02-30", "2026-01-02T03:04:05", "9999999d"])(
  "since %j is refused",
  (text) => {
    expect(FILTERS.since.schema.safeParse(text).success).toBe(false);
  },
);

test.each([0, -1, 1.5, Number.NaN, "1"])("%p is no sequence", (value) => {
  expect(SEQ.safeParse(value).success).toBe(false);
});

test.each([0, -1, Number.NaN, 1e9])("%p is no rate", (value) => {
  expect(RATE.safeParse(value).success).toBe(false);
});

test("the filter on errors is case-sensitive", () => {
  expect(matches(deadLetterWith(), { error: "internal" })).toBe(false);
  expect(matches(deadLetterWith(), {})).toBe(true);
});
