import { expect, test } from "@jest/globals";
import fc from "fast-check";
import { deadLetterOf, deadLetterOfUnstored, type Failure } from "../../../src/delivery/dead-letter.js";
import { AppError } from "../../../src/kernel/errors.js";
import { deliveryOf, headersWith } from "../../support/deliveries.js";

const NOW = Date.parse("2026-01-02T03:04:05.678Z");
const failure = (error: unknown, stated: Partial<Failure> = {}): Failure => ({
  reason: "exhausted",
  error,
  event: "drop_created",
  version: "1.2.3",
  now: NOW,
  ...stated,
});

test("a letter says what failed, why, where and when, and carries the body byte for byte", () => {
  const body = Buffer.from([0, 255, 10, 13]);
  const delivery = deliveryOf({
    seq: 17,
    body,
    deliveries: 40,
    headers: headersWith({ "Nats-Msg-Id": "drop_created:d1", traceparent: "00-aa-bb-01", Producer: "posts" }),
  });
  expect(deadLetterOf(delivery, 5, failure(new AppError("failed", "no such\nluck")))).toEqual({
    subject: "dlq.exhausted.drop_created",
    id: "dlq:DROPS:17:1700000000000",
    body,
    headers: {
      traceparent: "00-aa-bb-01",
      Producer: "posts",
      "Dlq-Reason": "exhausted",
      "Dlq-Error": "no such luck",
      "Dlq-Error-Code": "failed",
      "Dlq-Stream": "DROPS",
      "Dlq-Stream-Seq": "17",
      "Dlq-Consumer": "planner",
      "Dlq-Subject": "drops.created",
      "Dlq-Deliveries": "5",
      "Dlq-First-Seen": new Date(1_700_000_000_000).toISOString(),
      "Dlq-Failed-At": "2026-01-02T03:04:05.678Z",
      "Dlq-Msg-Id": "drop_created:d1",
      "Dlq-Redrive-Count": "0",
      "Dlq-Version": "1.2.3",
    },
  });
});

test("a redriven message keeps when it was first seen and how often it was redriven; the broker's own headers stay behind", () => {
  const headers = headersWith({
    "Dlq-First-Seen": "2025-12-31T00:00:00.000Z",
    "Dlq-Redrive-Count": "2",
    "Dlq-Reason": "poison",
    "Nats-Expected-Stream": "DROPS",
    "nats-ttl": "1s",
  });
  const letter = deadLetterOf(deliveryOf({ headers }), 1, failure(new Error("again")));
  expect(letter.headers["Dlq-First-Seen"]).toBe("2025-12-31T00:00:00.000Z");
  expect(letter.headers["Dlq-Redrive-Count"]).toBe("2");
  expect(letter.headers["Dlq-Reason"]).toBe("exhausted");
  expect(Object.keys(letter.headers).filter((name) => /^nats-/i.test(name))).toEqual([]);
});

test("messages of equal number in a stream that was made anew get letters of their own", () => {
  const at = (time: number) => deadLetterOf(deliveryOf({ time }), 1, failure(new Error("x"))).id;
  expect(at(1)).not.toBe(at(2));
});

// Invariant 9.
test("no error text can break out of its header", () => {
  fc.assert(
    fc.property(fc.string({ unit: "binary", maxLength: 2_000 }), (text) => {
      const said = deadLetterOf(deliveryOf(), 1, failure(new Error(text))).headers["Dlq-Error"] ?? "missing";
      expect(said).toMatch(/^[\x20-\x7e]*$/);
      expect(said.length).toBeLessThanOrEqual(1_024);
    }),
  );
  const said = deadLetterOf(deliveryOf(), 1, failure(new Error("bad\r\nNats-Rollup: all 😀 end"))).headers["Dlq-Error"];
  expect(said).toMatch(/^bad Nats-Rollup: all =\S+ end$/);
});

test("a letter of the bridge has the channel, no stream, and the size where it was cut", () => {
  const body = Buffer.alloc(2_000_000, "x");
  const firstSeen = Date.parse("2026-01-02T03:04:05.678Z");
  const letter = deadLetterOfUnstored(
    { origin: "drop_created", id: "dlq:x", body, deliveries: 1, firstSeen },
    failure(new AppError("invalid", "payload: too long"), { reason: "toolarge" }),
  );
  expect(letter).toEqual({
    subject: "dlq.toolarge.drop_created",
    id: "dlq:x",
    body: body.subarray(0, 65_536),
    headers: {
      "Dlq-Reason": "toolarge",
      "Dlq-Error": "payload: too long",
      "Dlq-Error-Code": "invalid",
      "Dlq-Failed-At": "2026-01-02T03:04:05.678Z",
      "Dlq-Version": "1.2.3",
      "Dlq-Subject": "drop_created",
      "Dlq-Deliveries": "1",
      "Dlq-First-Seen": "2026-01-02T03:04:05.678Z",
      "Dlq-Redrive-Count": "0",
      "Dlq-Size": "2000000",
    },
  });
});
