import { randomBytes } from "node:crypto";
import { afterEach, expect, test } from "@jest/globals";
import { Cluster, Redis } from "ioredis";
import pg from "pg";
import { type Broker, startNats } from "../../src/sandbox/brokers/index.js";
import { openApi } from "../support/api.js";
import { privateNats, privateRedis } from "../support/brokers.js";
import { intoLog, openClusterScene } from "../support/cluster-load.js";
import { startNatsCluster, startRedisCluster } from "../support/clusters.js";
import { becomes, eventually } from "../support/eventually.js";
import { drops, expectLoaded } from "../support/load.js";
import { postgresPrograms, startPostgres } from "../support/postgres.js";
import { httpStatus, untilReady } from "../support/service.js";
import { diskTest, openSmallDisk, type SmallDisk } from "../support/small-disk.js";
import { spentAttempts } from "../support/spent-attempts.js";
import { type Stack, type StackOptions, startStack } from "../support/stack.js";
import { publish, type TimelineEvent } from "../support/timeline-events.js";

const READERS = Array.from({ length: 12 }, (_, number) => `reader-${number}`);
/** Pages of five followers: the audience is queued in chunks. Attempts follow each other fast, so that any would show. */
const ENV = { TIMELINE_FANOUT_CHUNK_SIZE: "5", TIMELINE_MAX_ATTEMPTS: "2", TIMELINE_RETRY_BASE_MS: "50" };
const closes: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closes.splice(0).reverse()) await close();
});

async function openStack(options: StackOptions = {}): Promise<Stack> {
  const stack = await startStack({ env: ENV, ...options });
  closes.push(() => stack.stop());
  return stack;
}

async function openDisk(megabytes: number): Promise<SmallDisk> {
  const disk = await openSmallDisk(megabytes);
  closes.push(() => disk.close());
  return disk;
}

async function expectAll({ streams, redis, service }: Stack, history: readonly TimelineEvent[]): Promise<void> {
  await streams.settledWith(history.length, 60_000);
  await becomes(() => expectLoaded(redis, READERS, history));
  expect(await streams.count("DLQ")).toBe(0);
  expect(await spentAttempts(service)).toEqual([]);
}

// Invariant 8.
diskTest(
  "the disk of JetStream is full: events wait, and all are written after there is room and nats-server is started again",
  async () => {
    const disk = await openDisk(128);
    const stack = await openStack({ dirs: { nats: disk.dir } });
    const { service, streams, natsServer, world } = stack;
    const before = drops(world, READERS, 0, 20);
    await stack.publish(...before);
    await streams.settledWith(20);
    disk.fill();
    const during = drops(world, READERS, 20, 60);
    await stack.publish(...during);
    await eventually(async () => (await httpStatus(`${service.httpUrl}/readyz`)) === 503, "the service is not ready");
    await eventually(() => /events could not be admitted yet/.test(service.output()), "the log says that events wait");
    disk.makeRoom();
    natsServer.kill("SIGKILL");
    await natsServer.exited;
    const again = await startNats({ dir: natsServer.dir, port: natsServer.port });
    closes.push(() => again.stop());
    await untilReady(service);
    const after = drops(world, READERS, 80, 10);
    await stack.publish(...after);
    await expectAll(stack, [...before, ...during, ...after]);
  },
  90_000,
);

// Invariant 8.
diskTest(
  "the disk of one nats-server of three is full: once it is ended the others go on, and nothing is lost",
  async () => {
    const disk = await openDisk(128);
    const nats = await startNatsCluster({ firstDir: disk.dir });
    closes.push(() => nats.stop());
    const redisServer = await privateRedis({ appendonly: true });
    closes.push(() => redisServer.stop());
    const redis = new Redis(redisServer.url);
    closes.push(() => redis.disconnect());
    const [first, ...others] = nats.servers as [Broker, ...Broker[]];
    const { streams, service, load, landed } = await openClusterScene({
      ...{ redisUrl: redisServer.url, natsUrl: nats.urls, readers: READERS, redis },
      lookUrl: others.map(({ url }) => url).join(),
      env: { ...ENV, TIMELINE_NATS_REPLICAS: "3", TIMELINE_ACK_WAIT_MS: "5000" },
      tell: (event) => publish(redis, event),
      defer: (close) => closes.push(close),
    });
    await nats.lead("DROPS", first);
    await load(20);
    await streams.settledWith(20);
    disk.fill();
    await load(60);
    const leads = async () => (await nats.leaderOf("DROPS", streams.manager).catch(() => undefined)) === first;
    await eventually(async () => !(await leads()), "it does not lead the log any more", 30_000);
    first.kill("SIGKILL");
    await first.exited;
    await landed();
    disk.makeRoom();
    await nats.restart(first);
    await load(20);
    await landed();
    expect(await spentAttempts(service)).toEqual([]);
  },
  120_000,
);

// Invariant 8.
diskTest(
  "the disk of one master of a Redis Cluster is full: what is on it waits, and nothing is lost",
  async () => {
    const disk = await openDisk(64);
    const cluster = await startRedisCluster({ replicas: false, firstDir: disk.dir });
    closes.push(() => cluster.stop());
    const nats = await privateNats();
    closes.push(() => nats.stop());
    const redis = new Cluster(cluster.urls.split(","));
    closes.push(() => redis.disconnect());
    const { streams, service, load, landed } = await openClusterScene({
      ...{ redisUrl: cluster.urls, natsUrl: nats.url, readers: READERS, redis, env: ENV, tell: intoLog },
      defer: (close) => closes.push(close),
    });
    await load(20);
    await streams.settledWith(20);
    const first = new Redis(cluster.masters[0]?.url as string);
    closes.push(() => first.disconnect());
    const [key = ""] = await first.keys("timeline:home:*");
    disk.fill();
    const refused = async () => /MISCONF/.test(await first.set(`{${key}}`, "in the same slot").then(String, String));
    await eventually(refused, "the master refuses writes");
    await load(60);
    await eventually(() => /a server is unavailable/.test(service.output()), "the log says that events wait");
    expect(await streams.unfinished()).toBeGreaterThan(0);
    disk.makeRoom();
    await load(20);
    await landed();
    expect(await spentAttempts(service)).toEqual([]);
  },
  90_000,
);

/** Full, and what makes room again. */
type Full = { readonly error: RegExp; begin(stack: Stack): Promise<unknown>; end(stack: Stack): Promise<unknown> };

async function fullRedis(stack: Stack, { error, begin, end }: Full): Promise<void> {
  const { service, streams, world, redis } = stack;
  const before = drops(world, READERS, 0, 20);
  await stack.publish(...before);
  await streams.settledWith(20);
  await begin(stack);
  const refused = () => redis.set("some", "thing").then(() => "taken", String);
  await eventually(async () => error.test(await refused()), "Redis refuses writes");
  const during = drops(world, READERS, 20, 60);
  await stack.publish(...during);
  await eventually(async () => (await streams.count("DROPS")) >= 80, "all are admitted");
  await eventually(() => /a server is unavailable/.test(service.output()), "the log says that events wait");
  expect(await streams.unfinished()).toBeGreaterThan(0);
  await end(stack);
  await eventually(async () => (await refused()) === "taken", "Redis takes writes");
  const after = drops(world, READERS, 80, 10);
  await stack.publish(...after);
  await expectAll(stack, [...before, ...during, ...after]);
}

// Invariant 8.
test("Redis has reached maxmemory: events wait, and all are written once it has more", async () => {
  await fullRedis(await openStack(), {
    error: /OOM/,
    begin: ({ redis }) => redis.config("SET", "maxmemory", "1mb"),
    end: ({ redis }) => redis.config("SET", "maxmemory", "0"),
  });
}, 90_000);

// Invariant 8.
diskTest(
  "the disk of the append-only file is full: events wait, and all are written once there is room",
  async () => {
    const disk = await openDisk(64);
    const stack = await openStack({ dirs: { redis: disk.dir } });
    await fullRedis(stack, {
      error: /MISCONF/,
      begin: async () => disk.fill(),
      end: async () => disk.makeRoom(),
    });
  },
  90_000,
);

if (postgresPrograms() !== undefined)
  // Invariant 8.
  diskTest(
    "the disk of PostgreSQL is full: writes are refused, what was answered is kept, and it goes on once there is room",
    async () => {
      const disk = await openDisk(192);
      const postgres = await startPostgres({ within: disk.dir });
      closes.push(() => postgres.stop());
      const none = { TIMELINE_USER_SERVICE_ADDR: "", TIMELINE_POST_SERVICE_ADDR: "" };
      const env = { ...ENV, ...none, DATABASE_URL: postgres.url };
      const stack = await openStack({ env, roles: "users,posts,bridge,fanout,api,gateway" });
      const { service, streams, redis } = stack;
      const api = openApi(service.grpcAddress);
      closes.push(() => api.close());
      await api.follow({ follower_id: "ada", following_id: "bob" });
      await withWalAllocated(postgres.url);
      const kept: string[] = [];
      const post = async (): Promise<string> => {
        const drop = await api.post("bob", { body: randomText(400) }).catch((error: Error) => error);
        if (drop instanceof Error) return drop.message;
        kept.push(drop.drop_id);
        return "";
      };
      for (let number = 0; number < 10; number++) await post();
      disk.fill();
      await eventually(async () => /^14 UNAVAILABLE/.test(await post()), "writes are refused");
      expect(kept.length).toBeGreaterThanOrEqual(10);
      expect((await api.dropsOf({ user_id: "bob", limit: 5, max_id: "", before: 0 })).drops).toHaveLength(5);
      await eventually(() => /No space left on device/.test(service.output()), "the log says why");
      disk.makeRoom();
      await eventually(async () => (await post()) === "", "writes are taken again");
      const home = () => redis.zrange("timeline:home:ada", "0", "-1");
      await becomes(async () =>
        expect((await home()).filter((id) => id !== "~floor").sort()).toEqual([...kept].sort()),
      );
      const log = (await streams.all("DROPS")).filter(({ subject }) => subject === "drops.created");
      expect(log.map(({ body }) => String(JSON.parse(String(body)).drop_id)).sort()).toEqual([...kept].sort());
      expect(await streams.count("DLQ")).toBe(0);
      expect(await spentAttempts(service)).toEqual([]);
    },
    90_000,
  );

/** A new segment of the WAL is written as a whole: it has room where the disk has none. */
async function withWalAllocated(url: string): Promise<void> {
  const admin = new pg.Client(url);
  await admin.connect();
  await admin.query("SELECT pg_switch_wal()");
  await admin.query("CREATE TABLE one ()");
  await admin.end();
}

const randomText = (length: number): string => randomBytes(length).toString("base64").slice(0, length);
