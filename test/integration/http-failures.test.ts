import { afterAll, beforeAll, expect, test } from "@jest/globals";
import express from "express";
import { AppError } from "../../src/kernel/errors.js";
import { silent } from "../../src/kernel/logger.js";
import { type HttpServer, serveHttp } from "../../src/platform/http/serve.js";

let server: HttpServer;
let failure: AppError;
const logged: object[] = [];

beforeAll(async () => {
  const log = { ...silent, warn: (fields: object): void => void logged.push(fields) };
  server = await serveHttp({ address: "127.0.0.1:0", notReady: () => [], metrics: () => undefined, log });
  const routes = express.Router().get("/asked", () => {
    throw failure;
  });
  server.use(routes);
});
afterAll(() => server.close(0));

const get = (path: string): Promise<Response> => fetch(`http://127.0.0.1:${server.port}${path}`);

async function ask(): Promise<[status: number, detail: unknown]> {
  const answer = await get("/asked");
  return [answer.status, ((await answer.json()) as { readonly detail: unknown }).detail];
}

test("texts of servers are in the log, once for calls that fail for the same reason, and not told to the caller", async () => {
  failure = new AppError("unavailable", "10.1.2.3 says: no user alice", { publicMessage: "a server is away" });
  for (let n = 0; n < 3; n++) expect(await ask()).toEqual([503, "a server is away"]);
  expect(logged.splice(0)).toEqual([{ path: "/asked", error: "10.1.2.3 says: no user alice" }]);
});

test("a path is unavailable, with Retry-After, until all routes are there, and unknown from then on", async () => {
  const early = await get("/later");
  expect([early.status, early.headers.get("content-type")]).toEqual([503, "application/problem+json"]);
  expect(Number(early.headers.get("retry-after"))).toBeGreaterThan(0);
  expect((await get("/healthz")).status).toBe(200);
  server.complete();
  const late = await get("/later");
  const body = { type: "about:blank", title: "Not Found", status: 404, detail: "no such resource" };
  expect([late.status, await late.json()]).toEqual([404, body]);
});

test("a failure that the caller is told whole is not logged", async () => {
  failure = new AppError("invalid", "limit: is wrong");
  expect(await ask()).toEqual([400, "limit: is wrong"]);
  expect(logged).toEqual([]);
});
