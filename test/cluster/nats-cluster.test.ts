import { afterEach, expect, test } from "@jest/globals";
import { Redis } from "ioredis";
import { privateRedis } from "../support/brokers.js";
import { startNatsCluster } from "../support/clusters.js";
import { eventually } from "../support/facts.js";
import { openStreams } from "../support/jetstream.js";
import { expectTimelines } from "../support/oracle.js";
import { startService } from "../support/service.js";
import { openEvents } from "../support/sse.js";
import { created, followed, publish, type TimelineEvent } from "../support/timeline-events.js";
import { startUpstreams } from "../support/upstreams.js";
import { World } from "../support/world.js";

const START = Date.now() - 3_600_000;
const READERS = Array.from({ length: 20 }, (_, number) => `reader-${number}`);
const closes: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closes.splice(0).reverse()) await close();
});

test("the server that leads the log is killed under load: nothing is lost, and streams go on", async () => {
  const nats = await startNatsCluster();
  closes.push(() => nats.stop());
  const redisServer = await privateRedis({ appendonly: true });
  closes.push(() => redisServer.stop());
  const redis = new Redis(redisServer.url);
  closes.push(() => redis.disconnect());
  const world = new World();
  for (const reader of READERS) world.follow(reader, "alice");
  const { usersAddress, postsAddress, stop } = await startUpstreams(world);
  closes.push(stop);
  const service = await startService({
    ...{ redisUrl: redisServer.url, natsUrl: nats.urls, usersAddress, postsAddress },
    env: { TIMELINE_NATS_REPLICAS: "3", TIMELINE_ACK_WAIT_MS: "5000" },
  });
  closes.push(() => service.stop());
  const streams = await openStreams(nats.urls);
  closes.push(() => streams.close());
  expect((await streams.manager.streams.info("DROPS")).config.num_replicas).toBe(3);

  const history: TimelineEvent[] = [];
  const load = async (count: number): Promise<void> => {
    for (let number = 0; number < count; number++) {
      const drop = { drop_id: `load-${history.length}`, user_id: "alice", visibility: "public" as const };
      const dated = { ...drop, created_at: START + history.length };
      world.post(dated);
      const event = created(dated);
      history.push(event);
      await publish(redis, event);
    }
  };
  const stream = await openEvents(service.httpUrl, "reader-1");
  await load(50);
  await streams.settled(50);
  const loading = load(300);
  const leader = await nats.leaderOf("DROPS");
  leader.kill("SIGKILL");
  await leader.exited;
  await loading;
  await streams.settled(history.length, 90_000);
  const edges = READERS.map((reader) => followed(reader, "alice", 1));
  // While a consumer has no leader it is on no list, and looks as if it had nothing left to do.
  await eventually(
    async () =>
      expectTimelines(redis, ["alice", ...READERS], [...edges, ...history]).then(
        () => true,
        (error: unknown) => String(error).slice(0, 300),
      ),
    "every timeline holds what it must",
    60_000,
  );
  expect(await streams.count("DLQ")).toBe(0);
  // NOTIFY keeps the last 128 of a user: what an interruption made too much to replay is told as a reset.
  await eventually(
    () => new Set(stream.drops()).size === history.length || stream.events.some(({ event }) => event === "reset"),
    "the stream has heard of everything, or says that it has not",
    30_000,
  );
  expect(stream.drops()).toHaveLength(new Set(stream.drops()).size);
}, 180_000);
