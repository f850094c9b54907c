import { afterAll, afterEach, beforeAll, expect, test } from "@jest/globals";
import type { Redis } from "ioredis";
import { silent } from "../../src/kernel/logger.js";
import { redisChecks } from "../../src/operators/doctor/checks.redis.js";
import { examine } from "../../src/operators/doctor/doctor.js";
import { connectRedis, connectSubscriber } from "../../src/platform/redis/connect.js";
import { createScripts } from "../../src/platform/redis/scripts.js";
import { adviceOn, Refusal, refusalOf } from "../../src/platform/refusals.js";
import { type Certificates, makeCertificates } from "../support/certificates.js";
import { eventually } from "../support/eventually.js";
import { type Sentinels, startSentinels, urlsOf } from "../support/sentinels.js";

const PASSWORD = "hunter2marker-redis";
const SENTINEL_PASSWORD = "hunter2marker-sentinel";

let certificates: Certificates;
let group: Sentinels;
const cleanups: (() => unknown)[] = [];

beforeAll(async () => {
  certificates = makeCertificates();
  const tls = { ca: certificates.ca, ...certificates.good };
  group = await startSentinels({ password: PASSWORD, sentinelPassword: SENTINEL_PASSWORD, tls });
}, 120_000);
afterAll(async () => {
  await group?.stop();
  certificates?.remove();
});
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

function open(url: string, tlsFolder?: string): Redis {
  const client = connectRedis(urlsOf(url, tlsFolder), silent) as Redis;
  cleanups.push(() => client.disconnect());
  return client;
}

test("passwords of both kinds and TLS lead to the master, also those who listen", async () => {
  const scripts = createScripts(open(group.url(), certificates.trusted));
  await eventually(() => scripts.client.status === "ready", "the client is connected");
  const subscriber = connectSubscriber(urlsOf(group.url(), certificates.trusted), silent);
  cleanups.push(() => subscriber.disconnect());
  const heard: string[] = [];
  subscriber.on("message", (_, message) => heard.push(message));
  await subscriber.subscribe("news");
  subscriber.on("ready", () => void subscriber.subscribe("news").catch(() => undefined));
  await scripts.command("publish", (client) => client.publish("news", "hello"));
  await eventually(() => heard.includes("hello"), "the message is heard");
});

interface Wrong {
  readonly what: string;
  readonly url: () => string;
  readonly says: RegExp;
  readonly advice?: RegExp;
  readonly isTrusted?: boolean;
}

const SENTINEL = "Redis Sentinel 127\\.0\\.0\\.1:\\d+";
const WRONG: readonly Wrong[] = [
  {
    what: "a wrong password of the sentinels",
    url: () => group.url({ sentinelPassword: `${SENTINEL_PASSWORD}x` }),
    says: new RegExp(`^${SENTINEL}: WRONGPASS`),
  },
  {
    what: "no password of the sentinels",
    url: () => group.url({ sentinelPassword: "" }),
    says: new RegExp(`^${SENTINEL}: NOAUTH`),
  },
  {
    what: "a wrong password of Redis",
    url: () => group.url({ password: `${PASSWORD}x` }),
    says: /^Redis: WRONGPASS/,
  },
  {
    what: "the name of no master",
    url: () => group.url({ name: "other" }),
    says: new RegExp(`^${SENTINEL} knows no master named other$`),
    advice: /^correct the name of the master/,
  },
  {
    what: "a CA that has not signed their certificates",
    url: () => group.url(),
    says: new RegExp(`^${SENTINEL}: TLS failed: .*certificate`),
    isTrusted: false,
  },
];

// Invariant 8.
test.each(WRONG)(
  "$what is a refusal, not an outage",
  async ({ url, says, advice = /^correct the user, the password or the certificate$/, isTrusted = true }) => {
    const folder = isTrusted ? certificates.trusted : undefined;
    const client = open(url(), folder);
    const scripts = createScripts(client);
    await eventually(() => refusalOf(client) !== undefined, "the client knows that it is refused");
    const error = await scripts.command("get", (one) => one.get("key")).catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(Refusal);
    expect((error as Refusal).message).toMatch(says);
    expect(adviceOn(error, "")).toMatch(advice);
    expect((error as Refusal).message).not.toContain("hunter2marker");
    const findings = await examine(redisChecks(urlsOf(url(), folder), false));
    expect(findings.filter(({ state, says: text }) => state === "fault" && says.test(text))).not.toEqual([]);
    expect(JSON.stringify(findings)).not.toContain("hunter2marker");
  },
  30_000,
);

test("a server that is no sentinel is a refusal", async () => {
  const { port } = await group.master();
  const client = open(`rediss+sentinel://127.0.0.1:${port}/main?sentinel_password=${PASSWORD}`, certificates.trusted);
  await eventually(() => refusalOf(client) !== undefined, "the client knows that it is refused");
  expect(refusalOf(client)?.message).toBe(`Redis Sentinel 127.0.0.1:${port} is not a sentinel`);
});

test("the doctor asks every sentinel, and warns of a master that may take writes alone", async () => {
  const findings = await examine(redisChecks(urlsOf(group.url(), certificates.trusted), false));
  const { port } = await group.master();
  const sentinels = findings.filter(({ what }) => what.startsWith("Redis Sentinel"));
  expect(sentinels.map(({ state, says }) => [state, says])).toEqual(
    Array.from({ length: 3 }, () => ["ok", `names 127.0.0.1:${port} as timeline`]),
  );
  const server = findings.filter(({ what }) => what === "Redis timeline");
  expect(server.filter(({ state }) => state === "fault")).toEqual([]);
  expect(server.map(({ says }) => says)).toEqual(
    expect.arrayContaining(["has replicas: 1", "min-replicas-to-write 0", "maxmemory-policy noeviction"]),
  );
  await group.open(await group.master()).config("SET", "min-replicas-to-write", "1");
  const guarded = await examine(redisChecks(urlsOf(group.url(), certificates.trusted), false));
  expect(guarded.map(({ says }) => says)).not.toContain("min-replicas-to-write 0");
});
