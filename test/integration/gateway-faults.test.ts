import { connect as connectTcp } from "node:net";
import { expect, test } from "@jest/globals";
import { notifySubject } from "../../src/contracts/subjects.js";
import { AppError } from "../../src/kernel/errors.js";
import { silent } from "../../src/kernel/logger.js";
import { connectNats } from "../../src/platform/nats/connect.js";
import { applyTopology } from "../../src/platform/nats/topology.js";
import { connectRedis } from "../../src/platform/redis/connect.js";
import { createScripts, type Scripts } from "../../src/platform/redis/scripts.js";
import { CONNECTIONS_SEEN_KEY, connectionsOfUserKey, RECENT_KEY } from "../../src/state/keys.js";
import { privateNats, privateRedis } from "../support/brokers.js";
import { eventually } from "../support/eventually.js";
import {
  ask,
  cleanups,
  client,
  connection,
  connectionWith,
  idle,
  listen,
  names,
  type Raw,
  send,
  sendMany,
  start,
  token,
} from "../support/gateway.js";
import { openUnreadStream, survivesNatsOutage } from "../support/gateway-faults.js";
import { TcpProxy } from "../support/proxy.js";

// Invariant 7.
test("after an outage of NATS the notifications stored meanwhile arrive, in order", async () => {
  await survivesNatsOutage({
    open: async (nats) => {
      const running = await start({ nats });
      return { running, raw: await listen(running, "alice") };
    },
    subject: notifySubject("alice"),
    body: (drop_id) => ({ event: "new_drop", drop_id, created_at: 1 }),
    meanwhile: async ({ url }) =>
      expect((await ask(url, { authorization: `Bearer ${await token("bob")}` })).response.statusCode).toBe(503),
  });
});

// Invariant 7.
test("a live message that core NATS lost is found by the next one, or by the next heartbeat", async () => {
  let lost = 0;
  const losing = connectionWith({
    subscribe: (subject, { callback, ...options } = {}) =>
      connection.subscribe(subject, {
        ...options,
        callback: (error, message) => {
          if (message.string().includes('"lost-')) lost++;
          else callback?.(error, message);
        },
      }),
  });
  const running = await start({ nats: losing, limits: { heartbeatMs: [1_500, 1_600] } });
  const raw = await listen(running, "alice");
  const beatsIn = (blocks: readonly string[]): number => blocks.filter((one) => one.startsWith(": heartbeat")).length;
  await eventually(() => beatsIn(raw.blocks()) === 1, "the first heartbeat");
  await send("alice", "lost-1");
  await send("alice", "d2");
  await raw.sees(["lost-1", "d2"]);
  await send("alice", "lost-3");
  const before = beatsIn(raw.blocks());
  await raw.sees(["lost-1", "d2", "lost-3"]);
  const found = raw.blocks().findIndex((block) => block.includes('"lost-3"'));
  // One may have been about to be sent.
  expect(beatsIn(raw.blocks().slice(0, found))).toBeLessThanOrEqual(before + 1);
  expect(lost).toBe(2);
  expect(raw.resets()).toEqual([]);
});

// Invariant 11.
test("a slow reader is cut off at the bound, and nobody else notices", async () => {
  // A heartbeat that finds a notification before it comes live would have the stream catch up, which waits for its reader.
  const never = 3_600_000;
  const limits = { maxBufferedBytes: 512 * 1024, stallMs: never, heartbeatMs: [never, never] } as const;
  const running = await start({ limits });
  const other = await listen(running, "alice");
  await openUnreadStream(running, "alice");
  await eventually(() => running.gateway.counts().streams === 2, "two streams");
  // Never read again: the buffers of both kernels fill up first, and then ours.
  const padding = "x".repeat(100_000);
  let count = 0;
  // Kernels that grow their buffers hold up to 40 MB.
  while (running.gateway.counts().streams === 2 && count < 1_000) {
    // What may arrive at once stays below the bound: clients and gateway share this process, which cannot read meanwhile.
    await sendMany(
      "alice",
      Array.from({ length: 4 }, () => `d${count++}${padding}`),
    );
    await eventually(() => other.drops().length === count, "the other one keeps up");
  }
  expect(running.gateway.counts().streams).toBe(1);
  expect(other.ended).toBe(false);
});

// Invariant 11.
test("a reader that takes nothing is cut off after a while", async () => {
  const running = await start({ limits: { stallMs: 100, maxBufferedBytes: 1_000_000_000 } });
  await openUnreadStream(running, "alice");
  await eventually(() => running.gateway.counts().streams === 1, "a stream");
  const padding = "x".repeat(500_000);
  for (let i = 0; i < 60 && running.gateway.counts().streams === 1; i++) await send("alice", `d${i}${padding}`);
  await idle(running);
});

// Invariant 9.
test("a request that is pipelined behind a stream ends the connection, and nothing of another user comes over it", async () => {
  const running = await start();
  const socket = connectTcp(running.port, "127.0.0.1");
  let seen = "";
  socket.on("data", (chunk) => {
    seen += String(chunk);
  });
  for (const user of ["alice", "bob"])
    socket.write(`GET /events/timeline/home HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${await token(user)}\r\n\r\n`);
  await eventually(() => socket.closed || running.gateway.counts().streams === 2, "the end, or two streams");
  await send("bob", "for-bob");
  await eventually(() => socket.closed || seen.includes("for-bob"), "the end, or the event");
  expect(seen).not.toContain("for-bob");
  await idle(running);
});

// Invariant 7.
test("FLUSHALL: the stream gets a reset, and is registered again", async () => {
  const running = await start();
  const raw = await listen(running, "alice");
  const id = raw.lastId;
  await client.flushall();
  await eventually(() => raw.resets().length > 0, "a reset");
  expect(raw.resets()).toEqual(["registration_lost"]);
  expect(await client.scard(connectionsOfUserKey("alice"))).toBe(1);
  expect(await client.zcard(RECENT_KEY)).toBe(1);
  await send("alice", "after");
  await raw.sees(["after"]);
  // A tab that was away meanwhile has missed what fan-out did not even store.
  const tab = await listen(running, "alice", id);
  await eventually(() => tab.resets().length > 0, "a reset of the other tab");
  expect(tab.resets()).toEqual(["registration_lost"]);
  expect(raw.resets()).toHaveLength(1);
  const fine = await listen(running, "alice", raw.lastId);
  await eventually(() => fine.blocks().length > 1, "a heartbeat");
  expect(fine.resets()).toEqual([]);
});

/** Longer than the window. */
async function longAway(running: Awaited<ReturnType<typeof start>>): Promise<void> {
  await idle(running);
  await client.zadd(RECENT_KEY, Date.now() - 11 * 60_000, "alice");
}

async function isReset(again: Awaited<ReturnType<typeof listen>>): Promise<void> {
  await eventually(() => again.resets().length > 0, "a reset");
  expect(again.resets()).toEqual(["registration_lost"]);
}

// Invariant 7.
test("a client away for longer than the window gets a reset, although the stream shows no gap", async () => {
  const running = await start();
  const raw = await listen(running, "alice");
  await raw.goes();
  await longAway(running);
  const again = await listen(running, "alice", raw.lastId);
  await isReset(again);
});

// Invariant 7.
test("a client away for longer than the window gets a reset, also where another tab was opened first", async () => {
  const running = await start();
  const phone = await listen(running, "alice");
  await phone.goes();
  await longAway(running);
  const laptop = await listen(running, "alice");
  expect(laptop.lastSeq).toBe(phone.lastSeq);
  const again = await listen(running, "alice", phone.lastId);
  await isReset(again);
  for (const quiet of [laptop, again]) {
    const next = await listen(running, "alice", quiet.lastId);
    await eventually(() => next.blocks().length > 1, "a heartbeat");
    expect(next.resets()).toEqual([]);
  }
});

// Invariant 7.
test("a client away for longer than the window gets a reset, however long another stream of its user has been open", async () => {
  const running = await start();
  const laptop = await listen(running, "alice");
  await laptop.goes();
  await longAway(running);
  const phone = await listen(running, "alice");
  // As an hour after the phone came: nothing was stored for anybody before, and all of it is still there.
  const listing = "sse_recent:listing:alice";
  await client.pexpire(listing, 300);
  await eventually(async () => {
    const left = await client.pttl(listing);
    return left < 0 || left > 60_000;
  }, "the listing is renewed, or gone");
  await send("alice", "d1");
  await phone.sees(["d1"]);
  const again = await listen(running, "alice", laptop.lastId);
  await isReset(again);
  expect(phone.resets()).toEqual([]);
});

test("a sweep that fails is logged as one", async () => {
  const lines: string[] = [];
  const usual = createScripts(client);
  const command = () => Promise.reject(new AppError("failed", "refused"));
  await start({ scripts: { ...usual, command }, log: { ...silent, warn: (_, line) => void lines.push(line) } });
  await eventually(() => lines.length > 0, "a line");
  expect(lines[0]).toBe("registrations of ended processes were not removed; the next sweep tries again");
});

// Invariant 11.
test("registrations of dead pods are swept, those of live ones stay", async () => {
  const running = await start();
  const raw = await listen(running, "a.b");
  const key = connectionsOfUserKey("a.b");
  const token64 = key.slice("sse_connections:user:".length);
  await client.sadd(key, `dead.${token64}`);
  await client.zadd(CONNECTIONS_SEEN_KEY, Date.now() - 120_000, `dead.${token64}`);
  await eventually(async () => (await client.zcard(CONNECTIONS_SEEN_KEY)) === 1, "the dead one is swept");
  await eventually(async () => (await client.scard(key)) === 1, "and gone from its user");
  await send("a.b", "d1");
  await raw.sees(["d1"]);
  expect(raw.resets()).toEqual([]);
});

// Invariant 11.
test("thousands of registrations of a dead pod are swept in one go, and no others", async () => {
  const streams = names("dead", 5_000).map((user) => [connectionsOfUserKey(user), `one.${user}`] as const);
  const pipeline = client.pipeline(streams.map(([key, id]) => ["sadd", key, id]));
  const died = Date.now() - 120_000;
  await pipeline.zadd(CONNECTIONS_SEEN_KEY, ...streams.flatMap(([, id]) => [died, id])).exec();
  const running = await start({ limits: { sweepMs: 3_600_000 } });
  const raw = await listen(running, "alice");
  await eventually(async () => (await client.zcard(CONNECTIONS_SEEN_KEY)) === 1, "all are swept");
  expect(await client.keys("sse_connections:user:*")).toEqual([connectionsOfUserKey("alice")]);
  await send("alice", "d1");
  await raw.sees(["d1"]);
  expect(raw.resets()).toEqual([]);
});

// Invariant 9.
test("ids that look like wildcards or like alice's token read nothing of hers", async () => {
  const running = await start();
  const tricks = [
    "*",
    ">",
    "a.b",
    "alice ",
    "=YWxpY2U",
    "ALICE",
    "alice.>",
    "alice\r\nSUB > 1",
    "user.alice",
    "ali\0ce",
  ];
  const alice = await listen(running, "alice");
  const others = await Promise.all(tricks.map((user) => listen(running, user)));
  const before = others.map(({ lastId }) => lastId);
  await send("alice", "secret");
  await alice.sees(["secret"]);
  for (const [i, user] of tricks.entries()) {
    await send(user, `own ${i}`);
    await (others[i] as Raw).sees([`own ${i}`]);
  }
  for (const [i, user] of tricks.entries()) {
    await (others[i] as Raw).goes();
    const resumed = await listen(running, user, before[i]);
    await resumed.sees([`own ${i}`]);
  }
});

test("a stream ends with its token, and at the end of its life", async () => {
  const running = await start();
  const raw = await ask(running.url, { authorization: `Bearer ${await token("alice", 2)}` });
  await eventually(() => raw.ended, "the token ends");
  expect(raw.response.complete).toBe(true);
  const short = await listen(await start({ limits: { maxLifeMs: 100 } }), "alice");
  await eventually(() => short.ended, "the life ends");
  await idle(running);
});

test("draining ends every stream in order and removes the registrations", async () => {
  const running = await start();
  const open = await Promise.all(names("user", 20).map((user) => listen(running, user)));
  await running.gateway.close(1_000);
  await eventually(() => open.every((raw) => raw.ended), "all have ended");
  expect(open.every((raw) => raw.response.complete)).toBe(true);
  expect(await client.keys("sse_connection*")).toEqual([]);
  expect(running.gateway.counts()).toEqual({ streams: 0, users: 0, registrations: 0 });
  const late = await ask(running.url, { authorization: `Bearer ${await token("alice")}` });
  expect(late.response.statusCode).toBe(503);
  expect(late.response.headers["retry-after"]).toMatch(/^\d+$/);
  expect(running.gateway.healthy()).toBe(false);
});

test("while Redis is unavailable new streams are refused, and open ones stay", async () => {
  const own = await privateRedis();
  const away = connectRedis([own.url], silent);
  cleanups.push(
    () => own.stop(),
    () => away.disconnect(),
  );
  const running = await start({ scripts: createScripts(away) });
  await eventually(() => running.gateway.healthy(), "ready");
  const raw = await listen(running, "alice");
  own.kill("SIGKILL");
  await own.exited;
  await eventually(() => !running.gateway.healthy(), "the gateway notices");
  const refused = await ask(running.url, { authorization: `Bearer ${await token("bob")}` });
  expect(refused.response.statusCode).toBe(503);
  expect(refused.response.headers["retry-after"]).toBeDefined();
  await send("alice", "d1");
  await raw.sees(["d1"]);
  await raw.goes();
  await idle(running);
});

// Invariant 11.
test("a stream that cannot be opened is not registered, also where NATS goes away while Redis still registers it", async () => {
  const own = await privateNats();
  cleanups.push(() => own.stop());
  const proxy = await TcpProxy.open(own.port);
  cleanups.push(() => proxy.close());
  const link = await connectNats({ servers: [proxy.url("nats")], name: "cut" }, silent);
  cleanups.push(() => link.close());
  await applyTopology(await link.jetstreamManager(), { replicas: 1 }, silent);
  const usual = createScripts(client);
  const scripts: Scripts = {
    ...usual,
    run: async (script, ...of) => {
      if (script.name !== "register-streams" || !isCutting) return usual.run(script, ...of);
      registers();
      proxy.refuse(true);
      let tries = 0;
      // With its first try to connect again the client gives up what it was waiting for.
      for await (const { type } of link.status()) if (type === "reconnecting" && ++tries === 2) break;
      const reply = await usual.run(script, ...of);
      setImmediate(() => (isRegistered = true));
      return reply;
    },
  };
  let [isCutting, isRegistered] = [false, false];
  let registers = (): void => undefined;
  const registering = new Promise<void>((resolve) => {
    registers = resolve;
  });
  // NATS could answer before Redis is asked to register, and then the stream opens.
  const flush = async (): Promise<void> => {
    if (isCutting) await registering;
    return link.flush();
  };
  const running = await start({ nats: connectionWith({ flush }, link), scripts });
  const raw = await listen(running, "alice");
  isCutting = true;
  // The state of NOTIFY that alice's stream has asked for is used again within a second.
  const { response } = await ask(running.url, { authorization: `Bearer ${await token("bob")}` });
  expect(response.statusCode).toBe(503);
  raw.close();
  await eventually(() => isRegistered && running.gateway.counts().streams === 0, "both have ended");
  await eventually(() => running.gateway.counts().registrations === 0, "neither is registered");
  expect(await client.smembers(connectionsOfUserKey("bob"))).toEqual([]);
});
