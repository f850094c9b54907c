import { afterEach, expect, test } from "@jest/globals";
import { Cluster } from "ioredis";
import { privateNats } from "../support/brokers.js";
import { startRedisCluster } from "../support/clusters.js";
import { becomes } from "../support/eventually.js";
import { openReader } from "../support/reader.js";
import { startService } from "../support/service.js";
import { openStreams } from "../support/streams.js";
import { created, received } from "../support/timeline-events.js";
import { startUpstreams } from "../support/upstreams.js";
import { World } from "../support/world.js";

const START = Date.now() - 600_000;
const closes: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closes.splice(0).reverse()) await close();
});

test("on a Redis Cluster remote drops keep to their share of global, also after a rebuild", async () => {
  const cluster = await startRedisCluster({ replicas: false });
  closes.push(() => cluster.stop());
  const nats = await privateNats();
  closes.push(() => nats.stop());
  const redis = new Cluster(cluster.urls.split(","));
  closes.push(() => redis.disconnect());
  const { usersAddress, postsAddress, stop } = await startUpstreams(new World());
  closes.push(stop);
  const service = await startService({
    ...{ redisUrl: cluster.urls, natsUrl: nats.url, usersAddress, postsAddress },
    env: { TIMELINE_MAX_ENTRIES: "20", TIMELINE_GLOBAL_REMOTE_SHARE: "0.25" },
  });
  closes.push(() => service.stop());
  const streams = await openStreams(nats.url);
  closes.push(() => streams.close());
  const reads = openReader(service.grpcAddress);
  closes.push(() => reads.close());
  const shows = (drop_ids: readonly string[]) =>
    becomes(async () => expect(await reads.global()).toMatchObject({ drop_ids, degraded: false }));

  await shows([]);
  const at = (place: number) => ({ user_id: "ada", visibility: "public" as const, created_at: START + place });
  for (let place = 0; place < 10; place++)
    await redis.publish("drop_created", JSON.stringify(created({ drop_id: `own-${place}`, ...at(place) }).payload));
  for (let place = 10; place < 50; place++)
    await redis.publish(
      "ap_drop_received",
      JSON.stringify(received({ drop_id: `far-${place}`, ...at(place) }).payload),
    );
  await streams.settled(50);
  const whole = [
    ...[49, 48, 47, 46, 45].map((place) => `far-${place}`),
    ...[9, 8, 7, 6, 5, 4, 3, 2, 1, 0].map((place) => `own-${place}`),
  ];
  await shows(whole);
  await redis.del("timeline:global");
  await shows(whole);
}, 120_000);
