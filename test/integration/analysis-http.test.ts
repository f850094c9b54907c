import { Agent, type ClientRequest, request } from "node:http";
import { connect } from "node:net";
import { expect } from "@jest/globals";
import { AppError } from "../../src/kernel/errors.js";
import { createBucket } from "../../src/platform/nats/bucket.js";
import { createPublisher } from "../../src/platform/nats/publish.js";
import { call, post, sharedAnalysisBench } from "../support/analysis-http.js";
import { eventually } from "../support/eventually.js";
import { slowTest, quickTest as test } from "../support/suite.js";
import { tokenOf } from "../support/tokens.js";

const bench = sharedAnalysisBench();
const ANALYZE = "/api/v1/timeline/analyze";

async function requested(): Promise<{ body: Record<string, unknown>; id: string; trace: string }[]> {
  const { state } = await bench.nats.manager.streams.info("TIMELINE");
  const seqs = Array.from({ length: state.messages }, (_, at) => state.first_seq + at);
  return Promise.all(
    seqs.map(async (seq) => {
      const stored = await bench.nats.manager.streams.getMessage("TIMELINE", { seq });
      return { body: stored.json(), id: stored.header.get("Nats-Msg-Id"), trace: stored.header.get("traceparent") };
    }),
  );
}
const requestsOf = async (user: string) => (await requested()).filter(({ body }) => body["user_id"] === user);

test("an accepted request is stored under its id, and is queued for its user alone", async () => {
  const { status, headers, body } = await post(bench.url, "ada", { tier: "JET", body: { did: "bob", type: "full" } });
  expect(status).toBe(202);
  const { analysis_id: id } = body;
  expect(id).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
  const path = `/api/v1/timeline/analyses/${id}`;
  const estimated = expect.stringMatching(/^\d{4}-\d\d-\d\dT[\d:.]+Z$/);
  expect(body).toEqual({ analysis_id: id, status: "queued", estimated_completion: estimated, status_url: path });
  expect(headers.get("location")).toBe(path);
  expect(headers.get("cache-control")).toBe("no-store");
  const [stored, ...more] = await requestsOf("ada");
  expect([stored?.id, more]).toEqual([id, []]);
  const common = { analysis_id: id, did: "bob", type: "full", requested_at: expect.any(String) };
  expect(stored?.body).toEqual({ ...common, user_id: "ada", tier: "JET" });
  const seen = await call(bench.url + path, { user: "ada" });
  expect([seen.status, seen.body]).toEqual([
    200,
    { ...common, status: "queued", estimated_completion: body.estimated_completion },
  ]);
  expect((await call(bench.url + path, { user: "eve" })).status).toBe(404);
});

test("behind a prefix of a public URL, clients are told paths that lead there", async () => {
  const url = await bench.another({ pathPrefix: "/social" });
  const { headers, body } = await post(url, "pia");
  const path = `/social/api/v1/timeline/analyses/${body.analysis_id}`;
  expect([body.status_url, headers.get("location")]).toEqual([path, path]);
  const document = (await (await fetch(`${url}/openapi.json`)).json()) as { servers: unknown };
  expect(document.servers).toEqual([{ url: "/social" }]);
});

test("queued shows after Redis has lost everything", async () => {
  const { body } = await post(bench.url, "flo");
  await bench.redis.raw.flushall();
  expect((await call(bench.url + body.status_url, { user: "flo" })).body).toMatchObject({ status: "queued" });
});

test.each<[string, unknown, string[]]>([
  ["no field", {}, ["did", "type"]],
  ["two wrong fields", { did: 7, type: "glow" }, ["did", "type"]],
  ["a wrong type", { did: "bob", type: "Flow" }, ["type"]],
  ["no user id", { did: "", type: "flow" }, ["did"]],
  ["a user id that no database stores", { did: "b\0", type: "flow" }, ["did"]],
  ["a user id too long", { did: "b".repeat(129), type: "flow" }, ["did"]],
  [
    "a DID of another method",
    { did: "did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK", type: "flow" },
    ["did"],
  ],
  ["a did:plc that ends in a colon", { did: "did:plc:z72i7hdynmk6r22z27h6tvur:", type: "flow" }, ["did"]],
  ["a did:plc with other characters", { did: "did:plc:z72i7hdynmk6r22z27h6tv/r", type: "flow" }, ["did"]],
  ["a did:plc without an id", { did: "did:plc:", type: "flow" }, ["did"]],
  ["a DID in capitals", { did: "DID:PLC:z72i7hdynmk6r22z27h6tvur", type: "flow" }, ["did"]],
  ["a DID above 2 KiB", { did: `did:plc:${"a".repeat(2_041)}`, type: "flow" }, ["did"]],
  ["a did:web without a host", { did: "did:web:", type: "flow" }, ["did"]],
  ["a did:plc one character short", { did: "did:plc:z72i7hdynmk6r22z27h6tvu", type: "flow" }, ["did"]],
  ["a did:plc with a digit that base32 lacks", { did: "did:plc:z72i7hdynmk6r22z27h6tvu1", type: "flow" }, ["did"]],
  ["a did:web with a path", { did: "did:web:example.com:user:ada", type: "flow" }, ["did"]],
  ["a did:web of no host", { did: "did:web:-example..com", type: "flow" }, ["did"]],
  ["a did:web that ends in a percent sign", { did: "did:web:example.com%", type: "flow" }, ["did"]],
  ["a DID that ends early", { did: "did:", type: "flow" }, ["did"]],
  ["a list", [], ["body"]],
  ["no JSON", "{", ["body"]],
  ["JSON that is no object", "3", ["body"]],
])("a body with %s names every wrong field", async (_what, body, fields) => {
  const { status, headers, body: problem } = await post(bench.url, "ben", { body });
  expect([status, headers.get("content-type")]).toEqual([400, "application/problem+json; charset=utf-8"]);
  expect(problem).toMatchObject({ type: "about:blank", title: "Bad Request", status: 400 });
  expect(problem.errors.map(({ field }: { field: string }) => field)).toEqual(fields);
  for (const field of fields) expect(problem.detail).toContain(`${field}: `);
});

test.each([
  "alice.bsky.social",
  " Alice.Example. ",
  "@alice",
  "@alice@far.example",
  "alice@far.example",
  "acct:alice@far.example",
  "müller.example",
  "https://bsky.app/profile/alice",
  "bsky.app/profile/alice",
  "at://did:plc:z72i7hdynmk6r22z27h6tvur",
  "//far.example",
  " did:plc:z72i7hdynmk6r22z27h6tvur",
  " ",
  "\u200b\t\u00a0",
])("%j is no account, and the answer says that a DID or a user id is needed", async (did) => {
  const { status, body } = await post(bench.url, "ben", { body: { did, type: "flow" } });
  const fault = { field: "did", detail: "must be a DID (did:plc or did:web) or a user id" };
  expect([status, body.errors]).toEqual([400, [fault]]);
});

test("a did:web with a path is refused, since the AT Protocol has none", async () => {
  const { body } = await post(bench.url, "ben", { body: { did: "did:web:example.com:user:alice", type: "flow" } });
  const detail = "must be a did:web of a host alone: the AT Protocol has none with a path";
  expect(body.errors).toEqual([{ field: "did", detail }]);
});

test.each([
  "did:plc:z72i7hdynmk6r22z27h6tvur",
  "did:web:example.com",
  "did:web:example.com%3A8443",
  "did:web:localhost%3A8080",
  "bob ü",
  "grace",
  "0190f5d2-7b3c-7def-8123-456789abcdef",
  "v1.2",
  "a:b/c",
])("%s is an account", async (did) =>
  expect((await post(bench.url, "cleo", { body: { did, type: "pulse" } })).status).toBe(202),
);

test("who the caller is, and what the tier allows, is checked first", async () => {
  const expired = await tokenOf("ben", { exp: 1 });
  const other = await tokenOf("ben", { secret: "another secret, just as long as it must be" });
  for (const authorization of [undefined, "Bearer x", `Bearer ${expired}`, `Bearer ${other}`, "Basic YTpi"])
    for (const path of ["/api/v1/timeline/analyses", "/api/v1/xp", `${"/api/v1/timeline/analyses/"}x`]) {
      const headers: Record<string, string> = authorization === undefined ? {} : { authorization };
      const { status, headers: got } = await call(bench.url + path, { headers });
      expect([status, got.get("www-authenticate")]).toEqual([401, "Bearer"]);
    }
  expect((await call(bench.url + ANALYZE, { method: "POST", body: "{" })).status).toBe(401);
  const full = { did: "bob", type: "full" };
  for (const tier of [undefined, "DRIFT", "lift", "GOLD"])
    expect((await post(bench.url, "ben", { ...(tier && { tier }), body: full })).status).toBe(403);
  expect((await post(bench.url, "ben", { tier: "LIFT", body: full })).status).toBe(202);
});

test("a cookie counts, but not from the page of another origin", async () => {
  const cookie = `access_token=${await tokenOf("kim")}`;
  const ask = (headers: Record<string, string>) =>
    call(bench.url + ANALYZE, { method: "POST", body: { did: "bob", type: "flow" }, headers: { cookie, ...headers } });
  expect((await ask({})).status).toBe(202);
  expect((await ask({ origin: bench.url })).status).toBe(202);
  expect((await ask({ origin: "https://evil.example" })).status).toBe(403);
  const rewritten = { origin: "https://page.example" };
  expect((await ask({ ...rewritten, "sec-fetch-site": "same-origin" })).status).toBe(202);
  expect((await ask({ ...rewritten, "sec-fetch-site": "cross-site" })).status).toBe(403);
});

test("methods, media types and sizes", async () => {
  for (const [path, allow] of [
    [ANALYZE, "POST"],
    ["/api/v1/timeline/analyses", "GET, HEAD"],
    ["/api/v1/timeline/analyses/x", "GET, HEAD"],
    ["/api/v1/xp", "GET, HEAD"],
    ["/openapi.json", "GET, HEAD"],
  ] as const)
    for (const method of ["PUT", "PATCH", "DELETE", allow === "POST" ? "GET" : "POST"]) {
      const { status, headers } = await call(bench.url + path, { method, user: "ben" });
      expect([method, status, headers.get("allow")]).toEqual([method, 405, allow]);
    }
  for (const type of ["text/plain", "application/x-www-form-urlencoded", "application/jsonp", ""])
    expect((await post(bench.url, "ben", { headers: { "content-type": type } })).status).toBe(415);
  const packed = { headers: { "content-encoding": "gzip" }, body: "x" };
  expect((await post(bench.url, "ben", packed)).status).toBe(415);
  const utf = { headers: { "content-type": "application/json; charset=UTF-8" } };
  expect((await post(bench.url, "sizes", utf)).status).toBe(202);
  const padded = (bytes: number) => `{"did":"bob","type":"flow"}`.padEnd(bytes, " ");
  expect((await post(bench.url, "sizes", { body: padded(16_384) })).status).toBe(202);
  const { status, headers, body } = await post(bench.url, "sizes", { body: padded(16_385) });
  expect([status, headers.get("content-type"), body.status]).toEqual([
    413,
    "application/problem+json; charset=utf-8",
    413,
  ]);
  expect((await call(`${bench.url}/api/v1/nothing`, { user: "ben" })).status).toBe(404);
  expect((await call(`${bench.url}/api/v1/timeline/analyses/%ff`, { user: "ben" })).status).toBe(400);
});

// Invariant 11.
/** Sends spaces until the connection ends; `answered` gets the status. */
async function sendWithoutEnd(answered: (status: number | undefined, upload: ClientRequest) => void): Promise<void> {
  const headers = { authorization: `Bearer ${await tokenOf("ben")}`, "content-type": "application/json" };
  // A server ends a connection that is not kept at its answer, whatever still comes.
  const agent = new Agent({ keepAlive: true });
  const upload = request(bench.url + ANALYZE, { method: "POST", headers, agent });
  upload.once("response", ({ statusCode }) => answered(statusCode, upload));
  upload.on("error", () => undefined);
  const more = (): void => void upload.write(" ".repeat(8_192), () => upload.destroyed || setImmediate(more));
  more();
  await new Promise((resolve) => upload.once("close", resolve));
  agent.destroy();
}

test("a body without end is refused while it comes", async () => {
  let status: number | undefined;
  await sendWithoutEnd((answer, upload) => {
    status = answer;
    upload.destroy();
  });
  expect(status).toBe(413);
});

slowTest("a body without end is cut off ten seconds after its refusal", async () => {
  let refusedAt = 0;
  await sendWithoutEnd(() => (refusedAt = performance.now()));
  expect(performance.now() - refusedAt).toBeGreaterThan(9_000);
});

slowTest("a body that drips ends after ten seconds, read or not", async () => {
  const body = `POST ${ANALYZE} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000`;
  for (const [status, token] of [
    [408, await tokenOf("ben")],
    [401, "nonsense"],
  ] as const) {
    const { hostname, port } = new URL(bench.url);
    const socket = connect(Number(port), hostname);
    let [text, isOver] = ["", false];
    socket.on("data", (part: Buffer) => (text += part.toString()));
    socket.on("error", () => undefined);
    socket.once("close", () => (isOver = true));
    socket.write(`${body}\r\nAuthorization: Bearer ${token}\r\n\r\n`);
    const dripping = setInterval(() => socket.write(" "), 1_000);
    await eventually(() => isOver, "the end of the connection", 20_000);
    clearInterval(dripping);
    expect(text).toMatch(new RegExp(`^HTTP/1.1 ${status} `));
    expect(text).toMatch(/^Content-Type: application\/problem\+json; charset=utf-8\r$/m);
  }
});

const keyed = (key: string, how: object = {}) => ({ headers: { "idempotency-key": key }, ...how });

test("the same key and body get the same answer, and another body is refused", async () => {
  const first = await post(bench.url, "ida", keyed('"one"'));
  const again = await post(bench.url, "ida", keyed('"one"', { body: { type: "flow", did: "bob" } }));
  expect([again.status, again.body, again.headers.get("location")]).toEqual([202, first.body, first.body.status_url]);
  const other = await post(bench.url, "ida", keyed('"one"', { body: { did: "bob", type: "clout" } }));
  expect([other.status, other.body.status]).toEqual([422, 422]);
  expect(await requestsOf("ida")).toHaveLength(1);
  const [two, zoe] = [await post(bench.url, "ida", keyed('"two"')), await post(bench.url, "zoe", keyed('"one"'))];
  expect(new Set([first, two, zoe].map(({ body }) => body.analysis_id)).size).toBe(3);
});

test.each(['""', '"a', 'a"b', '"a\\b"', "a, b", '"a", "b"', '"ä"', "x".repeat(256)])(
  "%j is no Idempotency-Key",
  async (key) => {
    const { status, body } = await post(bench.url, "ida", keyed(Buffer.from(key).toString("latin1")));
    expect([status, body.errors?.[0]?.field]).toEqual([400, "Idempotency-Key"]);
  },
);

test("requests at once with one key, in several processes, are one analysis and count once", async () => {
  const urls = [bench.url, await bench.another({}), await bench.another({})];
  await Promise.all(Array.from({ length: 9 }, () => post(bench.url, "max")));
  const answers = await Promise.all(
    Array.from({ length: 24 }, (_, at) => post(urls[at % 3] as string, "max", keyed("k"))),
  );
  expect(answers.map(({ status }) => status)).toEqual(answers.map(() => 202));
  expect(new Set(answers.map(({ body }) => JSON.stringify(body))).size).toBe(1);
  expect(await requestsOf("max")).toHaveLength(10);
  expect((await post(bench.url, "max")).status).toBe(429);
  expect((await post(bench.url, "max", keyed("k"))).status).toBe(202);
});

test("requests at once with one key and two bodies: one body is taken", async () => {
  const bodies = [
    { did: "bob", type: "flow" },
    { did: "bob", type: "clout" },
  ];
  const answers = await Promise.all(
    Array.from({ length: 12 }, (_, at) => post(bench.url, "lou", keyed("k", { body: bodies[at % 2] }))),
  );
  const countOf = (wanted: number): number => answers.filter(({ status }) => status === wanted).length;
  expect([countOf(202), countOf(422)]).toEqual([6, 6]);
  expect(await requestsOf("lou")).toHaveLength(1);
});

test("after a day a key is free for another body", async () => {
  const first = await post(bench.url, "eve", keyed("k"));
  const bucket = createBucket(bench.nats.connection, bench.nats.publish, "ANALYSES");
  const [name = ""] = (await bucket.keys("k.eve.*")) ?? [];
  const kept = (await bucket.get(name))?.value as { at: string };
  const other = keyed("k", { body: { did: "bob", type: "clout" } });
  const put = (ago: number) => bucket.put(name, { ...kept, at: new Date(Date.now() - ago).toISOString() });
  await put(86_400_000 - 60_000);
  expect((await post(bench.url, "eve", other)).status).toBe(422);
  await put(86_400_000 + 1);
  const answers = await Promise.all([post(bench.url, "eve", other), post(bench.url, "eve", other)]);
  expect(answers.map(({ status }) => status)).toEqual([202, 202]);
  const ids = new Set([first, ...answers].map(({ body }) => body.analysis_id));
  expect(ids.size).toBe(2);
});

test("a request that NATS did not take is 503, counts nothing, and its key gets the analysis later", async () => {
  let away = true;
  const { publish } = createPublisher(bench.nats.connection);
  const url = await bench.another({
    publish: async (message) => {
      if (away && message.subject.startsWith("events.")) throw new AppError("unavailable", "NATS: shard 7 is away");
      return publish(message);
    },
  });
  const refused = await post(url, "uma", keyed("k"));
  expect([refused.status, Number(refused.headers.get("retry-after")) > 0]).toEqual([503, true]);
  expect(JSON.stringify(refused.body)).not.toContain("shard");
  expect(await bench.redis.raw.zcard("timeline:x:asked:uma")).toBe(0);
  expect((await call(`${url}/api/v1/timeline/analyses`, { user: "uma" })).body.analyses).toEqual([]);
  away = false;
  const answer = await post(url, "uma", keyed("k"));
  expect(answer.status).toBe(202);
  expect((await post(url, "uma", keyed("k"))).body).toEqual(answer.body);
  expect((await requestsOf("uma")).map(({ id }) => id)).toEqual([answer.body.analysis_id]);
  expect(await bench.redis.raw.zcard("timeline:x:asked:uma")).toBe(1);
});

test("without a connection to NATS everything but a wrong request is 503 at once", async () => {
  const url = await bench.another({ connected: () => false });
  const [asked, list, wrong] = await Promise.all([
    post(url, "ben"),
    call(`${url}/api/v1/timeline/analyses`, { user: "ben" }),
    post(url, "ben", { body: {} }),
  ]);
  expect([asked.status, list.status, wrong.status]).toEqual([503, 503, 400]);
  expect(Number(asked.headers.get("retry-after"))).toBeGreaterThan(0);
});
