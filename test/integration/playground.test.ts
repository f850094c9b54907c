import { readdirSync, readFileSync } from "node:fs";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "@jest/globals";
import { silent } from "../../src/kernel/logger.js";
import { createPageTokens } from "../../src/kernel/paging.js";
import type { Db } from "../../src/platform/db/db.js";
import { type GrpcServer, serveGrpc } from "../../src/platform/grpc/serve.js";
import { type HttpServer, serveHttp } from "../../src/platform/http/serve.js";
import { createPostsService } from "../../src/posts/index.js";
import { createPostsStore } from "../../src/posts/store.sql.js";
import { MIGRATIONS } from "../../src/roles/database.js";
import { breakable, Faults } from "../../src/sandbox/world/faults.grpc.js";
import { createPlaygroundRouter } from "../../src/sandbox/world/playground.http.js";
import { connectWorld, type World } from "../../src/sandbox/world/world.grpc.js";
import { openApi } from "../support/api.js";
import { DATABASES, type DatabaseServer } from "../support/databases.js";
import { unlimited } from "../support/limits.js";
import { POSTS_CONFIG } from "../support/posts.js";
import { openRedis, type RedisBench } from "../support/redis.js";
import { usersProcess } from "../support/users.js";

let databases: DatabaseServer;
let redis: RedisBench;
let db: Db;
let grpc: GrpcServer;
let world: World;
let errors: unknown[];
let faults: Faults;
let isFull: () => boolean;
let listDeadLetters: () => Promise<unknown>;
let server: HttpServer;
let base: string;

beforeAll(async () => {
  [databases, redis] = await Promise.all([(DATABASES.at(-1) as (typeof DATABASES)[number]).start(), openRedis()]);
});
afterAll(async () => {
  await databases.stop();
  await redis.close();
});

beforeEach(async () => {
  db = await databases.emptyDatabase(MIGRATIONS);
  await redis.client.flushall();
  faults = new Faults();
  const store = createPostsStore(db);
  isFull = () => false;
  const quiet = { wakeRelay: () => undefined, isFull: () => isFull(), limited: unlimited };
  const posts = createPostsService(
    {
      store,
      config: POSTS_CONFIG,
      tokens: createPageTokens("secret"),
      followedAmong: async () => new Set(),
      now: Date.now,
      log: silent,
      ...quiet,
    },
    silent,
  );
  const { service: users, lists } = usersProcess({ db, scripts: redis.scripts });
  grpc = await serveGrpc("127.0.0.1:0", [breakable(users, faults), breakable(posts, faults), lists], {});
  world = connectWorld(`127.0.0.1:${grpc.port}`);
  for (const user of ["ada", "bob", "nova"]) await world.users.setProfile({ user_id: user, display_name: user });
  errors = [];
  const log = { ...silent, error: (fields: object) => errors.push(fields) };
  server = await serveHttp({ address: "127.0.0.1:0", notReady: () => [], metrics: () => undefined, log });
  server.use(
    createPlaygroundRouter({
      world,
      faults,
      deadLetters: { list: () => listDeadLetters(), redrive: async () => ({ redriven: [7], refused: [], failed: [] }) },
      issueToken: async (user) => `token-of-${user}`,
    }),
  );
  server.complete();
  base = `http://127.0.0.1:${server.port}`;
});

afterEach(async () => {
  await server.close(0);
  world.close();
  await grpc.close(0);
});

async function call(method: string, path: string, body?: unknown) {
  const json = { body: JSON.stringify(body), headers: { "content-type": "application/json" } };
  const response = await fetch(base + path, { method, ...(body === undefined ? {} : json) });
  const text = await response.text();
  return { status: response.status, headers: response.headers, body: text === "" ? undefined : JSON.parse(text) };
}

test("a session is a token of the user, and no cookie, which tabs of other users would share", async () => {
  const { status, headers, body } = await call("POST", "/world/session", { user: "ada" });
  expect(status).toBe(200);
  expect(headers.get("set-cookie")).toBeNull();
  expect(body).toEqual({
    user: { user_id: "ada", followers: 0, following: 0, follows: [], suspended: false },
    token: "token-of-ada",
  });
});

test("drops are posted, shown with their text, and deleted", async () => {
  const posted = await call("POST", "/world/drops", { user: "ada", visibility: "unlisted", count: 20 });
  expect(posted).toMatchObject({ status: 201 });
  expect(posted.body.drops).toHaveLength(20);
  const { drop_id } = posted.body.drops[0];
  expect(await call("GET", `/world/drops/${drop_id}`)).toMatchObject({
    body: { author: "ada", visibility: "unlisted", body: "1 of 20", deleted: false },
  });
  expect(await call("DELETE", `/world/drops/${drop_id}`)).toMatchObject({ status: 204 });
  expect(await call("DELETE", `/world/drops/${drop_id}`)).toMatchObject({
    status: 404,
    body: { detail: "drop_id: is no drop of this world any more" },
  });
  const { body } = await call("POST", "/world/drops", { user: "ada", body: "Good morning" });
  expect(body.drops).toMatchObject([{ body: "Good morning", visibility: "public" }]);
});

test("several drops with a text have a text each, and a limit that stops them is named", async () => {
  const many = { user: "ada", body: "Many", count: 20 };
  const { status, body } = await call("POST", "/world/drops", many);
  expect(status).toBe(201);
  expect(body.stopped).toBeUndefined();
  expect(body.drops.map((drop: { body: string }) => drop.body)).toEqual(
    Array.from({ length: 20 }, (_, index) => `Many ${index + 1} of 20`),
  );
  let asked = 0;
  isFull = () => ++asked > 2;
  expect(await call("POST", "/world/drops", many)).toMatchObject({
    status: 201,
    body: {
      drops: [{ body: "Many 1 of 20" }, { body: "Many 2 of 20" }],
      stopped: "too many drops wait to be published",
    },
  });
  expect(await call("POST", "/world/drops", many)).toMatchObject({
    status: 400,
    body: { detail: "too many drops wait to be published" },
  });
});

test("follows change once, and show in the summary", async () => {
  const pair = { follower_id: "bob", following_id: "ada" };
  expect(await call("POST", "/world/follows", pair)).toMatchObject({ body: { changed: true } });
  expect(await call("POST", "/world/follows", pair)).toMatchObject({ body: { changed: false } });
  expect(await call("GET", "/world/users/bob")).toMatchObject({ body: { user: { following: 1, follows: ["ada"] } } });
  expect(await call("DELETE", "/world/follows", pair)).toMatchObject({ body: { changed: true } });
  expect(await call("POST", "/world/follows", { follower_id: "bob", following_id: "bob" })).toMatchObject({
    status: 400,
    body: { detail: "following_id: must not be the follower" },
  });
});

test("a follow of somebody who approves followers is a request, which they accept or reject", async () => {
  await world.users.setProfile({ user_id: "nova", approves_followers: true });
  const requests = async () => (await call("POST", "/world/views", { user: "nova", drop_ids: [] })).body.requests;
  for (const follower_id of ["ada", "bob"]) {
    const asked = await call("POST", "/world/follows", { follower_id, following_id: "nova" });
    expect(asked.body).toEqual({ changed: true, pending: true });
  }
  expect((await requests()).sort()).toEqual(["ada", "bob"]);
  const answer = (method: string, target_id: string) =>
    call(method, "/world/followers", { user_id: "nova", target_id });
  expect((await answer("POST", "ada")).body).toEqual({ changed: true });
  expect((await answer("DELETE", "bob")).body).toEqual({ changed: true });
  expect(await requests()).toEqual([]);
  expect((await call("GET", "/world/users/ada")).body.user).toMatchObject({ follows: ["nova"] });
});

test("an operator suspends an account, whose summary says so, and lifts that again", async () => {
  const set = (user_id: string, standing: string) => call("PUT", "/world/standings", { user_id, standing });
  const suspended = async () => (await call("GET", "/world/standings")).body.suspended;
  const summary = async () => (await call("GET", "/world/users/bob")).body.user;
  expect([await suspended(), await summary()]).toMatchObject([[], { suspended: false }]);
  expect(await set("bob", "suspended")).toMatchObject({ status: 200, body: { changed: true } });
  expect([await suspended(), await summary()]).toMatchObject([[{ user_id: "bob" }], { suspended: true }]);
  expect(await set("bob", "active")).toMatchObject({ body: { changed: true } });
  expect([await suspended(), await summary()]).toMatchObject([[], { suspended: false }]);
  expect(await set("bob", "limited")).toMatchObject({ status: 400 });
  expect((await set("nobody", "active")).body).toMatchObject({ detail: "user_id: is no user of this world" });
});

test("drops of a page are shown as their viewer sees them, in the order asked for, without unknown ones", async () => {
  const [first, second] = (await call("POST", "/world/drops", { user: "ada", count: 2 })).body.drops;
  const drop_ids = [second.drop_id, "01890000-0000-7000-8000-000000000000", first.drop_id];
  const { body } = await call("POST", "/world/views", { user: "bob", drop_ids });
  const state = { liked: false, shared: false, muting: false, blocking: false };
  const drops = [second, first].map((drop) => ({ ...drop, ...state }));
  expect(body).toEqual({ drops, muted: [], blocked: [], requests: [] });
});

test("a share makes a repost, which is shown as its original, and is deleted as the sharer's", async () => {
  const drop = (await call("POST", "/world/drops", { user: "ada", body: "Good morning" })).body.drops[0];
  const share = { user_id: "bob", drop_id: drop.drop_id };
  expect(await call("POST", "/world/shares", share)).toMatchObject({ body: { changed: true } });
  const { repost_id } = await world.posts.shareDrop(share);
  const read = async (viewer: string) => (await call("GET", `/world/drops/${repost_id}?user=${viewer}`)).body;
  const shown = { drop_id: repost_id, repost_of: drop.drop_id, reposted_by: "bob", author: "ada" };
  expect(await read("bob")).toMatchObject({ ...shown, body: "Good morning", shared: true, muting: false });
  expect(await read("nova")).toMatchObject({ ...shown, shared: false });
  const ofAuthor = await read("ada");
  expect(ofAuthor).toMatchObject({ ...shown, shared: false });
  expect(ofAuthor).not.toHaveProperty("muting");
  expect(await call("DELETE", `/world/drops/${repost_id}`)).toMatchObject({ status: 204 });
  expect(await call("DELETE", "/world/shares", share)).toMatchObject({ body: { changed: false } });
  const secret = (await call("POST", "/world/drops", { user: "ada", visibility: "followers" })).body.drops[0];
  expect(await call("POST", "/world/shares", { ...share, drop_id: secret.drop_id })).toMatchObject({ status: 404 });
});

test("a reply says whom it answers, and stands in the thread of its parent as its viewer sees it", async () => {
  const post = async (fields: object) => (await call("POST", "/world/drops", fields)).body.drops[0];
  const parent = await post({ user: "ada", body: "Who is there?" });
  const attachment = "https://files.example/cat.png";
  const reply = await post({ user: "bob", body: "Me", reply_to: parent.drop_id, attachment });
  expect(reply).toMatchObject({ reply_to: parent.drop_id, attachments: [{ url: attachment, description: "" }] });
  const secret = await post({ user: "nova", body: "Psst", reply_to: reply.drop_id, visibility: "direct" });
  expect((await call("GET", `/world/drops/${reply.drop_id}?user=nova`)).body).toMatchObject({ answers: "ada" });
  const thread = async (drop: string, viewer: string) => {
    const { body } = await call("GET", `/world/threads/${drop}?user=${viewer}`);
    return body.drops.map(({ drop_id, depth }: { drop_id: string; depth: number }) => [drop_id, depth]);
  };
  const both = [parent.drop_id, reply.drop_id];
  expect(await thread(parent.drop_id, "ada")).toEqual([
    [both[0], 0],
    [both[1], 1],
  ]);
  expect(await thread(reply.drop_id, "nova")).toEqual([
    [both[0], 0],
    [both[1], 0],
    [secret.drop_id, 1],
  ]);
  expect(await call("GET", "/world/threads/01890000-0000-7000-8000-000000000000?user=ada")).toMatchObject({
    status: 404,
  });
});

test("an edit replaces the text and nothing else; a like counts once, and is the viewer's", async () => {
  const attachment = "https://files.example/cat.png";
  const drop = (await call("POST", "/world/drops", { user: "ada", body: "Helo", attachment })).body.drops[0];
  const { body } = await call("PUT", `/world/drops/${drop.drop_id}`, { body: "Hello" });
  expect(body).toMatchObject({ body: "Hello", revision: 2, attachments: drop.attachments });
  expect(await call("PUT", `/world/drops/${drop.drop_id}`, { body: "" })).toMatchObject({ status: 400 });
  const like = { user_id: "bob", drop_id: drop.drop_id };
  expect(await call("POST", "/world/likes", like)).toMatchObject({ body: { changed: true } });
  expect(await call("POST", "/world/likes", like)).toMatchObject({ body: { changed: false } });
  const liked = async (viewer: string) => (await call("GET", `/world/drops/${drop.drop_id}?user=${viewer}`)).body.liked;
  expect([await liked("bob"), await liked("nova")]).toEqual([true, false]);
  expect(await call("DELETE", "/world/likes", like)).toMatchObject({ body: { changed: true } });
});

test("mutes and blocks change once, and show in the timeline of who made them", async () => {
  const drop = (await call("POST", "/world/drops", { user: "ada" })).body.drops[0];
  const pair = { user_id: "bob", target_id: "ada" };
  const timeline = async () => (await call("POST", "/world/views", { user: "bob", drop_ids: [drop.drop_id] })).body;
  for (const [kind, state, list] of [
    ["mutes", "muting", "muted"],
    ["blocks", "blocking", "blocked"],
  ] as const) {
    expect(await call("POST", `/world/${kind}`, pair)).toMatchObject({ body: { changed: true } });
    expect(await call("POST", `/world/${kind}`, pair)).toMatchObject({ body: { changed: false } });
    expect(await timeline()).toMatchObject({ drops: [{ [state]: true }], [list]: ["ada"] });
    expect(await call("DELETE", `/world/${kind}`, pair)).toMatchObject({ body: { changed: true } });
    expect(await timeline()).toMatchObject({ drops: [{ [state]: false }], [list]: [] });
  }
});

test("lists are made, and their members change once; a list of somebody else does not exist", async () => {
  expect(await call("GET", "/world/lists?user_id=ada")).toMatchObject({ status: 200, body: { lists: [] } });
  const { status, body } = await call("POST", "/world/lists", { user_id: "ada", title: "Friends" });
  expect(status).toBe(201);
  const { list_id } = body;
  const member = { user_id: "ada", list_id, member_id: "bob" };
  const change = async (method: string) => (await call(method, "/world/members", member)).body;
  const lists = async (user: string) => (await call("GET", `/world/lists?user_id=${user}`)).body.lists;
  expect([await change("POST"), await change("POST")]).toEqual([{ changed: true }, { changed: false }]);
  expect(await lists("ada")).toEqual([{ list_id, title: "Friends", members: ["bob"] }]);
  expect(await lists("bob")).toEqual([]);
  expect(await call("POST", "/world/members", { ...member, user_id: "nova" })).toMatchObject({ status: 404 });
  expect(await call("POST", "/world/members", { ...member, member_id: "nobody" })).toMatchObject({
    status: 400,
    body: { detail: expect.stringContaining("member_id") },
  });
  expect(await call("POST", "/world/lists", { user_id: "ada", title: "" })).toMatchObject({ status: 400 });
  expect([await change("DELETE"), await change("DELETE")]).toEqual([{ changed: true }, { changed: false }]);
  expect(await lists("ada")).toEqual([{ list_id, title: "Friends", members: [] }]);
});

test("the scripts of the page ask a gateway by the client alone, and one of them the sandbox", () => {
  const folder = "src/sandbox/world/playground";
  const scripts = readdirSync(folder).filter((file) => file.endsWith(".js"));
  const askThemselves = scripts.filter((file) =>
    /\bfetch\(|EventSource|XMLHttpRequest|sendBeacon|WebSocket/.test(readFileSync(`${folder}/${file}`, "utf8")),
  );
  expect(askThemselves).toEqual(["world.js"]);
});

test("dead letters are listed and redriven by the service; while it does not answer that is 503", async () => {
  listDeadLetters = async () => [{ seq: 7, error: "no" }];
  expect((await call("GET", "/world/dead-letters")).body).toEqual({ dead_letters: [{ seq: 7, error: "no" }] });
  expect((await call("POST", "/world/dead-letters/redrive", {})).body).toMatchObject({ redriven: [7] });
  listDeadLetters = async () => Promise.reject(new Error("no responders at secret:4222"));
  const refused = await call("GET", "/world/dead-letters");
  expect([refused.status, JSON.stringify(refused.body).includes("secret")]).toEqual([503, false]);
});

test("users are listed by prefix; faults are set, break what the timelines ask and nothing else, and are cleared", async () => {
  expect((await call("GET", "/world/users?prefix=no")).body).toEqual({ users: [{ user_id: "nova" }] });
  const api = openApi(`127.0.0.1:${grpc.port}`);
  const followers = (user_id: string) => api.followers({ user_id, page_size: 0, page_token: "" });
  await call("POST", "/world/faults", {
    ...{ service: "users", method: "GetFollowersList", user_id: "ada", code: "INTERNAL", delay_ms: 5 },
  });
  await expect(followers("ada")).rejects.toMatchObject({ code: 13 });
  expect((await followers("bob")).user_ids).toEqual([]);
  await call("POST", "/world/faults", { service: "users" });
  await expect(followers("bob")).rejects.toMatchObject({ code: 14 });
  expect(await call("GET", "/world/users/bob")).toMatchObject({ status: 200 });
  expect((await call("DELETE", "/world/faults")).body).toEqual({ faults: [] });
  expect((await followers("ada")).user_ids).toEqual([]);
  api.close();
});

test.each([
  ["POST", "/world/session", { user: "nobody" }, "user"],
  ["POST", "/world/session", {}, "user"],
  ["POST", "/world/drops", { user: "ada", visibility: "secret" }, "visibility"],
  ["POST", "/world/drops", { user: "ada", count: 101 }, "count"],
  ["POST", "/world/drops", { user: "ada", visibility: "public", recipients: ["bob"] }, "recipients"],
  ["POST", "/world/drops", { user: "ada", text: "hi" }, "text"],
  ["POST", "/world/follows", { follower_id: "x".repeat(129), following_id: "ada" }, "follower_id"],
  ["POST", "/world/mutes", { user_id: "ada", target_id: "ada" }, "target_id"],
  ["POST", "/world/blocks", { user_id: "ada", target_id: "nobody" }, "target_id"],
  ["POST", "/world/shares", { user_id: "ada", drop_id: "x" }, "drop_id"],
  ["POST", "/world/faults", { service: "users", code: "BAD" }, "code"],
  ["POST", "/world/faults", { service: "users", method: "ListDrops" }, "method"],
  ["POST", "/world/views", { drop_ids: [] }, "user"],
  ["POST", "/world/views", { user: "ada", drop_ids: Array(101).fill("x") }, "drop_ids"],
  ["GET", "/world/users?limit=0", undefined, "limit"],
] as const)("%s %s %j names %s", async (method, path, body, field) => {
  const answer = await call(method, path, body);
  const detail = expect.stringMatching(new RegExp(`^${field}\\b.*: |"${field}"$`));
  expect(answer).toMatchObject({ status: 400, body: { status: 400, detail } });
  expect(answer.headers.get("content-type")).toContain("application/problem+json");
});

test("broken JSON and unknown routes are problems too", async () => {
  const response = await fetch(`${base}/world/session`, {
    method: "POST",
    body: "{",
    headers: { "content-type": "application/json" },
  });
  expect(response.status).toBe(400);
  const problem = { type: "about:blank", title: "Bad Request", status: 400, detail: "Bad Request" };
  expect(await response.json()).toEqual(problem);
  expect(await call("GET", "/world/none")).toMatchObject({ status: 404, body: { detail: "no such resource" } });
  expect(await call("GET", "/world/drops/%zz")).toMatchObject({ status: 400, body: { detail: "Bad Request" } });
  expect(errors).toEqual([]);
});

test("the page and its assets are served with a policy that runs no inline script", async () => {
  for (const [path, type] of [
    ["/", "text/html"],
    ["/app.js", "javascript"],
    ["/timeline.js", "javascript"],
    ["/row.js", "javascript"],
    ["/style.css", "text/css"],
    ["/chart/chart.js", "javascript"],
    ["/pico/pico.min.css", "text/css"],
  ] as const) {
    const response = await fetch(base + path);
    expect(response.headers.get("content-type")).toContain(type);
    expect(response.headers.get("content-security-policy")).toContain("default-src 'self'");
    expect(await response.text()).not.toMatch(/innerHTML|\son\w+="/);
  }
});
