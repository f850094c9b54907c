import { z } from "zod";
import { ANALYSIS_ORDER, statusPath, USER_TIERS } from "../../contracts/analysis.js";
import { STREAM_EVENTS } from "../../contracts/stream-events.js";
import { TIMELINE_PAGE, TIMELINE_QUERY, TIMELINES, timelinePath } from "../../contracts/timeline-pages.js";
import { HOURLY } from "../../state/index.js";
import { ANSWERS, PAGE } from "./schemas.js";

type Json = Readonly<Record<string, unknown>>;

interface DocumentOptions {
  /** The gateway serves pages of timelines. */
  readonly servesTimelines: boolean;
  /** Paths that clients are told begin with it. */
  readonly pathPrefix: string;
}

/** Returns the OpenAPI 3.1 document of the gateway. The routes check by its schemas. */
export function openApi({ servesTimelines, pathPrefix }: DocumentOptions): Json {
  return {
    openapi: "3.1.1",
    info: {
      title: "avion-timeline: event streams, timelines, analyses and rewards",
      version: "1.0.0",
      license: { name: "Apache-2.0", identifier: "Apache-2.0" },
    },
    servers: [{ url: pathPrefix || "/" }],
    security: [{ bearer: [] }, { cookie: [] }],
    paths: { ...PATHS, ...(servesTimelines && TIMELINE_PATHS) },
    components: { schemas: schemas(), securitySchemes: SECURITY, headers: HEADERS },
  };
}

function schemas(): Json {
  const answers = z.registry<{ id: string }>();
  for (const [id, schema] of Object.entries({ ...ANSWERS, ...EVENTS, Timeline: TIMELINE_PAGE }))
    answers.add(schema, { id });
  const { schemas: made } = z.toJSONSchema(answers, { uri: (id) => ref("schemas", id).$ref, override: shortened });
  return { ...made, Order: z.toJSONSchema(ANALYSIS_ORDER, { io: "input", override: shortened }) };
}

/** Returns the name of the schema of an event's data: NewDrop of new_drop. */
export const schemaOfEvent = (event: string): string =>
  event.replaceAll(/(?:^|_)(\w)/g, (_, first: string) => first.toUpperCase());

const EVENTS = Object.fromEntries(
  Object.entries(STREAM_EVENTS).map(([event, schema]) => [schemaOfEvent(event), schema]),
);

/** A format makes the pattern superfluous. */
function shortened({ jsonSchema }: { jsonSchema: z.core.JSONSchema.BaseSchema }): void {
  delete jsonSchema.$schema;
  delete jsonSchema.$id;
  if (jsonSchema.format !== undefined) delete jsonSchema.pattern;
}

const ref = (kind: "schemas" | "headers", name: string) => ({ $ref: `#/components/${kind}/${name}` });

const LIMITS = USER_TIERS.map((tier) => `${tier} ${HOURLY[tier]}`).join(", ");

const SECURITY: Json = {
  bearer: {
    type: "http",
    scheme: "bearer",
    bearerFormat: "JWT",
    description: `The claim tier is one of ${USER_TIERS.join(", ")}`,
  },
  cookie: { type: "apiKey", in: "cookie", name: "access_token" },
};

const whole = { schema: { type: "integer", minimum: 0 } };

const HEADERS: Json = {
  "Retry-After": { description: "Seconds", ...whole },
  "RateLimit-Limit": { description: `New analyses within an hour: ${LIMITS}`, ...whole },
  "RateLimit-Remaining": { description: "How many of them are left", ...whole },
  "RateLimit-Reset": { description: "Seconds until one more is left", ...whole },
  "RateLimit-Policy": { description: "The limit and its window in seconds", schema: { type: "string" } },
  Location: { description: "Where to ask for the status", schema: { type: "string", format: "uri-reference" } },
  Link: { description: "The older page as next, the newer one as prev (RFC 8288)", schema: { type: "string" } },
  Allow: { description: "Methods of this path", schema: { type: "string" } },
};

const RATE_LIMIT = ["RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset", "RateLimit-Policy"];

type Problem = readonly [description: string, headers?: readonly string[]];

const PROBLEMS: Readonly<Record<number, Problem>> = {
  400: ["Every wrong field is named"],
  401: ["The token is missing or not valid"],
  403: ["The tier is too low, or the cookie came from the page of another origin"],
  404: ["Unknown, or of somebody else"],
  405: ["The method is none of this path", ["Allow"]],
  408: ["The body did not come within 10 seconds"],
  410: ["The user is erased"],
  413: ["The body is larger than 16 KiB"],
  415: ["The body is not application/json"],
  422: ["The Idempotency-Key was used with another body"],
  429: ["The hourly limit, or that of reads, is reached", ["Retry-After", ...RATE_LIMIT]],
  500: ["A fault of the service"],
  503: ["A server is unavailable", ["Retry-After"]],
};

const headersOf = (names: readonly string[]): Json =>
  names.length === 0 ? {} : { headers: Object.fromEntries(names.map((name) => [name, ref("headers", name)])) };

const problem = ([description, headers = []]: Problem): Json => ({
  description,
  ...headersOf(headers),
  content: { "application/problem+json": { schema: ref("schemas", "Problem") } },
});

const problems = (...statuses: readonly number[]): Json =>
  Object.fromEntries(statuses.map((status) => [status, problem(PROBLEMS[status] ?? [""])]));

const answer = (
  schema: keyof typeof ANSWERS | "Timeline",
  description: string,
  headers: readonly string[] = [],
): Json => ({
  description,
  ...headersOf(headers),
  content: { "application/json": { schema: ref("schemas", schema) } },
});

function parametersOf(query: z.ZodType): Json[] {
  const { properties = {} } = z.toJSONSchema(query, { override: shortened });
  return Object.entries(properties).map(([name, schema]) => ({ name, in: "query", schema }));
}

const PAGE_PARAMETERS = parametersOf(PAGE);

const STREAM = {
  description: `Events, each with an id to resume from; their data is JSON: ${Object.keys(STREAM_EVENTS)
    .map((event, index) => `${event} (${Object.keys(EVENTS)[index]})`)
    .join(", ")}`,
  content: { "text/event-stream": { schema: { type: "string" } } },
};

const PATHS: Json = {
  "/events/timeline/home": {
    get: {
      operationId: "openStream",
      summary: "Changes of the caller's home timeline, analyses and rewards, as Server-Sent Events",
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
        429: problem(["The user or the process has too many streams", ["Retry-After"]]),
      },
    },
  },
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
      parameters: [{ name: "id", in: "path", required: true, schema: { type: "string" } }],
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

const SUMMARIES: Readonly<Record<(typeof TIMELINES)[number], string>> = {
  home: "The drops of the people whom the caller follows, and the caller's own",
  local: "The public drops of this server, without those that the caller hides",
  global: "The public drops of this server and of others, without those that the caller hides",
};

const TIMELINE_PATHS: Json = Object.fromEntries(
  TIMELINES.map((name) => [
    timelinePath(name),
    {
      get: {
        operationId: `get${name[0]?.toUpperCase()}${name.slice(1)}Timeline`,
        summary: SUMMARIES[name],
        description: "max_id, min_id and since_id exclude each other",
        parameters: parametersOf(TIMELINE_QUERY),
        responses: {
          200: answer("Timeline", "A page", ["Link"]),
          ...problems(400, 401, 403, 405, 410, 429, 500, 503),
        },
      },
    },
  ]),
);
