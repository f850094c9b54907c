import { expect, test } from "@jest/globals";
import { AppError } from "../../src/kernel/errors.js";
import { createBucket } from "../../src/platform/nats/bucket.js";
import { createRewardStore } from "../../src/rewards/index.js";
import { createErased } from "../../src/state/erased/erased.redis.js";
import { type Call, call, post, sharedAnalysisBench } from "../support/analysis-http.js";
import { eventually } from "../support/eventually.js";

const bench = sharedAnalysisBench({ rewards: createRewardStore });
const ROUTES: readonly [string, Call][] = [
  ["/api/v1/timeline/analyze", { method: "POST", body: { did: "bob", type: "flow" } }],
  ["/api/v1/timeline/analyze", { method: "POST", body: "{" }],
  ["/api/v1/timeline/analyses/0199b0a4-5c2e-7000-8000-000000000000", {}],
  ["/api/v1/timeline/analyses", {}],
  ["/api/v1/xp", {}],
];

const erased = () =>
  createErased(bench.redis.scripts, createBucket(bench.nats.connection, bench.nats.publish, "ERASED"));

async function keysOf(user: string): Promise<string[]> {
  const analyses = await createBucket(bench.nats.connection, bench.nats.publish, "ANALYSES").keys(`*.${user}.>`);
  const inRedis = await bench.redis.raw.keys(`*:${user}`);
  return [...(analyses ?? []), ...inRedis];
}

async function requestsNaming(user: string): Promise<number> {
  const { state } = await bench.nats.manager.streams.info("TIMELINE");
  let found = 0;
  for (let seq = state.first_seq; seq <= state.last_seq; seq++) {
    const message = await bench.nats.manager.streams.getMessage("TIMELINE", { seq }).catch(() => undefined);
    if (message?.string().includes(`"${user}"`)) found++;
  }
  return found;
}

test.each(ROUTES)("%s of an erased user is 410, and nothing is counted", async (path, how) => {
  await erased().record("ada", 1);
  const { status, headers, body } = await call(bench.url + path, { ...how, user: "ada" });
  expect([status, headers.get("content-type")]).toEqual([410, "application/problem+json; charset=utf-8"]);
  expect(body).toMatchObject({ title: "Gone", status: 410, detail: "the user is erased" });
  expect(await keysOf("ada")).toEqual([]);
  expect(await requestsNaming("ada")).toBe(0);
});

test("a request without a valid token is 401 first, and the document is for everybody", async () => {
  await erased().record("ada", 1);
  expect((await call(`${bench.url}/api/v1/xp`)).status).toBe(401);
  expect((await call(`${bench.url}/openapi.json`, { user: "ada" })).status).toBe(200);
});

test("the account of an erased user is unknown, and its analysis counts for nobody", async () => {
  await erased().record("eve", 1);
  const keyed = { headers: { "idempotency-key": '"one"' } };
  for (const how of [{}, keyed]) {
    const { status, body } = await post(bench.url, "ben", { ...how, body: { did: "eve", type: "flow" } });
    expect([status, body.detail]).toEqual([404, "did: there is no such account"]);
  }
  expect(await requestsNaming("eve")).toBe(0);
  expect(await keysOf("ben")).toEqual([]);
  expect((await post(bench.url, "ben")).headers.get("ratelimit-remaining")).toBe("9");
});

test.each([
  ["the user", "cleo", "bob", 410],
  ["the account", "bob", "cora", 404],
])("a request that is under way while %s is erased is refused, and leaves no fact", async (_, user, did, status) => {
  const held: { reached: boolean; go: () => void } = { reached: false, go: () => undefined };
  const url = await bench.another({
    publish: async (message) => {
      const stored = await bench.nats.publish(message);
      if (message.subject !== "events.timeline.requested") return stored;
      held.reached = true;
      await new Promise<void>((resolve) => {
        held.go = resolve;
      });
      return stored;
    },
  });
  const before = await keysOf(user);
  const asked = post(url, user, { headers: { "idempotency-key": '"late"' }, body: { did, type: "flow" } });
  await eventually(() => held.reached, "the request is stored");
  await erased().record(status === 410 ? user : did, 1);
  held.go();
  expect((await asked).status).toBe(status);
  const left = await keysOf(user);
  // The request of a user who is not erased keeps its key and the list of the user.
  expect(status === 410 ? left : left.filter((key) => /\.requested$/.test(key) && !before.includes(key))).toEqual([]);
});

test("while Redis is away, requests are taken as before", async () => {
  const url = await bench.another({
    state: {
      ...bench.state,
      erased: { ...bench.state.erased, among: () => Promise.reject(new AppError("unavailable", "Redis is away")) },
    },
  });
  expect((await call(`${url}/api/v1/timeline/analyses`, { user: "dan" })).status).toBe(200);
  expect((await post(url, "dan")).status).toBe(202);
});
