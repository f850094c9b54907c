import { once } from "node:events";
import { connect as connectTcp, createServer, type Socket } from "node:net";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "@jest/globals";
import { Redis } from "ioredis";
import type { Attempts } from "../../src/delivery/process.js";
import { AppError } from "../../src/kernel/errors.js";
import { silent } from "../../src/kernel/logger.js";
import { connectRedis, connectSubscriber } from "../../src/platform/redis/connect.js";
import { createScripts } from "../../src/platform/redis/scripts.js";
import { createAttempts } from "../../src/state/messages/attempts.redis.js";
import { freeze } from "../support/brokers.js";
import { deliveryOf } from "../support/deliveries.js";
import { eventually } from "../support/eventually.js";
import { lua } from "../support/lua.js";
import { TcpProxy } from "../support/proxy.js";
import { openRedis, type RedisBench } from "../support/redis.js";

let bench: RedisBench;
const cleanups: (() => unknown)[] = [];

beforeAll(async () => {
  bench = await openRedis();
});
afterAll(() => bench.close());
beforeEach(async () => {
  await eventually(() => bench.client.status === "ready", "Redis is connected");
  await bench.raw.flushall();
});
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

/** Redis answers nothing until it is sent a SIGCONT. */
async function silence(): Promise<void> {
  cleanups.push(() => bench.broker.kill("SIGCONT"));
  await freeze(bench.broker);
}

const codeOf = (promise: Promise<unknown>): Promise<string> =>
  promise.then(
    () => "done",
    (error: unknown) => (error instanceof AppError ? error.code : `not ours: ${String(error)}`),
  );

// Invariant 2.
test("a command under way when its connection dies is rejected as an outage, and is never sent again", async () => {
  // A blocking pop holds the connection, so that the write behind it is sent but not yet run.
  const held = codeOf(bench.scripts.command("blpop", (client) => client.blpop("nothing", 0)));
  const behind = codeOf(bench.scripts.command("incr", (client) => client.incr("count")));
  await eventually(async () => /cmd=blpop/.test(String(await bench.raw.client("LIST"))), "the pop waits");
  await bench.raw.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes");
  expect(await Promise.all([held, behind])).toEqual(["unavailable", "unavailable"]);
  await eventually(() => bench.client.status === "ready", "Redis is connected again");
  expect(await bench.raw.get("count")).toBeNull();
  expect(await codeOf(bench.scripts.command("incr", (client) => client.incr("count")))).toBe("done");
  expect(await bench.raw.get("count")).toBe("1");
});

/** A link to Redis that can be cut. */
async function link(): Promise<{ url: string; cut(): void; mend(): void }> {
  let whole = true;
  const sockets = new Set<Socket>();
  const server = createServer((near) => {
    if (!whole) return near.destroy();
    const far = connectTcp(bench.broker.port, "127.0.0.1");
    for (const socket of [near, far]) {
      sockets.add(socket);
      socket.on("error", () => undefined).on("close", () => [near, far].map((one) => one.destroy()));
    }
    near.pipe(far);
    far.pipe(near);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const cut = (): void => {
    whole = false;
    for (const socket of sockets) socket.destroy();
  };
  cleanups.push(() => {
    cut();
    server.close();
  });
  return {
    url: `redis://127.0.0.1:${(server.address() as { port: number }).port}`,
    cut,
    mend: () => {
      whole = true;
    },
  };
}

test("while Redis is unavailable commands are refused at once, not queued; afterwards they work again", async () => {
  const { url, cut, mend } = await link();
  const client = connectRedis([url], silent);
  cleanups.push(() => client.disconnect());
  const scripts = createScripts(client);
  await eventually(() => client.status === "ready", "the link stands");
  cut();
  await eventually(() => client.status !== "ready", "the cut is seen");
  const refused = scripts.command("incr", (one) => one.incr("queued"));
  await expect(refused).rejects.toMatchObject({ code: "unavailable", message: "Redis: is not connected" });
  mend();
  await eventually(() => client.status === "ready", "the link stands again");
  expect(await codeOf(scripts.run(lua("note-attempt"), [], [1_000, "k", "n", "begun"]))).toBe("done");
  expect(await bench.raw.exists("queued")).toBe(0);
});

// Invariant 8.
test("a server that is full, read-only or loading is unavailable; a wrong value is the command's own fault", async () => {
  const attempt = () => codeOf(bench.scripts.run(lua("note-attempt"), [], [60_000, "k", "n", "begun"]));
  await bench.raw.config("SET", "maxmemory", "1");
  cleanups.push(() => bench.raw.config("SET", "maxmemory", "0"));
  expect(await attempt()).toBe("unavailable");
  await bench.raw.config("SET", "maxmemory", "0");
  await bench.raw.replicaof("127.0.0.1", "1");
  cleanups.push(() => bench.raw.replicaof("NO", "ONE"));
  expect(await attempt()).toBe("unavailable");
  await bench.raw.replicaof("NO", "ONE");
  await bench.raw.set("k", "text");
  // A read-only server is left for another connection.
  await eventually(async () => (await attempt()) === "done", "the server takes writes again");
  await bench.raw.set("k", "text");
  expect(await codeOf(bench.scripts.command("incr", (client) => client.incr("k")))).toBe("failed");
});

function attemptsOn(redis: RedisBench): Attempts {
  return createAttempts(redis.scripts);
}

// Invariant 10.
test("attempts: counted by name, taken back by name, forgotten as a whole, and shared by all processes", async () => {
  const attempts = attemptsOn(bench);
  const delivery = deliveryOf();
  expect(await attempts.begin(delivery, "a", false)).toEqual({ count: 1, lost: 0, beside: 0 });
  expect(await attempts.begin(delivery, "a", false)).toEqual({ count: 1, lost: 0, beside: 0 });
  expect(await attemptsOn(bench).begin(delivery, "b", false)).toEqual({ count: 1, lost: 1, beside: 1 });
  expect(await attempts.begin(delivery, "b", true)).toEqual({ count: 2, lost: 1, beside: 1 });
  await attempts.refund(delivery, "a");
  await attempts.refund(delivery, "a");
  await attempts.refund(delivery, "never begun");
  expect(await attempts.begin(delivery, "c", false)).toEqual({ count: 2, lost: 1, beside: 0 });
  await attempts.fail(delivery, "b");
  expect(await attempts.begin(delivery, "c", false)).toEqual({ count: 2, lost: 0, beside: 0 });
  expect(await attempts.begin(deliveryOf({ time: 5 }), "a", false)).toEqual({ count: 1, lost: 0, beside: 0 });
  attempts.forget(delivery);
  await eventually(async () => (await bench.raw.keys("timeline:x:attempts:*")).length === 1, "the count is gone");
  expect(await attempts.begin(delivery, "d", false)).toEqual({ count: 1, lost: 0, beside: 0 });
});

// Invariant 10.
test("attempts: of those beside other messages one is lost at most, of those alone each", async () => {
  const { begin } = attemptsOn(bench);
  const delivery = deliveryOf();
  for (const name of ["a", "b", "c"]) await begin(delivery, name, false);
  expect(await begin(delivery, "d", false)).toEqual({ count: 1, lost: 1, beside: 3 });
  expect(await begin(delivery, "d", true)).toEqual({ count: 2, lost: 1, beside: 3 });
  expect(await begin(delivery, "e", false)).toEqual({ count: 2, lost: 2, beside: 3 });
  expect(await begin(delivery, "e", true)).toEqual({ count: 3, lost: 2, beside: 3 });
  expect(await begin(delivery, "f", true)).toEqual({ count: 4, lost: 3, beside: 3 });
  // It gives the lock up: it is one of those beside others from now on.
  await begin(delivery, "f", false);
  expect(await begin(delivery, "g", true)).toEqual({ count: 4, lost: 3, beside: 4 });
});

// Invariant 10.
test("attempts: answers that come too late count nothing twice", async () => {
  const client = new Redis(bench.broker.url, { commandTimeout: 50, maxRetriesPerRequest: 0 });
  cleanups.push(() => client.disconnect());
  await once(client, "ready");
  const attempts = createAttempts(createScripts(client));
  await silence();
  const codes: string[] = [];
  for (let time = 0; time < 6; time++) codes.push(await codeOf(attempts.begin(deliveryOf(), "one handling", false)));
  expect(codes).toEqual(Array(6).fill("unavailable"));
  bench.broker.kill("SIGCONT");
  await eventually(
    async () => (await codeOf(attempts.begin(deliveryOf(), "one handling", false))) === "done",
    "Redis answers again",
  );
  const patient = createAttempts(bench.scripts);
  expect(await patient.begin(deliveryOf(), "one handling", false)).toEqual({ count: 1, lost: 0, beside: 0 });
});

test("while Redis is silent nobody but the first waits for a time-out, until it answers", async () => {
  const client = new Redis(bench.broker.url, { commandTimeout: 300, maxRetriesPerRequest: 0 });
  cleanups.push(() => client.disconnect());
  await once(client, "ready");
  const scripts = createScripts(client);
  const get = (): Promise<string> => codeOf(scripts.command("get", (link) => link.get("key")));
  await silence();
  expect(await get()).toBe("unavailable");
  for (let time = 0; time < 20; time++) expect(await get()).toBe("unavailable");
  bench.broker.kill("SIGCONT");
  await eventually(async () => (await get()) === "done", "Redis answers again");
  // Nobody waits for what was never sent.
  const [, sent] = /cmdstat_get:calls=(\d+)/.exec(await bench.raw.info("commandstats")) ?? [];
  expect(Number(sent)).toBeLessThan(10);
});

// Invariant 5.
test("a subscriber whose new connection is never answered takes another one", async () => {
  const proxy = await TcpProxy.open(bench.broker.port);
  cleanups.push(() => proxy.close());
  proxy.set("drop");
  const subscriber = connectSubscriber([proxy.url("redis")], silent);
  cleanups.push(() => subscriber.disconnect());
  await once(subscriber, "connect");
  await once(subscriber, "close");
  proxy.set("pass");
  await subscriber.subscribe("news");
  const heard = once(subscriber, "message");
  await bench.raw.publish("news", "hello");
  expect(await heard).toEqual(["news", "hello"]);
}, 30_000);

// Invariant 8.
test("a connection that falls silent without being closed is replaced, while others work", async () => {
  const proxy = await TcpProxy.open(bench.broker.port);
  cleanups.push(() => proxy.close());
  const client = connectRedis([proxy.url("redis")], silent);
  cleanups.push(() => client.disconnect());
  await once(client, "ready");
  const scripts = createScripts(client);
  const get = () => codeOf(scripts.command("get", (one) => one.get("key")));
  expect(await get()).toBe("done");
  proxy.silence();
  expect(await get()).toBe("unavailable");
  await eventually(async () => (await get()) === "done", "another connection answers");
});

// Invariant 8.
test("connections without work are kept, those that listen, too, however short a silence may be", async () => {
  const open = async () => {
    const client = connectRedis([bench.broker.url], silent, { socketTimeout: 500, protocol: 2 }) as Redis;
    cleanups.push(() => client.disconnect());
    await once(client, "ready");
    return { client, id: await client.client("ID") };
  };
  const both = [await open(), await open()];
  await both[0]?.client.subscribe("some", "others");
  for (const { id } of both) {
    const idle = new RegExp(`^id=${id} .* idle=[1-9]`, "m");
    await eventually(async () => idle.test(String(await bench.raw.client("LIST"))), "it has been idle for a second");
  }
  expect(both.map(({ client }) => client.status)).toEqual(["ready", "ready"]);
});

// Invariant 8.
test("after a failover behind one address the client leaves the server that was demoted", async () => {
  const [old, successor] = [await openRedis(), await openRedis()];
  cleanups.push(
    () => old.close(),
    () => successor.close(),
  );
  const proxy = await TcpProxy.open(old.broker.port);
  cleanups.push(() => proxy.close());
  const client = connectRedis([proxy.url("redis")], silent);
  cleanups.push(() => client.disconnect());
  await once(client, "ready");
  const scripts = createScripts(client);
  const note = () => codeOf(scripts.run(lua("note-attempt"), [], [60_000, "k", "n", "begun"]));
  expect(await note()).toBe("done");
  await old.raw.replicaof("127.0.0.1", successor.broker.port);
  proxy.aim(successor.broker.port);
  expect(await note()).toBe("unavailable");
  await eventually(async () => (await note()) === "done", "the successor takes writes");
  expect(await successor.raw.exists("k")).toBe(1);
});

// Invariant 8.
test("on a server that stays a replica the client reads on, and seldom looks for another", async () => {
  await bench.raw.set("key", "value");
  await bench.raw.replicaof("127.0.0.1", "1");
  cleanups.push(() => bench.raw.replicaof("NO", "ONE"));
  const opened = async () => Number(/total_connections_received:(\d+)/.exec(await bench.raw.info("stats"))?.[1]);
  const before = await opened();
  for (let time = 0; time < 20; time++) {
    expect(await codeOf(bench.scripts.command("incr", (client) => client.incr("count")))).toBe("unavailable");
    const get = () => codeOf(bench.scripts.command("get", (client) => client.get("key")));
    await eventually(async () => (await get()) === "done", "it is read");
  }
  expect(await opened()).toBeLessThan(before + 10);
});

// Invariant 8.
test("a Redis that refuses the ping which follows a timeout is not silent", async () => {
  const client = new Redis(bench.broker.url, { commandTimeout: 300, maxRetriesPerRequest: 0 });
  cleanups.push(() => client.disconnect());
  await once(client, "ready");
  const scripts = createScripts(client);
  const get = (): Promise<string> => codeOf(scripts.command("get", (link) => link.get("key")));
  await bench.raw.call("ACL", "SETUSER", "default", "-ping");
  cleanups.push(() => bench.raw.call("ACL", "SETUSER", "default", "+ping"));
  await silence();
  expect(await get()).toBe("unavailable");
  bench.broker.kill("SIGCONT");
  await eventually(async () => (await get()) === "done", "Redis answers again");
});
