import { expect, test } from "@jest/globals";
import { silent } from "../../src/kernel/logger.js";
import { openPostgres } from "../../src/platform/db/postgres.js";
import { connectNats } from "../../src/platform/nats/connect.js";
import { createPublisher } from "../../src/platform/nats/publish.js";
import { startRedis } from "../../src/sandbox/brokers/index.js";
import { openSaga } from "../support/analysis.js";
import { post, sharedAnalysisBench } from "../support/analysis-http.js";
import { eventually } from "../support/eventually.js";
import { postgresPrograms, startPostgres } from "../support/postgres.js";
import { TcpProxy } from "../support/proxy.js";
import { openRedis } from "../support/redis.js";
import { redisStateOn } from "../support/state.js";

const bench = sharedAnalysisBench();
const keyed = { headers: { "idempotency-key": '"one"' } };

async function requestsOf(user: string): Promise<Record<string, unknown>[]> {
  const { streams } = bench.nats.manager;
  const { state } = await streams.info("TIMELINE");
  const seqs = Array.from({ length: state.messages }, (_, at) => state.first_seq + at);
  const stored = await Promise.all(seqs.map((seq) => streams.getMessage("TIMELINE", { seq })));
  return stored.map((message) => message.json<Record<string, unknown>>()).filter((one) => one["user_id"] === user);
}

// Invariant 12.
test("NATS killed after it stored a request, before it said so: 503, and the key gets that one analysis later", async () => {
  const { broker, restart } = bench.nats;
  const link = await TcpProxy.open(broker.port);
  const connection = await connectNats({ servers: [link.url("nats")], name: "test" }, silent);
  const { publish } = createPublisher(connection, { timeoutMs: 2_000 });
  const url = await bench.another({
    nats: connection,
    publish: (message) => {
      if (message.subject.startsWith("events.")) link.set("drop", "toClient");
      return publish(message);
    },
  });
  const underWay = post(url, "ada", keyed);
  await eventually(async () => (await requestsOf("ada")).length === 1, "the request is stored");
  broker.kill("SIGKILL");
  const refused = await underWay;
  expect([refused.status, Number(refused.headers.get("retry-after")) > 0]).toEqual([503, true]);
  link.set("pass");
  await restart();
  const again = await bench.another({});
  await eventually(async () => (await post(again, "ada", keyed)).status === 202, "the request is accepted");
  const { body } = await post(again, "ada", keyed);
  expect((await requestsOf("ada")).map(({ analysis_id }) => analysis_id)).toEqual([body.analysis_id]);
  await connection.close();
  await link.close();
});

test("Redis killed while a request is under way: 202, also while it is away, and counted once it is back", async () => {
  const redis = await openRedis();
  const { dir, port } = redis.broker;
  const url = await bench.another({ state: { ...bench.state, ...redisStateOn(redis.scripts) } });
  expect((await post(url, "ben")).headers.get("ratelimit-remaining")).toBe("9");
  redis.broker.kill("SIGSTOP");
  const underWay = post(url, "ben");
  redis.broker.kill("SIGKILL");
  await redis.broker.exited;
  for (const { status, headers } of [await underWay, await post(url, "ben", keyed), await post(url, "ben", keyed)])
    expect([status, headers.get("ratelimit-remaining")]).toEqual([202, null]);
  expect(await requestsOf("ben")).toHaveLength(3);
  const restarted = await startRedis({ dir, port });
  await eventually(async () => (await post(url, "ben")).headers.has("ratelimit-limit"), "requests are counted");
  await redis.close();
  await restarted.stop();
});

const withPostgres = postgresPrograms() === undefined ? test.skip : test;

// Invariant 12.
withPostgres(
  "a database that is killed while workers run: nothing is lost, no attempt is spent, and the work goes on",
  async () => {
    const server = await startPostgres();
    const db = openPostgres({ url: server.url, poolSize: 10, name: "test" }, silent);
    const saga = await openSaga(db);
    try {
      saga.startWorkers();
      await saga.listen("ada");
      const requests = [await saga.ask({ did: "before" })];
      await saga.settled();
      await server.kill();
      for (let n = 0; n < 20; n++) requests.push(await saga.ask({ did: `account-${n}` }));
      const waiting = async () => (await saga.nats.manager.consumers.info("TIMELINE", "analysis")).num_ack_pending;
      await eventually(async () => (await waiting()) === 20, "all of them are begun");
      expect(await saga.bodies("DLQ")).toEqual([]);
      await server.start();
      await saga.settled(60_000);
      expect(await saga.faults(requests)).toEqual([]);
      expect(await saga.bodies("TIMELINE_EVENTS", "events.timeline.failed")).toEqual([]);
    } finally {
      await saga.close();
      await db.close();
      await server.stop();
    }
  },
  120_000,
);
