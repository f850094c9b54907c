import { expect } from "@jest/globals";
import { headers as newHeaders } from "nats";
import { eventually } from "../support/eventually.js";
import { type Stack, sharedStack, testWithStack } from "../support/stack.js";

const ONE_DROP = '"user_id":"alice","visibility":"direct","created_at":1';

/** Payloads that just fit a message, and would take many times their size to judge to the end. */
const HUGE: Readonly<Record<string, string>> = {
  "330,000 empty recipients": `{"drop_id":"a",${ONE_DROP},"recipients":[${Array(330_000).fill('""').join()}]}`,
  "330,000 recipients of another type": `{"drop_id":"b",${ONE_DROP},"recipients":[${Array(330_000).fill("17").join()}]}`,
  "a list in a list in a list": `{"drop_id":"c",${ONE_DROP},"recipients":${"[".repeat(450_000)}${"]".repeat(450_000)}}`,
  "a drop id of nested lists": `{"drop_id":${"[".repeat(450_000)}${"]".repeat(450_000)},${ONE_DROP}}`,
  "very many fields nobody knows": `{${Array.from({ length: 90_000 }, (_, n) => `"${n}":""`).join()}}`,
  "a long visibility": `{"drop_id":"d","user_id":"alice","visibility":"${"v".repeat(900_000)}","created_at":1}`,
  "a long time": `{"drop_id":"e","user_id":"alice","visibility":"public","created_at":"${"9".repeat(900_000)}"}`,
  "a long user id": `{"drop_id":"f","user_id":"${"u".repeat(900_000)}","visibility":"public","created_at":1}`,
};

async function publish({ redis }: Stack, payload: string): Promise<void> {
  expect(await redis.publish("drop_created", payload)).toBe(1);
}

// Invariant 11.
testWithStack(
  "a payload that is small to send and huge to judge costs one letter, and no process",
  { roles: "bridge", env: { NODE_OPTIONS: "--max-old-space-size=128" }, timeoutMs: 90_000 },
  async (stack) => {
    const { streams, service } = stack;
    let valid = 0;
    for (const payload of Object.values(HUGE)) {
      expect(payload.length).toBeLessThan(1_000_000);
      await publish(stack, payload);
      for (const id of [1, 2]) await publish(stack, `{"drop_id":"good-${valid++}-${id}",${ONE_DROP}}`);
    }
    await eventually(async () => (await streams.count("DROPS")) === valid, "the valid events behind them are admitted");
    const wanted = Object.keys(HUGE).length;
    await eventually(async () => (await streams.count("DLQ")) === wanted, "each has its letter");
    const letters = await streams.all("DLQ");
    expect(letters.map(({ subject }) => subject)).toEqual(Array(wanted).fill("dlq.invalid.drop_created"));
    const bodies = new Set(letters.map(({ body }) => body.toString()));
    for (const [name, payload] of Object.entries(HUGE))
      expect({ name, kept: bodies.has(payload) }).toEqual({ name, kept: true });
    for (const { headers } of letters) {
      expect(headers["Dlq-Error"]?.length).toBeGreaterThan(0);
      expect(headers["Dlq-Error"]?.length).toBeLessThanOrEqual(1_024);
    }
    expect((await fetch(`${service.httpUrl}/healthz`)).status).toBe(200);
  },
);

const onFanout = sharedStack({ roles: "fanout" });

// Invariant 1.
onFanout(
  "a message that leaves no room for the headers of its dead letter is kept cut, with its size",
  async ({ streams }) => {
    const { max_payload = 0 } = streams.connection.info ?? {};
    const body = Buffer.alloc(max_payload - 100, "x");
    const { seq } = await streams.connection.jetstream().publish("drops.created", body);
    await eventually(async () => (await streams.count("DLQ")) === 1, "it has its letter", 10_000);
    await eventually(async () => (await streams.unfinished()) === 0, "no consumer is left with it");
    const [letter] = await streams.all("DLQ");
    expect(letter?.subject).toBe("dlq.toolarge.drop_created");
    expect(letter?.headers).toMatchObject({
      ...{ "Dlq-Reason": "toolarge", "Dlq-Size": String(body.length), "Dlq-Subject": "drops.created" },
      ...{ "Dlq-Stream": "DROPS", "Dlq-Stream-Seq": String(seq), "Dlq-Error-Code": "invalid" },
    });
    expect(body.subarray(0, letter?.body.length).equals(letter?.body as Buffer)).toBe(true);
  },
);

// Invariant 1.
onFanout(
  "a message whose own headers leave no room for those of its dead letter is kept without them",
  async ({ streams }) => {
    await streams.manager.streams.purge("DLQ");
    for (const name of ["X-Long", "Nats-Msg-Id"]) {
      const headers = newHeaders();
      headers.set(name, "x".repeat(65_400));
      await streams.connection.jetstream().publish("drops.created", `{"from":"${name}"}`, { headers });
    }
    await eventually(async () => (await streams.count("DLQ")) === 2, "each has its letter", 10_000);
    await eventually(async () => (await streams.unfinished()) === 0, "no consumer is left with them");
    for (const { subject, headers, body } of await streams.all("DLQ")) {
      expect(subject).toBe("dlq.invalid.drop_created");
      expect(headers).toMatchObject({ "Dlq-Reason": "invalid", "Dlq-Subject": "drops.created" });
      expect(headers["X-Long"]).toBeUndefined();
      expect(JSON.parse(String(body))).toHaveProperty("from");
    }
  },
);
