import { afterAll, beforeAll, beforeEach, describe, expect, test } from "@jest/globals";
import { CONNECTIONS_SEEN_KEY, connectionKey, connectionsOfUserKey, RECENT_KEY } from "../../src/contracts/keys.js";
import {
  type Connection,
  createStreamRegistryStore,
  type Moment,
  type StreamRegistryStore,
} from "../../src/gateway/registry.redis.js";
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
  let store: StreamRegistryStore;
  let users = 0;
  let user: string;
  beforeAll(async () => {
    servers = await SERVERS[name]();
    client = connectRedis(servers.urls, silent);
    await eventually(() => client.status === "ready", "Redis is connected");
    store = createStreamRegistryStore(createScripts(client), { podName: "pod-1", ttlMs: 60_000, windowMs: 600_000 });
  });
  afterAll(async () => {
    client?.disconnect();
    await servers?.stop();
  });
  beforeEach(() => {
    user = `user ${users++}`;
  });

  const register = async (one: Connection, moment: Moment): Promise<Connection> => {
    const [listing] = await store.register([one], moment);
    return { ...one, listing: listing as string };
  };
  const connection = (unique: string) => ({ id: `${unique}.${user}`, user, createdAt: 5, listing: "" });
  const listedFrom = (listedSince: number): Moment => ({ now: Date.now(), listedSince });
  const LISTED_LATELY = listedFrom(0);
  const NEVER_LISTED = listedFrom(Number.MAX_SAFE_INTEGER);

  test("a stream is registered with all of its keys, each of which expires", async () => {
    const registered = await register(connection("a"), LISTED_LATELY);
    const own = registered.id;
    expect(await client.smembers(connectionsOfUserKey(user))).toEqual([own]);
    expect(await client.hgetall(connectionKey(own))).toEqual({ pod_name: "pod-1", user_id: user, created_at: "5" });
    expect(Number(await client.zscore(CONNECTIONS_SEEN_KEY, own))).toBeGreaterThan(0);
    for (const key of [connectionsOfUserKey(user), connectionKey(own), CONNECTIONS_SEEN_KEY, RECENT_KEY])
      expect(await client.ttl(key)).toBeGreaterThan(0);
    expect(await store.renew([registered], LISTED_LATELY)).toEqual(new Set());
    await client.del(connectionKey(own));
    expect(await store.renew([registered], LISTED_LATELY)).toEqual(new Set([own]));
  });

  // Invariant 11.
  test("users whose last stream ended long ago are forgotten, a thousand at a time, and no others", async () => {
    await client.del(RECENT_KEY);
    const ended = Date.now() - 3_600_000;
    const gone = Array.from({ length: 2_500 }, (_, number) => [String(ended + number), `gone-${number}`]);
    await client.zadd(RECENT_KEY, ...gone.flat(), String(Date.now()), "here");
    const left: number[] = [];
    for (let more = true; more; left.push(await client.zcard(RECENT_KEY))) ({ more } = await store.sweep(Date.now()));
    expect(left).toEqual([1_501, 501, 1]);
    expect(await client.zrange(RECENT_KEY, "0", "-1")).toEqual(["here"]);
  });

  test("streams that are registered together are found, renewed and removed each on its own", async () => {
    const users = ["a", "b", "c"].map((name) => `${user} ${name}`);
    const connections = users.map((name) => ({ id: `one.${name}`, user: name, createdAt: 5, listing: "" }));
    const { listing } = await register(connections[1] as Connection, NEVER_LISTED);
    const listings = await store.register(connections, LISTED_LATELY);
    expect(listings).toEqual([expect.any(String), listing, expect.any(String)]);
    expect(new Set(listings).size).toBe(3);
    const registered = connections.map((one, n) => ({ ...one, listing: listings[n] as string }));
    const [first, second, third] = registered as [Connection, Connection, Connection];
    await client.srem(connectionsOfUserKey(second.user), second.id);
    await client.zrem(RECENT_KEY, encodeId(third.user));
    expect(await store.renew(registered, LISTED_LATELY)).toEqual(new Set([second.id, third.id]));
    await store.remove([first, second], LISTED_LATELY);
    expect(await store.renew(registered, LISTED_LATELY)).toEqual(new Set(registered.map(({ id }) => id)));
    expect(await client.hgetall(connectionKey(third.id))).toMatchObject({ user_id: third.user });
  });

  // Invariant 7.
  test("a listing lasts while its user is listed, and a new one begins when listed again", async () => {
    const { listing } = await register(connection("a"), LISTED_LATELY);
    expect(listing).toMatch(/^[0-9a-z]{1,16}$/);
    expect((await register(connection("b"), LISTED_LATELY)).listing).toBe(listing);
    const again = await register(connection("c"), NEVER_LISTED);
    expect(again.listing).not.toBe(listing);
    expect((await register(connection("d"), LISTED_LATELY)).listing).toBe(again.listing);
    await client.zrem(RECENT_KEY, encodeId(user));
    expect((await register(connection("e"), LISTED_LATELY)).listing).not.toBe(again.listing);
  });

  // Invariant 7.
  test("a renewal finds streams of an earlier listing, and does not prolong one that has ended", async () => {
    const before = await register(connection("a"), LISTED_LATELY);
    const after = await register(connection("b"), NEVER_LISTED);
    expect(await store.renew([before, after], LISTED_LATELY)).toEqual(new Set([before.id]));
    await client.zadd(RECENT_KEY, 1_000, encodeId(user));
    expect(await store.renew([after], listedFrom(1_001))).toEqual(new Set([after.id]));
    expect(Number(await client.zscore(RECENT_KEY, encodeId(user)))).toBe(1_000);
    expect(await store.renew([after], listedFrom(1_000))).toEqual(new Set());
    expect(Number(await client.zscore(RECENT_KEY, encodeId(user)))).toBeGreaterThan(1_000);
  });

  // Invariant 7.
  test("a removal lets the listing last from then on, and does not prolong one that has ended", async () => {
    const one = await register(connection("a"), LISTED_LATELY);
    await client.zadd(RECENT_KEY, 1_000, encodeId(user));
    await store.remove([one], listedFrom(1_001));
    expect(Number(await client.zscore(RECENT_KEY, encodeId(user)))).toBe(1_000);
    await store.remove([one], listedFrom(1_000));
    expect(Number(await client.zscore(RECENT_KEY, encodeId(user)))).toBeGreaterThan(1_000);
  });

  test("a listing is kept as long as a stream is renewed, and a lost one counts as a lost registration", async () => {
    const key = `sse_recent:listing:${encodeId(user)}`;
    const one = await register(connection("a"), NEVER_LISTED);
    await client.pexpire(key, 60_000);
    expect(await store.renew([one], LISTED_LATELY)).toEqual(new Set());
    expect(await client.pttl(key)).toBeGreaterThan(60_000);
    await client.del(key);
    expect(await store.renew([one], LISTED_LATELY)).toEqual(new Set([one.id]));
    expect((await register(one, LISTED_LATELY)).listing).not.toBe(one.listing);
  });
});
