import { afterAll, expect, test } from "@jest/globals";
import express from "express";
import { EVENT_STREAMS, streamPath } from "../../src/contracts/stream-events.js";
import { silent } from "../../src/kernel/logger.js";
import { Closers } from "../../src/roles/closers.js";
import { readConfig } from "../../src/roles/config/config.js";
import { startService } from "../../src/roles/service.js";
import { natsOfFile } from "../support/nats-of-file.js";
import { checkAnswer, DOCUMENT } from "../support/openapi.js";
import { redisOfFile } from "../support/redis-of-file.js";
import { JWT_SECRET } from "../support/service.js";

const closers = new Closers();
// Before the servers end.
afterAll(() => closers.closeAll(silent, 0));
const nats = natsOfFile();
const redis = redisOfFile();

interface Layer {
  readonly route?: { readonly path: string; readonly stack: readonly { readonly method?: string }[] };
  readonly handle: { readonly stack?: readonly Layer[] };
}

/** Each path and method of an application and its routers. */
const routesOf = (layers: readonly Layer[] = []): string[] =>
  layers.flatMap(({ route, handle }) => {
    if (!route) return routesOf(handle.stack);
    const methods = new Set(route.stack.flatMap(({ method }) => method ?? []));
    return [...methods].map((method) => `${method} ${route.path.replaceAll(/:(\w+)/g, "{$1}")}`);
  });

const described = Object.entries(DOCUMENT.paths).flatMap(([path, operations]) =>
  Object.keys(operations).map((method) => [method, path] as const),
);

/** Starts the role with all that it may serve; nobody listens at the addresses. */
async function startGateway(): Promise<{ readonly url: string; readonly routes: readonly string[] }> {
  const apps = new Set<{ readonly router: { readonly stack: readonly Layer[] } }>();
  const { use } = express.application;
  express.application.use = function (this: never, ...given: Parameters<typeof use>) {
    apps.add(this);
    return use.apply(this, given);
  } as typeof use;
  const away = "127.0.0.1:1";
  const config = readConfig({
    ...{ TIMELINE_ROLES: "gateway", TIMELINE_HTTP_ADDR: "127.0.0.1:0", TIMELINE_JWT_SECRET: JWT_SECRET },
    ...{ REDIS_URL: redis.broker.url, NATS_URL: nats.broker.url, TIMELINE_API_ADDR: away },
    ...{ TIMELINE_USER_SERVICE_ADDR: away, TIMELINE_POST_SERVICE_ADDR: away },
    TIMELINE_NOTIFICATION_SERVICE_ADDR: away,
  });
  const scrape = (_request: unknown, response: { end(text: string): void }): void => response.end("");
  const telemetry = { scrape, exportsTraces: false, close: async () => undefined };
  const { http } = await startService(config, { telemetry: telemetry as never, closers, log: silent });
  express.application.use = use;
  return { url: `http://127.0.0.1:${http.port}`, routes: [...apps].flatMap(({ router }) => routesOf(router.stack)) };
}

test("each route of the gateway is in the OpenAPI document, and each that is there is served", async () => {
  const { url, routes } = await startGateway();
  const streams = Object.keys(EVENT_STREAMS).map((name) => `get ${streamPath(name)}`);
  expect([...routes, ...streams].sort()).toEqual(described.map((operation) => operation.join(" ")).sort());
  for (const [method, path] of described) {
    const asked = url + path.replaceAll(/\{\w+\}/g, "1");
    const response = await fetch(asked, { method });
    const { status, headers } = response;
    const needsToken = !("security" in (DOCUMENT.paths[path]?.[method] ?? {}));
    expect([method, path, status]).toEqual([method, path, needsToken ? 401 : 200]);
    if (needsToken) checkAnswer(method, asked, { status, headers, body: await response.json() });
  }
  expect((await fetch(`${url}${streamPath("other")}`)).status).toBe(404);
});
