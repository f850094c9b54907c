import { expect, test } from "@jest/globals";
import { Validator } from "@seriousme/openapi-schema-validator";
import { EVENT_STREAMS, streamPath } from "../../../src/contracts/stream-events.js";
import { timelinePath } from "../../../src/contracts/timeline-pages.js";
import { createTimelineRouter } from "../../../src/gateway/index.js";
import { silent } from "../../../src/kernel/logger.js";
import { prefixOf, publicUrl } from "../../../src/kernel/urls.js";
import { serveHttp } from "../../../src/platform/http/serve.js";
import { DOCUMENT, refsOf } from "../../support/openapi.js";

test("the document is a valid OpenAPI 3.1 document, and each of its references leads somewhere", async () => {
  const validator = new Validator();
  expect(await validator.validate(structuredClone(DOCUMENT))).toEqual({ valid: true });
  expect(validator.version).toBe("3.1");
  const refs = refsOf(DOCUMENT);
  expect(refs.length).toBeGreaterThan(20);
  for (const [path, target] of refs) expect([path, typeof target]).toEqual([path, "object"]);
});

test.each([
  [undefined, ""],
  ["https://app.example", ""],
  ["https://app.example/social", "/social"],
  ["https://app.example:8443/a/b", "/a/b"],
])("a public URL of %s begins paths with %j", (url, prefix) => {
  expect(prefixOf(url === undefined ? undefined : publicUrl.parse(url))).toBe(prefix);
});

test("links of pages begin with the prefix of the public URL", async () => {
  const server = await serveHttp({ address: "127.0.0.1:0", log: silent });
  const page = { drop_ids: ["d"], has_more: true, next_max_id: "d", prev_min_id: "", degraded: false, items: [] };
  server.use(
    createTimelineRouter({
      authorize: async () => ({ user: "ada", tier: undefined, expiresAt: Number.POSITIVE_INFINITY }) as never,
      ...{
        allowedOrigins: new Set<string>(),
        refuseCaller: async () => undefined,
        takeRead: async () => 0,
        log: silent,
      },
      ...{ readPage: async () => page as never, readDrops: undefined, pathPrefix: "/social" },
    }),
  );
  const { headers } = await fetch(`http://127.0.0.1:${server.port}${timelinePath("home")}`);
  expect(headers.get("link")).toBe(`</social${timelinePath("home")}?limit=20&max_id=d>; rel="next"`);
  const expanded = await fetch(`http://127.0.0.1:${server.port}${timelinePath("home")}?expand=drops`);
  expect(expanded.headers.get("link")).toBe(
    `</social${timelinePath("home")}?limit=20&expand=drops&max_id=d>; rel="next"`,
  );
  await server.close(0);
});

test.each(Object.entries(EVENT_STREAMS))("the stream of %s describes the events that it sends", (name, events) => {
  const { content } = DOCUMENT.paths[streamPath(name)]?.["get"]?.responses[200] ?? { content: {} };
  const wanted = events.map((event) => ({
    event: { const: event },
    data: { contentMediaType: "application/json", contentSchema: { $ref: expect.stringContaining("/schemas/") } },
  }));
  const oneOf = wanted.map((properties) => ({ properties }));
  expect(content["text/event-stream"]).toMatchObject({ schema: { contentSchema: { items: { oneOf } } } });
});
