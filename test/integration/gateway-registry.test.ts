import { beforeAll, beforeEach, describe, expect, test } from "@jest/globals";
import { Redis } from "ioredis";
import { encodeId } from "../../src/kernel/ids.js";
import type { RedisClient } from "../../src/platform/redis/clusters.js";
import type { Broker } from "../../src/sandbox/brokers/index.js";
import {
  connectionKey,
  connectionsOfUserKey,
  connectionsSeenKey,
  listenerPart,
  listingKey,
  RECENT_KEY,
  recentKey,
} from "../../src/state/keys.js";
import {
  type Connection,
  createStreamRegistryStore,
  type Moment,
  type StreamRegistryStore,
} from "../../src/state/listeners/registry.redis.js";
import { moveSlot } from "../support/clusters.js";
import { serversOf } from "../support/servers.js";

describe.each(["one server", "a Redis Cluster"] as const)("the registry on %s", (name) => {
  const bench = serversOf(name);
  let client: RedisClient;
  let store: StreamRegistryStore;
  let users = 0;
  let user: string;
  beforeAll(() => {
    client = bench.client;
    store = createStreamRegistryStore(bench.scripts, { podName: "pod-1", ttlMs: 60_000, windowMs: 600_000 });
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
  const partOf = (of: string): string => listenerPart(of, client.isCluster);
  const recentKeyOf = (of: string): string => recentKey(partOf(of));
  const seenAt = async (of: string): Promise<number> => Number(await client.zscore(recentKeyOf(of), encodeId(of)));
  const LISTED_LATELY = listedFrom(0);
  const NEVER_LISTED = listedFrom(Number.MAX_SAFE_INTEGER);

  // Invariant 11.
  test("users whose last stream ended long ago are forgotten, a thousand at a time, and no others", async () => {
    const key = recentKeyOf(user);
    await client.del(key);
    const ended = Date.now() - 3_600_000;
    const gone = Array.from({ length: 2_500 }, (_, number) => [String(ended + number), `gone-${number}`]);
    await client.zadd(key, ...gone.flat(), String(Date.now()), "here");
    const left: number[] = [];
    for (let more = true; more; left.push(await client.zcard(key))) ({ more } = await store.sweep(Date.now()));
    expect(left).toEqual([1_501, 501, 1]);
    expect(await client.zrange(key, "0", "-1")).toEqual(["here"]);
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
    await client.zrem(recentKeyOf(third.user), encodeId(third.user));
    expect(await store.renew(registered, LISTED_LATELY)).toEqual(new Set([second.id, third.id]));
    await store.remove([first, second], LISTED_LATELY);
    for (const { id, user } of [first, second])
      expect(await client.zmscore(connectionsSeenKey(partOf(user)), id, "")).toEqual([null, null]);
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
    await client.zrem(recentKeyOf(user), encodeId(user));
    expect((await register(connection("e"), LISTED_LATELY)).listing).not.toBe(again.listing);
  });

  // Invariant 7.
  test("a renewal finds streams of an earlier listing, and does not prolong one that has ended", async () => {
    const before = await register(connection("a"), LISTED_LATELY);
    const after = await register(connection("b"), NEVER_LISTED);
    expect(await store.renew([before, after], LISTED_LATELY)).toEqual(new Set([before.id]));
    await client.zadd(recentKeyOf(user), 1_000, encodeId(user));
    expect(await store.renew([after], listedFrom(1_001))).toEqual(new Set([after.id]));
    expect(await seenAt(user)).toBe(1_000);
    expect(await store.renew([after], listedFrom(1_000))).toEqual(new Set());
    expect(await seenAt(user)).toBeGreaterThan(1_000);
  });

  // Invariant 7.
  test("a removal lets the listing last from then on, and does not prolong one that has ended", async () => {
    const one = await register(connection("a"), LISTED_LATELY);
    await client.zadd(recentKeyOf(user), 1_000, encodeId(user));
    await store.remove([one], listedFrom(1_001));
    expect(await seenAt(user)).toBe(1_000);
    await store.remove([one], listedFrom(1_000));
    expect(await seenAt(user)).toBeGreaterThan(1_000);
  });

  // Invariant 7.
  test("a listing of a gateway of 0.1.0 does not go on here in a cluster: its client gets a reset", async () => {
    await client.zadd(RECENT_KEY, Date.now(), encodeId(user));
    const before = listingKey(listenerPart(user, false), user);
    await client.set(before, "before");
    const { listing } = await register(connection("a"), LISTED_LATELY);
    expect(listing === "before").toBe(!client.isCluster);
    expect(await client.get(before)).toBe("before");
    expect(await seenAt(user)).toBeGreaterThan(0);
  });

  test("a listing is kept as long as a stream is renewed, and a lost one counts as a lost registration", async () => {
    const key = listingKey(partOf(user), user);
    const one = await register(connection("a"), NEVER_LISTED);
    await client.pexpire(key, 60_000);
    expect(await store.renew([one], LISTED_LATELY)).toEqual(new Set());
    expect(await client.pttl(key)).toBeGreaterThan(60_000);
    await client.del(key);
    expect(await store.renew([one], LISTED_LATELY)).toEqual(new Set([one.id]));
    expect((await register(one, LISTED_LATELY)).listing).not.toBe(one.listing);
  });

  if (name === "a Redis Cluster")
    test("streams are registered and renewed while the slot of their users moves", async () => {
      const { masters } = bench.cluster;
      const one = await register(connection("a"), LISTED_LATELY);
      const other = Array.from({ length: 1_000 }, (_, at) => `${user} ${at}`).find((of) => partOf(of) === partOf(user));
      const beside = { ...connection("b"), id: `b.${other}`, user: other as string };
      const slot = Number(await client.call("CLUSTER", "KEYSLOT", recentKeyOf(user)));
      const from = masters[Math.floor((slot * masters.length) / 16_384)] as Broker;
      const to = masters.find((master) => master !== from) as Broker;
      await beginMove(slot, from, to);
      const registering = register(beside, LISTED_LATELY);
      const renewing = store.renew([one], LISTED_LATELY);
      const [registered, gone] = await Promise.all([registering, renewing, moveSlot(bench.cluster, slot, from, to)]);
      expect(gone).toEqual(new Set());
      expect(await store.renew([one, registered], LISTED_LATELY)).toEqual(new Set());
    });
});

async function beginMove(slot: number, from: Broker, to: Broker): Promise<void> {
  const [source, target] = [new Redis(from.url), new Redis(to.url)];
  await target.call("CLUSTER", "SETSLOT", slot, "IMPORTING", String(await source.call("CLUSTER", "MYID")));
  await source.call("CLUSTER", "SETSLOT", slot, "MIGRATING", String(await target.call("CLUSTER", "MYID")));
  for (const link of [source, target]) link.disconnect();
}
