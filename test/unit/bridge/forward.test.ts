import { expect, test } from "@jest/globals";
import { createForward, type ForwardDeps, startIntake } from "../../../src/bridge/bridge.js";
import type { Channels } from "../../../src/bridge/channels.redis.js";
import type { EventName } from "../../../src/contracts/events.js";
import { HEADER_ROOM } from "../../../src/contracts/fanout.js";
import type { DeadLetter } from "../../../src/delivery/dead-letter.js";
import { AppError } from "../../../src/kernel/errors.js";
import { silent } from "../../../src/kernel/logger.js";
import { readClocks } from "../../../src/kernel/time.js";

type Admitted = Parameters<ForwardDeps["admitAll"]>[0][number];

const each =
  (admit: (event: Admitted) => Promise<{ duplicate: boolean }>): ForwardDeps["admitAll"] =>
  (events) =>
    Promise.all(events.map((event) => admit(event).catch((error: AppError) => error)));

const now = () => ({ arrival: Date.now(), publishedAfter: readClocks() });

function setup(change: Partial<ForwardDeps> = {}) {
  const admitted: Admitted[] = [];
  const deadLetters: DeadLetter[] = [];
  const observed: string[] = [];
  const forward = createForward({
    admitAll: each(async (event) => {
      admitted.push(event);
      return { duplicate: admitted.filter(({ id }) => id === event.id).length > 1 };
    }),
    deadLetters: {
      take: async (deadLetter) => {
        deadLetters.push(deadLetter);
        return "stored";
      },
    },
    namesErased: async () => false,
    server: { info: { max_payload: 1_000 + HEADER_ROOM } },
    requestReconcile: () => undefined,
    version: "1.2.3",
    exportsTraces: true,
    log: silent,
    observe: (all) => observed.push(...all.map(({ outcome, channel }) => `${outcome} ${channel}`)),
    ...change,
  });
  return {
    forward: (channel: EventName, payload: Uint8Array | string) =>
      forward([{ channel, payload: Buffer.from(payload), ...now() }], () => undefined),
    forwardAll: forward,
    admitted,
    deadLetters,
    observed,
  };
}

const DELETED = '{"drop_id":"d1","user_id":"ada","text":"nobody needs this"}';

test("an understood payload is admitted under its subject and id, cleaned, once", async () => {
  const { forward, admitted, deadLetters, observed } = setup();
  await forward("drop_deleted", DELETED);
  await forward("drop_deleted", DELETED);
  expect(admitted[0]).toMatchObject({ subject: "drops.deleted", id: "drop_deleted:d1" });
  expect(JSON.parse(String(admitted[0]?.body))).toEqual({ drop_id: "d1", user_id: "ada" });
  expect([deadLetters, observed]).toEqual([[], ["admitted drop_deleted", "duplicate drop_deleted"]]);
});

test("a payload that cannot be understood becomes one dead letter, byte for byte, from any number of bridges", async () => {
  const payload = Buffer.from([0x7b, 0xff, 0x00, 0x0a]);
  const [one, other] = [setup(), setup()];
  await one.forward("drop_created", payload);
  await other.forward("drop_created", payload);
  expect(one.deadLetters[0]?.body).toEqual(payload);
  expect(one.deadLetters[0]).toMatchObject({
    subject: "dlq.invalid.drop_created",
    headers: { "Dlq-Subject": "drop_created", "Dlq-Reason": "invalid" },
  });
  expect(one.deadLetters[0]?.headers["Dlq-Stream"]).toBeUndefined();
  expect(other.deadLetters[0]?.id).toBe(one.deadLetters[0]?.id);
  await other.forward("drop_deleted", payload);
  expect(other.deadLetters[1]?.id).not.toBe(other.deadLetters[0]?.id);
  expect([one.admitted, one.observed]).toEqual([[], ["invalid drop_created"]]);
});

test("a payload that is too large becomes a dead letter with its beginning and its size; one that just fits does not", async () => {
  const { forward, deadLetters, admitted } = setup({ server: { info: { max_payload: 100_000 + HEADER_ROOM } } });
  const huge = Buffer.alloc(100_001, "x");
  await forward("drop_created", huge);
  expect(deadLetters[0]).toMatchObject({
    subject: "dlq.toolarge.drop_created",
    headers: { "Dlq-Size": "100001", "Dlq-Reason": "toolarge" },
  });
  expect(deadLetters[0]?.body).toEqual(huge.subarray(0, 64 * 1024));
  const padded = DELETED.replace("nobody", "n".repeat(100_000 - DELETED.length + 6));
  expect(Buffer.byteLength(padded)).toBe(100_000);
  await forward("drop_deleted", padded);
  expect([deadLetters.length, admitted.length]).toEqual([1, 1]);
});

// Invariant 1.
test("an event that cannot be admitted yet is tried until it is, under the time of its arrival", async () => {
  let outages = 2;
  const times: string[] = [];
  const { forward, observed } = setup({
    admitAll: each(async (event) => {
      times.push(String(event.body));
      if (outages-- > 0) throw new AppError("unavailable", "away");
      return { duplicate: false };
    }),
  });
  await forward("ap_drop_received", `{"drop_id":"d1","created_at":"9999-01-01T00:00:00Z"}`);
  expect(new Set(times).size).toBe(1);
  expect([times.length, observed]).toEqual([3, ["admitted ap_drop_received"]]);
});

// Invariant 8.
test("an outage is one line in the log, however many events it holds up and however often they are tried", async () => {
  let [tries, most] = [0, 30];
  const lines: string[] = [];
  const { forward } = setup({
    admitAll: each(async () => {
      if (tries++ < most) throw new AppError("unavailable", "away");
      return { duplicate: false };
    }),
    log: { ...silent, warn: (_, message) => void lines.push(message) },
  });
  const drop = (id: number): string => `{"drop_id":"d${id}","user_id":"ada"}`;
  await Promise.all(Array.from({ length: 10 }, (_, id) => forward("drop_deleted", drop(id))));
  expect(lines).toEqual(["events could not be admitted yet; they are kept and tried again"]);
  [tries, most] = [0, 2];
  await forward("drop_deleted", drop(11));
  expect(lines).toHaveLength(2);
});

test("of a batch only what could not be stored is tried again, in the order it came; the rest is settled before", async () => {
  let away = true;
  const order: string[] = [];
  const settled: string[][] = [];
  const { forwardAll, deadLetters } = setup({
    admitAll: each(async ({ id }) => {
      if (away && id !== "drop_deleted:d2") throw new AppError("unavailable", "away");
      order.push(id);
      return { duplicate: false };
    }),
  });
  const texts = ["d1", "d2", "no drop", "d3"].map((id) => (id.startsWith("d") ? `{"drop_id":"${id}"}` : id));
  const batch = texts.map((text) => ({ channel: "drop_deleted", payload: Buffer.from(text), ...now() }) as const);
  await forwardAll(batch, (some) => {
    settled.push(some.map(({ payload }) => payload.toString()));
    away = false;
  });
  expect(order).toEqual(["drop_deleted:d2", "drop_deleted:d1", "drop_deleted:d3"]);
  expect(settled.flat().sort()).toEqual([...texts].sort());
  expect([settled.at(-1), deadLetters.length]).toEqual([[texts[0], texts[3]], 1]);
});

// Invariant 1.
test("a dead letter that cannot be stored is tried until it is", async () => {
  let outages = 1;
  const stored: DeadLetter[] = [];
  const { forward } = setup({
    deadLetters: {
      take: async (deadLetter) => {
        if (outages-- > 0) throw new AppError("unavailable", "away");
        stored.push(deadLetter);
        return "stored";
      },
    },
  });
  await forward("drop_created", "no JSON");
  expect(stored).toHaveLength(1);
});

test("a dead letter there is no room for is counted as refused", async () => {
  const { forward, observed } = setup({ deadLetters: { take: async () => "refused" } });
  await forward("drop_created", "no JSON");
  expect(observed).toEqual(["refused drop_created"]);
});

/** Channels a test publishes to. */
function memoryChannels(canHold: boolean) {
  let take: Parameters<Channels["subscribe"]>[1] = () => undefined;
  const holds: boolean[] = [];
  const channels: Channels = {
    subscribe: async (_, taker) => {
      take = taker;
    },
    setPaused: (on) => {
      if (canHold) holds.push(on);
      return canHold;
    },
    healthy: () => true,
    unsubscribe: async () => undefined,
  };
  return { channels, holds, publish: (payload: Uint8Array) => take("drop_created", payload, now().publishedAfter) };
}

async function intakeOn(channels: Channels) {
  const ends: (() => void)[] = [];
  const seen = { inFlight: 0, refused: 0, requested: [] as string[] };
  const intake = await startIntake({
    channels,
    forward: (batch, settled) =>
      new Promise((resolve) =>
        ends.push(() => {
          settled(batch);
          resolve();
        }),
      ),
    requestReconcile: (_, cause) => void seen.requested.push(cause),
    log: silent,
    observe: { inFlight: (change) => (seen.inFlight += change), refused: () => seen.refused++ },
  });
  return { intake, ends, seen };
}

// Invariant 11.
test("at the bound the source is held back; below it, it is read on", async () => {
  const { channels, holds, publish } = memoryChannels(true);
  const { ends, seen } = await intakeOn(channels);
  const megabyte = new Uint8Array(1024 * 1024);
  for (let count = 0; count < 65; count++) publish(megabyte);
  await new Promise(setImmediate);
  expect([holds, seen]).toEqual([[true], { inFlight: 65, refused: 0, requested: [] }]);
  for (const end of ends) end();
  await new Promise(setImmediate);
  expect([holds, seen.inFlight]).toEqual([[true, false], 0]);
});

// Invariant 11.
test("payloads of a source that cannot be held back are refused past twice the bound, and counted", async () => {
  const { channels, publish } = memoryChannels(false);
  const { seen } = await intakeOn(channels);
  for (let count = 0; count < 4_102; count++) publish(new Uint8Array(1));
  await new Promise(setImmediate);
  expect(seen).toEqual({ inFlight: 4_096, refused: 6, requested: Array(6).fill("overflow") });
});

test("close waits for payloads in flight, but not longer than the grace", async () => {
  const { channels, publish } = memoryChannels(true);
  const { intake, ends } = await intakeOn(channels);
  publish(new Uint8Array(1));
  await intake.close(20);
  let closed = false;
  const closing = intake.close(900).then(() => {
    closed = true;
  });
  await new Promise(setImmediate);
  expect(closed).toBe(false);
  ends[0]?.();
  await closing;
});

test("events that are tried again are no gap in the numbers of their producer", async () => {
  let outages = 3;
  const lost: string[] = [];
  const { forwardAll, admitted } = setup({
    requestReconcile: (_, cause) => void lost.push(cause),
    admitAll: each(async (event) => {
      if (outages > 0) throw new AppError("unavailable", "away");
      admitted.push(event);
      return { duplicate: false };
    }),
  });
  const numbered = (seq: number) => ({
    ...{ channel: "drop_deleted" as const, ...now() },
    payload: Buffer.from(`{"drop_id":"d${seq}","producer":"p","seq":${seq}}`),
  });
  const waiting = forwardAll([5, 6, 7, 8].map(numbered), () => {
    outages = 0;
  });
  const count = setInterval(() => outages--, 1);
  await waiting;
  clearInterval(count);
  await forwardAll([9].map(numbered), () => undefined);
  expect([admitted.length, lost]).toEqual([5, []]);
});

// Invariant 5.
test("a gap behind an event that Redis kept for long is reconciled from before that event was published", async () => {
  const lost: number[] = [];
  const { forwardAll } = setup({ requestReconcile: (since) => void lost.push(since) });
  const kept = (seq: number) => ({
    ...{ channel: "drop_deleted" as const, arrival: Date.now() },
    publishedAfter: { wall: 1_000 * seq, monotonic: performance.now() },
    payload: Buffer.from(`{"drop_id":"d${seq}","producer":"p","seq":${seq}}`),
  });
  await forwardAll([5, 7].map(kept), () => undefined);
  expect(lost).toEqual([5_000]);
});
