import { EVENT_STREAMS, streamPath } from "../../contracts/stream-events.js";
import { type Json, problem, problems, ref, schemaOfEvent } from "./openapi-parts.js";

type Stream = keyof typeof EVENT_STREAMS;

const SUMMARIES: Readonly<Record<Stream, string>> = {
  home: "Changes of the caller's home timeline, notifications, analyses and rewards, as Server-Sent Events",
  local: "Changes of the local timeline, without what the caller hides, as Server-Sent Events",
  global: "Changes of the global timeline, without what the caller hides, as Server-Sent Events",
  "list/{id}": "Changes of a list of the caller, as Server-Sent Events",
};

/** Statuses of a stream that others do not have, by the stream. */
const REFUSALS: Readonly<Record<Stream, Json>> = {
  home: {},
  local: { 404: problem(["This gateway has no users service to ask whom the caller hides"]) },
  global: { 404: problem(["This gateway has no users service to ask whom the caller hides"]) },
  "list/{id}": { 404: problem(["The caller has no such list, or this gateway has no users service to ask"]) },
};

const LIST_ID = { name: "id", in: "path", required: true, schema: { type: "string" } };

const PARAMETERS = [
  {
    name: "Last-Event-ID",
    in: "header",
    description: "The id of the last event or comment; events after it are sent again",
    schema: { type: "string" },
  },
  {
    name: "last_event_id",
    in: "query",
    description: "The same, for clients that cannot set a header; the header wins",
    schema: { type: "string" },
  },
];

const jsonText = (schema: Json): Json => ({
  type: "string",
  contentMediaType: "application/json",
  contentSchema: schema,
});

/** An event as a parser of Server-Sent Events returns it. */
const frame = (event: string): Json => ({
  type: "object",
  properties: {
    id: { type: "string", description: "To resume from" },
    event: { const: event },
    data: jsonText(ref("schemas", schemaOfEvent(event))),
  },
  required: ["id", "event", "data"],
});

/** The answer is a text: JSON Schema describes its contents by `contentSchema`. */
const streamOf = (events: readonly string[]): Json => ({
  description: "Events, each with an id to resume from",
  content: {
    "text/event-stream": {
      schema: {
        type: "string",
        contentMediaType: "text/event-stream",
        contentSchema: { type: "array", items: { oneOf: events.map(frame) } },
      },
    },
  },
});

const operationIdOf = (name: Stream): string =>
  name === "home" ? "openStream" : `open${name[0]?.toUpperCase()}${name.slice(1).replace("/{id}", "")}Stream`;

export const STREAM_PATHS: Json = Object.fromEntries(
  (Object.keys(EVENT_STREAMS) as Stream[]).map((name) => [
    streamPath(name),
    {
      get: {
        operationId: operationIdOf(name),
        summary: SUMMARIES[name],
        parameters: name === "list/{id}" ? [LIST_ID, ...PARAMETERS] : PARAMETERS,
        responses: {
          200: streamOf(EVENT_STREAMS[name]),
          ...problems(401, 403, 405, 410, 500, 503, 504),
          ...REFUSALS[name],
          429: problem(["The user or the process has too many streams", ["Retry-After"]]),
        },
      },
    },
  ]),
);
