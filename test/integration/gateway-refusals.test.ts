import { connect as connectTcp } from "node:net";
import { expect, test } from "@jest/globals";
import { eventually } from "../support/eventually.js";
import { ask, cleanups, idle, listen, type Raw, start, token } from "../support/gateway.js";

// Invariant 7.
test("a refusal that passes is a stream that ends, for those who accept one, and a status for others", async () => {
  const running = await start({
    config: { maxConnectionsPerUser: 1, maxConnections: 2, allowedOrigins: ["https://app.example"] },
    limits: { retryMs: [200, 400], limitRetryMs: [3_000, 4_000] },
  });
  const accept = "application/json;q=0.1, Text/Event-Stream; q=0.9";
  const refused = async (user: string, headers: Record<string, string> = { accept }): Promise<Raw> => {
    const raw = await ask(running.url, { authorization: `Bearer ${await token(user)}`, ...headers });
    await eventually(() => raw.ended, "the end of the answer");
    return raw;
  };
  await Promise.all([listen(running, "alice"), listen(running, "bob")]);
  const origin = "https://app.example";
  const user = await refused("alice", { accept, origin });
  expect(user.response.statusCode).toBe(200);
  expect(user.response.headers).toMatchObject({
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache, no-transform",
    "access-control-allow-origin": origin,
  });
  expect(user.text).toMatch(/^retry: 3\d{3}\n: too many event streams of this user\n\n$/);
  expect((await refused("carol")).text).toMatch(/^retry: 3\d{3}\n: this gateway has too many event streams\n\n$/);
  for (const other of ["*/*", "application/json", "text/event-stream;q=0", ""]) {
    const { statusCode, headers } = (await refused("alice", { accept: other })).response;
    expect([statusCode, headers["retry-after"]]).toEqual([429, expect.stringMatching(/^[34]$/)]);
  }
  const bad = await ask(running.url, { accept, authorization: "Bearer nonsense" });
  expect([bad.response.statusCode, bad.response.headers["content-type"]]).toEqual([
    401,
    "application/problem+json; charset=utf-8",
  ]);
  await running.gateway.close(0);
  expect((await refused("dora")).text).toMatch(/^retry: [234]\d\d\n: the gateway is shutting down\n\n$/);
});

test("a stream has no chunks, and ends with its connection", async () => {
  const running = await start({ limits: { maxLifeMs: 100 } });
  for (const asked of ["close", "keep-alive"]) {
    const socket = connectTcp(running.port, "127.0.0.1");
    cleanups.push(() => socket.destroy());
    let [text, isOver] = ["", false];
    socket.on("data", (part: Buffer) => (text += part.toString("latin1")));
    socket.once("end", () => (isOver = true));
    const head = ["GET /events/timeline/home HTTP/1.1", "Host: x", `Authorization: Bearer ${await token("alice")}`];
    socket.write([...head, `Connection: ${asked}`, "", ""].join("\r\n"));
    await eventually(() => isOver, "the end of the connection");
    expect(text).toContain("\r\nConnection: close\r\n");
    expect(text).not.toContain("Transfer-Encoding");
    expect(text).toMatch(/\n\n$/);
  }
});

test("a preflight allows the headers of a client, and those of a trace", async () => {
  const running = await start({ config: { allowedOrigins: ["https://app.example"] } });
  const { headers } = (await ask(running.url, { origin: "https://app.example" }, "OPTIONS")).response;
  const allowed = "authorization, last-event-id, cache-control, traceparent, tracestate";
  expect(headers["access-control-allow-headers"]).toBe(allowed);
});

test("refusals are sent as problem+json", async () => {
  const running = await start({
    config: { allowedOrigins: ["https://app.example"], maxConnectionsPerUser: 1, maxConnections: 2 },
  });
  const jwt = await token("alice");
  const cookie = { cookie: `access_token=${jwt}` };
  const status = async (headers: Record<string, string>, method?: string): Promise<number | undefined> => {
    const raw = await ask(running.url, headers, method);
    const { statusCode, headers: got } = raw.response;
    if ((statusCode ?? 0) >= 400) expect(got["content-type"]).toMatch(/^application\/problem\+json/);
    if (statusCode === 401) expect(got["www-authenticate"]).toBe("Bearer");
    raw.close();
    await idle(running);
    return statusCode;
  };
  expect(await status({})).toBe(401);
  expect(await status({ authorization: "Bearer nonsense", ...cookie })).toBe(401);
  expect(await status({ authorization: "Basic eDp5", ...cookie })).toBe(401);
  expect(await status(cookie)).toBe(200);
  expect(await status({ ...cookie, origin: "https://evil.example" })).toBe(403);
  expect(await status({ ...cookie, origin: "https://app.example" })).toBe(200);
  expect(await status({ ...cookie, origin: running.url.slice(0, running.url.indexOf("/events")) })).toBe(200);
  expect(await status({ authorization: `Bearer ${jwt}` }, "POST")).toBe(405);
  expect(await status({ authorization: `Bearer ${jwt}` }, "HEAD")).toBe(405);
  expect(await status({ origin: "https://app.example" }, "OPTIONS")).toBe(204);
  await listen(running, "alice");
  const second = await ask(running.url, { authorization: `Bearer ${jwt}` });
  expect(second.response.statusCode).toBe(429);
  await listen(running, "bob");
  const third = await ask(running.url, { authorization: `Bearer ${await token("carol")}` });
  expect(third.response.statusCode).toBe(503);
});
