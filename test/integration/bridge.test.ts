import { afterAll, afterEach, beforeAll, expect, jest, test } from "@jest/globals";
import type { Bridge } from "../../src/bridge/bridge.js";
import { startBridge } from "../../src/bridge/bridge.js";
import { createChannels } from "../../src/bridge/channels.redis.js";
import { createForward } from "../../src/bridge/forward.js";
import { createHeldLetters } from "../../src/bridge/held-letters.js";
import { EVENT_NAMES } from "../../src/contracts/events.js";
import { silent } from "../../src/kernel/logger.js";
import { refusalOf } from "../../src/platform/nats/publish.js";
import { connectSubscriber } from "../../src/platform/redis/connect.js";
import { until } from "../support/brokers.js";
import { type NatsBench, openNats } from "../support/core-nats.js";
import { openRedis, type RedisBench } from "../support/core-redis.js";
import { openStreams, type Streams } from "../support/jetstream.js";

let redis: RedisBench;
let nats: NatsBench;
let streams: Streams;
const cleanups: (() => unknown)[] = [];

beforeAll(async () => {
  [redis, nats] = await Promise.all([openRedis(), openNats()]);
  streams = await openStreams(nats.broker.url);
});
afterAll(async () => {
  await streams.close();
  await Promise.all([redis.close(), nats.close()]);
});
afterEach(async () => {
  jest.restoreAllMocks();
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

/** Since when something may be missing, by each interruption. */
const suspected: number[] = [];

async function bridge(): Promise<Bridge> {
  const subscriber = connectSubscriber([redis.broker.url], silent);
  const forward = createForward({
    admit: nats.publish,
    letters: createHeldLetters({
      store: async (letter) => void (await nats.publish(letter)),
      isRefusal: (error) => refusalOf(error) !== undefined,
      log: silent,
    }),
    maxPayloadBytes: () => 1_000_000,
    numbered: () => undefined,
    version: "0",
    log: silent,
    observe: () => undefined,
  });
  const started = await startBridge({
    channels: createChannels(subscriber, silent),
    forward,
    suspect: (since) => void suspected.push(since),
    log: silent,
    observe: { inFlight: () => undefined, refused: () => undefined },
  });
  cleanups.push(async () => {
    await started.close(1_000);
    subscriber.disconnect();
  });
  return started;
}

test("two bridges admit every event of every channel once, and write one letter for what is invalid", async () => {
  await bridge();
  await bridge();
  const payloads = {
    drop_created: { drop_id: "d1", user_id: "ada", visibility: "public", created_at: 1 },
    drop_deleted: { drop_id: "d1" },
    ap_drop_received: { drop_id: "https://example.org/1", created_at: "2020-01-01T00:00:00Z" },
    user_followed: { follower_id: "bob", following_id: "ada", version: 1 },
    user_unfollowed: { follower_id: "bob", following_id: "ada", version: 2 },
  };
  for (const name of EVENT_NAMES) expect(await redis.raw.publish(name, JSON.stringify(payloads[name]))).toBe(2);
  await redis.raw.publish("drop_created", "{}");
  await redis.raw.publish("unrelated", "{}");
  await until(
    async () => (await streams.count("DROPS")) === 5 && (await streams.count("DLQ")) === 1,
    "all are admitted",
  );
  expect((await streams.all("DROPS")).map(({ subject }) => subject).sort()).toEqual([
    "drops.ap_received",
    "drops.created",
    "drops.deleted",
    "graph.followed",
    "graph.unfollowed",
  ]);
  const [letter] = await streams.all("DLQ");
  expect([letter?.subject, String(letter?.body)]).toEqual(["dlq.invalid.drop_created", "{}"]);
});

test("a link that is cut is opened and subscribed again", async () => {
  const started = await bridge();
  const before = await streams.count("DROPS");
  await redis.raw.call("CLIENT", "KILL", "TYPE", "pubsub");
  await until(
    async () => (await redis.raw.publish("drop_deleted", '{"drop_id":"after the cut"}')) > 0,
    "it is subscribed again",
  );
  await until(async () => (await streams.count("DROPS")) === before + 1, "the event is admitted");
  expect(started.healthy()).toBe(true);
});

test("while it is held the source keeps what is published for us, however long that takes", async () => {
  // The link is looked after every five seconds; here a second is ten ms.
  const [interval, timeout] = [globalThis.setInterval, globalThis.setTimeout];
  jest
    .spyOn(globalThis, "setInterval")
    .mockImplementation(((work: () => void, ms: number) => interval(work, ms / 100)) as typeof setInterval);
  jest
    .spyOn(globalThis, "setTimeout")
    .mockImplementation(((work: () => void, ms?: number) =>
      timeout(work, ms === 5_000 ? 50 : ms)) as typeof setTimeout);
  const subscriber = connectSubscriber([redis.broker.url], silent);
  const channels = createChannels(subscriber, silent);
  cleanups.push(async () => {
    await channels.unsubscribe();
    subscriber.disconnect();
  });
  const seen: string[] = [];
  await channels.subscribe(
    EVENT_NAMES,
    (_, payload) => seen.push(Buffer.from(payload).toString()),
    () => undefined,
  );
  expect(channels.hold(true)).toBe(true);
  const listeners: number[] = [];
  const publish = async (text: string) => listeners.push(await redis.raw.publish("drop_deleted", text));
  for (let count = 0; count < 10; count++) await publish(`${count}`);
  let looks = 0;
  const look = interval(() => looks++, 60);
  await until(() => looks >= 6, "the link was looked after more than once");
  clearInterval(look);
  for (let count = 10; count < 20; count++) await publish(`${count}`);
  channels.hold(false);
  await until(() => subscriber.status === "ready" && seen.length >= 10, "it reads on");
  await publish("last");
  await until(() => seen.includes("last"), "it reads to the end");
  expect(listeners).toEqual(Array(21).fill(1));
  expect(seen).toEqual([...Array.from({ length: 20 }, (_, count) => `${count}`), "last"]);
});
