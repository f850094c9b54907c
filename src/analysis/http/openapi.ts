import { statusPath } from "../../contracts/analysis.js";
import { NOTIFICATIONS_PATH, NOTIFICATIONS_QUERY } from "../../contracts/notification-pages.js";
import { POSITIONS_PATH } from "../../contracts/positions.js";
import { STREAM_EVENTS } from "../../contracts/stream-events.js";
import {
  listPath,
  PAGED_TIMELINES,
  type PagedTimeline,
  TIMELINE_QUERY,
  TIMELINES,
  timelinePath,
} from "../../contracts/timeline-pages.js";
import {
  answer,
  EVENTS,
  HEADERS,
  type Json,
  parametersOf,
  problem,
  problems,
  RATE_LIMIT,
  ref,
  SECURITY,
  schemas,
} from "./openapi-parts.js";
import { PAGE } from "./schemas.js";

interface DocumentOptions {
  /** The gateway serves pages of timelines. */
  readonly servesTimelines: boolean;
  /** The gateway serves notifications. */
  readonly servesNotifications: boolean;
  /** Paths that clients are told begin with it. */
  readonly pathPrefix: string;
}

/** Returns the OpenAPI 3.1 document of the gateway. The routes check by its schemas. */
export function openApi({ servesTimelines, servesNotifications, pathPrefix }: DocumentOptions): Json {
  return {
    openapi: "3.1.1",
    info: {
      title: "avion-timeline: event streams, timelines, notifications, analyses and rewards",
      version: "1.0.0",
      license: { name: "Apache-2.0", identifier: "Apache-2.0" },
    },
    servers: [{ url: pathPrefix || "/" }],
    security: [{ bearer: [] }, { cookie: [] }],
    paths: {
      ...PATHS,
      ...(servesTimelines && { ...TIMELINE_PATHS, ...POSITION_PATHS }),
      ...(servesNotifications && NOTIFICATION_PATHS),
    },
    components: { schemas: schemas(), securitySchemes: SECURITY, headers: HEADERS },
  };
}

const PAGE_PARAMETERS = parametersOf(PAGE);

const STREAM = {
  description: `Events, each with an id to resume from; their data is JSON: ${Object.keys(STREAM_EVENTS)
    .map((event, index) => `${event} (${Object.keys(EVENTS)[index]})`)
    .join(", ")}`,
  content: { "text/event-stream": { schema: { type: "string" } } },
};

const ID: Json = { name: "id", in: "path", required: true, schema: { type: "string" } };

const STREAM_SUMMARIES: Readonly<Record<(typeof TIMELINES)[number], string>> = {
  home: "Changes of the caller's home timeline, notifications, analyses and rewards, as Server-Sent Events",
  local: "Changes of the local timeline, without what the caller hides, as Server-Sent Events",
  global: "Changes of the global timeline, without what the caller hides, as Server-Sent Events",
};

const STREAM_PATHS: Json = Object.fromEntries(
  TIMELINES.map((name) => [
    `/events/timeline/${name}`,
    {
      get: {
        operationId: name === "home" ? "openStream" : `open${name[0]?.toUpperCase()}${name.slice(1)}Stream`,
        summary: STREAM_SUMMARIES[name],
        parameters: [
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
        ],
        responses: {
          200: STREAM,
          ...problems(401, 403, 405, 410, 503),
          ...(name === "home"
            ? {}
            : { 404: problem(["This gateway has no users service to ask whom the caller hides"]) }),
          429: problem(["The user or the process has too many streams", ["Retry-After"]]),
        },
      },
    },
  ]),
);

const PATHS: Json = {
  ...STREAM_PATHS,
  "/api/v1/timeline/analyze": {
    post: {
      operationId: "analyze",
      summary: "Asks for an analysis of an account's posts",
      parameters: [
        {
          name: "Idempotency-Key",
          in: "header",
          description: "With the same key and body, a day long, the answer is the same and there is one analysis",
          schema: { type: "string", minLength: 1, maxLength: 257 },
        },
      ],
      requestBody: { required: true, content: { "application/json": { schema: ref("schemas", "Order") } } },
      responses: {
        202: answer("Accepted", "The analysis is queued", ["Location", ...RATE_LIMIT]),
        ...problems(400, 401, 403, 408, 410, 413, 415, 422, 429, 500, 503),
        404: problem(["The account was a user who is erased"]),
      },
    },
  },
  [statusPath("{id}")]: {
    get: {
      operationId: "getAnalysis",
      summary: "Status and results of an analysis of the caller",
      parameters: [ID],
      responses: { 200: answer("Analysis", "The analysis"), ...problems(400, 401, 403, 404, 410, 429, 500, 503) },
    },
  },
  "/api/v1/timeline/analyses": {
    get: {
      operationId: "listAnalyses",
      summary: "The analyses of the caller, the newest first",
      parameters: PAGE_PARAMETERS,
      responses: { 200: answer("Analyses", "A page"), ...problems(400, 401, 403, 410, 429, 500, 503) },
    },
  },
  "/api/v1/xp": {
    get: {
      operationId: "getRewards",
      summary: "The rewards of the caller, the newest first",
      parameters: PAGE_PARAMETERS,
      responses: { 200: answer("Rewards", "A page and the total"), ...problems(400, 401, 403, 410, 429, 500, 503) },
    },
  },
  "/openapi.json": {
    get: {
      operationId: "getOpenApi",
      summary: "This document",
      security: [],
      responses: {
        200: { description: "OpenAPI 3.1", content: { "application/json": { schema: { type: "object" } } } },
      },
    },
  },
};

const SUMMARIES: Readonly<Record<PagedTimeline, string>> = {
  home: "The drops of the people whom the caller follows, and the caller's own",
  local: "The public drops of this server, without those that the caller hides",
  global: "The public drops of this server and of others, without those that the caller hides",
  list: "The drops of the members of a list of the caller",
};

const TIMELINE_PATHS: Json = Object.fromEntries(
  PAGED_TIMELINES.map((name) => [
    name === "list" ? listPath("{id}") : timelinePath(name),
    {
      get: {
        operationId: `get${name[0]?.toUpperCase()}${name.slice(1)}Timeline`,
        summary: SUMMARIES[name],
        description: "max_id, min_id and since_id exclude each other",
        parameters: [...(name === "list" ? [ID] : []), ...parametersOf(TIMELINE_QUERY)],
        responses: {
          200: answer("Timeline", "A page", ["Link"]),
          ...problems(400, 401, 403, ...(name === "list" ? [404] : []), 405, 410, 429, 500, 503),
        },
      },
    },
  ]),
);

const POSITION_PATHS: Json = {
  [POSITIONS_PATH]: {
    get: {
      operationId: "getPositions",
      summary: "Up to where the caller has read each timeline",
      responses: { 200: answer("Positions", "All of them"), ...problems(401, 403, 405, 410, 429, 500, 503) },
    },
    post: {
      operationId: "setPosition",
      summary: "Moves a position of the caller",
      requestBody: { required: true, content: { "application/json": { schema: ref("schemas", "PositionToSet") } } },
      responses: {
        200: answer("SetPosition", "The position that stands"),
        ...problems(400, 401, 403, 405, 408, 410, 413, 415, 429, 500, 503),
        409: problem(["A newer position stands, which the detail names"]),
      },
    },
  },
};

const NOTIFICATION_PATHS: Json = {
  [NOTIFICATIONS_PATH]: {
    get: {
      operationId: "listNotifications",
      summary: "What others did with the caller and their drops, the newest first",
      parameters: parametersOf(NOTIFICATIONS_QUERY),
      responses: {
        200: answer("Notifications", "A page", ["Link"]),
        ...problems(400, 401, 403, 405, 410, 429, 500, 503),
      },
    },
  },
  [`${NOTIFICATIONS_PATH}/unread`]: {
    get: {
      operationId: "getUnread",
      summary: "How many notifications of the caller are unread",
      responses: { 200: answer("Unread", "The number"), ...problems(401, 403, 405, 410, 429, 500, 503) },
    },
  },
  [`${NOTIFICATIONS_PATH}/read`]: {
    post: {
      operationId: "markRead",
      summary: "Marks a notification of the caller and all older ones as read",
      requestBody: { required: true, content: { "application/json": { schema: ref("schemas", "ReadMark") } } },
      responses: {
        200: answer("Marked", "The mark is stored"),
        ...problems(400, 401, 403, 405, 408, 410, 413, 415, 429, 500, 503),
      },
    },
  },
};
