import { expect, test } from "@jest/globals";
import { connectionsOfUserKey, RECENT_KEY } from "../../src/state/keys.js";
import { eventually } from "../support/eventually.js";
import {
  ask,
  cleanups,
  client,
  connection,
  connectionWith,
  idle,
  listen,
  send,
  start,
  token,
} from "../support/gateway.js";

/** Registrations are not renewed while a test runs. */
const UNRENEWED = { limits: { renewMs: 3_600_000 } };

// Invariant 7.
test("a client whose user was unlisted for a while gets a reset, also where events came since another tab was opened", async () => {
  const running = await start(UNRENEWED);
  const phone = await listen(running, "alice");
  await client.flushall();
  const laptop = await listen(running, "alice");
  await send("alice", "d1");
  await phone.sees(["d1"]);
  await phone.goes();
  const again = await listen(running, "alice", phone.lastId);
  await eventually(() => again.resets().length > 0, "a reset");
  expect(again.resets()).toEqual(["registration_lost"]);
  for (const { lastId } of [laptop, again]) {
    const next = await listen(running, "alice", lastId);
    await eventually(() => next.blocks().length > 1, "a heartbeat");
    expect(next.resets()).toEqual([]);
  }
});

// Invariant 7.
test("a client whose user was unlisted for a while gets a reset, also where the other tab began at an older end of NOTIFY", async () => {
  const running = await start(UNRENEWED);
  const phone = await listen(running, "alice");
  await listen(running, "bob");
  await send("alice", "d1");
  await phone.sees(["d1"]);
  await phone.goes();
  await client.flushall();
  // Begins where bob did, if it opens within a second.
  await listen(running, "alice");
  const again = await listen(running, "alice", phone.lastId);
  await eventually(() => again.resets().length > 0, "a reset");
  expect(again.resets()).toEqual(["registration_lost"]);
});

// Invariant 7.
test("a client whose stream ends after its user's listing gets a reset, also where no renewal came in between", async () => {
  const running = await start(UNRENEWED);
  const raw = await listen(running, "alice");
  // As after an outage of Redis: fan-out has stored nothing for her since.
  await client.zadd(RECENT_KEY, Date.now() - 605_000, "alice");
  await raw.goes();
  await idle(running);
  const again = await listen(running, "alice", raw.lastId);
  await eventually(() => again.blocks().length > 1, "a heartbeat");
  expect(again.resets()).toEqual(["registration_lost"]);
});

// Invariant 7.
test("how long a user is listed is measured by the clock of Redis, also where the gateway's is behind", async () => {
  const running = await start(UNRENEWED);
  const raw = await listen(running, "alice");
  await raw.goes();
  await idle(running);
  await client.zadd(RECENT_KEY, Date.now() - 605_000, "alice");
  const now = Date.now;
  cleanups.push(() => {
    Date.now = now;
  });
  Date.now = () => now() - 30_000;
  const again = await listen(running, "alice", raw.lastId);
  await eventually(() => again.blocks().length > 1, "a heartbeat");
  expect(again.resets()).toEqual(["registration_lost"]);
});

// Invariant 7.
test("a resume that must reset has the reset in its first block: no client holds the new position without it", async () => {
  const running = await start(UNRENEWED);
  const first = await listen(running, "alice");
  await first.goes();
  await client.flushall();
  const again = await listen(running, "alice", first.lastId);
  await eventually(() => again.blocks().length > 1, "a heartbeat");
  const [block] = again.blocks();
  expect(block).toMatch(
    /^retry: \d+\n: connected\nid: [0-9a-z-]+\nevent: reset\ndata: {"reason":"registration_lost"}$/,
  );
  expect(again.resets()).toHaveLength(1);
});

// Invariant 7.
test("two processes that list a user again agree on the listing: each stream gets one reset, and no client another", async () => {
  const both = await Promise.all([start(), start()]);
  const tabs = await Promise.all(both.map((running) => listen(running, "alice")));
  await client.flushall();
  for (const tab of tabs) await eventually(() => tab.resets().length > 0, "a reset");
  for (const [at, tab] of tabs.entries()) {
    await send("alice", `d${at}`);
    await eventually(() => tab.drops().includes(`d${at}`), "an event");
    expect(tab.resets()).toEqual(["registration_lost"]);
    await tab.goes();
    const again = await listen(both[0] as (typeof both)[0], "alice", tab.lastId);
    await eventually(() => again.blocks().length > 1, "a heartbeat");
    expect(again.resets()).toEqual([]);
  }
});

// Invariant 7.
test("a stream whose user another process lists anew gets a reset, though its own registration is there", async () => {
  const [running, other] = await Promise.all([start({ limits: { renewMs: 300 } }), start()]);
  const tab = await listen(running, "alice");
  // As where one master of a cluster has lost its data.
  await client.del(RECENT_KEY);
  await listen(other, "alice");
  await eventually(() => tab.resets().length > 0, "a reset");
  expect(tab.resets()).toEqual(["registration_lost"]);
});

// Invariant 7.
test("a registration that is lost while its stream opens is told of once the stream is open", async () => {
  let release = (): void => undefined;
  const reading = new Promise<void>((resolve) => {
    release = resolve;
  });
  let isReading = false;
  const slow = connectionWith({
    request: async (...of) => {
      if (of[0].startsWith("$JS.API.DIRECT.GET")) {
        isReading = true;
        await reading;
      }
      return connection.request(...of);
    },
  });
  const usual = await start();
  const first = await listen(usual, "alice");
  await first.goes();
  await eventually(async () => (await client.exists(connectionsOfUserKey("alice"))) === 0, "it is removed");
  const running = await start({ nats: slow });
  const opening = ask(running.url, { authorization: `Bearer ${await token("alice")}`, "last-event-id": first.lastId });
  await eventually(() => isReading, "the stream reads what was missed");
  const registered = await client.smembers(connectionsOfUserKey("alice"));
  expect(registered).toHaveLength(1);
  await client.flushall();
  await eventually(async () => (await client.exists(connectionsOfUserKey("alice"))) === 1, "it is registered again");
  release();
  const raw = await opening;
  await eventually(() => raw.blocks().length > 1, "the first blocks");
  expect(raw.resets()).toEqual(["registration_lost"]);
  expect(raw.blocks()[0]).toContain("\nevent: reset\n");
  const next = await listen(usual, "alice", raw.lastId);
  await eventually(() => next.blocks().length > 1, "a heartbeat");
  expect(next.resets()).toEqual([]);
});
