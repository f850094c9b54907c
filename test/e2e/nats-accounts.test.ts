import { copyFile, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "@jest/globals";
import { Redis } from "ioredis";
import { connect, type NatsConnection } from "nats";
import type { Broker } from "../../src/sandbox/brokers/index.js";
import { openApi } from "../support/api.js";
import { privateNats, privateRedis, temporaryFolder } from "../support/brokers.js";
import { becomes } from "../support/eventually.js";
import { newPort } from "../support/ports.js";
import { openReader } from "../support/reader.js";
import { launchService, runMain, type Service, untilReady } from "../support/service.js";
import { openEvents } from "../support/sse.js";
import { tokenOf } from "../support/tokens.js";

const ROLES = [
  "gateway",
  "api",
  "bridge",
  "users",
  "posts",
  "analysis",
  "rewards",
  "notifications",
  "ops",
  "fanout",
] as const;
type User = (typeof ROLES)[number] | "operator";
const passwordOf = (user: string): string => `password-of-${user}`;

const OPS = `127.0.0.1:${await newPort()}`;

let redis: Broker;
let nats: Broker;
let folder: string;
const services = new Map<string, Service>();

/** The files as they are, but for the folder of JetStream, which is an argument, and what servers before 2.10 do not know. */
async function configuration(): Promise<string> {
  const accounts = join(folder, "nats-server-accounts.conf");
  await copyFile("nats/nats-server-accounts.conf", accounts);
  const base = await readFile("nats/nats-server.conf", "utf8");
  await writeFile(join(folder, "nats-server.conf"), base.replaceAll(/^\s*(store_dir|sync_interval):.*$/gm, ""));
  return accounts;
}

const urlOf = (user: User): string =>
  nats.url.replace("nats://", `nats://${user}:${encodeURIComponent(passwordOf(user))}@`);
const of = (role: (typeof ROLES)[number]): Service => services.get(role) as Service;

async function launch(role: (typeof ROLES)[number], env: Readonly<Record<string, string>> = {}): Promise<void> {
  const addresses = { usersAddress: "", postsAddress: "", redisUrl: redis.url, natsUrl: urlOf(role) };
  services.set(role, await launchService({ ...addresses, roles: role, env }));
}

const upstreams = () => ({
  TIMELINE_USER_SERVICE_ADDR: of("users").grpcAddress,
  TIMELINE_POST_SERVICE_ADDR: of("posts").grpcAddress,
});

beforeAll(async () => {
  for (const user of [...ROLES, "operator", "sys"])
    process.env[`NATS_${user.toUpperCase()}_PASSWORD`] = passwordOf(user);
  redis = await privateRedis();
  folder = await temporaryFolder("accounts");
  nats = await privateNats({ extraArgs: ["-c", await configuration()] });
  for (const role of ["users", "posts"] as const) {
    await launch(role, { TIMELINE_DATA_DIR: join(folder, role) });
  }
  for (const role of ["analysis", "rewards", "notifications"] as const)
    await launch(role, { ...upstreams(), TIMELINE_DATA_DIR: join(folder, role) });
  // The role that makes the streams comes last: the others wait for it.
  for (const role of ["gateway", "api", "bridge", "ops", "fanout"] as const)
    await launch(role, { ...upstreams(), TIMELINE_OPS_ADDR: OPS });
  await Promise.all([...services.values()].map((service) => untilReady(service, 60_000)));
}, 120_000);

afterAll(async () => {
  await Promise.all([...services.values()].map((service) => service.stop()));
  await nats?.stop();
  await redis?.stop();
  await rm(folder, { recursive: true, force: true });
}, 60_000);

/** Asks all that the console can tell, and tries its two actions on dead letters. */
async function useConsole(drop: string): Promise<void> {
  const token = await tokenOf("olga", { claims: { scope: "timeline-operator" } });
  const ask = async (path: string, body?: unknown): Promise<unknown> => {
    const response = await fetch(`http://${OPS}/ops/api/${path}`, {
      method: body === undefined ? "GET" : "POST",
      headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    const answer = await response.json();
    expect([path, response.status, answer]).toEqual([path, 200, answer]);
    return answer;
  };
  const lists = ["overview", "dead-letters", "authors", "erasures", "analyses"];
  for (const path of [...lists, `fan-outs/${drop}`, "audits/ada", `explain?user=ada&drop=${drop}`]) await ask(path);
  const [{ seqs }] = (await ask("dead-letters")) as [{ readonly seqs: readonly number[] }];
  await ask(`dead-letters/${seqs[0]}`);
  expect(await ask("dead-letters/redrive", { all: true })).toMatchObject({ refused: [{ seq: seqs[0] }] });
}

test("every role does its whole work as its own user of NATS", async () => {
  const users = openApi(of("users").grpcAddress);
  const posts = openApi(of("posts").grpcAddress);
  const reads = openReader(of("api").grpcAddress);
  const publisher = new Redis(redis.port);
  try {
    const stream = await openEvents(of("gateway").httpUrl, "ada");
    await users.follow({ follower_id: "ada", following_id: "bob" });
    await becomes(async () =>
      expect((await users.followers({ user_id: "bob", page_size: 10, page_token: "" })).user_ids).toEqual(["ada"]),
    );
    const drop = await posts.post("bob");
    await becomes(async () => expect((await reads.home("ada")).drop_ids).toContain(drop.drop_id));
    await becomes(async () => expect(stream.drops()).toContain(drop.drop_id));
    await posts.like({ user_id: "ada", drop_id: drop.drop_id });
    await becomes(async () =>
      expect((await posts.counts({ drop_ids: [drop.drop_id] })).counts).toEqual([
        expect.objectContaining({ likes: 1 }),
      ]),
    );
    // Likes, requests, and likes of another posts service.
    await users.setProfile({ user_id: "cid", display_name: "", bio: "", avatar_url: "", approves_followers: true });
    expect(await users.follow({ follower_id: "ada", following_id: "cid" })).toMatchObject({ pending: true });
    const reacted = { drop_id: "d", author_id: "bob", user_id: "dan", kind: "like", active: true, version: 1 };
    await publisher.publish("drop_reacted", JSON.stringify(reacted));
    await as("operator", async (connection) => {
      const { streams } = await connection.jetstreamManager();
      await becomes(async () =>
        expect((await streams.info("ACTIVITY", { subjects_filter: ">" })).state.subjects).toEqual({
          "activity.reacted": 2,
          "activity.requested": 1,
        }),
      );
    });
    // Notifications of a hot user are jobs of this role.
    const change = { user: "eve", kind: 3, actor: "dan", drop: "d", byDrop: "d", version: 1, rank: 0, active: true };
    const job = { changes: [{ ...change, at: Date.now(), seq: 1, isSilent: false }] };
    await as("notifications", async (connection) => {
      await connection.jetstream().publish("fanout.notifications.1", JSON.stringify(job));
      const { streams } = await connection.jetstreamManager({ checkAPI: false });
      await becomes(async () => expect((await streams.info("FANOUT")).state.messages).toBe(0));
    });
    const remote = { drop_id: "https://far.example/1", created_at: Date.now() };
    await publisher.publish("ap_drop_received", JSON.stringify(remote));
    await becomes(async () => expect((await reads.global()).drop_ids).toContain(remote.drop_id));
    // A gap in the numbers of a producer: the bridge compares the upstreams with the log.
    for (const seq of [1, 3])
      await publisher.publish("ap_drop_received", JSON.stringify({ ...remote, producer: "far", seq }));
    await becomes(async () => expect(of("bridge").output()).toContain("no events were lost on Redis Pub/Sub"));
    // Local and global are rebuilt from the log.
    await publisher.del("timeline:global");
    await becomes(async () => expect((await reads.global()).drop_ids).toContain(remote.drop_id));
    await posts.deleteDrop({ user_id: "bob", drop_id: drop.drop_id });
    await becomes(async () => expect((await reads.home("ada")).drop_ids).not.toContain(drop.drop_id));
    await posts.post("bob");
    const asked = await fetch(`${of("gateway").httpUrl}/api/v1/timeline/analyze`, {
      method: "POST",
      headers: { authorization: `Bearer ${await tokenOf("ada")}`, "content-type": "application/json" },
      body: JSON.stringify({ did: "bob", type: "flow" }),
    });
    expect(asked.status).toBe(202);
    const { event_id } = (await stream.waitFor("xp_earned")).data;
    expect((await stream.waitFor("analysis_completed")).data["analysis_id"]).toBe(event_id);
    stream.close();
    await publisher.publish("drop_created", "no JSON");
    await becomes(async () => expect(await letters()).toEqual([expect.objectContaining({ reason: "invalid" })]));
    await useConsole(drop.drop_id);
    for (const [role, service] of services) expect([role, violations(service)]).toEqual([role, []]);
  } finally {
    for (const open of [users, posts, reads]) open.close();
    publisher.disconnect();
  }
}, 60_000);

// The audit of the chart runs so.
test("the command audit works as the user of NATS that the role fanout has", async () => {
  const env = { NATS_URL: urlOf("fanout"), REDIS_URL: redis.url, ...upstreams() };
  const run = runMain(["audit", "--users", "1000000", "--json"], env);
  const { code } = await run.exited;
  expect({ code, errors: run.errors() }).toEqual({ code: 0, errors: "" });
  expect(JSON.parse(run.output())).toMatchObject({ differ: 0, failed: [], undecided: [] });
}, 60_000);

test("analyses and rewards of an erased user are removed by their roles, as their own users of NATS", async () => {
  const token = await tokenOf("ada");
  const status = async (path: string) =>
    (await fetch(of("gateway").httpUrl + path, { headers: { authorization: `Bearer ${token}` } })).status;
  expect(await status("/api/v1/xp")).toBe(503);
  const named = async (connection: NatsConnection): Promise<string[]> => {
    const { streams } = await connection.jetstreamManager();
    const { state } = await streams.info("KV_ANALYSES", { subjects_filter: "$KV.ANALYSES.*.ada.>" });
    const found = Object.keys(state.subjects ?? {});
    for (const stream of ["TIMELINE_EVENTS", "GAMIFICATION"])
      if ((await streams.info(stream)).state.messages > 0) found.push(stream);
    return found;
  };
  await as("operator", async (connection) => {
    expect(await named(connection)).toEqual(expect.arrayContaining(["TIMELINE_EVENTS", "GAMIFICATION"]));
    await connection.jetstream().publish("graph.erased", JSON.stringify({ user_id: "ada", version: 1 }));
    await becomes(async () => expect(await named(connection)).toEqual([]), 30_000);
    const bucket = await connection.jetstream().views.kv("ERASED");
    for (const part of ["analyses", "rewards"])
      await becomes(async () =>
        expect((await bucket.get(`report.ada.${part}`))?.json()).toEqual({ done: true, left: 0 }),
      );
  });
  expect(await status("/api/v1/xp")).toBe(410);
  for (const role of ["analysis", "rewards", "gateway"] as const)
    expect([role, violations(of(role))]).toEqual([role, []]);
}, 60_000);

test("the role fanout removes what names an erased user, as its own user of NATS", async () => {
  await as("operator", async (connection) => {
    const jetstream = connection.jetstream();
    await jetstream.publish("notify.user.zoe", JSON.stringify({ event: "reset" }));
    await jetstream.publish("notify.user.other", JSON.stringify({ event: "new_drop", drop_id: "d", by: "zoe" }));
    await jetstream.publish("checks.publication", JSON.stringify({ user_id: "zoe" }));
    await jetstream.publish("dlq.poison.drop_created", JSON.stringify({ user_id: "zoe" }));
    await jetstream.publish("graph.erased", JSON.stringify({ user_id: "zoe", version: 1 }));
    const bucket = await jetstream.views.kv("ERASED");
    const report = async () => (await bucket.get("report.zoe.timelines"))?.json();
    await becomes(async () => expect(await report()).toEqual({ done: true, left: 0 }), 30_000);
    expect((await letters()).map(({ reason }) => reason)).not.toContain("poison");
  });
  expect(violations(of("fanout"))).toEqual([]);
}, 60_000);

test("every role forgets an erased user, as its own user of NATS", async () => {
  const users = openApi(of("users").grpcAddress);
  try {
    await users.erase({ user_id: "bob" });
    await becomes(async () =>
      expect((await users.erasure({ user_id: "bob" })).erasure).toMatchObject({ status: "completed" }),
    );
    for (const [role, service] of services) expect([role, violations(service)]).toEqual([role, []]);
  } finally {
    users.close();
  }
}, 60_000);

/** Until the streams are there, the other roles ask in vain for the right to make them. */
function violations(service: Service): string[] {
  const output = service.output();
  const lines = output.slice(output.indexOf('"msg":"ready"')).split("\n");
  return lines.filter((line) => /permissions.violation/i.test(line));
}

async function letters(): Promise<{ reason: string }[]> {
  const run = runMain(["dlq", "ls", "--json"], { NATS_URL: urlOf("operator"), REDIS_URL: redis.url });
  const { code } = await run.exited;
  expect({ code, errors: run.errors() }).toEqual({ code: 0, errors: "" });
  return JSON.parse(run.output());
}

async function as<T>(user: User, work: (connection: NatsConnection) => Promise<T>): Promise<T> {
  const connection = await connect({
    servers: `127.0.0.1:${nats.port}`,
    user,
    pass: passwordOf(user),
    inboxPrefix: `_INBOX.${user}`,
  });
  try {
    return await work(connection);
  } finally {
    await connection.close();
  }
}

test("operators reach avion.ops, and no role does", async () => {
  const list = (connection: NatsConnection) => connection.request("avion.ops.dlq.list", "{}", { timeout: 5_000 });
  const answer = await as("operator", list);
  expect(JSON.stringify(answer.json())).toContain("invalid");
  for (const role of ROLES) await expect(as(role, list)).rejects.toThrow(/Permissions Violation/);
});

const FORBIDDEN: readonly [User, string][] = [
  ...ROLES.flatMap((role): [User, string][] => [
    [role, "$JS.API.STREAM.DELETE.DROPS"],
    [role, "$JS.API.STREAM.PURGE.DLQ"],
    [role, "$JS.API.STREAM.MSG.DELETE.DROPS"],
    [role, "avion.ops.dlq.rm"],
    [role, "_INBOX.other.x"],
  ]),
  ...ROLES.filter((role) => role !== "fanout").flatMap((role): [User, string][] => [
    [role, "$JS.API.STREAM.CREATE.DROPS"],
    [role, "$JS.API.STREAM.UPDATE.DROPS"],
    [role, "$JS.API.CONSUMER.DELETE.DROPS.planner"],
    [role, "$JS.API.CONSUMER.MSG.NEXT.DROPS.planner"],
    // Operators redrive jobs.
    ...(role === "ops" ? [] : ([[role, "fanout.job.add"]] as [User, string][])),
  ]),
  ...(["gateway", "bridge", "users", "posts"] as const).map((role): [User, string] => [role, "notify.user.ada"]),
  ["analysis", "$JS.API.CONSUMER.MSG.NEXT.TIMELINE_EVENTS.rewards"],
  ["analysis", "$JS.API.CONSUMER.DELETE.TIMELINE_EVENTS.rewards"],
  ["rewards", "$KV.ERASED.report.ada.analyses"],
  ["gateway", "$KV.ERASED.user.ada"],
  ["gateway", "events.timeline.completed"],
  ["rewards", "events.timeline.completed"],
  ["analysis", "events.xp.earned"],
  ["posts", "events.timeline.requested"],
  ["gateway", "drops.created"],
  ["gateway", "dlq.poison.drop_created"],
  ["api", "drops.created"],
  ["users", "drops.created"],
  ["posts", "graph.followed"],
  ["bridge", "$JS.API.STREAM.MSG.GET.DLQ"],
  ["gateway", "$JS.API.DIRECT.GET.DROPS"],
];

test.each(FORBIDDEN)("%s may not publish to %s", async (user, subject) => {
  await expect(as(user, (connection) => connection.request(subject, "", { timeout: 2_000 }))).rejects.toThrow(
    /Permissions Violation/,
  );
});

test.each<[User, string]>([
  ...ROLES.map((role): [User, string] => [role, "_INBOX.>"]),
  ["bridge", "live.user.*"],
  ["api", "live.user.*"],
  ["gateway", "notify.user.*"],
  ["gateway", "avion.ops.>"],
])("%s may not subscribe to %s", async (user, subject) => {
  const refused = as(user, async (connection) => {
    const subscription = connection.subscribe(subject);
    await connection.flush();
    for await (const _ of subscription) return;
  });
  await expect(refused).rejects.toThrow(/Permissions Violation/);
});

test.each<[User, string]>([
  ...(["gateway", "fanout"] as const).map((role): [User, string] => [role, "$JS.API.STREAM.NAMES"]),
  ...[0, 15, 63].flatMap((part): [User, string][] => [
    ["gateway", `$JS.API.STREAM.MSG.GET.NOTIFY-${part}`],
    ["gateway", `$JS.API.DIRECT.GET.NOTIFY-${part}`],
    ["fanout", `$JS.API.STREAM.PURGE.NOTIFY-${part}`],
    ["fanout", `$JS.API.STREAM.DELETE.NOTIFY-${part}`],
    ["analysis", `notify.${part}.user.ada`],
    ["rewards", `notify.${part}.user.ada`],
  ]),
])("%s may publish to %s", async (user, subject) => {
  const asked = as(user, (connection) => connection.request(subject, "", { timeout: 2_000 }));
  const failed = await asked.then(() => "", String);
  expect(failed).not.toMatch(/Permissions Violation/);
});

// Invariant 7.
test("with four parts of NOTIFY roles do their work as their own users, and clients of before get a reset", async () => {
  const users = openApi(of("users").grpcAddress);
  const posts = openApi(of("posts").grpcAddress);
  try {
    await users.follow({ follower_id: "cat", following_id: "dan" });
    await becomes(async () =>
      expect((await users.followers({ user_id: "dan", page_size: 10, page_token: "" })).user_ids).toEqual(["cat"]),
    );
    const before = await openEvents(of("gateway").httpUrl, "cat");
    for (const role of ["fanout", "gateway"] as const) {
      await of(role).stop();
      await launch(role, { ...upstreams(), TIMELINE_NOTIFY_PARTS: "4" });
    }
    await Promise.all([of("fanout"), of("gateway")].map((service) => untilReady(service, 60_000)));
    const stream = await openEvents(of("gateway").httpUrl, "cat", before.lastId());
    expect((await stream.waitFor("reset")).data).toEqual({ reason: "stream_replaced" });
    const drop = await posts.post("dan");
    await becomes(async () => expect(stream.drops()).toEqual([drop.drop_id]));
    expect(stream.lastId()).toMatch(/^\d+-\w+\.[0-3]-/);
    await users.erase({ user_id: "dan" });
    await becomes(async () =>
      expect((await users.erasure({ user_id: "dan" })).erasure).toMatchObject({ status: "completed" }),
    );
    stream.close();
    for (const role of ["fanout", "gateway"] as const) expect([role, violations(of(role))]).toEqual([role, []]);
  } finally {
    for (const open of [users, posts]) open.close();
  }
}, 120_000);
