import { rm } from "node:fs/promises";
import { expect } from "@jest/globals";
import { type Api, openApi } from "../support/api.js";
import { temporaryFolder } from "../support/brokers.js";
import { eventually } from "../support/eventually.js";
import { samplesOf } from "../support/scrape.js";
import type { Service } from "../support/service.js";
import { type Stack, testWithStack } from "../support/stack.js";

async function startUpstreams(stack: Stack): Promise<{ readonly service: Service; readonly api: Api }> {
  const folder = await temporaryFolder("data");
  stack.defer(() => rm(folder, { recursive: true, force: true }));
  const env = { TIMELINE_DATA_DIR: folder, TIMELINE_USER_SERVICE_ADDR: "", TIMELINE_POST_SERVICE_ADDR: "" };
  const service = await stack.start({ roles: "users,posts", env });
  const api = openApi(service.grpcAddress);
  stack.defer(() => api.close());
  return { service, api };
}

const readiness = async ({ httpUrl }: Service): Promise<string> => {
  const answer = await fetch(`${httpUrl}/readyz`);
  return `${answer.status} ${await answer.text()}`;
};

async function failing({ httpUrl }: Service, source: string): Promise<void> {
  await eventually(async () => {
    const samples = samplesOf(await (await fetch(`${httpUrl}/metrics`)).text());
    const named = samples.filter(({ name }) => name === "timeline_outbox_failures_total");
    return (named.find(({ labels }) => labels["source"] === source)?.value ?? 0) >= 3;
  }, `the outbox ${source} fails again and again`);
}

testWithStack(
  "while NATS is away, users and posts answer and stay ready",
  { service: false, slow: true },
  async (stack) => {
    const { service, api } = await startUpstreams(stack);
    stack.natsServer.kill("SIGKILL");
    await stack.natsServer.exited;
    const { drop_id } = await api.post("ada");
    await api.follow({ follower_id: "ada", following_id: "bob" });
    await Promise.all([failing(service, "posts"), failing(service, "edges")]);
    expect(await readiness(service)).toMatch(/^200/);
    expect((await api.getDrop({ drop_id })).drop?.body).toBe("Hello");
  },
);

testWithStack("while Redis is away, users and posts answer and stay ready", { service: false }, async (stack) => {
  const { service, api } = await startUpstreams(stack);
  stack.redisServer.kill("SIGKILL");
  await stack.redisServer.exited;
  await api.follow({ follower_id: "ada", following_id: "bob" });
  await failing(service, "edges");
  expect(await readiness(service)).toMatch(/^200/);
  expect((await api.following({ user_id: "ada" })).user_ids).toEqual(["bob"]);
});
