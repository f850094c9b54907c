import { status } from "@grpc/grpc-js";
import { expect } from "@jest/globals";
import { eventually } from "../support/eventually.js";
import { type Stack, testWithStack } from "../support/stack.js";
import { created } from "../support/timeline-events.js";

const DROP = { drop_id: "given-up", user_id: "anna", visibility: "followers", created_at: Date.now() } as const;

/** Dead letters that the DLQ refused, by the metrics. */
async function refusals({ service }: Stack): Promise<number> {
  const text = await (await fetch(`${service.httpUrl}/metrics`)).text();
  return Number(/timeline_deliveries_total\{[^}]*outcome="dead-letter-refused"[^}]*\} (\d+)/.exec(text)?.[1] ?? 0);
}

const OPTIONS = { env: { TIMELINE_MAX_ATTEMPTS: "1", TIMELINE_RETRY_BASE_MS: "50" }, timeoutMs: 60_000 };

/** A drop whose fan-out fails, and nobody else's. */
async function publishFailing({ streams, upstreams, world, publish }: Stack): Promise<void> {
  for (const author of ["ben", "cleo", "dan", "eve"]) world.follow("bob", author);
  world.post(DROP);
  upstreams.inject({ method: "GetFollowersList", user: "anna", code: status.INTERNAL });
  await publish(created(DROP));
  await eventually(async () => (await streams.count("DROPS")) === 1, "it is admitted");
}

async function expectOneLetter({ streams }: Stack): Promise<void> {
  const deadLetters = async () =>
    (await streams.all("DLQ")).filter(({ subject }) => subject === "dlq.exhausted.drop_created");
  await eventually(async () => (await deadLetters().catch(() => [])).length === 1, "the dead letter is written");
  await streams.settled(1);
  expect(await deadLetters()).toHaveLength(1);
}

// Invariant 1.
testWithStack(
  "the DLQ full: the original stays, an alarm rises, and the dead letter is written once it can be",
  OPTIONS,
  async (stack) => {
    const { streams } = stack;
    await streams.manager.streams.update("DLQ", { max_msgs: 1 });
    await streams.connection.jetstream().publish("dlq.invalid.drop_created", "{}");
    await publishFailing(stack);
    await eventually(async () => (await refusals(stack)) > 0, "the alarm rises");
    expect((await streams.manager.consumers.info("DROPS", "planner")).num_ack_pending).toBe(1);
    await streams.manager.streams.update("DLQ", { max_msgs: -1 });
    await expectOneLetter(stack);
  },
);

testWithStack("the DLQ missing: it is declared again, and the dead letter is written once", OPTIONS, async (stack) => {
  await stack.streams.manager.streams.delete("DLQ");
  await publishFailing(stack);
  await expectOneLetter(stack);
});

const VALID = 20;
const MOST_HELD = 256;

/** Payloads that the bridge refused, by the metrics. */
async function refusedPayloads({ service }: Stack): Promise<number> {
  const text = await (await fetch(`${service.httpUrl}/metrics`)).text();
  return Number(/timeline_bridge_events_total\{[^}]*outcome="refused"[^}]*\} (\d+)/.exec(text)?.[1] ?? 0);
}

const readiness = async ({ service }: Stack): Promise<string> => {
  const answer = await fetch(`${service.httpUrl}/readyz`);
  return `${answer.status} ${await answer.text()}`;
};

// The second are more than a bridge has on their way into NATS at a time.
for (const invalid of [500, 9_000]) {
  testWithStack(
    `a full DLQ and ${invalid} payloads that cannot be understood hold up no valid event`,
    { roles: "bridge", timeoutMs: 90_000 },
    async (stack) => {
      const { streams, redis } = stack;
      await streams.manager.streams.update("DLQ", { max_msgs: 1 });
      await streams.connection.jetstream().publish("dlq.invalid.drop_created", "{}");
      await Promise.all(Array.from({ length: invalid }, (_, n) => redis.publish("drop_created", `{"drop_id":${n}}`)));
      for (let n = 0; n < VALID; n++)
        await redis.publish("drop_created", JSON.stringify({ ...DROP, drop_id: `valid-${n}`, visibility: "public" }));
      await eventually(async () => (await streams.count("DROPS")) === VALID, "every valid event is admitted");
      await eventually(
        async () => (await refusedPayloads(stack)) >= invalid - MOST_HELD,
        "what finds no room is counted",
      );
      expect(await readiness(stack)).toMatch(/^503 .*bridge: the DLQ takes no dead letters/s);
      await eventually(
        () => stack.service.output().includes("the DLQ takes no dead letters: they are refused"),
        "the alarm is logged",
      );

      const held = invalid - (await refusedPayloads(stack));
      expect(held).toBeGreaterThan(0);
      await streams.manager.streams.update("DLQ", { max_msgs: -1 });
      await eventually(async () => (await readiness(stack)).startsWith("200"), "the bridge is ready again");
      expect(await streams.count("DLQ")).toBe(1 + held);
      expect(await redis.publish("drop_created", '{"drop_id":"afterwards"}')).toBe(1);
      await eventually(async () => (await streams.count("DLQ")) === 2 + held, "the next dead letter is stored at once");
    },
  );
}
