import { mkdirSync, writeFileSync } from "node:fs";
import { openApi } from "../../src/analysis/http/openapi.js";
import { schemaOfEvent } from "../../src/analysis/http/openapi-parts.js";
import { EVENT_STREAMS, STREAM_EVENTS } from "../../src/contracts/stream-events.js";

/** Writes the types of the client: the schemas of /openapi.json, by which the gateway checks and answers. */

interface Schema {
  readonly $ref?: string;
  readonly description?: string;
  readonly type?: string | readonly string[];
  readonly const?: unknown;
  readonly enum?: readonly unknown[];
  readonly anyOf?: readonly Schema[];
  readonly items?: Schema;
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly required?: readonly string[];
  readonly additionalProperties?: Schema | boolean;
}

interface Parameter {
  readonly name: string;
  readonly in: string;
  readonly schema: Schema;
}

interface Document {
  readonly paths: Readonly<Record<string, { readonly get?: { readonly parameters?: readonly Parameter[] } }>>;
  readonly components: { readonly schemas: Readonly<Record<string, Schema>> };
}

/** The types of queries, by a path that takes them. */
const QUERIES: Readonly<Record<string, string>> = {
  TimelineQuery: "/api/v1/timelines/home",
  ListQuery: "/api/v1/timeline/analyses",
  NotificationsQuery: "/api/v1/notifications",
};

const SIMPLE: Readonly<Record<string, string>> = {
  string: "string",
  number: "number",
  integer: "number",
  boolean: "boolean",
  null: "null",
};

function typeOf(schema: Schema): string {
  const { $ref, type = "" } = schema;
  if ($ref !== undefined) return $ref.split("/").at(-1) as string;
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  // A query has texts only, and the client writes them.
  if (schema.enum?.join() === "true,false") return "boolean";
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
  if (schema.anyOf) return schema.anyOf.map(typeOf).join(" | ");
  if (typeof type !== "string") return type.map((each) => typeOf({ ...schema, type: each })).join(" | ");
  if (type === "array") return `readonly (${typeOf(schema.items ?? {})})[]`;
  if (schema.properties) return fieldsOf(schema.properties, schema.required);
  if (type === "object") {
    const { additionalProperties: values } = schema;
    return `Readonly<Record<string, ${typeof values === "object" ? typeOf(values) : "unknown"}>>`;
  }
  return SIMPLE[type] ?? "unknown";
}

function fieldsOf(properties: Readonly<Record<string, Schema>>, required: readonly string[] = []): string {
  const fields = Object.entries(properties).map(([name, schema]) => {
    const comment = schema.description === undefined ? "" : `/** ${schema.description} */ `;
    const isRequired = required.includes(name);
    return `${comment}readonly ${name}${isRequired ? "" : "?"}: ${typeOf(schema)}${isRequired ? "" : " | undefined"};`;
  });
  return `{ ${fields.join("\n")} }`;
}

function declarations(): string[] {
  const { paths, components } = openApi({
    servesTimelines: true,
    servesNotifications: true,
    pathPrefix: "",
  }) as unknown as Document;
  const declare = (name: string, schema: Schema): string =>
    `${schema.description === undefined ? "" : `/** ${schema.description} */\n`}export type ${name} = ${typeOf(schema)};`;
  const queries = Object.entries(QUERIES).map(([name, path]) => {
    const parameters = paths[path]?.get?.parameters?.filter((parameter) => parameter.in === "query");
    if (!parameters) throw new Error(`/openapi.json has no queries of ${path}`);
    return declare(name, { properties: Object.fromEntries(parameters.map((each) => [each.name, each.schema])) });
  });
  const events = Object.keys(STREAM_EVENTS).map((event) => `readonly ${event}: ${schemaOfEvent(event)};`);
  const streams = Object.entries(EVENT_STREAMS).map(
    ([name, names]) => `readonly "${name}": ${typeOf({ enum: names })};`,
  );
  return [
    ...Object.entries(components.schemas).map(([name, schema]) => declare(name, schema)),
    ...queries,
    `/** The data of each event of a stream, by the event's name. */\nexport interface StreamEvents { ${events.join("\n")} }`,
    `/** The names of the events of each stream, by its path below /events/timeline/. */\nexport interface EventStreams { ${streams.join("\n")} }`,
  ];
}

const FOLDER = new URL("./src/gen/", import.meta.url);
mkdirSync(FOLDER, { recursive: true });
writeFileSync(new URL("schemas.ts", FOLDER), `${declarations().join("\n\n")}\n`);
