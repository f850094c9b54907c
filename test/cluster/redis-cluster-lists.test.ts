import { afterEach, expect, test } from "@jest/globals";
import { Cluster } from "ioredis";
import { openApi } from "../support/api.js";
import { privateNats } from "../support/brokers.js";
import { startRedisCluster } from "../support/clusters.js";
import { becomes } from "../support/eventually.js";
import { runListHistory } from "../support/list-history.js";
import { openReader } from "../support/reader.js";
import { requestEvents } from "../support/sse.js";
import { startPlace } from "../support/stack.js";
import { tokenOf } from "../support/tokens.js";

const closes: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closes.splice(0).reverse()) await close();
});

// Invariants 3 to 7.
test("on a Redis Cluster a list and its stream show what a model of it shows", async () => {
  let redisUrl = "";
  const place = await startPlace(
    async (ends) => {
      const cluster = await startRedisCluster({ replicas: false });
      ends.push(() => cluster.stop());
      const nats = await privateNats();
      ends.push(() => nats.stop());
      redisUrl = cluster.urls;
      return { redisUrl, natsUrl: nats.url };
    },
    {
      roles: "users,posts,bridge,fanout,api,gateway",
      data: true,
      env: {
        ...{ TIMELINE_USER_SERVICE_ADDR: "", TIMELINE_POST_SERVICE_ADDR: "", TIMELINE_HOME_REPLIES: "followed" },
        ...{ TIMELINE_MAX_ENTRIES: "10", TIMELINE_FANOUT_PULL_THRESHOLD: "3", TIMELINE_LIMIT_SAME_BODY: "off" },
      },
    },
  );
  closes.push(() => place.stop());
  const redis = new Cluster(redisUrl.split(","));
  closes.push(() => redis.disconnect());
  const api = openApi(place.service.grpcAddress);
  closes.push(() => api.close());
  const reads = openReader(place.service.grpcAddress);
  closes.push(() => reads.close());
  const shows = (list: string, ids: readonly string[]) =>
    becomes(async () => {
      const { drop_ids, degraded } = await reads.list("ada", list, { limit: 100 });
      expect([degraded, drop_ids]).toEqual([false, ids]);
    }, 10_000);
  const openStream = async (list: string) =>
    requestEvents(place.service.httpUrl, { token: await tokenOf("ada"), timeline: `list/${list}` });
  await runListHistory({ api, redis, shows, openStream, rounds: 40, seed: 14 });
}, 180_000);
