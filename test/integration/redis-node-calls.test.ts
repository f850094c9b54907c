import { afterAll, beforeAll, beforeEach, describe, expect, test } from "@jest/globals";
import slotOf from "cluster-key-slot";
import { type Cluster, Redis } from "ioredis";
import { type Logger, silent } from "../../src/kernel/logger.js";
import { redisUrls } from "../../src/kernel/urls.js";
import { clusterOf, clustersOf } from "../../src/platform/redis/clusters.js";
import { connectRedis } from "../../src/platform/redis/connect.js";
import { createScripts, inOrder, type Script } from "../../src/platform/redis/scripts.js";
import type { Broker } from "../../src/sandbox/brokers/index.js";
import { ADD_ENTRIES } from "../../src/state/entries/writer.redis.js";
import { HOME_PREFIX, hiddenKey, packKeys } from "../../src/state/keys.js";
import { moveSlot, type RedisCluster, type RedisClusters, startRedisClusters } from "../support/clusters.js";
import { eventually } from "../support/eventually.js";
import { fencedOn } from "../support/redis.js";

describe.each([1, 2])("Redis Clusters: %i", (count) => {
  let servers: RedisClusters;
  let client: Cluster;
  const connect = async (): Promise<Cluster> => {
    const one = connectRedis(redisUrls.parse(servers.urls), silent) as Cluster;
    await eventually(() => one.status === "ready", "Redis is connected");
    return one;
  };
  beforeAll(async () => {
    servers = await startRedisClusters(count);
    client = await connect();
  });
  afterAll(async () => {
    client?.disconnect();
    await servers?.stop();
  });
  beforeEach(() => Promise.all(client.nodes("master").map((node) => node.flushall())));

  const clusterAt = (key: string) => servers.clusters[clusterOf(key, count)] as RedisCluster;

  const KEYS = Array.from({ length: 300 }, (_, number) => `key-${number}`);

  /** Appends to each key that ARGV names, and returns how long it is then. */
  const APPEND: Script = {
    name: "append",
    lua: "local all = {} for i = 1, #ARGV do all[i] = redis.call('RPUSH', ARGV[i], 'x') end return all",
    spanned: false,
    inBytes: false,
  };

  /** Scripts on the cluster, and how many calls they made. */
  function open(log: Logger = silent, on = client) {
    const scripts = createScripts(on, log);
    const calls: (readonly string[])[] = [];
    const append = async (keys: readonly string[]): Promise<number[]> => {
      const answers = await scripts.byNode(keys, 500, async (route, indexes) => {
        const some = indexes.map((index) => keys[index] as string);
        calls.push(some);
        return (await scripts.run(APPEND, route, some)) as number[];
      });
      return inOrder(answers);
    };
    return { scripts, calls, append };
  }

  const masterOf = (key: string): Broker => {
    const name = createScripts(client).nodeOf(key);
    return clusterAt(key).masters.find(({ port }) => name.endsWith(`:${port}`)) as Broker;
  };
  const otherMaster = (key: string): Broker => clusterAt(key).masters.find((one) => one !== masterOf(key)) as Broker;

  test("keys of any slots get one call a node, and the replies are in their order", async () => {
    const { calls, append } = open();
    const twice = KEYS.flatMap((key, at) => (at % 3 === 0 ? [key, key] : [key]));
    const lengths = await append(twice);
    expect(lengths).toEqual(KEYS.flatMap((_, at) => (at % 3 === 0 ? [1, 2] : [1])));
    expect(calls).toHaveLength(3 * count);
    expect(await append(KEYS.slice(0, 1))).toEqual([3]);
    await expect(append([])).resolves.toEqual([]);
  });

  // Invariant 1.
  test("keys of a slot that has moved get calls of their own, and the others of their node are not lost", async () => {
    const { calls, append } = open();
    await append(KEYS);
    const [moved = ""] = KEYS;
    const [from, to] = [masterOf(moved), otherMaster(moved)];
    expect(await moveSlot(clusterAt(moved), slotOf(moved), from, to)).toBeGreaterThan(0);
    calls.length = 0;
    const lengths = await append(KEYS);
    // The node did the keys before the moved one already: a script may run twice.
    expect(lengths.every((length) => length === 2 || length === 3)).toBe(true);
    expect(calls.filter((some) => some.length === 1).length).toBeGreaterThan(30);
    // The client learns the slot from the refusal; what it asks a master of the others for may be older for a moment.
    await eventually(async () => {
      calls.length = 0;
      expect((await append(KEYS)).every((length) => length > 2)).toBe(true);
      return calls.length === 3 * count;
    }, "the client knows the slot");
  });

  // Invariants 1 and 8.
  test("while a slot moves, drops reach the homes that have moved, those that have not, and those that are new", async () => {
    const users = KEYS.map((_, number) => `user-${number}`);
    const homes = users.map((user) => HOME_PREFIX + user);
    const { scripts } = open();
    const add = (drop: string) =>
      fencedOn(scripts).groups({
        ...{ script: ADD_ENTRIES, prefix: HOME_PREFIX, before: [10, 9, 0, "0", "homes"] },
        groups: [{ keys: packKeys(users), items: [[1, drop, "eve"]] }],
      });
    const [here = ""] = homes;
    const slot = slotOf(here);
    const [from, to] = [masterOf(here), otherMaster(here)];
    for (const user of users) await client.hset(hiddenKey(user), "~state", "complete");
    expect(await add("before")).toBe(300);
    const [source, target] = [new Redis(from.url), new Redis(to.url)];
    try {
      const [sourceId, targetId] = [await source.call("CLUSTER", "MYID"), await target.call("CLUSTER", "MYID")];
      await target.call("CLUSTER", "SETSLOT", slot, "IMPORTING", String(sourceId));
      await source.call("CLUSTER", "SETSLOT", slot, "MIGRATING", String(targetId));
      await add("begun");
      // What a script asks for beside a home may have gone ahead: that is an outage, and ends with the move.
      const hidden = hiddenKey(users[0] as string);
      await source.call("MIGRATE", "127.0.0.1", to.port, hidden, 0, 5_000);
      await expect(add("half")).rejects.toMatchObject({ code: "unavailable" });
      await source.call("MIGRATE", "127.0.0.1", to.port, here, 0, 5_000);
      await add("half");
      await add("migrated");
      for (const one of [target, source]) await one.call("CLUSTER", "SETSLOT", slot, "NODE", String(targetId));
      await add("after");
    } finally {
      source.disconnect();
      target.disconnect();
    }
    const held = await Promise.all(homes.map((home) => client.zrange(home, 0, "-1")));
    for (const drops of held) expect([...drops].sort()).toEqual(["after", "before", "begun", "half", "migrated"]);
    await eventually(async () => {
      const infos = await Promise.all(clustersOf(client).map((one) => one.cluster("INFO")));
      return infos.every((info) => String(info).includes("cluster_state:ok"));
    }, "it is whole");
  });

  test("a server that lets a script use one slot only is noticed, told of once, and served key by key", async () => {
    const warned: string[] = [];
    const log = { ...silent, warn: (_: object, line: string) => void warned.push(line) };
    // A script with a shebang has no flags that it does not name.
    const strict = await connect();
    const define = strict.defineCommand.bind(strict);
    strict.defineCommand = (name, { lua }) => define(name, { lua: `#!lua\n${lua}` });
    const { scripts, calls, append } = open(log, strict);
    expect((await append(KEYS)).every((length) => length === 1 || length === 2)).toBe(true);
    expect(scripts.servesOneSlotOnly()).toBe(true);
    calls.length = 0;
    await append(KEYS);
    expect(calls).toHaveLength(300);
    const users = KEYS.map((_, number) => `user-${number}`);
    const added = await fencedOn(scripts).groups({
      ...{ script: ADD_ENTRIES, prefix: HOME_PREFIX, before: [10, 9, 0, "0", "homes"] },
      groups: [{ keys: packKeys(users), items: [[1, "drop", "eve"]] }],
    });
    expect(added).toBe(300);
    expect(warned).toHaveLength(1);
    strict.disconnect();
  });
});
