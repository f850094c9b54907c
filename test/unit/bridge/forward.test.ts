import { expect, test } from "@jest/globals";
import { type Channels, startBridge } from "../../../src/bridge/bridge.js";
import { createForward, type ForwardDeps } from "../../../src/bridge/forward.js";
import type { EventName } from "../../../src/contracts/events.js";
import type { DeadLetter } from "../../../src/delivery/dead-letter.js";
import { AppError } from "../../../src/kernel/errors.js";
import { silent } from "../../../src/kernel/logger.js";

type Admitted = Parameters<ForwardDeps["admit"]>[0];

function setup(change: Partial<ForwardDeps> = {}) {
  const admitted: Admitted[] = [];
  const letters: DeadLetter[] = [];
  const observed: string[] = [];
  const forward = createForward({
    admit: async (event) => {
      admitted.push(event);
      return { duplicate: admitted.filter(({ id }) => id === event.id).length > 1 };
    },
    letters: {
      take: async (letter) => {
        letters.push(letter);
        return "stored";
      },
    },
    maxPayloadBytes: () => 1_000,
    numbered: () => undefined,
    version: "1.2.3",
    log: silent,
    observe: (what, channel) => observed.push(`${what} ${channel}`),
    ...change,
  });
  return {
    forward: (channel: EventName, payload: Uint8Array | string) => forward(channel, Buffer.from(payload)),
    admitted,
    letters,
    observed,
  };
}

const DELETED = '{"drop_id":"d1","user_id":"ada","text":"nobody needs this"}';

test("an understood payload is admitted under its subject and id, cleaned, once", async () => {
  const { forward, admitted, letters, observed } = setup();
  await forward("drop_deleted", DELETED);
  await forward("drop_deleted", DELETED);
  expect(admitted[0]).toMatchObject({ subject: "drops.deleted", id: "drop_deleted:d1" });
  expect(JSON.parse(String(admitted[0]?.body))).toEqual({ drop_id: "d1", user_id: "ada" });
  expect([letters, observed]).toEqual([[], ["admitted drop_deleted", "duplicate drop_deleted"]]);
});

test("what cannot be understood becomes one letter, byte for byte, whoever writes it", async () => {
  const payload = Buffer.from([0x7b, 0xff, 0x00, 0x0a]);
  const [one, other] = [setup(), setup()];
  await one.forward("drop_created", payload);
  await other.forward("drop_created", payload);
  expect(one.letters[0]?.body).toEqual(payload);
  expect(one.letters[0]).toMatchObject({
    subject: "dlq.invalid.drop_created",
    headers: { "Dlq-Subject": "drop_created", "Dlq-Reason": "invalid" },
  });
  expect(one.letters[0]?.headers["Dlq-Stream"]).toBeUndefined();
  expect(other.letters[0]?.id).toBe(one.letters[0]?.id);
  await other.forward("drop_deleted", payload);
  expect(other.letters[1]?.id).not.toBe(other.letters[0]?.id);
  expect([one.admitted, one.observed]).toEqual([[], ["invalid drop_created"]]);
});

test("what is too large becomes a letter with its beginning and its size; what just fits does not", async () => {
  const { forward, letters, admitted } = setup({ maxPayloadBytes: () => 100_000 });
  const huge = Buffer.alloc(100_001, "x");
  await forward("drop_created", huge);
  expect(letters[0]).toMatchObject({
    subject: "dlq.toolarge.drop_created",
    headers: { "Dlq-Size": "100001", "Dlq-Reason": "toolarge" },
  });
  expect(letters[0]?.body).toEqual(huge.subarray(0, 64 * 1024));
  const padded = DELETED.replace("nobody", "n".repeat(100_000 - DELETED.length + 6));
  expect(Buffer.byteLength(padded)).toBe(100_000);
  await forward("drop_deleted", padded);
  expect([letters.length, admitted.length]).toEqual([1, 1]);
});

test("an event that cannot be admitted yet is tried until it is, with the arrival it had", async () => {
  let outages = 2;
  const times: string[] = [];
  const { forward, observed } = setup({
    admit: async (event) => {
      times.push(String(event.body));
      if (outages-- > 0) throw new AppError("unavailable", "away");
      return { duplicate: false };
    },
  });
  await forward("ap_drop_received", `{"drop_id":"d1","created_at":"9999-01-01T00:00:00Z"}`);
  expect(new Set(times).size).toBe(1);
  expect([times.length, observed]).toEqual([3, ["admitted ap_drop_received"]]);
});

test("a letter that cannot be stored is tried until it is", async () => {
  let outages = 1;
  const letters: DeadLetter[] = [];
  const { forward } = setup({
    letters: {
      take: async (letter) => {
        if (outages-- > 0) throw new AppError("unavailable", "away");
        letters.push(letter);
        return "stored";
      },
    },
  });
  await forward("drop_created", "no JSON");
  expect(letters).toHaveLength(1);
});

test("a letter there is no room for is counted as refused, and not as kept", async () => {
  const { forward, observed } = setup({ letters: { take: async () => "refused" } });
  await forward("drop_created", "no JSON");
  expect(observed).toEqual(["refused drop_created"]);
});

/** Channels a test publishes to. */
function memoryChannels(canHold: boolean) {
  let take: (channel: EventName, payload: Uint8Array) => void = () => undefined;
  const holds: boolean[] = [];
  const channels: Channels = {
    subscribe: async (_, taker) => {
      take = taker;
    },
    hold: (on) => {
      if (canHold) holds.push(on);
      return canHold;
    },
    healthy: () => true,
    unsubscribe: async () => undefined,
  };
  return { channels, holds, publish: (payload: Uint8Array) => take("drop_created", payload) };
}

async function bridgeOn(channels: Channels) {
  const ends: (() => void)[] = [];
  const seen = { inFlight: 0, refused: 0, suspected: [] as string[] };
  const bridge = await startBridge({
    channels,
    forward: () => new Promise((resolve) => ends.push(resolve)),
    suspect: (_, cause) => void seen.suspected.push(cause),
    log: silent,
    observe: { inFlight: (change) => (seen.inFlight += change), refused: () => seen.refused++ },
  });
  return { bridge, ends, seen };
}

test("at the bound the source is held, below it read on", async () => {
  const { channels, holds, publish } = memoryChannels(true);
  const { ends, seen } = await bridgeOn(channels);
  const megabyte = new Uint8Array(1024 * 1024);
  for (let count = 0; count < 65; count++) publish(megabyte);
  expect([holds, seen]).toEqual([[true], { inFlight: 65, refused: 0, suspected: [] }]);
  for (const end of ends) end();
  await new Promise(setImmediate);
  expect([holds, seen.inFlight]).toEqual([[true, false], 0]);
});

test("a source that cannot be held is refused past twice the bound, and counted", async () => {
  const { channels, publish } = memoryChannels(false);
  const { seen } = await bridgeOn(channels);
  for (let count = 0; count < 16_390; count++) publish(new Uint8Array(1));
  expect(seen).toEqual({ inFlight: 16_384, refused: 6, suspected: Array(6).fill("overflow") });
});

test("close waits for what is on its way, but not longer than the grace", async () => {
  const { channels, publish } = memoryChannels(true);
  const { bridge, ends } = await bridgeOn(channels);
  publish(new Uint8Array(1));
  await bridge.close(20);
  let closed = false;
  const closing = bridge.close(900).then(() => {
    closed = true;
  });
  await new Promise(setImmediate);
  expect(closed).toBe(false);
  ends[0]?.();
  await closing;
});
