import type { z } from "zod";
import { ACTIVITY_PAYLOADS } from "../../contracts/activity.js";
import { ANALYSIS_EVENTS } from "../../contracts/analysis.js";
import {
  CHANNELS,
  type Channel,
  type PublishedEvent,
  publishedId,
  streamOf,
  subjectOf,
} from "../../contracts/channels.js";
import { FANOUT_COMPLETED } from "../../contracts/fanout.js";
import { PAYLOADS } from "../../contracts/payloads.js";
import { EVENT_STREAMS, STREAM_EVENTS, streamPath } from "../../contracts/stream-events.js";
import { COMPLETED_FANOUT, DLQ_EVENTS, DLQ_HEADER, DLQ_REASONS, dlqSubject } from "../../contracts/subjects.js";
import { type Json, named, ref, SECURITY, schemaOfEvent } from "./openapi-parts.js";

interface DocumentOptions {
  /** Names of Pub/Sub channels begin with it. */
  readonly channelPrefix: string;
  /** Paths that clients are told begin with it. */
  readonly pathPrefix: string;
}

/** Returns the AsyncAPI 3.0 document of events: the schemas are those by which the service checks what it is sent. */
export function asyncApi({ channelPrefix, pathPrefix }: DocumentOptions): Json {
  const events = [...CHANNELS.flatMap((name) => taken(name, channelPrefix)), ...SENT, ...STREAMS];
  return {
    asyncapi: "3.0.0",
    info: {
      title: "avion-timeline: events that the service takes and sends",
      version: "1.0.0",
      license: { name: "Apache-2.0" },
    },
    defaultContentType: "application/json",
    servers: serversOf(pathPrefix),
    channels: Object.fromEntries(events.map((event) => [event.id, channelOf(event)])),
    operations: Object.fromEntries(events.flatMap(operationsOf)),
    components: { schemas: schemas(), securitySchemes: { bearer: SECURITY["bearer"], cookie: COOKIE } },
  };
}

const COOKIE = { type: "httpApiKey", in: "cookie", name: "access_token" };

const serverOf = (protocol: string, host: Json): Json => ({
  protocol,
  host: "{host}",
  variables: { host },
});

const serversOf = (pathPrefix: string): Json => ({
  redis: serverOf("redis", { default: "127.0.0.1:6379", description: "REDIS_URL; of several Clusters the first" }),
  nats: serverOf("nats", { default: "127.0.0.1:4222", description: "NATS_URL, with JetStream" }),
  gateway: {
    ...serverOf("http", { default: "127.0.0.1:8080", description: "The role gateway" }),
    pathname: pathPrefix || "/",
    security: [ref("securitySchemes", "bearer"), ref("securitySchemes", "cookie")],
  },
});

type Action = "receive" | "send";

interface Described {
  readonly id: string;
  readonly server: "redis" | "nats" | "gateway";
  readonly address: string;
  readonly about: string;
  /** The service does this itself: it takes or sends the events. */
  readonly actions: readonly Action[];
  /** Messages by their names. */
  readonly messages: Readonly<Record<string, Json>>;
  readonly parameters?: Json;
}

function channelOf({ server, address, about, messages, parameters }: Described): Json {
  const servers = [{ $ref: `#/servers/${server}` }];
  return { address, summary: about, servers, messages, ...(parameters && { parameters }) };
}

function operationsOf({ id, server, about, actions, messages }: Described): [string, Json][] {
  const names = Object.keys(messages).map((name) => ({ $ref: `#/channels/${id}/messages/${name}` }));
  const bindings = server === "gateway" ? { bindings: { http: { method: "GET", bindingVersion: "0.3.0" } } } : {};
  return actions.map((action) => [
    `${action}.${id}`,
    { action, channel: { $ref: `#/channels/${id}` }, summary: about, messages: names, ...bindings },
  ]);
}

const PUBLISHED = { ...PAYLOADS, ...ACTIVITY_PAYLOADS };

const payloadName = (channel: string): string => `${schemaOfEvent(channel)}Payload`;

/** An event has a channel of Redis Pub/Sub, and a subject of JetStream, under which the service stores it. */
function taken(name: Channel, channelPrefix: string): Described[] {
  const payload = ref("schemas", payloadName(name));
  const about = PUBLISHED[name].description ?? "";
  const message = { name, payload };
  const subject = subjectOf(name);
  return [
    {
      id: name,
      server: "redis",
      address: channelPrefix + name,
      actions: ["receive"],
      about: `${about}; one object a message`,
      messages: { [name]: message },
    },
    {
      id: subject,
      server: "nats",
      address: subject,
      actions: ["receive", "send"],
      about: `${about}; in the stream ${streamOf(name)}`,
      messages: {
        [name]: {
          ...message,
          ...headersOf({ "Nats-Msg-Id": { ...TEXT, description: idTemplate(name) }, traceparent: TEXT }),
        },
      },
    },
  ];
}

/** Returns the message id of an event whose fields have their own names as values. */
function idTemplate(name: Channel): string {
  const fields = Object.keys(PUBLISHED[name].shape).filter((field) => field !== "host");
  const payload = Object.fromEntries(fields.map((field) => [field, field]));
  const [event, ...parts] = publishedId({ name, payload } as unknown as PublishedEvent).split(":");
  return [event, ...parts.map((part) => `{${part}}`)].join(":");
}

const TEXT = { type: "string" };

const headersOf = (properties: Json): Json => ({ headers: { type: "object", properties } });

const nameOf = (subject: string): string => subject.replaceAll(".", "_");
const schemaOfSubject = (subject: string): string => schemaOfEvent(nameOf(subject));

const OUT = { ...ANALYSIS_EVENTS, [COMPLETED_FANOUT]: FANOUT_COMPLETED };

const SENT: readonly Described[] = [
  ...Object.entries(OUT).map(([subject, schema]): Described => {
    const name = nameOf(subject);
    return {
      id: subject,
      server: "nats",
      address: subject,
      actions: ["send"],
      about: schema.description ?? "",
      messages: { [name]: { name, payload: ref("schemas", schemaOfSubject(subject)) } },
    };
  }),
  {
    id: "dlq",
    server: "nats",
    address: dlqSubject("{reason}" as never, "{event}" as never),
    actions: ["send"],
    about: "A message cannot be handled",
    parameters: { reason: { enum: DLQ_REASONS }, event: { enum: DLQ_EVENTS } },
    messages: {
      dead_letter: {
        name: "dead_letter",
        contentType: "application/octet-stream",
        payload: {},
        summary: "The body is the message's own, or of one that is too large its beginning",
        ...headersOf(Object.fromEntries(Object.values(DLQ_HEADER).map((name) => [name, TEXT]))),
      },
    },
  },
];

const STREAMS = Object.entries(EVENT_STREAMS).map(
  ([name, events]): Described => ({
    id: `stream.${name.replace("/{id}", "")}`,
    server: "gateway",
    address: streamPath(name),
    ...(name.includes("{id}") && { parameters: { id: {} } }),
    actions: ["send"],
    about: "Server-Sent Events: name is the event, payload its data",
    messages: Object.fromEntries(
      events.map((event) => [event, { name: event, payload: ref("schemas", schemaOfEvent(event)) }]),
    ),
  }),
);

type Schemas = Readonly<Record<string, z.ZodType>>;

function schemas(): Json {
  const target = "draft-07";
  const keyed = (all: Schemas, key: (name: string) => string): Schemas =>
    Object.fromEntries(Object.entries(all).map(([name, schema]) => [key(name), schema]));
  return {
    ...named(keyed(PUBLISHED, payloadName), { target, io: "input" }),
    ...named(keyed(STREAM_EVENTS, schemaOfEvent), { target }),
    ...named(keyed(OUT, schemaOfSubject), { target }),
  };
}
