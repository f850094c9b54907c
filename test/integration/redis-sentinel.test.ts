import { once } from "node:events";
import { afterAll, afterEach, beforeAll, expect } from "@jest/globals";
import type { Redis } from "ioredis";
import { AppError } from "../../src/kernel/errors.js";
import { silent } from "../../src/kernel/logger.js";
import { connectRedis, connectSubscriber } from "../../src/platform/redis/connect.js";
import { createScripts } from "../../src/platform/redis/scripts.js";
import { dataNodes, hasSentinels, readMasters, servesCluster } from "../../src/platform/redis/servers.js";
import { trackChanges } from "../../src/platform/redis/tracking.js";
import { freeze } from "../support/brokers.js";
import { eventually } from "../support/eventually.js";
import { MASTER, type Sentinels, startSentinels, urlsOf } from "../support/sentinels.js";
import { slowTest, quickTest as test } from "../support/suite.js";

let group: Sentinels;
const cleanups: (() => unknown)[] = [];

beforeAll(async () => {
  group = await startSentinels();
}, 120_000);
afterAll(() => group.stop());
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

async function openClient() {
  const client = connectRedis(urlsOf(group.url()), silent) as Redis;
  cleanups.push(() => client.disconnect());
  await eventually(() => client.status === "ready", "the client is connected");
  return { client, scripts: createScripts(client) };
}

async function openSubscriber() {
  const subscriber = connectSubscriber(urlsOf(group.url()), silent);
  cleanups.push(() => subscriber.disconnect());
  const heard = new Set<string>();
  subscriber.on("message", (_, message) => heard.add(message));
  await subscriber.subscribe("news");
  subscriber.on("ready", () => void subscriber.subscribe("news").catch(() => undefined));
  return { heard };
}

const runIdOf = async (server: Redis): Promise<string> =>
  /run_id:(\w+)/.exec(await server.info("server"))?.[1] as string;

/** Writes on until it is told to stop, one number after the other, and keeps which writes were confirmed. */
function writeOn(write: (number: number) => Promise<unknown>) {
  const confirmed: number[] = [];
  const refused = new Set<string>();
  let stopping = false;
  const ended = (async () => {
    for (let number = 0; !stopping; number++) {
      await write(number).then(
        () => confirmed.push(number),
        async (error: unknown) => {
          refused.add(error instanceof AppError ? error.code : `not ours: ${String(error)}`);
          await new Promise((resolve) => setTimeout(resolve, 5));
        },
      );
    }
  })();
  const stop = async (): Promise<void> => {
    stopping = true;
    await ended;
  };
  cleanups.push(stop);
  return { confirmed, refused, stop };
}

test("a master goes by its name, and is no cluster", async () => {
  const { client, scripts } = await openClient();
  expect([await servesCluster(scripts), hasSentinels(client)]).toEqual([false, true]);
  expect(await readMasters(client)).toMatchObject([{ node: MASTER, reachable: true }]);
});

// Invariants 2, 8.
test("through a failover that an operator asks for commands fail at once, and go on at the successor", async () => {
  const former = await group.master();
  await expectGoesOn(
    () => group.failover(),
    async () => {
      // What it takes is lost, until the sentinels make it a replica.
      expect(await group.open(former).info("replication")).toContain("role:master");
    },
  );
}, 120_000);

slowTest(
  "through a failover that follows a kill commands fail at once, and go on at the successor",
  () =>
    expectGoesOn(async () => {
      const former = await group.master();
      former.kill("SIGKILL");
      await former.exited;
      await group.replaced(former);
      await group.restart(former);
    }),
  120_000,
);

async function expectGoesOn(failover: () => Promise<void>, left = async () => {}): Promise<void> {
  await group.untilReplicated();
  const { client, scripts } = await openClient();
  const { heard } = await openSubscriber();
  const tracking = trackChanges({ scripts, channel: "gone", publisher: "gone-drops", log: silent });
  cleanups.push(() => tracking.close());
  const changed = new Set<string>();
  let lost = 0;
  tracking.announcements.on("changed", (key) => changed.add(key));
  tracking.announcements.on("lost", () => lost++);
  await eventually(() => tracking.isOn([""]), "changes are followed");
  const before = await runIdOf(client);
  const publisher = group.open(await group.master());
  await eventually(async () => {
    await publisher.publish("news", "before");
    return heard.has("before");
  }, "the subscriber hears the master");
  const load = writeOn((number) => scripts.command("set", (one) => one.set(`written-${number}`, number)));
  await eventually(() => load.confirmed.length > 100, "the writer writes");
  await failover();
  const isLeft = () =>
    runIdOf(client).then(
      (runId) => runId !== before,
      () => false,
    );
  await eventually(isLeft, "the client is at the successor");
  await left();
  const atSuccessor = load.confirmed.length;
  await eventually(() => load.confirmed.length > atSuccessor + 100, "the writer writes on");
  await load.stop();
  expect([...load.refused]).toEqual(["unavailable"]);
  expect((await dataNodes(scripts)).map(({ runId }) => runId)).not.toContain(before);

  const successor = group.open(await group.master());
  const kept = new Set((await successor.keys("written-*")).map((key) => Number(key.slice("written-".length))));
  // What the replica had not received is lost: the last writes before the failover, and none after it.
  const missing = load.confirmed.filter((number) => !kept.has(number));
  const [first = Number.POSITIVE_INFINITY, last = 0] = [missing[0], missing.at(-1)];
  expect(load.confirmed.filter((number) => number >= first && number <= last)).toEqual(missing);
  expect(missing.length).toBeLessThan(load.confirmed.length - 100);

  await eventually(async () => {
    await successor.publish("news", "after");
    return heard.has("after");
  }, "the subscriber hears the successor");
  await eventually(() => tracking.isOn([""]), "changes are followed again");
  expect(lost).toBeGreaterThan(0);
  expect(await tracking.follow(["followed"])).toBe(true);
  await successor.set("followed", "new");
  await eventually(() => changed.has("followed"), "a change at the successor is announced");
}

// Invariant 8.
slowTest(
  "a master that only stopped answering is left although its connections stay open",
  async () => {
    await group.untilReplicated();
    const { client } = await openClient();
    await openSubscriber();
    const former = await group.master();
    let closed = 0;
    client.on("close", () => closed++);
    await freeze(former);
    cleanups.push(() => former.kill("SIGCONT"));
    await group.replaced(former);
    await eventually(() => closed > 0 && client.status === "ready", "the idle client is at the successor");
    const successor = group.open(await group.master());
    expect(await runIdOf(client)).toBe(await runIdOf(successor));
    await eventually(
      async () => Number((await successor.pubsub("NUMSUB", "news"))[1]) === 1,
      "the idle subscriber is at the successor",
    );
  },
  120_000,
);

// A sentinel that was stopped begins no failover for half a minute: these tests are the last.

test("while the sentinels are away a connection stays, and a lost one is sought until they are back", async () => {
  const { client, scripts } = await openClient();
  const get = () => scripts.command("get", (one) => one.get("key"));
  for (const sentinel of group.sentinels) await freeze(sentinel);
  const thaw = () => group.sentinels.map((sentinel) => sentinel.kill("SIGCONT"));
  cleanups.push(thaw);
  await get();
  const errors: Error[] = [];
  client.on("error", (error) => errors.push(error));
  client.disconnect(true);
  await eventually(() => errors.length > 0, "no sentinel answers");
  await expect(get()).rejects.toMatchObject({ code: "unavailable" });
  expect(errors[0]?.message).toMatch(/^Redis: no sentinel tells the address of the master: Redis Sentinel 127/);
  // A search that is ended by a wish for another connection begins anew.
  client.disconnect(true);
  thaw();
  await eventually(
    () =>
      get().then(
        () => true,
        () => false,
      ),
    "commands go on",
  );
}, 120_000);

test("a client that is closed while it seeks the master ends", async () => {
  for (const sentinel of group.sentinels) await freeze(sentinel);
  cleanups.push(() => group.sentinels.map((sentinel) => sentinel.kill("SIGCONT")));
  const client = connectRedis(urlsOf(group.url()), silent);
  const ended = once(client, "end");
  client.disconnect();
  await ended;
  expect(client.status).toBe("end");
});
