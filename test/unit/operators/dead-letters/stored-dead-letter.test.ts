import { expect, test } from "@jest/globals";
import {
  deadLetterAsLine,
  deadLetterAsText,
  grouped,
  groupsAsText,
  removalAsText,
  reportAsText,
} from "../../../../src/operators/dead-letters/present.js";
import {
  deadLetterAsJson,
  parseDeadLetter,
  type StoredDeadLetter,
} from "../../../../src/operators/dead-letters/stored-dead-letter.js";
import { bridgeDeadLetter, deadLetterWith, FAILED_AT } from "../../../support/dead-letters.js";
import { headersWith } from "../../../support/deliveries.js";

async function* each(deadLetters: readonly StoredDeadLetter[]): AsyncGenerator<StoredDeadLetter> {
  yield* deadLetters;
}
const textOf = async (deadLetters: readonly StoredDeadLetter[]): Promise<string> =>
  groupsAsText(await grouped(each(deadLetters)));

test("a dead letter is listed with numbers as numbers and dates as dates", () => {
  expect(deadLetterWith({ headers: { "Dlq-Redrive-Count": "2" } }).summary).toEqual({
    seq: 17,
    reason: "exhausted",
    event: "drop_created",
    error: "GetFollowersList: INTERNAL: no",
    error_code: "failed",
    stream: "DROPS",
    stream_seq: 4,
    consumer: "planner",
    deliveries: 5,
    first_seen: "2026-01-02T03:03:05.678Z",
    failed_at: "2026-01-02T03:04:05.678Z",
    redrive_count: 2,
  });
});

test("a dead letter of the bridge has no stream, no consumer and no sequence there", () => {
  const { summary, origin } = bridgeDeadLetter("drop_created", Buffer.from("nonsense"));
  expect(summary).toMatchObject({ reason: "invalid", event: "drop_created" });
  expect(summary).toMatchObject({ stream: null, stream_seq: null, consumer: null });
  expect(origin).toBe("drop_created");
});

test("a dead letter without our headers is listed by its subject and its time in the stream", () => {
  const stored = {
    seq: 3,
    subject: "dlq.poison.saga.step",
    time: FAILED_AT,
    headers: headersWith({}),
    body: Buffer.of(),
  };
  expect(parseDeadLetter(stored).summary).toEqual({
    seq: 3,
    reason: "poison",
    event: "saga.step",
    error: "",
    error_code: "",
    stream: null,
    stream_seq: null,
    consumer: null,
    deliveries: null,
    first_seen: new Date(FAILED_AT).toISOString(),
    failed_at: new Date(FAILED_AT).toISOString(),
    redrive_count: 0,
  });
  const wrong = { "Dlq-Deliveries": "many", "Dlq-Failed-At": "yesterday", "Dlq-Redrive-Count": "-1" };
  expect(parseDeadLetter({ ...stored, headers: headersWith(wrong) }).summary).toMatchObject({
    deliveries: null,
    failed_at: new Date(FAILED_AT).toISOString(),
    redrive_count: 0,
  });
});

test("dead letters of one error and one author are one group that names the author", async () => {
  const deadLetters = Array.from({ length: 4_812 }, (_, at) => deadLetterWith({ seq: at + 1 }));
  const text = await textOf([bridgeDeadLetter("drop_created", Buffer.from("x"), { seq: 9_000 }), ...deadLetters]);
  expect(text.split("\n")).toEqual([
    "4,812 x GetFollowersList: INTERNAL: no for author 42",
    "    exhausted drop_created, from 2026-01-02T03:04:05.678Z to 2026-01-02T03:04:05.678Z, dead letters 1, 2, 3, 4, 5, …",
    "1 x GetFollowersList: INTERNAL: no",
    "    invalid drop_created, from 2026-01-02T03:04:05.678Z to 2026-01-02T03:04:05.678Z, dead letters 9000",
  ]);
});

test("a group of several authors shows their number and the most frequent one; a follow counts for the followed user", async () => {
  const authors = ["a", "b", "b", "c"];
  const deadLetters = authors.map((user_id, at) => deadLetterWith({ seq: at + 1, json: { user_id } }));
  expect(await textOf(deadLetters)).toMatch(/^4 x .* for 3 authors, most often b \(2\)\n/);
  const follow = deadLetterWith({ json: { follower_id: "f", following_id: "g", version: 1 } });
  expect(await textOf([follow])).toMatch(/^1 x .* for author g\n/);
});

test("a group shows the first and the last failure, whatever their order", async () => {
  const at = (minute: number) => deadLetterWith({ headers: { "Dlq-Failed-At": `2026-01-02T03:0${minute}:00Z` } });
  expect(await textOf([at(5), at(1), at(3)])).toContain("from 2026-01-02T03:01:00.000Z to 2026-01-02T03:05:00.000Z");
});

test("errors that differ only in what they quote or count are one group; other reasons and events are others", async () => {
  const error = (text: string, subject?: string) =>
    deadLetterWith({ headers: { "Dlq-Error": text }, ...(subject === undefined ? {} : { subject }) });
  const groups = await grouped(
    each([
      error("payload: has 2000 bytes"),
      error("payload: has 31 bytes"),
      error(`unexpected "a"`),
      error(`unexpected "b"`),
      error("payload: has 1 bytes", "dlq.poison.drop_created"),
      error("payload: has 1 bytes", "dlq.exhausted.fanout_job"),
    ]),
  );
  expect(groups.map(({ count }) => count)).toEqual([2, 2, 1, 1]);
});

test("an empty list says so", async () => {
  expect(await textOf([])).toBe("no dead letters");
});

test("a shown dead letter has every header, and its body as pretty JSON", () => {
  const lines = deadLetterAsText(deadLetterWith({ json: { a: [1] }, headers: { traceparent: "00-1" } })).split("\n");
  expect(lines[0]).toBe("Dead letter 17 of dlq.exhausted.drop_created, stored 2026-01-02T03:04:05.679Z");
  expect(lines).toEqual(expect.arrayContaining(["Dlq-Stream: DROPS", "traceparent: 00-1", '  "a": [']));
});

test("control characters are escaped everywhere", () => {
  const deadLetter = deadLetterWith({
    body: Buffer.from("a\x1b[2Jb\nc\x07"),
    headers: { "Dlq-Error": "x\x9b2J\u202e" },
  });
  const text = deadLetterAsText(deadLetter);
  expect(text.split("\n").slice(-2)).toEqual(["a\\u{1b}[2Jb", "c\\u{7}"]);
  expect(text).toContain("Dlq-Error: x\\u{9b}2J\\u{202e}");
  expect(deadLetterAsLine(deadLetter)).toContain("x\\u{9b}2J\\u{202e}");
  expect(deadLetterAsText(deadLetterWith({ body: Buffer.of(0xff, 0x1b) }))).toMatch(/\nÿ\\u\{1b\}$/);
});

test.each([
  ["json", Buffer.from('{"a":1}'), { a: 1 }],
  ["json", Buffer.from("null"), null],
  ["utf8", Buffer.from("nöt json"), "nöt json"],
  ["base64", Buffer.of(0xff, 0), "/wA="],
])("a body is told as %s in JSON where it is that", (encoding, body, told) => {
  const shown = deadLetterAsJson(deadLetterWith({ body }));
  expect(shown).toMatchObject({ seq: 17, reason: "exhausted", body_encoding: encoding, size: body.length });
  expect(shown["body"]).toEqual(told);
  expect(shown["headers"]).toMatchObject({ "Dlq-Subject": "drops.created" });
});

test("a report of thousands names them as ranges, and a limited number of those", () => {
  const failed = (seqs: readonly number[]) => ({
    ...{ redriven: [], overtaken: [], refused: [] },
    failed: seqs.map((seq) => ({ seq, why: "away" })),
  });
  const many = Array.from({ length: 10_000 }, (_, at) => at + 1);
  expect(reportAsText(failed([...many, 20_000]), false)).toBe(
    "0 redriven, 10,001 failed\n  failed 1-10000, 20000: away",
  );
  const odd = reportAsText(failed(many.map((seq) => 2 * seq)), false);
  expect(odd).toMatch(/failed 2, 4, .* 40, …: away$/);
});

test("a report shows the lists that are not empty, and the cause for each dead letter", () => {
  const report = {
    redriven: [1, 2],
    overtaken: [{ seq: 3, why: "gone" }],
    refused: [{ seq: 4, why: "cut\n" }],
    failed: [
      { seq: 5, why: "away" },
      { seq: 6, why: "full" },
      { seq: 7, why: "away" },
    ],
  };
  expect(reportAsText(report, false).split("\n")).toEqual([
    "2 redriven, 1 overtaken, 1 refused, 3 failed",
    "  overtaken 3: gone",
    "  refused 4: cut\\u{a}",
    "  failed 5, 7: away",
    "  failed 6: full",
  ]);
  const none = { redriven: [], overtaken: [], refused: [], failed: [] };
  expect(reportAsText({ ...none, redriven: [1] }, true)).toBe("1 would be redriven");
  expect(reportAsText(none, false)).toBe("no dead letter matches");
  expect(removalAsText({ removed: [1], failed: [{ seq: 2, why: "away" }] }, false)).toBe("1 deleted\n  failed 2: away");
  expect(removalAsText({ removed: [1], failed: [] }, true)).toBe("1 would be deleted");
  expect(removalAsText({ removed: [], failed: [] }, true)).toBe("no dead letter matches");
});
