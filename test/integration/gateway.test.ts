import { once } from "node:events";
import { expect, test } from "@jest/globals";
import { EventSource } from "eventsource";
import { STREAM } from "../../src/contracts/subjects.js";
import { CONNECTIONS_SEEN_KEY, connectionKey, connectionsOfUserKey, RECENT_KEY } from "../../src/state/keys.js";
import { eventually } from "../support/eventually.js";

import {
  cleanups,
  client,
  connection,
  forge,
  idle,
  listen,
  names,
  nats,
  send,
  sendMany,
  start,
  token,
} from "../support/gateway.js";

test("the head, the first block and a live event are as the contract says", async () => {
  const running = await start();
  const raw = await listen(running, "alice");
  expect(raw.response.headers).toMatchObject({
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache, no-transform",
    "x-accel-buffering": "no",
    // The client asks for it.
    connection: "close",
  });
  expect(raw.blocks()[0]).toMatch(/^retry: \d+\n: connected\nid: \d+-[0-9a-z]+-[0-9a-z]+$/);
  const seq = await send("alice", "d1");
  await raw.sees(["d1"]);
  expect(raw.lastSeq).toBe(seq);
  const block = `id: ${raw.lastId}\nevent: new_drop\ndata: {"drop_id":"d1","created_at":1700000000000}`;
  expect(raw.blocks()).toContain(block);
  const subscribed = await fetch(`${nats.monitorUrl}/connz?subs=1`, { headers: { connection: "close" } });
  expect(await subscribed.text()).toContain('"live.user.alice"');
  await send("alice", "d1", "drop_deleted");
  await eventually(() => raw.text.includes('event: drop_deleted\ndata: {"drop_id":"d1"}\n\n'), "the deletion");
  await raw.goes();
  await idle(running);
  const held = await fetch(`${nats.monitorUrl}/connz?subs=1`, { headers: { connection: "close" } });
  expect(await held.text()).not.toContain("live.user.");
});

test("a registration stands before the first byte, and leaves its user listed", async () => {
  const running = await start();
  const raw = await listen(running, "alice smith");
  const [id] = await client.smembers(connectionsOfUserKey("alice smith"));
  const held = await client.hgetall(connectionKey(id as string));
  expect(held).toMatchObject({
    pod_name: "pod-1",
    user_id: "alice smith",
    created_at: expect.stringMatching(/^\d{13}$/),
  });
  expect(await client.ttl(connectionKey(id as string))).toBeGreaterThan(0);
  expect(await client.zcard(CONNECTIONS_SEEN_KEY)).toBe(1);
  await raw.goes();
  await idle(running);
  expect(
    await client.exists(connectionsOfUserKey("alice smith"), connectionKey(id as string), CONNECTIONS_SEEN_KEY),
  ).toBe(0);
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

test("the position may be in the query as last_event_id, and the header wins", async () => {
  const running = await start();
  const first = await listen(running, "alice");
  await send("alice", "before");
  await first.sees(["before"]);
  await first.goes();
  await send("alice", "missed");
  const query = (id: string) => ({ ...running, url: `${running.url}?a=b&last_event_id=${id}` });
  const second = await listen(query(first.lastId), "alice");
  await second.sees(["missed"]);
  const third = await listen(query("garbage"), "alice", first.lastId);
  await third.sees(["missed"]);
  expect([...second.resets(), ...third.resets()]).toEqual([]);
  const bad = await listen(query("garbage"), "alice");
  await eventually(() => bad.resets().length > 0, "a reset");
  expect(bad.resets()).toEqual(["unknown_position"]);
});

// Invariant 7.
test("a gap larger than the stream keeps is answered by a reset, and the stream goes live", async () => {
  const running = await start();
  const first = await listen(running, "alice");
  await first.goes();
  await sendMany("alice", names("d", 129));
  const second = await listen(running, "alice", first.lastId);
  await eventually(() => second.resets().length > 0, "a reset");
  await send("alice", "after");
  await second.sees(["after"]);
  expect(second.resets()).toEqual(["too_old"]);
});

test.each(["garbage", "0", "999999999", "-1", "1e9", "9".repeat(400)])(
  "a Last-Event-ID of %p is answered by a reset",
  async (id) => {
    const running = await start();
    (await listen(running, "alice")).close();
    const raw = await listen(running, "alice", id);
    await eventually(() => raw.resets().length > 0, "a reset");
    expect(raw.resets()).toEqual(["unknown_position"]);
    const { state } = await (await connection.jetstreamManager()).streams.info(STREAM.notify);
    expect(raw.lastSeq).toBe(state.last_seq);
    await send("alice", "live");
    await raw.sees(["live"]);
  },
);

test("a gap that aged out is answered by a reset, an empty stream is not", async () => {
  const running = await start();
  const first = await listen(running, "alice");
  await send("alice", "d1");
  await first.sees(["d1"]);
  await first.goes();
  await send("bob", "other");
  await (await connection.jetstreamManager()).streams.purge(STREAM.notify);
  const second = await listen(running, "alice", first.events.at(-1)?.id);
  await eventually(() => second.resets().length > 0, "a reset");
  expect(second.resets()).toEqual(["too_old"]);
  await second.goes();
  const third = await listen(running, "alice", second.lastId);
  await eventually(() => third.blocks().some((block) => block.startsWith(": heartbeat")), "a heartbeat");
  expect(third.resets()).toEqual([]);
});

test("the heartbeat of a quiet client moves on with the stream, and resumes later", async () => {
  const running = await start();
  const raw = await listen(running, "alice");
  const at = raw.lastId;
  const last = await send("bob", "for somebody else");
  await eventually(() => raw.lastSeq === last, "a heartbeat with the new position");
  expect(raw.lastId).not.toBe(at);
  expect(raw.blocks()).toContain(`: heartbeat\nid: ${raw.lastId}`);
  await raw.goes();
  await send("alice", "missed");
  const again = await listen(running, "alice", raw.lastId);
  await again.sees(["missed"]);
  expect(again.resets()).toEqual([]);
});

// Invariant 7.
test("a notification published twice arrives once, also across a reconnect", async () => {
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
  expect(first.lastSeq).toBeLessThan(repeated);
  const last = await send("alice", "d3");
  await eventually(() => second.lastSeq >= last, "the position passes a repeated one");
  expect(second.drops()).toEqual(["d3"]);
});

// Invariant 2.
test("a deletion that overtook its drop is sent again after it, live and on a resume; repetitions are not", async () => {
  const running = await start();
  const first = await listen(running, "alice");
  const eventsOf = (raw: typeof first): string[] => raw.events.map(({ event }) => event);
  const all = ["drop_deleted", "new_drop", "drop_deleted"];
  const before = first.lastId;
  for (const event of [...all, ...all]) await send("alice", "d1", event);
  await send("alice", "d2");
  await first.sees(["d1", "d2"]);
  expect(eventsOf(first)).toEqual([...all, "new_drop"]);
  const second = await listen(running, "alice", before);
  await second.sees(["d1", "d2"]);
  expect(eventsOf(second)).toEqual([...all, "new_drop"]);
  const third = await listen(running, "alice", first.events[1]?.id);
  await third.sees(["d2"]);
  expect(eventsOf(third)).toEqual(["drop_deleted", "new_drop"]);
});

// Invariant 4.
test("each revision of an edit is sent once, and none after the drop's deletion, live and on a resume", async () => {
  const running = await start();
  const first = await listen(running, "alice");
  const before = first.lastId;
  const edit = (revision: number) => send("alice", "d1", "drop_edited", { revision, by: "bob" });
  await send("alice", "d1");
  for (const revision of [2, 3, 2]) await edit(revision);
  await send("alice", "d1", "drop_deleted");
  for (const revision of [4, 4]) await edit(revision);
  await send("alice", "d2");
  const seen = ["new_drop", "drop_edited", "drop_edited", "drop_deleted", "new_drop"];
  for (const raw of [first, await listen(running, "alice", before)]) {
    await raw.sees(["d1", "d2"]);
    expect(raw.events.map(({ event }) => event)).toEqual(seen);
    expect(raw.text).toContain('event: drop_edited\ndata: {"drop_id":"d1","revision":2}\n\n');
  }
  const deleted = first.events[3]?.id;
  const late = await listen(running, "alice", deleted);
  await late.sees(["d2"]);
  expect(late.events.map(({ event }) => event)).toEqual(["new_drop"]);
});

/** Opens a stream that gets an event of the sequence `last`, and then a forged one of the sequence `last` + 2. */
async function startForged() {
  const running = await start({ limits: { heartbeatMs: [60_000, 60_000] } });
  const first = await listen(running, "alice");
  const last = await send("alice", "d1");
  await first.sees(["d1"]);
  forge("alice", "forged", last + 2);
  await first.sees(["d1", "forged"]);
  return { running, first, last };
}

// Invariant 7.
test("a forged live message takes the place of no genuine one, neither live nor on a resume", async () => {
  const { running, first } = await startForged();
  await send("alice", "d2");
  await send("alice", "d3");
  await first.sees(["d1", "forged", "d2", "d3"]);
  await first.goes();
  await send("alice", "d4");
  const second = await listen(running, "alice", first.lastId);
  await second.sees(["d4"]);
});

// Invariant 7.
test.each(["alice", "bob"])(
  "a client that resumes from the id of a forged live message gets a reset, also where a notification of %s has its sequence",
  async (owner) => {
    const { running, first, last } = await startForged();
    const ids = first.events.map(({ id }) => id);
    await first.goes();
    await send("alice", "d2");
    expect(await send(owner, "d3")).toBe(last + 2);
    const second = await listen(running, "alice", ids[1]);
    await send("alice", "d4");
    await second.sees(["d4"]);
    expect(second.resets()).toEqual(["unknown_position"]);
    const third = await listen(running, "alice", ids[0]);
    await third.sees(owner === "alice" ? ["d2", "d3", "d4"] : ["d2", "d4"]);
    expect(third.resets()).toEqual([]);
  },
);

test("the id of an event from before ids had a checksum is continued", async () => {
  const running = await start();
  const first = await listen(running, "alice");
  for (const drop of ["d1", "d2"]) await send("alice", drop);
  await first.sees(["d1", "d2"]);
  const [seq, incarnation, listing, ...rest] = first.events[0]?.id?.split("-") ?? [];
  expect(rest).toHaveLength(1);
  await first.goes();
  const second = await listen(running, "alice", [seq, incarnation, listing].join("-"));
  await second.sees(["d2"]);
  expect(second.resets()).toEqual([]);
});

// Invariant 7.
test("cutover under fire: nothing is missed and nothing comes twice", async () => {
  const running = await start();
  const sent: string[] = [];
  const seen: string[] = [];
  let raw = await listen(running, "alice");
  let cutovers = 0;
  const isUnderFire = (): boolean => cutovers < 10;
  const publishing = (async () => {
    // The fire ends after enough cutovers: each reads all that the stream keeps, which takes seconds on a busy machine.
    for (let i = 0; isUnderFire(); i++) {
      sent.push(`d${i}`);
      await send("alice", `d${i}`);
      // More than a stream keeps would be a reset, which is another test.
      await eventually(
        () => i - Number((raw.drops().at(-1) ?? seen.at(-1) ?? "d0").slice(1)) < 60,
        "the reader keeps up",
      );
    }
  })();
  while (isUnderFire() || seen.length < sent.length) {
    await eventually(() => raw.drops().length > 0, "a drop");
    await raw.goes();
    expect(raw.resets()).toEqual([]);
    seen.push(...raw.drops());
    raw = await listen(running, "alice", raw.lastId);
    cutovers++;
  }
  await publishing;
  expect(seen).toEqual(sent);
});

test("a stream whose live messages come while it still reads cuts over without a gap", async () => {
  const running = await start();
  const raw = await listen(running, "alice");
  await raw.goes();
  await sendMany("alice", names("old", 100));
  const all = names("new", 400);
  const many = await Promise.all([...Array(10)].map(() => listen(running, "alice", raw.lastId)));
  for (const drop of all) await send("alice", drop);
  for (const one of many) {
    await eventually(() => one.drops().at(-1) === all.at(-1), "the last one");
    // What a needless reset skips would look like a lost event.
    expect([one.resets(), one.drops()]).toEqual([[], [...names("old", 100), ...all]]);
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
  await eventually(() => got.length === 1, "the first drop");
  running.server.closeAllConnections();
  await sendMany("alice", ["d2", "d3"]);
  await eventually(() => got.length === 3, "what was missed");
  expect(got).toEqual(["d1", "d2", "d3"]);
});
