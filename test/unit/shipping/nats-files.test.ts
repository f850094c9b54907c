import { readdirSync } from "node:fs";
import { expect, test } from "@jest/globals";
import { ALL_NOTIFY_PARTS } from "../../../src/contracts/notify-parts.js";
import { inRepository, readText } from "./files.js";

/** Fields of a stream's configuration that nats-server 2.9 knows; newer ones are dropped or refused by some server. */
const STREAM_FIELDS = new Set(
  `name description subjects retention max_consumers max_msgs max_bytes max_age max_msgs_per_subject max_msg_size
  discard discard_new_per_subject storage num_replicas no_ack template_owner duplicate_window placement mirror sources
  sealed deny_delete deny_purge allow_rollup_hdrs allow_direct mirror_direct republish`.split(/\s+/),
);
const REPUBLISH_FIELDS = new Set(["src", "dest", "headers_only"]);
const CONSUMER_FIELDS = new Set(
  `name durable_name description deliver_policy opt_start_seq opt_start_time ack_policy ack_wait max_deliver backoff
  filter_subject replay_policy rate_limit_bps sample_freq max_waiting max_ack_pending flow_control idle_heartbeat
  headers_only max_batch max_expires max_bytes deliver_subject deliver_group inactive_threshold num_replicas
  mem_storage`.split(/\s+/),
);
const DURATIONS = ["max_age", "duplicate_window", "ack_wait", "max_expires", "inactive_threshold", "idle_heartbeat"];
/** A shorter duration was written in ms or s by mistake. */
const MS_IN_NS = 1_000_000;

type Declared = Record<string, unknown>;

const read = (folder: string): [string, Declared][] =>
  readdirSync(inRepository(`nats/${folder}`)).map((file) => [
    file,
    JSON.parse(readText(`nats/${folder}/${file}`)) as Declared,
  ]);
const streams = read("streams");
const consumers = read("consumers");
const streamNames = streams.map(([, { name }]) => name);

const unknownIn = (declared: object, known: Set<string>): string[] =>
  Object.keys(declared).filter((field) => !known.has(field));

/** True if some subject fits both patterns. */
function collide(one: string, other: string): boolean {
  const [a, b] = [one.split("."), other.split(".")];
  for (let at = 0; ; at++) {
    const [left, right] = [a[at], b[at]];
    if (left === undefined || right === undefined) return left === right;
    if (left === ">" || right === ">") return true;
    if (left !== right && left !== "*" && right !== "*") return false;
  }
}

test("patterns collide if a subject fits both", () => {
  expect(collide("drops.>", "drops.created")).toBe(true);
  expect(collide("drops.*", "graph.followed")).toBe(false);
  expect(collide("drops", "drops.>")).toBe(false);
});

test.each(streams)(
  "nats/streams/%s has only fields that nats-server 2.9 knows, and the name of its file",
  (file, stream) => {
    expect(file).toBe(`${String(stream["name"])}.json`);
    expect(unknownIn(stream, STREAM_FIELDS)).toEqual([]);
    expect(unknownIn((stream["republish"] as object | undefined) ?? {}, REPUBLISH_FIELDS)).toEqual([]);
  },
);

test.each(consumers)("nats/consumers/%s is <STREAM>.<durable>.json of a declared stream", (file, consumer) => {
  const [stream, durable, ...rest] = file.split(".");
  expect(rest).toEqual(["json"]);
  expect(durable).toBe(consumer["durable_name"]);
  expect(streamNames).toContain(stream);
  expect(unknownIn(consumer, CONSUMER_FIELDS)).toEqual([]);
  const subjects = streams.find(([, { name }]) => name === stream)?.[1]["subjects"] as string[];
  const filter = consumer["filter_subject"] as string | undefined;
  if (filter) expect(subjects.some((subject) => collide(subject, filter))).toBe(true);
});

test.each([...streams, ...consumers])("durations in %s are whole nanoseconds", (_file, declared) => {
  const given = DURATIONS.filter((field) => field in declared).map((field) => declared[field]);
  for (const value of [...given, ...((declared["backoff"] as unknown[] | undefined) ?? [])]) {
    expect(Number.isSafeInteger(value)).toBe(true);
    if (value !== 0) expect(value).toBeGreaterThanOrEqual(MS_IN_NS);
  }
});

test("the accounts allow for every part of NOTIFY what they allow for one stream", () => {
  const accounts = readText("nats/nats-server-accounts.conf");
  const needed = ["STREAM.MSG.GET.", "DIRECT.GET.", "STREAM.PURGE.", "STREAM.MSG.DELETE.", "STREAM.DELETE."];
  for (const { stream } of ALL_NOTIFY_PARTS) {
    for (const action of needed) expect(accounts).toContain(`"$JS.API.${action}${stream}"`);
    for (const action of ["MSG.NEXT", "DELETE"]) expect(accounts).toContain(`"$JS.API.CONSUMER.${action}.${stream}.*"`);
  }
});

test("no two streams store the same subject", () => {
  const all = streams.flatMap(([file, { subjects }]) => (subjects as string[]).map((subject) => ({ file, subject })));
  const clashes = all.filter(({ file, subject }) =>
    all.some((other) => other.file !== file && collide(other.subject, subject)),
  );
  expect(clashes).toEqual([]);
});
