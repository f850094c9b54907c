import { setImmediate as nextTurn } from "node:timers/promises";
import { afterAll, beforeAll, beforeEach, expect, test } from "@jest/globals";
import slotOf from "cluster-key-slot";
import { type Cluster, Redis } from "ioredis";
import { GetTimelineResponse } from "../../src/gen/avion/timeline.js";
import { chunked } from "../../src/kernel/concurrency.js";
import { silent } from "../../src/kernel/logger.js";
import { connectRedis, listenerBeside } from "../../src/platform/redis/connect.js";
import { createScripts, type Scripts } from "../../src/platform/redis/scripts.js";
import { trackChanges } from "../../src/platform/redis/tracking.js";
import { readPage } from "../../src/reads/pages.js";
import type { Broker } from "../../src/sandbox/brokers/index.js";
import { isIncomplete } from "../../src/state/entries/stored.js";
import { createFences } from "../../src/state/fences/fences.js";
import { startTombstoneCopy } from "../../src/state/fences/tombstone-copy.redis.js";
import type { Fences } from "../../src/state/fences/types.js";
import { DELETIONS_CHANNEL, hiddenKeyOfHome, TOMBSTONES_KEY } from "../../src/state/keys.js";
import { moveSlot, ownerAtFirst, type RedisCluster, startRedisCluster } from "../support/clusters.js";
import { eventually } from "../support/eventually.js";
import { historyOf } from "../support/memory-upstreams.js";
import { TcpProxy } from "../support/proxy.js";
import { below, seeded } from "../support/random.js";
import { adaptersOn } from "../support/redis.js";

const HOMES = Array.from({ length: 60 }, (_, n) => `timeline:home:user-${n}`);
const DROPS = 10;
const dropOf = (home: string, n: number): string => `${home.slice(-2)}-é-${n}`;
const SLOT = slotOf(TOMBSTONES_KEY);

let cluster: RedisCluster;
/** The connections of other processes. */
let raw: Cluster;
let fences: Fences;
/** Between the first master of the tombstones and the connections that announce to the reader. */
let proxy: TcpProxy;
let holder: Broker;
const connect = async (): Promise<Cluster> => {
  const one = connectRedis(cluster.urls.split(","), silent) as Cluster;
  await eventually(() => one.status === "ready", "Redis is connected");
  return one;
};
beforeAll(async () => {
  cluster = await startRedisCluster({ replicas: true });
  holder = cluster.masters[ownerAtFirst(SLOT)] as Broker;
  proxy = await TcpProxy.open(holder.port);
  raw = await connect();
  fences = fencesOn(createScripts(raw));
});
afterAll(async () => {
  raw?.disconnect();
  await proxy?.close();
  await cluster?.stop();
});
beforeEach(async () => {
  await Promise.all(raw.nodes("master").map((node) => node.flushall()));
  await raw.zadd(TOMBSTONES_KEY, 0, "~floor");
  for (const home of HOMES) {
    await raw.hset(hiddenKeyOfHome(home), "~state", "complete");
    await raw.zadd(home, 0, "~floor", ...Array.from({ length: DROPS }, (_, n) => [n + 1, dropOf(home, n)]).flat());
  }
});

const fencesOn = (scripts: Scripts) =>
  createFences({
    store: adaptersOn(scripts, { maxEntries: 100 }).fenceStore,
    readHistory: historyOf([]),
    log: silent,
  });

/** Homes keep the drop: only its tombstone hides it. */
async function remove(...drops: readonly string[]): Promise<void> {
  await fences.recordTombstones(drops.map((drop) => ({ drop, time: Date.now() })));
}

/** A process that reads pages; `heard` counts its commands, and the answers to its scripts. */
async function openReader(most?: number) {
  const client = await connect();
  const real = createScripts(client);
  const heard = new Map<string, number>();
  const hear = (name: string): unknown => heard.set(name, (heard.get(name) ?? 0) + 1);
  const command: Scripts["command"] = (name, call) => {
    hear(name);
    return real.command(name, call);
  };
  const run: Scripts["run"] = (script, ...of) => real.run(script, ...of).finally(() => hear(script.name));
  const scripts = { ...real, command, run };
  const listen = (server: Redis): Redis => {
    if (server.options.port !== holder.port) return listenerBeside(server);
    const { port } = new URL(proxy.url("redis"));
    return listenerBeside(server.duplicate({ port: Number(port), lazyConnect: true }));
  };
  const of = { channel: DELETIONS_CHANNEL, publisher: TOMBSTONES_KEY, log: silent };
  const tracking = trackChanges({ scripts, ...of, listen });
  const tombstones = startTombstoneCopy({ scripts, tracking, log: silent, ...(most && { most }) });
  const { store } = adaptersOn(scripts, { maxEntries: 100, tombstones });
  const ofReader = fencesOn(scripts);
  return {
    ...{ client, heard, tracking, tombstones },
    copied: () => eventually(async () => (await tombstones.upToDate()) !== undefined, "there is a copy", 30_000),
    async shown(home: string): Promise<readonly string[]> {
      const page = await store.readFirstPage(home, { drops: DROPS, since: 0 });
      if (Buffer.isBuffer(page)) return GetTimelineResponse.decode(page).drop_ids;
      const query = { direction: "older", above: undefined, below: undefined, count: DROPS } as const;
      const read = await readPage({ store, fences: ofReader }, home, query);
      if (isIncomplete(read)) throw new Error("the home is not complete");
      return read.entries.map(({ drop }) => drop);
    },
    async close(): Promise<void> {
      await tombstones.close();
      await tracking.close();
      client.disconnect();
    },
  };
}

type Reader = Awaited<ReturnType<typeof openReader>>;

async function withReader(work: (reader: Reader) => Promise<void>, most?: number): Promise<void> {
  const reader = await openReader(most);
  try {
    await work(reader);
  } finally {
    proxy.set("pass");
    proxy.refuse(false);
    await reader.close();
  }
}

const home = HOMES[0] as string;
const dead = dropOf(home, 3);

// Invariant 4.
test("only pages that may show a deleted drop ask the node of the tombstones about their drops", () =>
  withReader(async ({ copied, shown, heard }) => {
    await remove(dead);
    await copied();
    for (const other of HOMES.slice(1)) expect(await shown(other)).toHaveLength(DROPS);
    expect(heard.get("zmscore")).toBeUndefined();
    expect(await shown(home)).not.toContain(dead);
    expect(heard.get("zmscore")).toBeGreaterThan(0);
  }));

// Invariant 4.
test("a page waits for announcements of earlier deletions that are held back", () =>
  withReader(async ({ heard, copied, shown }) => {
    await copied();
    proxy.set("pause", "toClient");
    await remove(dead);
    await eventually(() => proxy.heldBack("toClient") > 0, "an announcement is held back");
    let isAnswered = false;
    const page = shown(home).finally(() => {
      isAnswered = true;
    });
    await eventually(() => heard.get("read-page") === 1, "the node of the home has answered");
    for (let turns = 0; turns < 10; turns++) await nextTurn();
    expect(isAnswered).toBe(false);
    proxy.set("pass", "toClient");
    expect(await page).not.toContain(dead);
  }));

// Invariant 4.
test("a process that stood still while a drop was deleted does not show it", () =>
  withReader(async ({ copied, shown }) => {
    await copied();
    const deleter = new Redis(holder.url);
    await deleter.ping();
    // The deletion is sent before the process stands still, and announced while it does.
    const removed = deleter.multi().zadd(TOMBSTONES_KEY, 1, dead).publish(DELETIONS_CHANNEL, dead).exec();
    const until = performance.now() + 200;
    while (performance.now() < until);
    const page = shown(home);
    await removed;
    deleter.disconnect();
    expect(await page).not.toContain(dead);
  }));

// Invariant 4.
test("drops that are deleted while the tombstones are copied are on no page", () =>
  withReader(async ({ copied, shown, heard }) => {
    const all = Array.from({ length: 40_000 }, (_, n) => [1, `other-${n}`]).flat();
    await raw.zadd(TOMBSTONES_KEY, ...all);
    // The copy of few tombstones is lost with the connection.
    await copied();
    heard.clear();
    proxy.cut();
    await eventually(() => (heard.get("zscan") ?? 0) > 5, "they are copied again");
    await remove(...HOMES.map((one) => dropOf(one, 3)));
    await copied();
    for (const one of HOMES) expect(await shown(one)).not.toContain(dropOf(one, 3));
  }));

// Invariant 4.
test("a copy is lost with the connection that announces", () =>
  withReader(async ({ client, heard, copied, shown, tombstones, tracking }) => {
    await copied();
    // Those of other nodes announce no deletions.
    let losses = 0;
    tracking.announcements.on("lost", () => losses++);
    const nodes = HOMES.map((one) => client.slots[slotOf(one)]?.[0] as string);
    await eventually(() => tracking.isOn(nodes), "changes on all nodes are followed");
    heard.clear();
    for (const { url } of cluster.masters.filter((one) => one !== holder)) {
      const other = new Redis(url);
      await other.call("CLIENT", "KILL", "TYPE", "pubsub");
      other.disconnect();
    }
    await eventually(() => losses === 2, "the connections to two nodes are lost");
    expect(await tombstones.upToDate()).toBeDefined();
    expect(heard.get("zscan")).toBeUndefined();
    proxy.refuse(true);
    await remove(dead);
    expect(await shown(home)).not.toContain(dead);
    proxy.refuse(false);
    await eventually(() => tracking.isOn([]), "changes are followed again");
    expect(await shown(home)).not.toContain(dead);
    await copied();
    expect(await shown(home)).not.toContain(dead);
  }));

const moved = (): Broker => cluster.masters.find((one) => one !== holder) as Broker;

// Invariant 4.
test("after the slot of the tombstones has moved, no page shows a drop deleted since", () =>
  withReader(async ({ copied, shown }) => {
    await copied();
    await moveSlot(cluster, SLOT, holder, moved());
    await remove(dead);
    expect(await shown(home)).not.toContain(dead);
    await copied();
    expect(await shown(home)).not.toContain(dead);
    await moveSlot(cluster, SLOT, moved(), holder);
    expect(await shown(home)).not.toContain(dead);
  }));

// Invariant 4.
test("a slot of the tombstones that is back before the next page was asked for hides no deletion made meanwhile", () =>
  withReader(async ({ client, copied, shown }) => {
    const knows = (owner: Broker) =>
      eventually(async () => {
        await client.zcard(TOMBSTONES_KEY);
        return client.slots[SLOT]?.[0]?.endsWith(`:${owner.port}`) === true;
      }, "the reader knows who has the slot");
    const beside = new Redis(holder.url);
    await beside.subscribe(DELETIONS_CHANNEL);
    const heard: string[] = [];
    beside.on("message", (_, drop) => heard.push(drop));
    await copied();
    await moveSlot(cluster, SLOT, holder, moved());
    await knows(moved());
    await remove(dead);
    await eventually(() => heard.includes(dead), "the former node hands on the announcement");
    await moveSlot(cluster, SLOT, moved(), holder);
    await knows(holder);
    beside.disconnect();
    expect(await shown(home)).not.toContain(dead);
  }));

// Invariant 4.
test("a copy is whole although the slot of the tombstones moved there and back while it was made", () =>
  withReader(async ({ heard, copied, tombstones }) => {
    const all = Array.from({ length: 100_000 }, (_, n) => `other-${n}`);
    for (const some of chunked(all, 10_000)) await raw.zadd(TOMBSTONES_KEY, ...some.flatMap((drop) => [1, drop]));
    const scanned = (more: number) => {
      const before = heard.get("zscan") ?? 0;
      return eventually(() => (heard.get("zscan") ?? 0) >= before + more, "the tombstones are scanned");
    };
    await scanned(5);
    await moveSlot(cluster, SLOT, holder, moved());
    await scanned(2);
    await moveSlot(cluster, SLOT, moved(), holder);
    await copied();
    const copy = await tombstones.upToDate();
    expect(all.filter((drop) => !copy?.mayHave(Buffer.from(drop)))).toEqual([]);
  }));

// Invariants 4 and 5.
test("tombstones that are not complete, or too many, are not copied, and pages show no deleted drop", () =>
  withReader(async ({ copied, shown, heard, tombstones }) => {
    await copied();
    await remove(...Array.from({ length: 20 }, (_, n) => `other-${n}`), dead);
    expect(await shown(home)).not.toContain(dead);
    expect(await tombstones.upToDate()).toBeUndefined();
    heard.clear();
    await eventually(() => (heard.get("zcard") ?? 0) > 1, "their number is asked for");
    expect(heard.get("zscan")).toBeUndefined();
    await raw.del(TOMBSTONES_KEY);
    heard.clear();
    await eventually(() => (heard.get("zscore") ?? 0) > 1, "their floor is asked for");
    expect(await tombstones.upToDate()).toBeUndefined();
  }, 10));

// Invariant 4.
test.each([1, 2])("history %i: a page shows no drop that was deleted before it was asked for", (seed) =>
  withReader(async ({ copied, shown, tombstones }) => {
    const random = seeded(seed);
    await copied();
    const removed = new Set<string>();
    const alive = HOMES.flatMap((one) => Array.from({ length: DROPS }, (_, n) => dropOf(one, n)));
    let [copies, done, reads] = [0, false, 0];
    const read = async (): Promise<void> => {
      while (!done) {
        const one = HOMES[below(random, HOMES.length)] as string;
        const before = new Set(removed);
        const drops = await shown(one).catch(() => []);
        expect(drops.filter((drop) => before.has(drop))).toEqual([]);
        if (await tombstones.upToDate()) copies++;
        reads++;
      }
    };
    const readers = Array.from({ length: 8 }, read);
    for (let at = 0; at < 300; at++) {
      const [drop = ""] = alive.splice(below(random, alive.length), 1);
      if (at % 60 === 30) proxy.cut();
      proxy.set(at % 3 === 0 ? "pause" : "pass", "toClient");
      await remove(drop);
      removed.add(drop);
      // Pages are read while the announcement is held back.
      if (at % 15 === 0) for (let times = 0; times < 5; times++) for (const one of HOMES) await raw.zcard(one);
      if (at % 60 === 50) {
        proxy.set("pass");
        await copied();
      }
    }
    proxy.set("pass");
    done = true;
    await Promise.all(readers);
    expect([reads > 300, copies > 50]).toEqual([true, true]);
  }),
);

// Invariant 4.
test("after a failover of the tombstones' node no page shows what its successor has recorded as deleted", () =>
  withReader(async ({ client, copied, shown }) => {
    await copied();
    const far = HOMES.find((one) => ownerAtFirst(slotOf(one)) !== ownerAtFirst(SLOT)) as string;
    holder.kill("SIGKILL");
    const isHeldElsewhere = (): boolean => raw.slots[SLOT]?.[0]?.endsWith(`:${holder.port}`) === false;
    const asked = () =>
      raw.zcard(TOMBSTONES_KEY).then(
        (held) => held > 0 && isHeldElsewhere(),
        () => false,
      );
    await eventually(asked, "a replica takes over", 30_000);
    await remove(dropOf(far, 3));
    await eventually(async () => {
      const drops = await shown(far).catch(() => undefined);
      if (drops) expect(drops).not.toContain(dropOf(far, 3));
      return drops !== undefined;
    }, "a page is answered");
    await copied();
    expect(await shown(far)).not.toContain(dropOf(far, 3));
    expect(client.slots[SLOT]?.[0]?.endsWith(`:${holder.port}`)).toBe(false);
  }));
