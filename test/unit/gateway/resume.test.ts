import { expect, test } from "@jest/globals";
import { parsePosition } from "../../../src/gateway/notification.js";
import { historyFault, MAX_REPLAYED } from "../../../src/gateway/resume.js";

/** NOTIFY was created then. */
const K2 = Number.parseInt("k2", 36);

test.each([
  ["", undefined],
  ["0-k2-m5", { seq: 0, incarnation: "k2", listing: "m5" }],
  ["17-mi9c3k2v-3", { seq: 17, incarnation: "mi9c3k2v", listing: "3" }],
  // Which stream it counts in is not said.
  ["0", undefined],
  ["17", undefined],
  ["17-", undefined],
  // Nor of which listing the client is.
  ["17-k2", undefined],
  ["-k2-3", undefined],
  ["17-K2-3", undefined],
  ["17-k2-", undefined],
  ["17-k2-3-4", { seq: 17, incarnation: "k2", listing: "3", check: "4" }],
  ["17-k2-3-", undefined],
  ["17-k2-3-4-5", undefined],
  ["17-k2-3-12345678", undefined],
  ["17-k2.3-m5", { seq: 17, incarnation: "k2.3", listing: "m5" }],
  ["17-k2.15-m5-4", { seq: 17, incarnation: "k2.15", listing: "m5", check: "4" }],
  ["17-k2.-3", undefined],
  ["17-k2.a-3", undefined],
  ["17-k2.123-3", undefined],
  ["17-k2.3.3-3", undefined],
  ["9999999999999999-k2-3", undefined],
  ["-1", undefined],
  ["1.5", undefined],
  ["1e3", undefined],
  [" 1", undefined],
  ["abc", undefined],
  ["99999999999999999999", undefined],
  ["9".repeat(5_000), undefined],
  ["١٢", undefined],
])("Last-Event-ID %p means %p", (header, wanted) => {
  expect(parsePosition(header)).toEqual(wanted);
});

const state = (firstSeq: number, lastSeq: number, perSubject = 128) => ({
  createdAt: K2,
  firstSeq,
  lastSeq,
  perSubject,
});

test.each([
  ["nothing aged out", { position: 5, count: 3, state: state(1, 20) }, undefined],
  ["the next one is the first held", { position: 5, count: 3, state: state(6, 20) }, undefined],
  ["the next one aged out", { position: 5, count: 3, state: state(7, 20) }, "too_old"],
  ["everything aged out, nothing after the position", { position: 20, count: 0, state: state(21, 20) }, undefined],
  ["everything aged out, something after the position", { position: 19, count: 0, state: state(21, 20) }, "too_old"],
  ["a stream that never held anything", { position: 0, count: 0, state: state(0, 0) }, undefined],
  ["one fewer than the limit", { position: 0, count: 127, state: state(1, 200) }, undefined],
  ["as many as the limit", { position: 0, count: 128, state: state(1, 200) }, "too_old"],
  [
    "as many as the limit, one from before still held",
    { position: 5, count: 300, state: state(1, 400), oldest: 5 },
    undefined,
  ],
  [
    "as many as the limit, none from before held",
    { position: 5, count: 300, state: state(1, 400), oldest: 6 },
    "too_old",
  ],
  [
    "more than is replayed",
    { position: 5, count: MAX_REPLAYED, state: state(1, 4_000, Number.POSITIVE_INFINITY) },
    "too_old",
  ],
  ["beyond the end", { position: 21, count: 0, state: state(1, 20) }, "unknown_position"],
])("%s", (_name, found, reason) => {
  expect(historyFault(found)).toBe(reason);
});
