import { statusPath } from "../../contracts/analysis.js";
import { NOTIFICATIONS_PATH, NOTIFICATIONS_QUERY } from "../../contracts/notification-pages.js";
import { POSITIONS_PATH } from "../../contracts/positions.js";
import {
  listPath,
  PAGED_TIMELINES,
  type PagedTimeline,
  TIMELINE_QUERY,
  timelinePath,
} from "../../contracts/timeline-pages.js";
import {
  answer,
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
import { STREAM_PATHS } from "./openapi-streams.js";
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

const ID: Json = { name: "id", in: "path", required: true, schema: { type: "string" } };

const json = (description: string, schema: Json): Json => ({
  description,
  content: { "application/json": { schema } },
});

/** A route that needs no token. */
const open = (operationId: string, summary: string, responses: Json): Json => ({
  get: { operationId, summary, security: [], responses },
});

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
  "/openapi.json": open("getOpenApi", "This document", { 200: json("OpenAPI 3.1", { type: "object" }) }),
  "/asyncapi.json": open("getAsyncApi", "The events that the service takes and sends", {
    200: json("AsyncAPI 3.0", { type: "object" }),
  }),
  "/healthz": open("getHealth", "Whether the process is alive", { 200: answer("Health", "It is") }),
  "/readyz": open("getReadiness", "Whether the process can serve", {
    200: answer("Readiness", "It can"),
    503: answer("Readiness", "It waits"),
  }),
  "/metrics": open("getMetrics", "Metrics of the process", {
    200: { description: "In the text format of Prometheus", content: { "text/plain": { schema: { type: "string" } } } },
  }),
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
        ...problems(400, 401, 403, 404, 405, 408, 410, 413, 415, 429, 500, 503),
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
