import { once } from "node:events";
import { rm } from "node:fs/promises";
import { connect } from "node:net";
import { join } from "node:path";
import { expect } from "@jest/globals";
import { Standing } from "../../src/gen/avion/users.js";
import { silent } from "../../src/kernel/logger.js";
import { connectRedis } from "../../src/platform/redis/connect.js";
import { createScripts } from "../../src/platform/redis/scripts.js";
import { createStandings } from "../../src/state/standing/standings.redis.js";
import { openApi } from "../support/api.js";
import { temporaryFolder } from "../support/brokers.js";
import { jsonOf } from "../support/command.js";
import { becomes, eventually } from "../support/eventually.js";
import { openReader } from "../support/reader.js";
import { launchService } from "../support/service.js";
import { openEvents, requestEvents } from "../support/sse.js";
import { type Stack, testWithStack } from "../support/stack.js";
import { received } from "../support/timeline-events.js";
import { tokenOf } from "../support/tokens.js";

const OWN = { TIMELINE_USER_SERVICE_ADDR: "", TIMELINE_POST_SERVICE_ADDR: "" };
const ROLES = "users,posts,bridge,fanout,api,gateway";

/** The service on its own users and posts. */
async function openScene(stack: Stack) {
  const folder = await temporaryFolder("data");
  stack.defer(() => rm(folder, { recursive: true, force: true }));
  const service = await stack.start({ roles: ROLES, env: { ...OWN, TIMELINE_DATA_DIR: join(folder, "data") } });
  const [api, reads] = [openApi(service.grpcAddress), openReader(service.grpcAddress)];
  stack.defer(() => api.close());
  stack.defer(() => reads.close());
  return { service, api, reads };
}

// Invariant 5.
testWithStack(
  "who is limited or suspended is in no local page, the suspended are refused and their streams end, and all is back afterwards",
  { service: false },
  async (stack) => {
    const { service, api, reads } = await openScene(stack);
    const local = (user_id: string) => reads.local({ user_id, limit: 100 });
    const shows = (user: string, drop_ids: readonly string[]) =>
      becomes(async () => expect(await local(user)).toMatchObject({ drop_ids, degraded: false }));
    const post = async (user: string) => (await api.post(user)).drop_id;
    const statusOf = async (): Promise<number> => {
      const answer = await requestEvents(service.httpUrl, { token: await tokenOf("ada") });
      answer.close();
      return answer.status;
    };
    const [adas, bobs, cats] = [await post("ada"), await post("bob"), await post("cat")];
    await shows("", [cats, bobs, adas]);
    const streams = [await openEvents(service.httpUrl, "ada"), await openEvents(service.httpUrl, "bob")];

    await api.setStanding({ user_id: "ada", standing: Standing.SUSPENDED, reason: "spam" });
    await api.setStanding({ user_id: "bob", standing: Standing.LIMITED });
    await shows("", [cats]);
    await shows("cat", [cats]);
    await shows("bob", [cats, bobs]);
    await eventually(() => streams[0]?.isOver() ?? false, "the end of the stream");
    expect(streams[1]?.isOver()).toBe(false);
    expect(await statusOf()).toBe(403);
    await expect(post("ada")).rejects.toThrow(/FAILED_PRECONDITION: user_id: is suspended/);
    await expect(api.getDrop({ drop_id: adas })).rejects.toThrow(/NOT_FOUND/);
    await expect(api.like({ drop_id: adas, user_id: "cat" })).rejects.toThrow(/NOT_FOUND/);
    expect((await api.getDrop({ drop_id: bobs, viewer_id: "cat" })).drop?.drop_id).toBe(bobs);

    await api.setStanding({ user_id: "ada", standing: Standing.ACTIVE });
    await api.setStanding({ user_id: "bob", standing: Standing.LIMITED, until: Date.now() + 2_000 });
    await shows("", [cats, bobs, adas]);
    expect((await api.getDrop({ drop_id: adas })).drop?.drop_id).toBe(adas);
    expect(await statusOf()).toBe(200);
    expect(await stack.streams.count("DLQ")).toBe(0);
    for (const stream of streams) stream.close();
  },
);

// Invariant 5.
testWithStack(
  "replies to the suspended, and drops of a suspended host whatever their ids, are in no home or stream, and are back afterwards",
  { service: false },
  async (stack) => {
    const { service, api, reads } = await openScene(stack);
    const actor = "https://a.spam.example/u/1";
    for (const following_id of ["bob", "dan", actor]) await api.follow({ follower_id: "ada", following_id });
    const shows = (...drop_ids: readonly string[]) =>
      becomes(async () => expect(await reads.home("ada")).toMatchObject({ drop_ids, degraded: false }));
    const dans = (await api.post("dan")).drop_id;
    await shows(dans);
    const reply = async () => (await api.post("bob", { reply_to: dans })).drop_id;
    const first = await reply();
    await shows(first, dans);
    await becomes(async () => {
      const remote = { drop_id: "far-1", user_id: actor, created_at: Date.now() };
      await stack.publish(received(remote));
      expect((await reads.home("ada")).drop_ids).toEqual(["far-1", first, dans]);
    });
    const stream = await openEvents(service.httpUrl, "ada");

    await api.setStanding({ user_id: "dan", standing: Standing.SUSPENDED });
    await shows("far-1");
    await api.setStanding({ host: "spam.example", standing: Standing.SUSPENDED });
    await shows();
    await stack.publish(received({ drop_id: "far-2", user_id: actor, created_at: Date.now() }));
    const plain = (await api.post("bob")).drop_id;
    await shows(plain);
    await eventually(() => stream.drops().includes(plain), "an event");
    expect(stream.drops()).toEqual([plain]);

    await api.setStanding({ user_id: "dan", standing: Standing.ACTIVE });
    await api.setStanding({ host: "spam.example", standing: Standing.ACTIVE });
    await shows(plain, "far-2", "far-1", first, dans);
    stream.close();
  },
);

// Invariant 5.
testWithStack(
  "from its first answer on, a process that was started again refuses a suspended user",
  { service: false },
  async (stack) => {
    const client = connectRedis([stack.redisServer.url], silent);
    stack.defer(() => client.disconnect());
    await eventually(() => client.status === "ready", "Redis is connected");
    const suspended = { standing: "suspended", version: 1, until: 0 } as const;
    // So many are read for a while; the last one is that of ada.
    const wave = Array.from({ length: 200_000 }, (_, number) => ({ user_id: `spam-${number}`, ...suspended }));
    const standings = createStandings(createScripts(client));
    await standings.record(wave);
    await standings.record([{ user_id: "ada", ...suspended }]);
    const folder = await temporaryFolder("data");
    stack.defer(() => rm(folder, { recursive: true, force: true }));
    const env = { ...stack.serviceOptions.env, ...OWN, TIMELINE_DATA_DIR: join(folder, "data") };
    const service = await launchService({ ...stack.serviceOptions, roles: "users", env });
    stack.defer(() => service.stop());
    await eventually(() => isOpen(service.grpcAddress), "gRPC is open", 60_000);
    const api = openApi(service.grpcAddress);
    stack.defer(() => api.close());
    await expect(api.follow({ follower_id: "ada", following_id: "bob" })).rejects.toThrow(/is suspended/);
  },
);

async function isOpen(address: string): Promise<boolean> {
  const { hostname, port } = new URL(`tcp://${address}`);
  const socket = connect(Number(port), hostname);
  const isConnected = await once(socket, "connect").then(
    () => true,
    () => false,
  );
  socket.destroy();
  return isConnected;
}

testWithStack("operators set, list and show standings", { service: false }, async (stack) => {
  const { service } = await openScene(stack);
  const run = (...words: string[]) =>
    jsonOf(stack, ["standing", ...words], { env: { TIMELINE_USER_SERVICE_ADDR: service.grpcAddress } });
  const spam = { host: "spam.example", standing: "suspended", until: null, reason: "wave", by: "" };
  expect(await run("set", "spam.example", "suspended", "--reason", "wave")).toMatchObject({ ...spam, changed: true });
  expect(await run("set", "ada", "limited", "--until", "2h", "--by", "op")).toMatchObject({ user_id: "ada", by: "op" });
  expect(await run("ls")).toMatchObject([spam, { user_id: "ada", standing: "limited" }]);
  expect(await run("show", "https://a.spam.example/u/1")).toMatchObject(spam);
  expect(await run("set", "ada", "active")).toMatchObject({ standing: "active", changed: true });
  expect(await run("show", "ada")).toMatchObject({ user_id: "ada", standing: "active" });
});
