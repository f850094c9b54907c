import { readdirSync, readFileSync } from "node:fs";
import { expect, test } from "@jest/globals";
import { KEPT_DAYS } from "../../../src/analysis/saga.js";
import { LOG_AGE_MS, NOTIFY_WINDOW_MS } from "../../../src/contracts/times.js";
import { DELIVERY_VARIABLES } from "../../../src/delivery/config.js";
import { LIMITS } from "../../../src/gateway/index.js";
import { MAX_REPLAYED } from "../../../src/gateway/resume.js";
import { DAY } from "../../../src/kernel/time.js";

type Declared = Readonly<Record<string, unknown>>;

const read = (folder: string): [string, Declared][] =>
  readdirSync(`nats/${folder}`).map((file) => [
    file,
    JSON.parse(readFileSync(`nats/${folder}/${file}`, "utf8")) as Declared,
  ]);
const streams = read("streams");
const consumers = read("consumers");

const limit = (declared: Declared, field: string): number => Number(declared[field] ?? 0);
const stream = (name: string): Declared => new Map(streams).get(`${name}.json`) ?? {};

/** A message may be delivered this many times as often as attempts may be spent on it. */
const FAR_ABOVE = 100;

// Invariant 11.
test.each(streams)("nats/streams/%s is bounded by age, bytes or messages", (_file, declared) => {
  const bounds = ["max_age", "max_bytes", "max_msgs"].filter((field) => limit(declared, field) > 0);
  expect(bounds).not.toEqual([]);
});

test("the procedures name the room that all streams together reserve in JetStream", () => {
  const bytes = streams.reduce((sum, [, declared]) => sum + Math.max(0, limit(declared, "max_bytes")), 0);
  expect(readFileSync("docs/procedures.md", "utf8")).toContain(
    `reserves: ${(bytes / 2 ** 30).toFixed(1)} GiB together`,
  );
});

// Invariant 11.
test.each(consumers)("nats/consumers/%s acks each message, and bounds what is handed out", (_file, declared) => {
  expect(declared["ack_policy"]).toBe("explicit");
  for (const field of ["max_ack_pending", "max_waiting", "max_deliver", "ack_wait"])
    expect({ field, bounded: limit(declared, field) > 0 }).toEqual({ field, bounded: true });
});

// Invariant 10.
test.each(consumers)("max_deliver of nats/consumers/%s is far above the attempts: a backstop", (_file, declared) => {
  const attempts = Number(DELIVERY_VARIABLES.maxAttempts.default);
  expect(limit(declared, "max_deliver")).toBeGreaterThanOrEqual(FAR_ABOVE * attempts);
});

test("when full, FANOUT and the DLQ refuse new messages, and the log discards its oldest", () => {
  for (const name of ["FANOUT", "DLQ"]) expect([name, stream(name)["discard"]]).toEqual([name, "new"]);
  // The log goes by age; its bound in bytes is for a week of forty events a second and more.
  expect([stream("DROPS")["discard"], limit(stream("DROPS"), "max_msgs") > 0]).toEqual(["old", false]);
  expect(limit(stream("DROPS"), "max_bytes")).toBeGreaterThanOrEqual(7 * 86_400 * 40 * 344);
});

// Invariant 7.
test("the window of a resume is the age of NOTIFY, for who writes it and for who reads it", () => {
  const ageMs = limit(stream("NOTIFY"), "max_age") / 1_000_000;
  expect([NOTIFY_WINDOW_MS, LIMITS.windowMs]).toEqual([ageMs, ageMs]);
  expect(MAX_REPLAYED).toBeGreaterThanOrEqual(limit(stream("NOTIFY"), "max_msgs_per_subject"));
});

test("the code and the stream agree on how long the log keeps events, and the database and the bucket on analyses", () => {
  expect(LOG_AGE_MS).toBe(limit(stream("DROPS"), "max_age") / 1_000_000);
  expect(KEPT_DAYS * DAY).toBe(limit(stream("KV_ANALYSES"), "max_age") / 1_000_000);
});
