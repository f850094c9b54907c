import { once } from "node:events";
import type { Server } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, beforeEach, expect, test } from "@jest/globals";
import express from "express";
import { createActions } from "../../../src/world/actions.js";
import { createConsoleRouter } from "../../../src/world/console.http.js";
import { createFaults } from "../../../src/world/faults.js";
import { World } from "../../../src/world/world.js";

let world: World;
let events: string[];
let errors: unknown[];
let faults: ReturnType<typeof createFaults>;
let readHome: (user: string, cursor: { max_id: string }) => Promise<never>;
let server: Server;
let base: string;

beforeEach(async () => {
  world = new World();
  for (const user of ["ada", "bob", "nova"]) world.addUser(user);
  events = [];
  errors = [];
  faults = createFaults();
  const actions = createActions({ world, publish: async (channel) => void events.push(channel) });
  const app = express();
  app.use(
    createConsoleRouter({
      world,
      actions,
      faults,
      issueToken: async (user) => `token-of-${user}`,
      readHome: (user, cursor) => readHome(user, cursor),
      onError: (error) => errors.push(error),
    }),
  );
  server = app.listen(0, "127.0.0.1");
  await once(server, "listening");
  base = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});

afterEach(async () => {
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
});

async function call(method: string, path: string, body?: unknown) {
  const json = { body: JSON.stringify(body), headers: { "content-type": "application/json" } };
  const response = await fetch(base + path, { method, ...(body === undefined ? {} : json) });
  const text = await response.text();
  return { status: response.status, headers: response.headers, body: text === "" ? undefined : JSON.parse(text) };
}

test("a session is an HttpOnly, SameSite=Lax cookie with the user's token", async () => {
  const { status, headers } = await call("POST", "/world/session", { user: "ada" });
  expect(status).toBe(200);
  expect(headers.get("set-cookie")).toBe("access_token=token-of-ada; Path=/; HttpOnly; SameSite=Lax");
});

test("drops are posted, shown and deleted, with their events", async () => {
  const posted = await call("POST", "/world/drops", { user: "ada", visibility: "unlisted", count: 20 });
  expect(posted).toMatchObject({ status: 201 });
  expect(posted.body.drops).toHaveLength(20);
  const { drop_id } = posted.body.drops[0];
  expect(await call("GET", `/world/drops/${drop_id}`)).toMatchObject({
    body: { author: "ada", visibility: "unlisted" },
  });
  expect(await call("DELETE", `/world/drops/${drop_id}`)).toMatchObject({ status: 204 });
  expect(await call("DELETE", `/world/drops/${drop_id}`)).toMatchObject({ status: 404, body: { field: "drop_id" } });
  expect(world.dropsByUser("ada", { limit: 100 })).toHaveLength(19);
  expect(events).toEqual([...Array(20).fill("drop_created"), "drop_deleted"]);
});

test("a drop whose id is a URI can be deleted", async () => {
  world.addDrop({ drop_id: "https://far/notes/1?a=b", user_id: "far", remote: true });
  expect(await call("DELETE", `/world/drops/${encodeURIComponent("https://far/notes/1?a=b")}`)).toMatchObject({
    status: 204,
  });
});

test("follows change once", async () => {
  const pair = { follower_id: "bob", following_id: "ada" };
  expect(await call("POST", "/world/follows", pair)).toMatchObject({
    body: { changed: true, edge: { following: true } },
  });
  expect(await call("POST", "/world/follows", pair)).toMatchObject({ body: { changed: false } });
  expect(await call("DELETE", "/world/follows", pair)).toMatchObject({
    body: { changed: true, edge: { following: false } },
  });
  expect(events).toEqual(["user_followed", "user_unfollowed"]);
  expect(await call("POST", "/world/follows", { follower_id: "bob", following_id: "bob" })).toMatchObject({
    status: 400,
    body: { field: "following_id" },
  });
});

test("the timeline is what the service returned, with authors and times of the world", async () => {
  world.addDrop({ drop_id: "d1", created_at: 5, user_id: "ada" });
  const asked: unknown[] = [];
  readHome = async (user, cursor) => {
    asked.push([user, cursor.max_id]);
    return { drop_ids: ["d1", "d0"], has_more: true, next_max_id: "t", prev_min_id: "", degraded: false } as never;
  };
  const { body } = await call("GET", "/world/timeline?user=bob&max_id=x");
  expect(asked).toEqual([["bob", "x"]]);
  expect(body).toMatchObject({
    has_more: true,
    next_max_id: "t",
    drops: [
      { drop_id: "d1", author: "ada", created_at: 5 },
      { drop_id: "d0", author: "" },
    ],
  });
});

test("a timeline that cannot be read is 502, a cursor it refuses 400", async () => {
  readHome = async () => Promise.reject(new Error("no secrets"));
  const failed = await call("GET", "/world/timeline?user=bob");
  expect(failed).toMatchObject({ status: 502 });
  expect(JSON.stringify(failed.body)).not.toContain("secrets");
  expect(errors).toHaveLength(1);
  readHome = async () => Promise.reject(Object.assign(new Error(), { code: 3 }));
  expect(await call("GET", "/world/timeline?user=bob&max_id=x")).toMatchObject({
    status: 400,
    body: { field: "max_id" },
  });
});

test("users are listed by prefix, faults set and cleared", async () => {
  expect((await call("GET", "/world/users?prefix=no")).body).toEqual({
    users: [{ user_id: "nova", followers: 0, following: 0 }],
    total: 3,
  });
  await call("POST", "/world/faults", {
    service: "users",
    method: "GetFollowersList",
    code: "UNAVAILABLE",
    delay_ms: 5,
  });
  expect(faults.find({ service: "users", method: "GetFollowersList" })).toMatchObject({ code: 14, delayMs: 5 });
  expect((await call("DELETE", "/world/faults")).body).toEqual({ faults: [] });
});

test.each([
  ["POST", "/world/session", { user: "nobody" }, "user"],
  ["POST", "/world/session", {}, "user"],
  ["POST", "/world/drops", { user: "ada", visibility: "secret" }, "visibility"],
  ["POST", "/world/drops", { user: "ada", count: 101 }, "count"],
  ["POST", "/world/drops", { user: "ada", visibility: "public", recipients: ["bob"] }, "recipients"],
  ["POST", "/world/drops", { user: "ada", text: "hi" }, "text"],
  ["POST", "/world/follows", { follower_id: "x".repeat(129), following_id: "ada" }, "follower_id"],
  ["POST", "/world/faults", { service: "users", code: "BAD" }, "code"],
  ["GET", "/world/timeline", undefined, "user"],
  ["GET", "/world/users?limit=0", undefined, "limit"],
] as const)("%s %s %j names %s", async (method, path, body, field) => {
  const answer = await call(method, path, body);
  expect(answer).toMatchObject({ status: 400, body: { status: 400, field } });
  expect(answer.headers.get("content-type")).toContain("application/problem+json");
  expect(events).toEqual([]);
});

test("broken JSON and unknown routes are problems too", async () => {
  const response = await fetch(`${base}/world/session`, {
    method: "POST",
    body: "{",
    headers: { "content-type": "application/json" },
  });
  expect(response.status).toBe(400);
  expect(await response.json()).toMatchObject({ field: "body" });
  expect(await call("GET", "/world/none")).toMatchObject({ status: 404, body: { field: "path" } });
});

test("the page and its assets are served with a policy that runs no inline script", async () => {
  for (const [path, type] of [
    ["/", "text/html"],
    ["/app.js", "javascript"],
    ["/timeline.js", "javascript"],
    ["/style.css", "text/css"],
  ] as const) {
    const response = await fetch(base + path);
    expect(response.headers.get("content-type")).toContain(type);
    expect(response.headers.get("content-security-policy")).toContain("default-src 'self'");
    expect(await response.text()).not.toMatch(/innerHTML|\son\w+="/);
  }
});
