import { afterEach, expect, test } from "@jest/globals";
import { Redis } from "ioredis";
import { privateRedis } from "../support/brokers.js";
import { openClusterScene } from "../support/cluster-load.js";
import { startNatsCluster } from "../support/clusters.js";
import { eventually } from "../support/eventually.js";
import { openEvents } from "../support/sse.js";
import { publish } from "../support/timeline-events.js";

const READERS = Array.from({ length: 20 }, (_, number) => `reader-${number}`);
const closes: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closes.splice(0).reverse()) await close();
});

// Invariant 1.
test("the server that leads the log is killed under load: nothing is lost, and streams go on", async () => {
  const nats = await startNatsCluster();
  closes.push(() => nats.stop());
  const redisServer = await privateRedis({ appendonly: true });
  closes.push(() => redisServer.stop());
  const redis = new Redis(redisServer.url);
  closes.push(() => redis.disconnect());
  const { service, streams, history, load, landed } = await openClusterScene({
    ...{ redisUrl: redisServer.url, natsUrl: nats.urls, readers: READERS, redis },
    env: { TIMELINE_NATS_REPLICAS: "3", TIMELINE_ACK_WAIT_MS: "5000" },
    tell: (event) => publish(redis, event),
    defer: (close) => closes.push(close),
  });
  expect((await streams.manager.streams.info("DROPS")).config.num_replicas).toBe(3);

  const stream = await openEvents(service.httpUrl, "reader-1");
  await load(50);
  await streams.settled(50);
  const loading = load(300);
  const leader = await nats.leaderOf("DROPS");
  leader?.kill("SIGKILL");
  await leader?.exited;
  await loading;
  await landed();
  // NOTIFY keeps the last 128 of a user: what an interruption made too much to replay is told as a reset.
  await eventually(
    () => new Set(stream.drops()).size === history.length || stream.events.some(({ event }) => event === "reset"),
    "the stream has heard of everything, or says that it has not",
    30_000,
  );
  expect(stream.drops()).toHaveLength(new Set(stream.drops()).size);
}, 180_000);
