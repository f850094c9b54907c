import { randomUUID } from "node:crypto";
import { rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "@jest/globals";
import { EventLog } from "../../src/consistency/log.nats.js";
import { serveGrpc } from "../../src/platform/grpc/serve.js";
import type { LogState } from "../../src/state/servers/server-identity.redis.js";
import { createServerIdentity } from "../../src/state/servers/server-identity.redis.js";
import { privateNats, temporaryFolder, withBrokers } from "../support/brokers.js";
import { makeCertificates } from "../support/certificates.js";
import { openNats } from "../support/nats.js";
import { fencedOn, openRedis } from "../support/redis.js";
import { runMain } from "../support/service.js";
import { startUpstreams } from "../support/upstreams.js";
import { World } from "../support/world.js";

type Finding = { readonly what: string; readonly state: string; readonly says: string; readonly advice?: string };

const ROLES = { TIMELINE_ROLES: "fanout,api" };

async function doctor(env: Readonly<Record<string, string>>): Promise<{ code: number | null; findings: Finding[] }> {
  const run = runMain(["doctor", "--json"], { ...ROLES, ...env });
  const { code } = await run.exited;
  const output = run.logs();
  return { code, findings: JSON.parse(output.slice(output.indexOf("["))) as Finding[] };
}

test("reports no fault if every server is there, and says in one line what the service will create", async () => {
  await withBrokers(async ({ redis, nats }) => {
    const upstreams = await startUpstreams(new World());
    const { code, findings } = await doctor({
      REDIS_URL: redis.url,
      NATS_URL: nats.url,
      TIMELINE_USER_SERVICE_ADDR: upstreams.usersAddress,
      TIMELINE_POST_SERVICE_ADDR: upstreams.postsAddress,
    });
    await upstreams.stop();
    expect({ code, faults: findings.filter(({ state }) => state === "fault") }).toEqual({ code: 0, faults: [] });
    expect(findings.filter(({ advice }) => /creates/.test(advice ?? ""))).toEqual([
      expect.objectContaining({ state: "warning", says: "has no stream of the service yet" }),
    ]);
    expect(findings.filter(({ says }) => says === "answers")).toHaveLength(2);
  });
});

test("says that an upstream is behind after a restore, and that this Redis belongs to another log", async () => {
  const [redis, nats] = await Promise.all([openRedis(), openNats()]);
  const upstreams = await startUpstreams(new World());
  const servers = {
    ...{ REDIS_URL: redis.broker.url, NATS_URL: nats.broker.url },
    ...{ TIMELINE_USER_SERVICE_ADDR: upstreams.usersAddress, TIMELINE_POST_SERVICE_ADDR: upstreams.postsAddress },
  };
  const [thisRedis, otherRedis] = [randomUUID(), randomUUID()];
  const identity = createServerIdentity(redis.scripts, fencedOn(redis.scripts));
  const look = async (log: Pick<LogState, "redis" | "behind">) => {
    const backlog = { start: Date.now(), acked: 0 };
    await identity.record({ backlog, log: { drops: "", fanout: "", last: 0, ...log }, recovered: true });
    const { code, findings } = await doctor(servers);
    return { code, found: findings.find(({ what }) => what === "data of Redis and NATS") };
  };
  try {
    await new EventLog(nats.connection).bindRedis(thisRedis);
    expect(await look({ redis: thisRedis })).toMatchObject({ code: 0, found: { says: "belong together" } });
    const behind = { drops: [{ drop: "lost", createdAt: 1 }], edges: [] };
    expect(await look({ redis: thisRedis, behind })).toMatchObject({
      code: 1,
      found: { says: expect.stringContaining("lacks drops"), advice: expect.stringContaining("recover --database") },
    });
    expect(await look({ redis: otherRedis })).toMatchObject({
      code: 1,
      found: { state: "fault", says: expect.stringContaining(`belongs to the Redis ${thisRedis}`) },
    });
  } finally {
    await upstreams.stop();
    await Promise.all([redis.close(), nats.close()]);
  }
});

test("upstreams that the process will serve itself are no fault before it is started", async () => {
  await withBrokers(async ({ redis, nats }) => {
    const folder = await temporaryFolder("doctor");
    const { code, findings } = await doctor({
      ...{ REDIS_URL: redis.url, NATS_URL: nats.url, TIMELINE_DATA_DIR: folder },
      ...{ TIMELINE_ROLES: "users,posts,fanout,api", TIMELINE_GRPC_ADDR: "127.0.0.1:1" },
    });
    await rm(folder, { recursive: true, force: true });
    expect(code).toBe(0);
    const upstreams = findings.filter(({ what }) => /^(User|Post)Service /.test(what));
    expect(upstreams.map(({ state, advice }) => [state, advice])).toEqual(
      Array.from({ length: 2 }, () => ["warning", "serve starts it: it is a role of this process"]),
    );
  });
});

test("reports a NATS that takes only small messages, and what to do", async () => {
  const folder = await temporaryFolder("doctor");
  const config = join(folder, "nats.conf");
  await writeFile(config, "max_payload: 64KB\n");
  const nats = await privateNats({ extraArgs: ["-c", config] });
  const { code, findings } = await doctor({
    ...{ REDIS_URL: "redis://127.0.0.1:1", NATS_URL: nats.url },
    ...{ TIMELINE_USER_SERVICE_ADDR: "127.0.0.1:1", TIMELINE_POST_SERVICE_ADDR: "127.0.0.1:1" },
  });
  await nats.stop();
  await rm(folder, { recursive: true, force: true });
  expect(code).toBe(1);
  const faults = findings.filter(({ what, state }) => what.startsWith("NATS") && state === "fault");
  expect(faults).toMatchObject([
    { says: "max_payload is 65536 bytes", advice: expect.stringContaining("540672 or more") },
  ]);
});

test("reports upstreams whose certificate is refused, and what to do", async () => {
  const [certificates, strangers] = [makeCertificates(), makeCertificates()];
  const server = await serveGrpc("127.0.0.1:0", [], certificates.good);
  const address = `127.0.0.1:${server.port}`;
  const { code, findings } = await doctor({
    ...{ REDIS_URL: "redis://127.0.0.1:1", NATS_URL: "nats://127.0.0.1:1", TIMELINE_UPSTREAM_TLS: strangers.trusted },
    ...{ TIMELINE_USER_SERVICE_ADDR: address, TIMELINE_POST_SERVICE_ADDR: address },
  });
  await server.close(0);
  for (const made of [certificates, strangers]) made.remove();
  expect(code).toBe(1);
  const faults = findings.filter(({ what }) => /^(User|Post)Service /.test(what));
  const advice = "correct the user, the password or the certificate";
  const fault = { state: "fault", says: expect.stringMatching(/TLS failed: .*(certificate|issuer)/), advice };
  expect(faults).toMatchObject([fault, fault]);
});

test("reports each server that is unavailable, and what to do", async () => {
  const { code, findings } = await doctor({
    REDIS_URL: "redis://127.0.0.1:1",
    NATS_URL: "nats://127.0.0.1:1",
    TIMELINE_USER_SERVICE_ADDR: "127.0.0.1:1",
    TIMELINE_POST_SERVICE_ADDR: "127.0.0.1:1",
    TIMELINE_ROLES: "fanout,api,gateway",
    TIMELINE_JWT_JWKS_URL: "http://127.0.0.1:1/keys",
    TIMELINE_JWT_ALLOW_UNSAFE: "true",
  });
  expect(code).toBe(1);
  const faults = findings.filter(({ state }) => state === "fault");
  expect(faults.map(({ what }) => what.split(" ")[0])).toEqual(["Redis", "NATS", "keys", "UserService", "PostService"]);
  for (const { advice } of faults) expect(advice).toMatch(/start .*, or set (REDIS_URL|NATS_URL|TIMELINE_\w+) to/);
});
