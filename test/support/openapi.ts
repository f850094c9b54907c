import { expect } from "@jest/globals";
import { Ajv2020 } from "ajv/dist/2020.js";
import addFormats from "ajv-formats";
import { z } from "zod";
import { openApi } from "../../src/analysis/http/openapi.js";
import { STREAM_EVENTS } from "../../src/contracts/stream-events.js";

interface Operation {
  readonly responses: Readonly<
    Record<
      string,
      {
        readonly headers?: object;
        readonly content: Readonly<Record<string, { readonly schema: { readonly $ref?: string } }>>;
      }
    >
  >;
}

export const DOCUMENT = openApi({ servesTimelines: true, servesNotifications: true, pathPrefix: "" }) as {
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
  readonly components: object;
};

const ajv = new Ajv2020({ strict: false, allErrors: true });
addFormats.default(ajv);
ajv.addSchema({ $id: "document", components: DOCUMENT.components });

const PATHS = Object.entries(DOCUMENT.paths).map(
  ([path, operations]) => [new RegExp(`^${path.replaceAll(/\{\w+\}/g, "[^/]+")}$`), operations] as const,
);
/** Left out where Redis could not count the request, and where a page is empty. */
const OPTIONAL = /^(?:ratelimit-|link$)/i;

/** The references of a document, each with what it leads to. */
export function refsOf(document: object): [path: string, target: unknown][] {
  const paths = [...JSON.stringify(document).matchAll(/"\$ref":"#\/([^"]+)"/g)].map(([, path = ""]) => path);
  const step = (at: unknown, name: string): unknown => (at as Readonly<Record<string, unknown>> | undefined)?.[name];
  return paths.map((path) => [path, path.split("/").reduce(step, document)]);
}

/** Checks the data of a stream event against the schemas of the contracts; those of events that these do not name pass. */
export function checkEvent(event: string, data: unknown): void {
  const schema = STREAM_EVENTS[event as keyof typeof STREAM_EVENTS];
  if (!schema) return;
  // No field that the page of integrators does not name.
  expect([event, z.strictObject(schema.shape).safeParse(data).error?.issues]).toEqual([event, undefined]);
}

/** Checks an answer against the OpenAPI document: its status, media type, headers and body. */
export function checkAnswer(
  method: string,
  url: string,
  answer: { status: number; headers: Headers; body: unknown },
): void {
  const { pathname } = new URL(url);
  const operation = PATHS.find(([path]) => path.test(pathname))?.[1][method.toLowerCase()];
  if (!operation) return expect([404, 405]).toContain(answer.status);
  const response = operation.responses[answer.status];
  if (!response) throw new Error(`${method} ${pathname} answers ${answer.status}, which the document does not say`);
  const [[media, { schema }] = ["", { schema: {} }]] = Object.entries(response.content) as [
    string,
    { schema: { $ref?: string } },
  ][];
  expect(answer.headers.get("content-type")).toBe(`${media}; charset=utf-8`);
  for (const name of Object.keys(response.headers ?? {}))
    if (!OPTIONAL.test(name)) expect([name, answer.headers.has(name)]).toEqual([name, true]);
  if (schema.$ref === undefined) return;
  ajv.validate(`document${schema.$ref}`, answer.body);
  expect(ajv.errors ?? []).toEqual([]);
}
