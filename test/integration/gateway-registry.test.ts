import { afterAll, beforeAll, beforeEach, describe, expect, test } from "@jest/globals";
import { CONNECTIONS_SEEN_KEY, connectionKey, connectionsOfUserKey, RECENT_KEY } from "../../src/contracts/keys.js";
import type { StreamPosition } from "../../src/gateway/notification.js";
import { type Connection, createRegistryStore, type RegistryStore } from "../../src/gateway/registry.redis.js";
import { encodeId } from "../../src/kernel/ids.js";
import { silent } from "../../src/kernel/logger.js";
import { connectRedis, type RedisClient } from "../../src/platform/redis/connect.js";
import { createScripts } from "../../src/platform/redis/scripts.js";
import { privateRedis } from "../support/brokers.js";
import { startRedisCluster } from "../support/clusters.js";
import { eventually } from "../support/eventually.js";

const SERVERS = {
  "one server": async () => {
    const { url, stop } = await privateRedis();
    return { urls: [url], stop };
  },
  "a cluster": async () => {
    const { urls, stop } = await startRedisCluster({ replicas: false });
    return { urls: urls.split(","), stop };
  },
};

describe.each(Object.keys(SERVERS) as (keyof typeof SERVERS)[])("the registry on %s", (name) => {
  let servers: { readonly urls: readonly string[]; stop(): Promise<unknown> };
  let client: RedisClient;
  let store: RegistryStore;
  let users = 0;
  let user: string;
  beforeAll(async () => {
    servers = await SERVERS[name]();
    client = connectRedis(servers.urls, silent);
    await eventually(() => client.status === "ready", "Redis is connected");
    store = createRegistryStore(createScripts(client), { podName: "pod-1", ttlMs: 60_000, windowMs: 600_000 });
  });
  afterAll(async () => {
    client?.disconnect();
    await servers?.stop();
  });
  beforeEach(() => {
    user = `user ${users++}`;
  });

  const register = async (connection: Connection, from: StreamPosition, listedSince: number) =>
    (await store.register([{ connection, from }], listedSince))[0];
  const connection = (unique: string) => ({ id: `${unique}.${user}`, user, createdAt: 5 });
  const at = (seq: number, incarnation = "k2") => ({ seq, incarnation });
  const LISTED_LATELY = 0;
  const NEVER_LISTED = Number.MAX_SAFE_INTEGER;

  test("a stream is registered with all of its keys, each of which expires", async () => {
    expect(await register(connection("a"), at(7), LISTED_LATELY)).toEqual(at(7));
    const own = connection("a").id;
    expect(await client.smembers(connectionsOfUserKey(user))).toEqual([own]);
    expect(await client.hgetall(connectionKey(own))).toEqual({ pod_name: "pod-1", user_id: user, created_at: "5" });
    expect(Number(await client.zscore(CONNECTIONS_SEEN_KEY, own))).toBeGreaterThan(0);
    for (const key of [connectionsOfUserKey(user), connectionKey(own), CONNECTIONS_SEEN_KEY, RECENT_KEY])
      expect(await client.ttl(key)).toBeGreaterThan(0);
    expect(await store.renew([connection("a")])).toEqual(new Set());
    await client.del(connectionKey(own));
    expect(await store.renew([connection("a")])).toEqual(new Set([own]));
  });

  test("users whose last stream ended long ago are forgotten, a thousand at a time, and no others", async () => {
    await client.del(RECENT_KEY);
    const ended = Date.now() - 3_600_000;
    const gone = Array.from({ length: 2_500 }, (_, number) => [String(ended + number), `gone-${number}`]);
    await client.zadd(RECENT_KEY, ...gone.flat(), String(Date.now()), "here");
    const left: number[] = [];
    for (let more = true; more; left.push(await client.zcard(RECENT_KEY))) ({ more } = await store.sweep());
    expect(left).toEqual([1_501, 501, 1]);
    expect(await client.zrange(RECENT_KEY, "0", "-1")).toEqual(["here"]);
  });

  test("streams that are registered together are found, renewed and removed each on its own", async () => {
    const users = ["a", "b", "c"].map((name) => `${user} ${name}`);
    const connections = users.map((name) => ({ id: `one.${name}`, user: name, createdAt: 5 }));
    const [first, second, third] = connections as [Connection, Connection, Connection];
    await register(second, at(3), NEVER_LISTED);
    const registering = connections.map((one, n) => ({ connection: one, from: at(7 + n) }));
    expect(await store.register(registering, LISTED_LATELY)).toEqual([at(7), at(3), at(9)]);
    await client.srem(connectionsOfUserKey(second.user), second.id);
    await client.zrem(RECENT_KEY, encodeId(third.user));
    expect(await store.renew(connections)).toEqual(new Set([second.id, third.id]));
    await store.remove([first, second]);
    expect(await store.renew(connections)).toEqual(new Set(connections.map(({ id }) => id)));
    expect(await client.hgetall(connectionKey(third.id))).toMatchObject({ user_id: third.user });
  });

  test("the position to resume from stays while the user is listed, and only rises when listed again", async () => {
    expect(await register(connection("a"), at(7), LISTED_LATELY)).toEqual(at(7));
    expect(await register(connection("b"), at(9), LISTED_LATELY)).toEqual(at(7));
    expect(await register(connection("c"), at(9), NEVER_LISTED)).toEqual(at(9));
    expect(await register(connection("d"), at(8), NEVER_LISTED)).toEqual(at(9));
    expect(await register(connection("e"), at(3, "k3"), NEVER_LISTED)).toEqual(at(3, "k3"));
    const named = (listing: string) => ({ ...at(3, "k3"), listing });
    expect(await register(connection("f"), named("a"), NEVER_LISTED)).toEqual(named("a"));
    expect(await register(connection("g"), named("b"), LISTED_LATELY)).toEqual(named("a"));
    expect(await register(connection("h"), named("c"), NEVER_LISTED)).toEqual(named("c"));
    expect(await register(connection("i"), at(2, "k3"), NEVER_LISTED)).toEqual(named("c"));
  });

  test("the position is kept as long as a stream is renewed, and a lost one counts as a lost registration", async () => {
    const [one, key] = [connection("a"), `sse_recent:from:${encodeId(user)}`];
    await register(one, at(7), NEVER_LISTED);
    await client.pexpire(key, 60_000);
    expect(await store.renew([one])).toEqual(new Set());
    expect(await client.pttl(key)).toBeGreaterThan(60_000);
    await client.del(key);
    expect(await store.renew([one])).toEqual(new Set([one.id]));
    expect(await register(one, at(9), LISTED_LATELY)).toEqual(at(9));
  });
});
