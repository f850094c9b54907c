import { expect, test } from "@jest/globals";
import type { StreamConfig } from "nats";
import { STREAM } from "../../src/contracts/subjects.js";
import { eventually } from "../support/eventually.js";

import {
  client,
  connection,
  listen,
  names,
  type Raw,
  type Running,
  send,
  sendMany,
  start,
} from "../support/gateway.js";

const manager = () => connection.jetstreamManager();

/** Deletes NOTIFY and makes it anew, as it was declared. */
async function replaceNotify(meanwhile: () => Promise<void> = async () => {}): Promise<void> {
  const { streams } = await manager();
  const { config } = await streams.info(STREAM.notify);
  await streams.delete(STREAM.notify);
  try {
    await meanwhile();
  } finally {
    await streams.add(config as StreamConfig);
  }
}

/** Everything that was sent after the reset, or before the stream was replaced: nothing in between is missing silently. */
function isHonest(raw: Raw, sent: readonly string[]): boolean {
  const heard = new Set(raw.drops());
  return raw.resets().length > 0 || sent.every((drop) => heard.has(drop));
}

async function listenAt(running: Running, position: number): Promise<Raw> {
  await sendMany("carol", names("c", position - 1));
  const raw = await listen(running, "alice");
  await send("alice", "first");
  await raw.sees(["first"]);
  return raw;
}

// Invariant 7.
test("a resume into a stream that was made anew is answered by a reset, and not continued", async () => {
  const running = await start();
  const first = await listenAt(running, 8);
  await first.goes();
  await replaceNotify();
  // The new stream has passed the old position: by the number alone nothing looks wrong.
  await sendMany("alice", names("d", 13));
  const second = await listen(running, "alice", first.lastId);
  await eventually(() => second.resets().length > 0, "a reset");
  expect(second.resets()).toEqual(["stream_replaced"]);
  await send("alice", "after");
  await second.sees(["after"]);
  const third = await listen(running, "alice", second.lastId);
  await eventually(() => third.blocks().length > 1, "a heartbeat");
  expect([third.resets(), third.drops()]).toEqual([[], []]);
});

// Invariant 7.
test("an open stream gets a reset when its stream is made anew, also where the new one is ahead of it at once", async () => {
  const running = await start({ limits: { heartbeatMs: [5_000, 6_000] } });
  const raw = await listenAt(running, 5);
  const before = raw.lastId;
  await replaceNotify();
  const sent = names("d", 40);
  await sendMany("alice", sent);
  await eventually(() => raw.resets().length > 0, "a reset");
  expect(raw.resets()[0]).toBe("stream_replaced");
  await eventually(() => raw.lastId.split("-")[1] !== before.split("-")[1], "ids of the new stream");
  await send("alice", "after");
  await eventually(() => raw.drops().includes("after"), "it goes on live");
  expect(isHonest(raw, sent)).toBe(true);
  // An event before the reset carries the old incarnation, one after it the new one.
  const resetAt = raw.events.findIndex(({ event }) => event === "reset");
  const incarnations = raw.events.map(({ id }) => String(id).split("-")[1]);
  expect(new Set(incarnations.slice(0, resetAt))).toEqual(new Set([before.split("-")[1]]));
  expect(new Set(incarnations.slice(resetAt))).toEqual(new Set([raw.lastId.split("-")[1]]));
});

test("while the stream is gone nothing is sent under its old ids", async () => {
  const running = await start();
  const raw = await listenAt(running, 3);
  // A heartbeat takes the check away.
  await eventually(() => raw.lastId.split("-").length === 3, "the position is confirmed");
  const before = raw.lastId;
  await replaceNotify(async () => {
    // Heartbeats go on, and stand still.
    const blocks = raw.blocks().length;
    await eventually(() => raw.blocks().length > blocks + 2, "heartbeats");
    expect(raw.lastId).toBe(before);
  });
  await eventually(() => raw.resets().length > 0, "a reset");
  await send("alice", "after");
  await eventually(() => raw.drops().includes("after"), "it goes on live");
  expect(raw.resets()).toEqual(["stream_replaced"]);
});

test("a loss of registrations recorded in the old stream does not count in the new one", async () => {
  const running = await start();
  const raw = await listenAt(running, 60);
  await client.flushall();
  await eventually(() => raw.resets().includes("registration_lost"), "the registration is lost");
  await replaceNotify();
  await eventually(() => raw.resets().includes("stream_replaced"), "a reset");
  await raw.goes();
  await send("alice", "missed");
  const again = await listen(running, "alice", raw.lastId);
  await again.sees(["missed"]);
  expect(again.resets()).toEqual([]);
});
