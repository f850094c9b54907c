import { afterAll, afterEach, beforeAll, expect, test } from "@jest/globals";
import type { Broker } from "../../src/sandbox/brokers/index.js";
import { privateNats } from "../support/brokers.js";
import { type Certificates, makeCertificates } from "../support/certificates.js";
import { type RedisCluster, startRedisCluster } from "../support/clusters.js";
import { becomes } from "../support/eventually.js";
import { JWT_SECRET, launchService, runMain, type Service, startService } from "../support/service.js";

let certificates: Certificates;
let cluster: RedisCluster;
let nats: Broker;
const running: Service[] = [];

beforeAll(async () => {
  certificates = makeCertificates();
  const tls = { ca: certificates.ca, ...certificates.named };
  [cluster, nats] = await Promise.all([startRedisCluster({ replicas: false, tls }), privateNats()]);
}, 60_000);

afterEach(async () => {
  for (const service of running.splice(0)) await service.stop();
});

afterAll(async () => {
  await Promise.all([cluster?.stop(), nats?.stop()]);
  certificates?.remove();
});

const NOBODY = "127.0.0.1:1";
const trusted = (): Record<string, string> => ({ NODE_EXTRA_CA_CERTS: certificates.ca });
const optionsOf = (redisUrl: string, env: Readonly<Record<string, string>>) => ({
  ...{ redisUrl, natsUrl: nats.url, usersAddress: NOBODY, postsAddress: NOBODY, roles: "bridge,gateway", env },
});

async function start(redisUrl: string, env: Readonly<Record<string, string>> = {}): Promise<Service> {
  const service = await startService(optionsOf(redisUrl, env));
  running.push(service);
  return service;
}

async function doctorOn(redisUrl: string, env: Readonly<Record<string, string>> = {}) {
  const run = runMain(["doctor", "--json"], {
    ...{ REDIS_URL: redisUrl, NATS_URL: nats.url, TIMELINE_ROLES: "gateway", TIMELINE_JWT_SECRET: JWT_SECRET, ...env },
  });
  const { code } = await run.exited;
  const output = run.logs();
  const findings = JSON.parse(output.slice(output.indexOf("["))) as { what: string; state: string; says: string }[];
  return { code, cluster: findings.filter(({ what }) => what.startsWith("Redis Cluster")) };
}

/** The service says how many masters answer: one of a single server. */
async function expectWhole(service: Service): Promise<void> {
  expect((await fetch(`${service.httpUrl}/readyz`)).status).toBe(200);
  await becomes(async () => {
    const metrics = await (await fetch(`${service.httpUrl}/metrics`)).text();
    expect(metrics.match(/^timeline_redis_up\{.*\} 1$/gm)).toHaveLength(3);
  });
}

test("a cluster over TLS whose certificates hold names is used, from one URL or several", async () => {
  const [one = ""] = cluster.tlsUrls;
  for (const url of [one, cluster.tlsUrls.join(",")]) {
    await expectWhole(await start(url, trusted()));
    expect(await doctorOn(url, trusted())).toMatchObject({ code: 0, cluster: [{ says: "3 masters answer" }] });
  }
}, 120_000);

test("a certificate that a node of a cluster shows and that is refused ends the start, and doctor says why", async () => {
  const url = cluster.tlsUrls.join(",");
  const service = await launchService(optionsOf(url, {}));
  running.push(service);
  expect(await service.exited).toMatchObject({ code: 1 });
  expect(service.errors()).toMatch(/cannot start: Redis: TLS failed: .*certificate/);
  expect(await doctorOn(url)).toMatchObject({
    code: 1,
    cluster: [{ state: "fault", says: expect.stringContaining("TLS failed") }],
  });
}, 60_000);

test("one URL of a node is enough: the whole cluster is used", async () => {
  await expectWhole(await start(cluster.masters[1]?.url as string));
});

test("one URL of a node that names a database ends the start", async () => {
  const service = await launchService(optionsOf(`${cluster.masters[0]?.url}/3`, {}));
  running.push(service);
  expect(await service.exited).toMatchObject({ code: 1 });
  expect(service.errors()).toContain("REDIS_URL names a database: a Redis Cluster has only database 0");
});
