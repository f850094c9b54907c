import { expect, test } from "@jest/globals";
import { ANALYSES, AUTHORS, drawn, ERASURES } from "../../../src/contracts/tables.js";

const TIME = "2026-01-02T03:04:05.000Z";

test("a line names why an author has a state, and since when if that is known", () => {
  const author = { author_id: "a\u001b", state: "pulled", by: "count", since: TIME } as const;
  expect(AUTHORS.line(author)).toBe(`a\\u{1b}  pulled by followers since ${TIME}`);
  expect(AUTHORS.line({ ...author, since: null })).toBe("a\\u{1b}  pulled by followers");
});

test("an erasure shows what is not done, and how much is left; a lifted one shows the reason", () => {
  const steps = [
    { name: "profile", done: true, left: 0 },
    { name: "drops", done: false, left: 7 },
    { name: "rewards", done: false, left: 0 },
  ];
  const running = { user_id: "ada", status: "running", requested_at: TIME, completed_at: null, steps };
  expect(ERASURES.line(running)).toBe(`running since ${TIME}  ada  not done: drops, rewards`);
  expect(drawn(ERASURES, [running])).toEqual({
    title: "Erasures, the newest first",
    none: "nobody is erased",
    headings: ["User", "Status", "Requested", "Completed", "Not done"],
    rows: [["ada", "running", TIME, null, "drops (7 left), rewards"]],
  });
  const lifted = { ...running, status: "lifted", requested_at: null, steps: [], lifted_at: TIME, reason: "a mistake" };
  expect(ERASURES.line(lifted)).toBe(`lifted at ${TIME}  ada  a mistake`);
});

test("an analysis that was not understood has a line and cells, too", () => {
  const unknown = { analysis_id: null, user_id: null, did: null, type: null, tier: null };
  const analysis = {
    ...unknown,
    status: "failed",
    since: TIME,
    stream: "DLQ",
    stream_seq: 3,
    reason: "invalid",
  } as const;
  expect(ANALYSES.line({ ...analysis, error: "no JSON" })).toBe(`failed since ${TIME}  DLQ 3  not understood: no JSON`);
  expect(drawn(ANALYSES, [{ ...analysis, error: null }]).rows).toEqual([[null, "failed", TIME, "– (–)", null]]);
});
