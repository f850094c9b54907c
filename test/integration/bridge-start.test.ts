import { expect, test } from "@jest/globals";
import { silent } from "../../src/kernel/logger.js";
import { startBridgeRole } from "../../src/roles/bridge.js";
import type { RoleDeps } from "../../src/roles/role.js";
import { createUnreconciled } from "../../src/state/messages/reconciled.redis.js";
import { eventually } from "../support/eventually.js";
import { openNats } from "../support/nats.js";
import { openRedis } from "../support/redis.js";
import { openStreams } from "../support/streams.js";

const OVERLAP_MS = 60_000;

// Invariant 5.
test("a bridge that starts looks back to the last admission before its own, however soon events reach it", async () => {
  const [redis, nats] = await Promise.all([openRedis(), openNats()]);
  const streams = await openStreams(nats.broker.url);
  const publish = async (name: string, fields: object) => redis.raw.publish(name, JSON.stringify(fields));
  await nats.publish({ subject: "drops.deleted", id: "before", body: '{"drop_id":"before"}' });
  const before = await nats.manager.streams.getMessage("DROPS", { seq: 1 });
  // Whoever hears the channels admits a drop and a follow before the log is looked at.
  const jetstreamManager: typeof nats.connection.jetstreamManager = async (options) => {
    const heard = await publish("drop_deleted", { drop_id: "after" });
    await publish("user_followed", { follower_id: "bob", following_id: "ada", version: 1 });
    if (heard > 0) await eventually(async () => (await streams.count("DROPS")) === 3, "both are admitted");
    return nats.connection.jetstreamManager(options);
  };
  const connection = new Proxy(nats.connection, {
    get: (target, name) => (name === "jetstreamManager" ? jetstreamManager : Reflect.get(target, name, target)),
  });
  const since: number[] = [];
  const upstreams = () => ({
    changedDrops: async (range: { readonly since: number }) => {
      since.push(range.since);
      return { drops: [], next: "" };
    },
    changedEdges: async () => ({ changes: [], next: "" }),
  });
  const { scripts } = redis;
  const state = { unreconciled: createUnreconciled(scripts) };
  const addresses = { userServiceAddr: "upstreams", postServiceAddr: "upstreams" };
  const role = await startBridgeRole({
    config: { redis: { urls: [redis.broker.url] }, upstreams: addresses } as never,
    connections: { ...nats, nats: connection, scripts, upstreams, state } as unknown as RoleDeps["connections"],
    suspectLock: undefined as never,
    exportsTraces: false,
    log: silent,
  });
  try {
    await eventually(() => since.length > 0, "the upstreams are asked");
    expect(since[0]).toBeLessThanOrEqual(before.time.getTime() - OVERLAP_MS);
  } finally {
    await role.close(1_000);
    await streams.close();
    await Promise.all([redis.close(), nats.close()]);
  }
});
