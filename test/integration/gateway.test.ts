import { once } from "node:events";
import { createServer, request as httpRequest, type IncomingMessage, type Server } from "node:http";
import { type AddressInfo, connect as connectTcp, type Socket } from "node:net";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "@jest/globals";
import { EventSource } from "eventsource";
import { createParser, type EventSourceMessage } from "eventsource-parser";
import express from "express";
import { SignJWT } from "jose";
import type { NatsConnection } from "nats";
import type { Broker } from "../../src/brokers/index.js";
import { connectionKey, connectionsOfUserKey, CONNECTIONS_SEEN_KEY, RECENT_KEY } from "../../src/contracts/keys.js";
import { notifySubject, STREAM } from "../../src/contracts/subjects.js";
import { createGateway, type Gateway, type GatewayDeps } from "../../src/gateway/gateway.js";
import { silent } from "../../src/kernel/logger.js";
import { connectNats } from "../../src/platform/nats/connect.js";
import { applyTopology } from "../../src/platform/nats/topology.js";
import { connectRedis, type RedisClient } from "../../src/platform/redis/connect.js";
import { createScripts, type Scripts } from "../../src/platform/redis/scripts.js";
import { privateNats, privateRedis, until } from "../support/brokers.js";
import { startNats } from "../../src/brokers/index.js";

const SECRET = "a secret of thirty-two bytes, or a few more";
const FAST = { heartbeatMs: [80, 120], retryMs: [20, 40], renewMs: 50, sweepMs: 50, drainMs: 100 } as const;

let redis: Broker;
let nats: Broker;
let client: RedisClient;
let scripts: Scripts;
let connection: NatsConnection;
const cleanups: (() => unknown)[] = [];

beforeAll(async () => {
  [redis, nats] = await Promise.all([privateRedis(), privateNats()]);
  client = connectRedis([redis.url], silent);
  scripts = createScripts(client);
  connection = await connectNats({ servers: [nats.url], name: "gateway test" }, silent);
  await applyTopology(await connection.jetstreamManager(), { replicas: 1 }, silent);
});

afterAll(async () => {
  await connection.close();
  client.disconnect();
  await Promise.all([nats.stop(), redis.stop()]);
});

beforeEach(async () => {
  await until(async () => (await client.ping().catch(() => "")) === "PONG", "Redis answers");
  await client.flushall();
  await (await connection.jetstreamManager()).streams.purge(STREAM.notify);
});

afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

interface Running {
  readonly gateway: Gateway;
  readonly url: string;
  readonly port: number;
  readonly server: Server;
}

async function start(deps: Partial<GatewayDeps> = {}): Promise<Running> {
  const gateway = createGateway({
    scripts,
    nats: connection,
    log: silent,
    podName: "pod-1",
    auth: { secret: SECRET },
    ...deps,
    limits: { ...FAST, ...deps.limits },
  });
  const server = createServer(express().use(gateway.router)).listen(0, "127.0.0.1");
  await once(server, "listening");
  cleanups.push(async () => {
    await gateway.close(0);
    server.closeAllConnections();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  return { gateway, server, port, url: `http://127.0.0.1:${port}/events/timeline/home` };
}

function token(sub: string, seconds = 60): Promise<string> {
  const exp = Math.floor(Date.now() / 1_000) + seconds;
  return new SignJWT({ sub, exp }).setProtectedHeader({ alg: "HS256" }).sign(new TextEncoder().encode(SECRET));
}

async function send(user: string, drop: string, event = "new_drop"): Promise<number> {
  const body = JSON.stringify({ event, drop_id: drop, created_at: 1_700_000_000_000 });
  return (await connection.jetstream().publish(notifySubject(user), body)).seq;
}

/** Several at once, in order. */
async function sendMany(user: string, drops: readonly string[]): Promise<void> {
  await Promise.all(drops.map((drop) => send(user, drop)));
}

const names = (prefix: string, count: number): string[] => Array.from({ length: count }, (_, i) => `${prefix}${i}`);

/** A client that sees every byte: blocks as they came, the events in them, and the last id by the specification. */
class Raw {
  text = "";
  lastId = "";
  ended = false;
  readonly events: EventSourceMessage[] = [];
  readonly #parser = createParser({ onEvent: (event) => this.events.push(event) });

  constructor(
    readonly response: IncomingMessage,
    readonly close: () => void,
  ) {
    response.setEncoding("utf8");
    let rest = "";
    response.on("data", (chunk: string) => {
      this.text += chunk;
      this.#parser.feed(chunk);
      const blocks = (rest + chunk).split("\n\n");
      rest = blocks.pop() as string;
      for (const block of blocks) this.lastId = /^id: (\d+)$/m.exec(block)?.[1] ?? this.lastId;
    });
    response.once("close", () => {
      this.ended = true;
    });
    response.on("error", () => undefined);
  }

  drops(): string[] {
    return this.events.filter(({ event }) => event === "new_drop").map(({ data }) => (JSON.parse(data) as { drop_id: string }).drop_id);
  }

  resets(): string[] {
    return this.events.filter(({ event }) => event === "reset").map(({ data }) => (JSON.parse(data) as { reason: string }).reason);
  }

  blocks(): string[] {
    return this.text.split("\n\n").filter(Boolean);
  }

  async sees(drops: readonly string[]): Promise<void> {
    await until(() => this.drops().length >= drops.length, `${drops.length} drops, not ${this.drops().length}`);
    expect(this.drops()).toEqual(drops);
  }

  async goes(): Promise<void> {
    this.close();
    await until(() => this.ended, "the client is gone");
  }
}

async function ask(url: string, headers: Record<string, string>, method = "GET"): Promise<Raw> {
  const request = httpRequest(url, { headers, method, agent: false });
  request.on("error", () => undefined);
  request.end();
  const [response] = (await once(request, "response")) as [IncomingMessage];
  const raw = new Raw(response, () => request.destroy());
  cleanups.push(raw.close);
  return raw;
}

async function listen({ url }: Running, user: string, lastEventId?: string): Promise<Raw> {
  const headers = { authorization: `Bearer ${await token(user)}` };
  const raw = await ask(url, lastEventId === undefined ? headers : { ...headers, "last-event-id": lastEventId });
  expect(raw.response.statusCode).toBe(200);
  await until(() => raw.lastId !== "", "the first block");
  return raw;
}

async function idle({ gateway }: Running): Promise<void> {
  await until(() => Object.values(gateway.counts()).every((count) => count === 0), "nothing is held any more");
}

test("the head, the first block and a live event are as the contract says", async () => {
  const running = await start();
  const raw = await listen(running, "alice");
  expect(raw.response.headers).toMatchObject({
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache, no-transform",
    "x-accel-buffering": "no",
    connection: "keep-alive",
  });
  expect(raw.blocks()[0]).toMatch(/^retry: \d+\n: connected\nid: \d+$/);
  const seq = await send("alice", "d1");
  await raw.sees(["d1"]);
  expect(raw.blocks()).toContain(`id: ${seq}\nevent: new_drop\ndata: {"drop_id":"d1","created_at":1700000000000}`);
  await send("alice", "d1", "drop_deleted");
  await until(() => raw.text.includes('event: drop_deleted\ndata: {"drop_id":"d1"}\n\n'), "the deletion");
  await raw.goes();
  await idle(running);
  expect(connection.stats().inMsgs).toBeGreaterThan(0);
});

test("a registration stands before the first byte, and leaves its user listed", async () => {
  const running = await start();
  const raw = await listen(running, "alice smith");
  const [id] = await client.smembers(connectionsOfUserKey("alice smith"));
  const held = await client.hgetall(connectionKey(id as string));
  expect(held).toMatchObject({ pod_name: "pod-1", user_id: "alice smith", created_at: expect.stringMatching(/^\d{13}$/) });
  expect(await client.ttl(connectionKey(id as string))).toBeGreaterThan(0);
  expect(await client.zcard(CONNECTIONS_SEEN_KEY)).toBe(1);
  await raw.goes();
  await idle(running);
  expect(await client.exists(connectionsOfUserKey("alice smith"), connectionKey(id as string), CONNECTIONS_SEEN_KEY)).toBe(0);
  expect(await client.zcard(RECENT_KEY)).toBe(1);
  for (const key of await client.keys("sse_*")) expect(await client.ttl(key)).toBeGreaterThan(0);
});

test("a resume over a gap of 100 replays it once, in order", async () => {
  const running = await start();
  const first = await listen(running, "alice");
  await send("alice", "before");
  await first.sees(["before"]);
  await first.goes();
  const missed = names("d", 100);
  await sendMany("alice", missed);
  const second = await listen(running, "alice", first.lastId);
  await second.sees(missed);
  await send("alice", "after");
  await second.sees([...missed, "after"]);
  expect(second.resets()).toEqual([]);
});

test("more than the stream keeps is answered by a reset, and then goes live", async () => {
  const running = await start();
  const first = await listen(running, "alice");
  await first.goes();
  await sendMany("alice", names("d", 129));
  const second = await listen(running, "alice", first.lastId);
  await until(() => second.resets().length > 0, "a reset");
  await send("alice", "after");
  await second.sees(["after"]);
  expect(second.resets()).toEqual(["too_old"]);
});

test.each(["garbage", "999999999", "-1", "1e9", "9".repeat(400)])("a Last-Event-ID of %p is answered by a reset", async (id) => {
  const running = await start();
  (await listen(running, "alice")).close();
  const raw = await listen(running, "alice", id);
  await until(() => raw.resets().length > 0, "a reset");
  expect(raw.resets()).toEqual(["unknown_position"]);
  const { state } = await (await connection.jetstreamManager()).streams.info(STREAM.notify);
  expect(raw.lastId).toBe(String(state.last_seq));
  await send("alice", "live");
  await raw.sees(["live"]);
});

test("what aged out is answered by a reset, and an empty stream is not", async () => {
  const running = await start();
  const first = await listen(running, "alice");
  await send("alice", "d1");
  await first.sees(["d1"]);
  await first.goes();
  await send("bob", "other");
  await (await connection.jetstreamManager()).streams.purge(STREAM.notify);
  const second = await listen(running, "alice", first.events.at(-1)?.id);
  await until(() => second.resets().length > 0, "a reset");
  expect(second.resets()).toEqual(["too_old"]);
  await second.goes();
  const third = await listen(running, "alice", second.lastId);
  await until(() => third.blocks().some((block) => block.startsWith(": heartbeat")), "a heartbeat");
  expect(third.resets()).toEqual([]);
});

test("the heartbeat of a quiet client moves on with the stream, and resumes later", async () => {
  const running = await start();
  const raw = await listen(running, "alice");
  const at = raw.lastId;
  const last = String(await send("bob", "for somebody else"));
  expect(last).not.toBe(at);
  await until(() => raw.lastId === last, "a heartbeat with the new position");
  expect(raw.blocks()).toContain(`: heartbeat\nid: ${last}`);
  await raw.goes();
  await send("alice", "missed");
  const again = await listen(running, "alice", raw.lastId);
  await again.sees(["missed"]);
  expect(again.resets()).toEqual([]);
});

test("what is published twice arrives once, also across a reconnect", async () => {
  const running = await start();
  const first = await listen(running, "alice");
  await send("alice", "d1");
  await send("alice", "d1");
  await send("alice", "d2");
  await first.sees(["d1", "d2"]);
  await first.goes();
  const repeated = await send("alice", "d2");
  await send("alice", "d3");
  const second = await listen(running, "alice", first.lastId);
  await second.sees(["d3"]);
  expect(Number(first.lastId)).toBeLessThan(repeated);
  const last = await send("alice", "d3");
  await until(() => Number(second.lastId) >= last, "the position passes a repeated one");
  expect(second.drops()).toEqual(["d3"]);
});

test("cutover under fire: nothing is missed and nothing comes twice", async () => {
  const running = await start();
  const all = names("d", 1_500);
  const seen: string[] = [];
  let raw = await listen(running, "alice");
  const publishing = (async () => {
    for (const [i, drop] of all.entries()) {
      await send("alice", drop);
      // More than a stream keeps would be a reset, which is another test.
      await until(() => i - Number((raw.drops().at(-1) ?? seen.at(-1) ?? "d0").slice(1)) < 60, "the reader keeps up");
    }
  })();
  let rounds = 0;
  for (; seen.length < all.length; rounds++) {
    await until(() => raw.drops().length > 0, "a drop");
    await raw.goes();
    expect(raw.resets()).toEqual([]);
    seen.push(...raw.drops());
    if (seen.length < all.length) raw = await listen(running, "alice", raw.lastId);
  }
  await publishing;
  expect(seen).toEqual(all);
  expect(rounds).toBeGreaterThan(5);
});

test("a stream whose live messages come while it still reads cuts over without a hole", async () => {
  const running = await start();
  const raw = await listen(running, "alice");
  await raw.goes();
  await sendMany("alice", names("old", 100));
  const all = names("new", 400);
  const many = await Promise.all([...Array(10)].map(() => listen(running, "alice", raw.lastId)));
  for (const drop of all) await send("alice", drop);
  for (const one of many) {
    await until(() => one.drops().at(-1) === all.at(-1), "the last one");
    expect(one.drops()).toEqual([...names("old", 100), ...all]);
    expect(one.resets()).toEqual([]);
  }
});

test("EventSource comes back by itself and gets what it missed", async () => {
  const running = await start();
  const jwt = await token("alice");
  const source = new EventSource(running.url, {
    fetch: (url, init) => fetch(url, { ...init, headers: { ...init.headers, cookie: `access_token=${jwt}` } }),
  });
  cleanups.push(() => source.close());
  const got: string[] = [];
  source.addEventListener("new_drop", (event) => got.push(JSON.parse(event.data as string).drop_id));
  await once(source as never, "open");
  await send("alice", "d1");
  await until(() => got.length === 1, "the first drop");
  running.server.closeAllConnections();
  await sendMany("alice", ["d2", "d3"]);
  await until(() => got.length === 3, "what was missed");
  expect(got).toEqual(["d1", "d2", "d3"]);
});

test("a NATS that was away heals: what was stored meanwhile arrives, in order", async () => {
  const own = await privateNats();
  let again: Broker | undefined;
  cleanups.push(() => own.stop(), () => again?.stop());
  const link = await connectNats({ servers: [own.url], name: "cut" }, silent);
  cleanups.push(() => link.close());
  await applyTopology(await link.jetstreamManager(), { replicas: 1 }, silent);
  const publish = (drop: string, to: NatsConnection) =>
    to.jetstream().publish(notifySubject("alice"), JSON.stringify({ event: "new_drop", drop_id: drop, created_at: 1 }));
  const running = await start({ nats: link });
  const raw = await listen(running, "alice");
  await publish("d1", link);
  await raw.sees(["d1"]);
  own.kill("SIGKILL");
  await own.exited;
  await until(() => !running.gateway.healthy(), "the gateway notices");
  expect((await ask(running.url, { authorization: `Bearer ${await token("bob")}` })).response.statusCode).toBe(503);
  again = await startNats({ dir: own.dir, port: own.port, ...(process.env["TIMELINE_NATS_SERVER"] ? { binary: process.env["TIMELINE_NATS_SERVER"] } : {}) });
  const other = await connectNats({ servers: [again.url], name: "publisher" }, silent);
  cleanups.push(() => other.close());
  for (const drop of ["d2", "d3"]) await publish(drop, other);
  await raw.sees(["d1", "d2", "d3"]);
  await publish("d4", other);
  await raw.sees(["d1", "d2", "d3", "d4"]);
  expect(raw.resets()).toEqual([]);
});

test("a slow reader is cut off at the bound, and nobody else notices", async () => {
  const running = await start({ limits: { maxBufferedBytes: 64 * 1024 } });
  const other = await listen(running, "alice");
  const slow: Socket = connectTcp({ port: running.port, host: "127.0.0.1" });
  cleanups.push(() => slow.destroy());
  slow.on("error", () => undefined);
  slow.write(`GET /events/timeline/home HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${await token("alice")}\r\n\r\n`);
  await once(slow, "readable");
  await until(() => running.gateway.counts().streams === 2, "two streams");
  // Never read again: the buffers of both kernels fill up first, and then ours.
  const padding = "x".repeat(200_000);
  let count = 0;
  while (running.gateway.counts().streams === 2 && count < 200) {
    await send("alice", `d${count++}${padding}`);
    await until(() => other.drops().length === count, "the other one keeps up");
  }
  expect(running.gateway.counts().streams).toBe(1);
  expect(other.ended).toBe(false);
});

test("a reader that takes nothing is cut off after a while", async () => {
  const running = await start({ limits: { stallMs: 100, maxBufferedBytes: 1_000_000_000 } });
  const slow = connectTcp({ port: running.port, host: "127.0.0.1" });
  cleanups.push(() => slow.destroy());
  slow.on("error", () => undefined);
  slow.write(`GET /events/timeline/home HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${await token("alice")}\r\n\r\n`);
  await once(slow, "readable");
  await until(() => running.gateway.counts().streams === 1, "a stream");
  const padding = "x".repeat(500_000);
  for (let i = 0; i < 60 && running.gateway.counts().streams === 1; i++) await send("alice", `d${i}${padding}`);
  await idle(running);
});

test("FLUSHALL: the stream gets a reset, and is registered again", async () => {
  const running = await start();
  const raw = await listen(running, "alice");
  const id = raw.lastId;
  await client.flushall();
  await until(() => raw.resets().length > 0, "a reset");
  expect(raw.resets()).toEqual(["registration_lost"]);
  expect(await client.scard(connectionsOfUserKey("alice"))).toBe(1);
  expect(await client.zcard(RECENT_KEY)).toBe(1);
  await send("alice", "after");
  await raw.sees(["after"]);
  // A tab that was away meanwhile has missed what fan-out did not even store.
  const tab = await listen(running, "alice", id);
  await until(() => tab.resets().length > 0, "a reset of the other tab");
  expect(tab.resets()).toEqual(["registration_lost"]);
  expect(raw.resets()).toHaveLength(1);
  const fine = await listen(running, "alice", raw.lastId);
  await until(() => fine.blocks().length > 1, "a heartbeat");
  expect(fine.resets()).toEqual([]);
});

test("one who was away for longer than the window gets a reset, although no stream shows what is missing", async () => {
  const running = await start();
  const raw = await listen(running, "alice");
  await raw.goes();
  await idle(running);
  await client.zadd(RECENT_KEY, Date.now() - 11 * 60_000, "alice");
  const again = await listen(running, "alice", raw.lastId);
  await until(() => again.resets().length > 0, "a reset");
  expect(again.resets()).toEqual(["registration_lost"]);
});

test("what a dead pod left is swept, and what lives stays", async () => {
  const running = await start();
  const raw = await listen(running, "a.b");
  const key = connectionsOfUserKey("a.b");
  const token64 = key.slice("sse_connections:user:".length);
  await client.sadd(key, `dead.${token64}`);
  await client.zadd(CONNECTIONS_SEEN_KEY, Date.now() - 120_000, `dead.${token64}`);
  await until(async () => (await client.zcard(CONNECTIONS_SEEN_KEY)) === 1, "the dead one is swept");
  await until(async () => (await client.scard(key)) === 1, "and gone from its user");
  await send("a.b", "d1");
  await raw.sees(["d1"]);
  expect(raw.resets()).toEqual([]);
});

test("ids that look like wildcards or like alice's token read nothing of hers", async () => {
  const running = await start();
  const tricks = ["*", ">", "a.b", "alice ", "=YWxpY2U", "ALICE", "alice.>", "alice\r\nSUB > 1", "user.alice", "ali\0ce"];
  const alice = await listen(running, "alice");
  const before = alice.lastId;
  const others = await Promise.all(tricks.map((user) => listen(running, user)));
  await send("alice", "secret");
  await alice.sees(["secret"]);
  for (const [i, user] of tricks.entries()) {
    await send(user, `own ${i}`);
    await (others[i] as Raw).sees([`own ${i}`]);
  }
  for (const [i, user] of tricks.entries()) {
    await (others[i] as Raw).goes();
    const resumed = await listen(running, user, before);
    await resumed.sees([`own ${i}`]);
  }
});

test("a stream ends with its token, and at the end of its life", async () => {
  const running = await start();
  const raw = await ask(running.url, { authorization: `Bearer ${await token("alice", 2)}` });
  await until(() => raw.ended, "the token ends");
  expect(raw.response.complete).toBe(true);
  const short = await listen(await start({ limits: { maxLifeMs: 100 } }), "alice");
  await until(() => short.ended, "the life ends");
  await idle(running);
});

test("draining ends every stream in order and takes the registrations back", async () => {
  const running = await start();
  const open = await Promise.all(names("user", 20).map((user) => listen(running, user)));
  await running.gateway.close(1_000);
  await until(() => open.every((raw) => raw.ended), "all have ended");
  expect(open.every((raw) => raw.response.complete)).toBe(true);
  expect(await client.keys("sse_connection*")).toEqual([]);
  expect(running.gateway.counts()).toEqual({ streams: 0, users: 0, registrations: 0 });
  const late = await ask(running.url, { authorization: `Bearer ${await token("alice")}` });
  expect(late.response.statusCode).toBe(503);
  expect(late.response.headers["retry-after"]).toMatch(/^\d+$/);
  expect(running.gateway.healthy()).toBe(false);
});

test("who is refused is told so, as a problem", async () => {
  const running = await start({ allowedOrigins: ["https://app.example"], limits: { connectionsPerUser: 1, connections: 2 } });
  const jwt = await token("alice");
  const cookie = { cookie: `access_token=${jwt}` };
  const status = async (headers: Record<string, string>, method?: string): Promise<number | undefined> => {
    const raw = await ask(running.url, headers, method);
    const { statusCode, headers: got } = raw.response;
    if ((statusCode ?? 0) >= 400) expect(got["content-type"]).toMatch(/^application\/problem\+json/);
    if (statusCode === 401) expect(got["www-authenticate"]).toBe("Bearer");
    raw.close();
    await idle(running);
    return statusCode;
  };
  expect(await status({})).toBe(401);
  expect(await status({ authorization: "Bearer nonsense", ...cookie })).toBe(401);
  expect(await status({ authorization: "Basic eDp5", ...cookie })).toBe(401);
  expect(await status(cookie)).toBe(200);
  expect(await status({ ...cookie, origin: "https://evil.example" })).toBe(403);
  expect(await status({ ...cookie, origin: "https://app.example" })).toBe(200);
  expect(await status({ ...cookie, origin: running.url.slice(0, running.url.indexOf("/events")) })).toBe(200);
  expect(await status({ authorization: `Bearer ${jwt}` }, "POST")).toBe(405);
  expect(await status({ authorization: `Bearer ${jwt}` }, "HEAD")).toBe(405);
  expect(await status({ origin: "https://app.example" }, "OPTIONS")).toBe(204);
  await listen(running, "alice");
  const second = await ask(running.url, { authorization: `Bearer ${jwt}` });
  expect(second.response.statusCode).toBe(429);
  await listen(running, "bob");
  const third = await ask(running.url, { authorization: `Bearer ${await token("carol")}` });
  expect(third.response.statusCode).toBe(503);
});

test("while Redis is away nobody is let in, and who is in stays", async () => {
  const own = await privateRedis();
  const away = connectRedis([own.url], silent);
  cleanups.push(() => own.stop(), () => away.disconnect());
  const running = await start({ scripts: createScripts(away) });
  await until(() => running.gateway.healthy(), "ready");
  const raw = await listen(running, "alice");
  own.kill("SIGKILL");
  await own.exited;
  await until(() => !running.gateway.healthy(), "the gateway notices");
  const refused = await ask(running.url, { authorization: `Bearer ${await token("bob")}` });
  expect(refused.response.statusCode).toBe(503);
  expect(refused.response.headers["retry-after"]).toBeDefined();
  await send("alice", "d1");
  await raw.sees(["d1"]);
  await raw.goes();
  await idle(running);
});
