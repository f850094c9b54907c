import { rm } from "node:fs/promises";
import { expect } from "@jest/globals";
import { openApi } from "../support/api.js";
import { temporaryFolder } from "../support/brokers.js";
import { becomes } from "../support/eventually.js";
import type { Service } from "../support/service.js";
import { type Stack, testWithStack } from "../support/stack.js";
import { tokenOf } from "../support/tokens.js";

type Json = Record<string, unknown>;

async function call(service: Service, user: string, path: string, body?: object) {
  const headers = { authorization: `Bearer ${await tokenOf(user)}`, "content-type": "application/json" };
  const post = body && { method: "POST", body: JSON.stringify(body) };
  const response = await fetch(`${service.httpUrl}${path}`, { headers, ...post });
  return { status: response.status, json: (await response.json()) as Json };
}

const ask = (service: Service, user: string, did: string) =>
  call(service, user, "/api/v1/timeline/analyze", { did, type: "flow" });

const STREAMS = ["TIMELINE", "TIMELINE_EVENTS", "GAMIFICATION", "KV_ANALYSES"];

async function messagesNaming({ streams }: Stack, user: string): Promise<string[]> {
  const found = await Promise.all(STREAMS.map((stream) => streams.all(stream)));
  const names = ({ subject, body }: { readonly subject: string; readonly body: Buffer }): boolean =>
    subject.split(".").includes(user) || String(body).includes(JSON.stringify(user));
  return found
    .flat()
    .filter(names)
    .map(({ subject }) => subject);
}

testWithStack(
  "analyses and rewards of an erased user are gone, although steps of both roles kill their process",
  { service: false, slow: true, timeoutMs: 120_000 },
  async (stack) => {
    const folder = await temporaryFolder("erasure");
    stack.defer(() => rm(folder, { recursive: true, force: true }));
    const env = { TIMELINE_POST_SERVICE_ADDR: "", TIMELINE_DATA_DIR: folder, TIMELINE_ACK_WAIT_MS: "3500" };
    const start = (failpoints = "", roles = "posts,gateway,analysis,rewards") =>
      stack.start({
        roles,
        env: { ...env, AVION_TEST_FAILPOINTS: failpoints, TIMELINE_RETRY_BASE_MS: "10" },
      });
    const first = await start();
    const posts = openApi(first.grpcAddress);
    for (const user of ["ada", "bob"]) await posts.post(user);
    posts.close();
    for (const [user, did] of [
      ["ada", "bob"],
      ["bob", "ada"],
      ["bob", "bob"],
    ] as const)
      expect((await ask(first, user, did)).status).toBe(202);
    const total = async (service: Service) => (await call(service, "bob", "/api/v1/xp")).json["total"];
    await becomes(async () => expect(await total(first)).toBe(20));
    await becomes(async () => expect(await stack.streams.count("GAMIFICATION")).toBe(3));
    await first.stop();
    // The analyses must still be there when the next process is killed in their midst.
    const rewards = await start("forgetting=kill@some rewards", "posts,rewards");
    await stack.streams.connection
      .jetstream()
      .publish("graph.erased", JSON.stringify({ user_id: "ada", version: 1 }), { msgID: "user_erased:ada" });
    expect((await rewards.exited).signal).toBe("SIGKILL");
    for (const step of ["facts", "some rows", "events"])
      expect((await (await start(`forgetting=kill@${step}`)).exited).signal).toBe("SIGKILL");
    const last = await start();
    await becomes(async () => expect(await messagesNaming(stack, "ada")).toEqual([]), 30_000);
    const bucket = await stack.streams.connection.jetstream().views.kv("ERASED");
    for (const part of ["analyses", "rewards"])
      await becomes(
        async () => expect((await bucket.get(`report.ada.${part}`))?.json()).toEqual({ done: true, left: 0 }),
        30_000,
      );
    for (const path of ["/api/v1/xp", "/api/v1/timeline/analyses"])
      expect((await call(last, "ada", path)).status).toBe(410);
    expect((await ask(last, "ada", "bob")).status).toBe(410);
    expect((await ask(last, "bob", "ada")).status).toBe(404);
    expect(await total(last)).toBe(20);
    const { json } = await call(last, "bob", "/api/v1/timeline/analyses");
    expect(json["analyses"]).toMatchObject([{ did: "bob", status: "completed" }]);
  },
);
