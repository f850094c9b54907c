import { rm } from "node:fs/promises";
import { expect } from "@jest/globals";
import { openApi } from "../support/api.js";
import { temporaryFolder } from "../support/brokers.js";
import { becomes } from "../support/eventually.js";
import { SAGA_STEPS } from "../support/saga-steps.js";
import type { Service } from "../support/service.js";
import { openEvents } from "../support/sse.js";
import { type Stack, testWithStack } from "../support/stack.js";
import { tokenOf } from "../support/tokens.js";

const USER = "ada";

/** Starts processes with the whole saga, one after the other on the same data. */
async function sagaOn(stack: Stack): Promise<(failpoints?: string) => Promise<Service>> {
  const folder = await temporaryFolder("saga");
  stack.defer(() => rm(folder, { recursive: true, force: true }));
  return (failpoints = "") =>
    stack.start({
      roles: "posts,gateway,analysis,rewards",
      env: {
        ...{ TIMELINE_POST_SERVICE_ADDR: "", TIMELINE_DATA_DIR: folder, TIMELINE_ACK_WAIT_MS: "3500" },
        ...{ AVION_TEST_FAILPOINTS: failpoints, TIMELINE_RETRY_BASE_MS: "10" },
      },
    });
}

type Json = Record<string, unknown>;

async function call(service: Service, path: string, body?: object): Promise<{ status: number; json: Json }> {
  const headers = {
    authorization: `Bearer ${await tokenOf(USER, { claims: { tier: "LIFT" } })}`,
    "content-type": "application/json",
  };
  const response = await fetch(`${service.httpUrl}${path}`, {
    headers,
    ...(body === undefined ? {} : { method: "POST", body: JSON.stringify(body) }),
  });
  return { status: response.status, json: (await response.json()) as Json };
}

const ask = async (service: Service, did: string, type = "flow"): Promise<string> => {
  const { status, json } = await call(service, "/api/v1/timeline/analyze", { did, type });
  expect(status).toBe(202);
  return json["analysis_id"] as string;
};

const statusOf = async (service: Service, id: string): Promise<unknown> =>
  (await call(service, `/api/v1/timeline/analyses/${id}`)).json["status"];

testWithStack(
  "an analysis goes from the 202 to its result, its events and its reward",
  { service: false, timeoutMs: 60_000 },
  async (stack) => {
    const service = await (await sagaOn(stack))();
    const posts = openApi(service.grpcAddress);
    stack.defer(() => posts.close());
    const { drop_id } = await posts.post("bob");
    await posts.like({ user_id: USER, drop_id });
    const stream = await openEvents(service.httpUrl, USER);
    stack.defer(() => stream.close());
    const id = await ask(service, "bob", "full");
    const path = `/api/v1/timeline/analyses/${id}`;
    const done = await stream.waitFor("analysis_completed");
    expect(done.data).toEqual({ analysis_id: id, did: "bob", type: "full", status_url: path });
    const earned = await stream.waitFor("xp_earned");
    expect(earned.data).toEqual({ event_id: id, amount: 15, total: 15 });
    const { json } = await call(service, path);
    expect(json).toMatchObject({ analysis_id: id, status: "completed", cached: false, results: { posts: 1 } });
    const results = json["results"] as Json;
    for (const measure of ["flow", "clout", "kudos", "pulse"]) expect(results[measure]).toEqual(expect.any(Object));
    const listed = await call(service, "/api/v1/timeline/analyses");
    expect(listed.json).toMatchObject({ analyses: [{ analysis_id: id, status: "completed" }], next_cursor: null });
    const rewards = await call(service, "/api/v1/xp");
    expect(rewards.json).toMatchObject({ user_id: USER, total: 15, transactions: [{ event_id: id, amount: 15 }] });
  },
);

// Invariant 12.
testWithStack(
  "after a crash at any step every analysis is completed, rewarded and told once",
  { service: false, slow: true, timeoutMs: 180_000 },
  async (stack) => {
    const start = await sagaOn(stack);
    const first = await start();
    const posts = openApi(first.grpcAddress);
    for (const step of SAGA_STEPS) await posts.post(`crash-at-${step}`);
    posts.close();
    await first.stop();
    for (const step of SAGA_STEPS) {
      const service = await start(`${step}=kill@crash-at-${step}`);
      const stream = await openEvents(service.httpUrl, USER);
      // The process may end before it answers.
      await ask(service, `crash-at-${step}`).catch(() => undefined);
      expect((await service.exited).signal).toBe("SIGKILL");
      await stream.ended;
    }
    const last = await start();
    const listed = async (): Promise<Json[]> =>
      (await call(last, "/api/v1/timeline/analyses?limit=100")).json["analyses"] as Json[];
    await becomes(async () => expect(await listed()).toHaveLength(SAGA_STEPS.length), 60_000);
    const ids = (await listed()).map((one) => one["analysis_id"] as string);
    for (const id of ids) await becomes(async () => expect(await statusOf(last, id)).toBe("completed"), 60_000);
    await becomes(async () => {
      const { json } = await call(last, "/api/v1/xp?limit=100");
      const events = (json["transactions"] as Json[]).map((one) => one["event_id"]);
      expect(new Set(events)).toEqual(new Set(ids));
      expect(events).toHaveLength(ids.length);
      expect(json["total"]).toBe(15 * ids.length);
    }, 60_000);
    await becomes(async () => {
      const told = (await stack.streams.all("NOTIFY")).map(({ body }) => JSON.parse(body.toString()) as Json);
      for (const event of ["analysis_completed", "xp_earned"]) {
        const of = told.filter((one) => one["event"] === event).map((one) => one["analysis_id"] ?? one["event_id"]);
        expect(new Set(of)).toEqual(new Set(ids));
        expect(of).toHaveLength(ids.length);
      }
    });
    expect(await stack.streams.count("DLQ")).toBe(0);
  },
);
