import { randomUUID } from "node:crypto";
import { afterAll, afterEach, beforeAll, expect, test } from "@jest/globals";
import { createChannels } from "../../src/bridge/channels.redis.js";
import { type Bridge, startBridge, watchNeighbours } from "../../src/bridge/index.js";
import { CHANNELS } from "../../src/contracts/channels.js";
import { silent } from "../../src/kernel/logger.js";
import { HOUR, wallTimeOf } from "../../src/kernel/time.js";
import { connectSubscriber } from "../../src/platform/redis/connect.js";
import { createNamesErased } from "../../src/state/erased/erased-letters.js";
import { erasedOn } from "../support/erased.js";
import { becomes, eventually } from "../support/eventually.js";
import { type NatsBench, openNats } from "../support/nats.js";
import { TcpProxy } from "../support/proxy.js";
import { openRedis, type RedisBench } from "../support/redis.js";
import { openStreams, type Streams } from "../support/streams.js";

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
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

interface Installed {
  readonly channelPrefix?: string;
  /** The name that the log of this installation shares with its Redis. */
  readonly log?: string;
  readonly readLog?: () => string;
  readonly failed?: (text: string) => void;
  readonly everyMs?: number;
}

async function bridge({
  channelPrefix = "",
  log: name = randomUUID(),
  readLog = () => name,
  failed,
  everyMs = HOUR,
}: Installed = {}): Promise<Bridge> {
  const subscriber = connectSubscriber([redis.broker.url], silent);
  const neighbours = watchNeighbours({
    ...{ subscriber, publisher: redis.client, channelPrefix, everyMs },
    log: failed ? Object.assign(Object.create(silent), { error: (_: object, text: string) => failed(text) }) : silent,
    process: "bridge-1",
    readLog: async () => readLog(),
  });
  const started = await startBridge({
    subscriber,
    channelPrefix,
    neighbours,
    nats: nats.connection,
    publishAll: nats.publishAll,
    storeDeadLetter: async (deadLetter) => void (await nats.publish(deadLetter)),
    namesErased: createNamesErased(erasedOn(redis.scripts, nats)),
    requestReconcile: () => undefined,
    version: "0",
    exportsTraces: false,
    log: silent,
  });
  cleanups.push(async () => {
    await started.close(1_000);
    subscriber.disconnect();
  });
  return started;
}

/** A source of its own on Redis, or behind a proxy before it. */
function channelsOn(url: string) {
  const subscriber = connectSubscriber([url], silent);
  const channels = createChannels(subscriber, silent);
  cleanups.push(async () => {
    await channels.unsubscribe();
    subscriber.disconnect();
  });
  return { subscriber, channels };
}

/** A link is pinged every five seconds, and cut after five more; here a second of these is ten ms. */
function hastenPings(): void {
  const { setInterval, setTimeout } = globalThis;
  cleanups.push(() => Object.assign(globalThis, { setInterval, setTimeout }));
  const hastened = (ms?: number) => (ms === 5_000 ? 50 : ms);
  Object.assign(globalThis, {
    setInterval: (work: () => void, ms?: number) => setInterval(work, hastened(ms)),
    setTimeout: (work: () => void, ms?: number) => setTimeout(work, hastened(ms)),
  });
}

test("two bridges admit every event of every channel once, and write one dead letter for an invalid payload", async () => {
  const log = randomUUID();
  const bridges = [await bridge({ log }), await bridge({ log })];
  const payloads = {
    drop_created: { drop_id: "d1", user_id: "ada", visibility: "public", created_at: 1 },
    drop_deleted: { drop_id: "d1" },
    drop_edited: { drop_id: "d1", user_id: "ada", revision: 2, updated_at: 1 },
    ap_drop_received: { drop_id: "https://example.org/1", created_at: "2020-01-01T00:00:00Z" },
    user_followed: { follower_id: "bob", following_id: "ada", version: 1 },
    user_unfollowed: { follower_id: "bob", following_id: "ada", version: 2 },
    user_blocked: { user_id: "bob", target_id: "ada", version: 1 },
    user_unblocked: { user_id: "bob", target_id: "ada", version: 2 },
    user_muted: { user_id: "bob", target_id: "ada", version: 1, expires_at: 1, reposts_only: true },
    user_unmuted: { user_id: "bob", target_id: "ada", version: 2 },
    user_erased: { user_id: "bob", version: 1 },
    standing_changed: { user_id: "bob", standing: "suspended", version: 1 },
    drop_reacted: { drop_id: "d1", author_id: "ada", user_id: "bob", kind: "like", active: true, version: 1 },
    user_requested: { follower_id: "bob", following_id: "ada", active: true, version: 1 },
  };
  for (const name of CHANNELS) expect(await redis.raw.publish(name, JSON.stringify(payloads[name]))).toBe(2);
  await redis.raw.publish("drop_created", "{}");
  await redis.raw.publish("unrelated", "{}");
  await redis.raw.publish("drop_reacted", JSON.stringify({ ...payloads.drop_reacted, kind: "share" }));
  await eventually(
    async () =>
      (await streams.count("DROPS")) + (await streams.count("ACTIVITY")) === CHANNELS.length &&
      (await streams.count("DLQ")) === 2,
    "all are admitted",
  );
  expect((await streams.all("DROPS")).map(({ subject }) => subject).sort()).toEqual([
    "drops.ap_received",
    "drops.created",
    "drops.deleted",
    "drops.edited",
    "graph.blocked",
    "graph.erased",
    "graph.followed",
    "graph.muted",
    "graph.standing",
    "graph.unblocked",
    "graph.unfollowed",
    "graph.unmuted",
  ]);
  expect((await streams.all("ACTIVITY")).map(({ subject }) => subject).sort()).toEqual([
    "activity.reacted",
    "activity.requested",
  ]);
  const deadLetters = (await streams.all("DLQ")).map(({ subject, body }) => `${subject} ${String(body)}`).sort();
  expect(deadLetters).toEqual([
    "dlq.invalid.drop_created {}",
    expect.stringMatching(/^dlq\.invalid\.drop_reacted .*"share"/),
  ]);
  expect(bridges.map((one) => one.notReady())).toEqual([undefined, undefined]);
});

test("two installations that hear the same channels name each other, and are not ready until one has ended", async () => {
  const logs = [randomUUID(), randomUUID()];
  const [first, second] = [
    await bridge({ log: logs[0] as string, everyMs: 50 }),
    await bridge({ log: logs[1] as string }),
  ];
  for (const text of ["{", "{}", JSON.stringify({ log: "a word of a stranger", process: "x" })])
    await redis.raw.publish("timeline_bridges", text);
  await eventually(() => first.notReady() !== undefined && second.notReady() !== undefined, "both know of the other");
  expect(first.notReady()).toContain(
    `of the log ${logs[1]} hears the same channels as this one, of the log ${logs[0]}`,
  );
  expect(second.notReady()).toContain(
    `of the log ${logs[0]} hears the same channels as this one, of the log ${logs[1]}`,
  );
  expect(second.notReady()).toContain("TIMELINE_CHANNEL_PREFIX");
  // Both listen again after their connections were lost.
  const listening = async (): Promise<unknown> => (await redis.raw.pubsub("NUMSUB", "timeline_bridges"))[1];
  await redis.raw.call("CLIENT", "KILL", "TYPE", "pubsub");
  await eventually(async () => (await listening()) === 2, "both listen again");
  await second.close(1_000);
  await eventually(() => first.notReady() === undefined, "the first is alone");
});

test("bridges of one installation that learn a new name of the log at different moments do not name each other", async () => {
  const [before, now, other] = [randomUUID(), randomUUID(), randomUUID()];
  let name = before;
  const errors: string[] = [];
  const first = await bridge({ readLog: () => name, failed: (text) => errors.push(text) });
  const announced = (log: string) =>
    redis.raw.publish("timeline_bridges", JSON.stringify({ log, process: "bridge-2" }));
  await eventually(async () => (await announced(before)) === 1, "it listens");
  name = now;
  await announced(now);
  await announced(before);
  // A stranger is named even so.
  await eventually(async () => {
    await announced(other);
    return errors.length > 0;
  }, "it has heard them all");
  expect(errors.map((text) => [text.includes(other), text.includes(now)])).toEqual([[true, true]]);
  expect(first.notReady()).toContain(other);
});

test("installations with prefixes hear their own events and announcements only", async () => {
  const prefixes = ["", "staging:"];
  const bridges = await Promise.all(prefixes.map((channelPrefix) => bridge({ channelPrefix, everyMs: 50 })));
  const before = await streams.count("DROPS");
  for (const channelPrefix of prefixes) {
    const drop = { drop_id: `of ${channelPrefix}`, user_id: "ada", visibility: "public", created_at: 1 };
    expect(await redis.raw.publish(`${channelPrefix}drop_created`, JSON.stringify(drop))).toBe(1);
    // One bridge listens, and hears nobody but itself.
    expect((await redis.raw.pubsub("NUMSUB", `${channelPrefix}timeline_bridges`))[1]).toBe(1);
  }
  await eventually(async () => (await streams.count("DROPS")) === before + 2, "both events are admitted");
  expect(bridges.map((one) => one.notReady())).toEqual([undefined, undefined]);
});

// Invariant 5.
test("an interruption lasts until the server knows the subscription again", async () => {
  const proxy = await TcpProxy.open(redis.broker.port);
  cleanups.push(() => proxy.close());
  const { subscriber, channels } = channelsOn(proxy.url("redis"));
  const subscribers = async (): Promise<unknown> => (await redis.raw.pubsub("NUMSUB", "drop_created"))[1];
  const taken: string[] = [];
  const atInterruptions: Promise<unknown>[] = [];
  await channels.subscribe(
    ["drop_created"],
    (_, payload) => void taken.push(Buffer.from(payload).toString()),
    () => void atInterruptions.push(subscribers()),
  );
  let isHeld = false;
  subscriber.prependListener("ready", () => {
    proxy.set("pause", "toServer");
    isHeld = true;
  });
  proxy.cut();
  await eventually(() => isHeld, "there is a connection again");
  await redis.raw.publish("drop_created", "missed");
  expect(await subscribers()).toBe(0);
  proxy.set("pass", "toServer");
  await eventually(() => atInterruptions.length > 0, "the interruption is reported");
  await redis.raw.publish("drop_created", "taken");
  await eventually(() => taken.length > 0, "events are taken again");
  expect(taken).toEqual(["taken"]);
  expect(await Promise.all(atInterruptions)).toEqual([1]);
});

test("a link that is cut is opened and subscribed again", async () => {
  const started = await bridge();
  const before = await streams.count("DROPS");
  await redis.raw.call("CLIENT", "KILL", "TYPE", "pubsub");
  await eventually(
    async () => (await redis.raw.publish("drop_deleted", '{"drop_id":"after the cut"}')) > 0,
    "it is subscribed again",
  );
  await eventually(async () => (await streams.count("DROPS")) === before + 1, "the event is admitted");
  expect(started.notReady()).toBeUndefined();
});

// Invariant 5.
test("an interruption began no later than now, also where the clock was set back meanwhile", async () => {
  const { channels } = channelsOn(redis.broker.url);
  const { now } = Date;
  cleanups.push(() => Object.assign(Date, { now }));
  const began: number[] = [];
  Date.now = () => now() + HOUR;
  await channels.subscribe(
    CHANNELS,
    () => undefined,
    (since) => began.push(since),
  );
  Date.now = now;
  await redis.raw.call("CLIENT", "KILL", "TYPE", "pubsub");
  await eventually(() => began.length > 0, "it is subscribed again");
  expect(began[0]).toBeLessThanOrEqual(Date.now());
});

// Invariant 5.
test("where Redis closes a link that is held, the interruption began before, however late older events arrive", async () => {
  await redis.raw.call("CONFIG", "SET", "client-output-buffer-limit", "pubsub 64kb 0 0");
  cleanups.push(() => redis.raw.call("CONFIG", "SET", "client-output-buffer-limit", "pubsub 32mb 8mb 60"));
  const { channels } = channelsOn(redis.broker.url);
  const began: number[] = [];
  const seen: { text: string; publishedAfter: number }[] = [];
  await channels.subscribe(
    CHANNELS,
    (_, payload, after) => seen.push({ text: String(payload), publishedAfter: wallTimeOf(after) }),
    (since) => began.push(since),
  );
  expect(channels.setPaused(true)).toBe(true);
  const published = Date.now();
  await redis.raw.publish("drop_deleted", "old");
  const large = "x".repeat(1024 * 1024);
  await eventually(async () => (await redis.raw.publish("drop_deleted", large)) === 0, "Redis closes the link");
  const closed = Date.now();
  await eventually(() => Date.now() > closed, "the clock has moved on");
  channels.setPaused(false);
  await eventually(() => began.length > 0, "it is subscribed again");
  expect(seen[0]?.text).toBe("old");
  expect(seen[0]?.publishedAfter).toBeLessThanOrEqual(published);
  expect(began[0]).toBeLessThanOrEqual(closed);
});

test("while it is held the source keeps what is published, however long that takes", async () => {
  hastenPings();
  const { subscriber, channels } = channelsOn(redis.broker.url);
  const seen: string[] = [];
  await channels.subscribe(
    CHANNELS,
    (_, payload) => seen.push(Buffer.from(payload).toString()),
    () => undefined,
  );
  expect(channels.setPaused(true)).toBe(true);
  const listeners: number[] = [];
  const publish = async (text: string) => listeners.push(await redis.raw.publish("drop_deleted", text));
  for (let count = 0; count < 10; count++) await publish(`${count}`);
  let looks = 0;
  const look = setInterval(() => looks++, 60);
  await eventually(() => looks >= 6, "the link was looked after more than once");
  clearInterval(look);
  for (let count = 10; count < 20; count++) await publish(`${count}`);
  channels.setPaused(false);
  await eventually(() => subscriber.status === "ready" && seen.length >= 10, "it reads on");
  await publish("last");
  await eventually(() => seen.includes("last"), "it reads to the end");
  expect(listeners).toEqual(Array(21).fill(1));
  expect(seen).toEqual([...Array.from({ length: 20 }, (_, count) => `${count}`), "last"]);
});

// Invariant 5.
test("a link that is held before a ping is answered is kept; one that answers none is cut", async () => {
  hastenPings();
  const proxy = await TcpProxy.open(Number(new URL(redis.broker.url).port));
  cleanups.push(() => proxy.close());
  const { channels } = channelsOn(proxy.url("redis"));
  const began: number[] = [];
  const seen: string[] = [];
  await channels.subscribe(
    CHANNELS,
    (_, payload) => seen.push(String(payload)),
    (since) => began.push(since),
  );
  proxy.set("pause", "toClient");
  await eventually(() => proxy.heldBack("toClient") > 0, "a ping is answered, and its answer under way");
  expect(channels.setPaused(true)).toBe(true);
  await redis.raw.publish("drop_deleted", "kept");
  let ticks = 0;
  const clock = setInterval(() => ticks++, 60);
  await eventually(() => ticks >= 3, "the ping has waited for too long");
  clearInterval(clock);
  channels.setPaused(false);
  proxy.set("pass");
  await eventually(() => seen.includes("kept"), "what was held comes");
  expect(began).toEqual([]);
  proxy.silence();
  await eventually(() => began.length > 0, "the silent link is opened again");
});

test("an invalid payload that names an erased user leaves no dead letter, and others do", async () => {
  await erasedOn(redis.scripts, nats).record("gone é", 1);
  await bridge();
  const before = (await streams.all("DLQ")).length;
  await redis.raw.publish("drop_created", JSON.stringify({ drop_id: "d", user: "gone é" }));
  await redis.raw.publish("drop_created", '{"user_id":"gone \\u00e9", "drop_id":');
  const others = ['{"gone é":"here"}', '{"user_id":"here", "drop_id":"gone é"}'];
  for (const other of others) await redis.raw.publish("drop_created", other);
  await eventually(async () => (await streams.all("DLQ")).length > before, "a dead letter is there");
  await becomes(async () =>
    expect((await streams.all("DLQ")).slice(before).map(({ body }) => String(body))).toEqual(others),
  );
});
