import { readdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { expect, test } from "@jest/globals";
import { Ajv } from "ajv";
import addFormats from "ajv-formats";
import { asyncApi } from "../../../src/analysis/http/asyncapi.js";
import { CHANNELS, subjectOf } from "../../../src/contracts/channels.js";
import { EVENT_STREAMS, STREAM_EVENTS, streamPath } from "../../../src/contracts/stream-events.js";
import { channelsAt, checkerOf, type EventDocument } from "../../support/asyncapi.js";
import { refsOf } from "../../support/openapi.js";

const open = (channelPrefix = "", pathPrefix = ""): EventDocument =>
  asyncApi({ channelPrefix, pathPrefix }) as unknown as EventDocument;
const DOCUMENT = open();
/** The package has the schemas of all versions; this is one file of it. */
const require = createRequire(import.meta.url);
const schema = require("@asyncapi/specs/schemas/3.0.0-without-$id.json") as object;

test("the document is a valid AsyncAPI 3.0 document", () => {
  const ajv = new Ajv({ strict: false, allErrors: true });
  addFormats.default(ajv);
  ajv.validate(schema, DOCUMENT);
  expect(ajv.errors ?? []).toEqual([]);
  const broken = { ...DOCUMENT, operations: { wrong: { action: "listen", channel: { $ref: "#/channels/none" } } } };
  expect(ajv.validate(schema, broken)).toBe(false);
});

test("each reference of the document leads somewhere", () => {
  const refs = refsOf(DOCUMENT);
  expect(refs.length).toBeGreaterThan(100);
  for (const [path, target] of refs) expect([path, typeof target]).toEqual([path, "object"]);
});

test("each event that a service may publish has a channel of Redis and a subject of NATS with one payload", () => {
  for (const name of CHANNELS) {
    const [channel = "", ...others] = channelsAt(DOCUMENT, "redis", name);
    const [stored = "", ...more] = channelsAt(DOCUMENT, "nats", subjectOf(name));
    expect([name, others, more]).toEqual([name, [], []]);
    const payload = DOCUMENT.channels[channel]?.messages[name]?.payload.$ref;
    expect([name, payload]).toEqual([name, expect.stringMatching(/Payload$/)]);
    expect(DOCUMENT.channels[stored]?.messages[name]?.payload.$ref).toBe(payload);
    const receive = `receive.${channel}`;
    expect([name, DOCUMENT.operations[receive]?.action, DOCUMENT.operations[`receive.${stored}`]?.action]).toEqual([
      ...[name, "receive", "receive"],
    ]);
  }
});

test("each event of a stream over HTTP is described for the streams that send it", () => {
  expect(Object.keys(EVENT_STREAMS)).toEqual(expect.arrayContaining(["home", "local", "global"]));
  for (const [name, events] of Object.entries(EVENT_STREAMS)) {
    const [id = ""] = channelsAt(DOCUMENT, "gateway", streamPath(name));
    expect(Object.keys(DOCUMENT.channels[id]?.messages ?? {})).toEqual(events);
  }
  expect(new Set(Object.values(EVENT_STREAMS).flat())).toEqual(new Set(Object.keys(STREAM_EVENTS)));
});

/** Streams whose messages are between processes of the service: nobody else reads or writes them. */
const INTERNAL = [
  ...["ADVISORIES", "CHECKS", "EDGES", "ENGAGEMENT", "FANOUT", "NOTIFY", "SHARED", "TIMELINE"],
  ...["KV_ANALYSES", "KV_ERASED", "KV_POSITIONS"],
];

test("each subject of the streams of NATS is described, unless its stream is internal", () => {
  const described: string[] = [];
  for (const file of readdirSync("nats/streams")) {
    const { name, subjects } = JSON.parse(readFileSync(`nats/streams/${file}`, "utf8")) as {
      name: string;
      subjects: string[];
    };
    if (INTERNAL.includes(name)) continue;
    const isOf = (address: string) => (subject: string) =>
      new RegExp(`^${subject.replaceAll(".", "[.]").replace("*", "[^.]+").replace(">", ".+")}$`).test(address);
    const addresses = Object.values(DOCUMENT.channels).map(({ address }) => address);
    for (const subject of subjects)
      expect([subject, addresses.some((address) => isOf(address)(subject))]).toEqual([subject, true]);
    described.push(name);
  }
  expect(described.sort()).toEqual(["ACTIVITY", "COMPLETIONS", "DLQ", "DROPS", "GAMIFICATION", "TIMELINE_EVENTS"]);
});

test("message ids are those under which the service stores events", () => {
  const idOf = (subject: string, event: string): unknown =>
    DOCUMENT.channels[subject]?.messages[event]?.headers?.properties["Nats-Msg-Id"];
  expect(idOf("drops.edited", "drop_edited")).toMatchObject({ description: "drop_edited:{drop_id}:{revision}" });
  expect(idOf("activity.reacted", "drop_reacted")).toMatchObject({
    description: "drop_reacted:{drop_id}:{user_id}:{kind}:{version}",
  });
  expect(idOf("graph.standing", "standing_changed")).toMatchObject({
    description: "standing_changed:{user_id}:{version}",
  });
});

test("names of channels and paths begin with what the installation puts before them", () => {
  const document = open("staging:", "/social");
  expect(document.channels["drop_created"]?.address).toBe("staging:drop_created");
  expect(document).toMatchObject({ servers: { gateway: { pathname: "/social" } } });
});

test("a schema refuses what the service refuses by its type", () => {
  const check = checkerOf(DOCUMENT);
  const drop = { drop_id: "d", user_id: "u", visibility: "public", created_at: 1 };
  check("redis", "drop_created", { data: drop });
  check("redis", "drop_created", { data: { ...drop, created_at: "2026-01-01T00:00:00Z", mentions: ["ada"] } });
  for (const wrong of [
    { visibility: "secret" },
    { drop_id: "" },
    { user_id: 7 },
    { mentions: [7] },
    { created_at: null },
  ])
    expect(() => check("redis", "drop_created", { data: { ...drop, ...wrong } })).toThrow();
});
