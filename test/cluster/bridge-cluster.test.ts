import { afterAll, beforeAll, expect, test } from "@jest/globals";
import { Redis } from "ioredis";
import { createChannels } from "../../src/bridge/channels.redis.js";
import { silent } from "../../src/kernel/logger.js";
import { connectSubscriber } from "../../src/platform/redis/connect.js";
import { type RedisCluster, startRedisCluster } from "../support/clusters.js";
import { eventually } from "../support/eventually.js";

let cluster: RedisCluster;
beforeAll(async () => {
  cluster = await startRedisCluster({ replicas: false });
});
afterAll(() => cluster?.stop());

// Invariant 5.
test("a bridge on a Redis Cluster whose link is cut, or whose node dies, hears again and asks for what it missed", async () => {
  const subscriber = connectSubscriber(cluster.urls.split(","), silent);
  const channels = createChannels(subscriber, silent);
  const heard = new Set<string>();
  const interruptions: number[] = [];
  await channels.subscribe(
    ["drop_deleted"],
    (_, payload) => heard.add(String(payload)),
    (since) => interruptions.push(since),
  );
  const links = cluster.masters.map(({ url }) => new Redis(url));
  for (const link of links) link.on("error", () => undefined);
  // Only the nodes that live answer.
  const hears = (text: string) =>
    eventually(async () => {
      for (const link of links) if (link.status === "ready") await link.publish("drop_deleted", text);
      return heard.has(text);
    }, `${text} is heard`);
  try {
    await hears("first");
    expect(interruptions).toEqual([]);
    for (const link of links) await link.call("CLIENT", "KILL", "TYPE", "pubsub");
    const cut = Date.now();
    await hears("after the cut");
    const node = cluster.masters.find(({ port }) => port === subscriber.options.port);
    node?.kill("SIGKILL");
    await node?.exited;
    const died = Date.now();
    await hears("after the death of the node");
    expect(interruptions.length).toBeGreaterThanOrEqual(2);
    expect(interruptions[0]).toBeLessThanOrEqual(cut);
    expect(interruptions[1]).toBeLessThanOrEqual(died);
  } finally {
    for (const link of links) link.disconnect();
    await channels.unsubscribe();
    subscriber.disconnect();
  }
});
