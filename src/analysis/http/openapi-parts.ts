import { z } from "zod";
import { ANALYSIS_ORDER, USER_TIERS } from "../../contracts/analysis.js";
import { MARKED, NOTIFICATIONS_PAGE, READ_MARK, UNREAD } from "../../contracts/notification-pages.js";
import { NEW_POSITION, POSITIONS, SET_POSITION } from "../../contracts/positions.js";
import { STREAM_EVENTS } from "../../contracts/stream-events.js";
import { TIMELINE_PAGE } from "../../contracts/timeline-pages.js";
import { HOURLY } from "../../state/index.js";
import { ANSWERS } from "./schemas.js";

export type Json = Readonly<Record<string, unknown>>;

export function schemas(): Json {
  const order = named({ Order: ANALYSIS_ORDER }, { io: "input" });
  return { ...named({ ...ANSWERS, ...EVENTS, ...PAGES }), ...order };
}

/** Returns JSON Schemas for the components of a document, under their names. */
export function named(all: Readonly<Record<string, z.ZodType>>, options: z.core.ToJSONSchemaParams = {}): Json {
  const registry = z.registry<{ id: string }>();
  for (const [id, schema] of Object.entries(all)) registry.add(schema, { id });
  const uri = (id: string): string => ref("schemas", id).$ref;
  const { schemas: made } = z.toJSONSchema(registry, { ...options, uri, override: shortened });
  return Object.fromEntries(Object.entries(made).map(([id, { $schema: _, $id: __, ...schema }]) => [id, schema]));
}

const PAGES = {
  Timeline: TIMELINE_PAGE,
  Positions: POSITIONS,
  PositionToSet: NEW_POSITION,
  SetPosition: SET_POSITION,
  Notifications: NOTIFICATIONS_PAGE,
  Unread: UNREAD,
  ReadMark: READ_MARK,
  Marked: MARKED,
} as const;

/** Returns the name of the schema of an event's data: NewDrop of new_drop. */
export const schemaOfEvent = (event: string): string =>
  event.replaceAll(/(?:^|_)(\w)/g, (_, first: string) => first.toUpperCase());

const EVENTS = Object.fromEntries(
  Object.entries(STREAM_EVENTS).map(([event, schema]) => [schemaOfEvent(event), schema]),
);

/** A format makes the pattern superfluous. */
function shortened({ jsonSchema }: { jsonSchema: z.core.JSONSchema.BaseSchema }): void {
  if (jsonSchema.format !== undefined) delete jsonSchema.pattern;
}

export const ref = (kind: "schemas" | "headers" | "securitySchemes", name: string) => ({
  $ref: `#/components/${kind}/${name}`,
});

const LIMITS = USER_TIERS.map((tier) => `${tier} ${HOURLY[tier]}`).join(", ");

export const SECURITY: Json = {
  bearer: {
    type: "http",
    scheme: "bearer",
    bearerFormat: "JWT",
    description: `The claim tier is one of ${USER_TIERS.join(", ")}`,
  },
  cookie: { type: "apiKey", in: "cookie", name: "access_token" },
};

const whole = { schema: { type: "integer", minimum: 0 } };

export const HEADERS: Json = {
  "Retry-After": { description: "Seconds", ...whole },
  "RateLimit-Limit": { description: `New analyses within an hour: ${LIMITS}`, ...whole },
  "RateLimit-Remaining": { description: "How many of them are left", ...whole },
  "RateLimit-Reset": { description: "Seconds until one more is left", ...whole },
  "RateLimit-Policy": { description: "The limit and its window in seconds", schema: { type: "string" } },
  Location: { description: "Where to ask for the status", schema: { type: "string", format: "uri-reference" } },
  Link: { description: "The older page as next, the newer one as prev (RFC 8288)", schema: { type: "string" } },
  Allow: { description: "Methods of this path", schema: { type: "string" } },
};

export const RATE_LIMIT = ["RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset", "RateLimit-Policy"];

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
  504: ["A server did not answer in time", ["Retry-After"]],
};

const headersOf = (names: readonly string[]): Json =>
  names.length === 0 ? {} : { headers: Object.fromEntries(names.map((name) => [name, ref("headers", name)])) };

export const problem = ([description, headers = []]: Problem): Json => ({
  description,
  ...headersOf(headers),
  content: { "application/problem+json": { schema: ref("schemas", "Problem") } },
});

export const problems = (...statuses: readonly number[]): Json =>
  Object.fromEntries(statuses.map((status) => [status, problem(PROBLEMS[status] ?? [""])]));

export const answer = (
  schema: keyof typeof ANSWERS | keyof typeof PAGES,
  description: string,
  headers: readonly string[] = [],
): Json => ({
  description,
  ...headersOf(headers),
  content: { "application/json": { schema: ref("schemas", schema) } },
});

export function parametersOf(query: z.ZodType): Json[] {
  const { properties = {} } = z.toJSONSchema(query, { override: shortened });
  return Object.entries(properties).map(([name, schema]) => ({ name, in: "query", schema }));
}
