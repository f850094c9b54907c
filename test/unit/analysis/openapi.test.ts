import { expect, test } from "@jest/globals";
import { Validator } from "@seriousme/openapi-schema-validator";
import { createAnalysisRouter } from "../../../src/analysis/http/routes.http.js";
import { TIMELINES, timelinePath } from "../../../src/contracts/timeline-pages.js";
import { createNotificationRouter, createPositionRouter, createTimelineRouter } from "../../../src/gateway/index.js";
import { silent } from "../../../src/kernel/logger.js";
import { prefixOf, publicUrl } from "../../../src/kernel/urls.js";
import { serveHttp } from "../../../src/platform/http/serve.js";
import { DOCUMENT } from "../../support/openapi.js";

test("the document is a valid OpenAPI 3.1 document, and each of its references leads somewhere", async () => {
  const validator = new Validator();
  expect(await validator.validate(structuredClone(DOCUMENT))).toEqual({ valid: true });
  expect(validator.version).toBe("3.1");
  const text = JSON.stringify(DOCUMENT);
  const refs = [...text.matchAll(/"\$ref":"#\/([^"]+)"/g)].map(([, path = ""]) => path.split("/"));
  expect(refs.length).toBeGreaterThan(20);
  for (const path of refs) {
    const found = path.reduce<unknown>((at, name) => (at as Record<string, unknown>)[name], DOCUMENT);
    expect([path, typeof found]).toEqual([path, "object"]);
  }
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

test("beside the event streams it describes the routes that are served, and no other", () => {
  const none = () => Promise.reject(new Error("is not called"));
  const reads = { analysis: none, analyses: none, rewards: none };
  const callers = {
    authorize: none,
    allowedOrigins: new Set<string>(),
    refuseCaller: none,
    takeRead: none,
    pathPrefix: "",
    log: silent,
  };
  const served = { servesTimelines: true, servesNotifications: true };
  const analyses = createAnalysisRouter({ ...callers, ask: none, isUser: undefined, reads, ...served });
  const timelines = createTimelineRouter({ ...callers, readPage: none, readDrops: undefined });
  const notifications = createNotificationRouter({
    ...callers,
    notifications: { list: none, unread: none, markRead: none },
  });
  const positions = createPositionRouter({ ...callers, positions: { list: none, set: none } });
  const stacks = [analyses, timelines, positions, notifications].map(({ stack }) => stack);
  const routes = stacks.flat().flatMap(({ route }) => {
    const methods = route?.stack.map(({ method }) => method).filter((method) => method !== undefined);
    return route ? [`${route.path.replace(/:(\w+)/, "{$1}")} ${[...new Set(methods)].join()}`] : [];
  });
  const described = Object.entries(DOCUMENT.paths).map(
    ([path, operations]) => `${path} ${Object.keys(operations).join()}`,
  );
  const streams = TIMELINES.map((name) => `/events/timeline/${name} get`);
  expect([...routes, ...streams].sort()).toEqual(described.sort());
});
