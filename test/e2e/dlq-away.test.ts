import { readFile } from "node:fs/promises";
import { status } from "@grpc/grpc-js";
import { expect } from "@jest/globals";
import type { StreamConfig } from "nats";
import { eventually } from "../support/facts.js";
import { type Stack, testWithStack } from "../support/stack.js";
import { created } from "../support/timeline-events.js";

const DROP = { drop_id: "given-up", user_id: "anna", visibility: "followers", created_at: Date.now() } as const;

/** How often the DLQ refused a letter, by the metrics. */
async function refusals({ service }: Stack): Promise<number> {
  const text = await (await fetch(`${service.httpUrl}/metrics`)).text();
  return Number(/timeline_deliveries_total\{[^}]*outcome="letter-refused"[^}]*\} (\d+)/.exec(text)?.[1] ?? 0);
}

for (const [name, lose, bring] of [
  [
    "missing",
    async ({ streams }: Stack) => void (await streams.manager.streams.delete("DLQ")),
    async ({ streams }: Stack) => {
      // As an operator would: nats stream add --config nats/streams/DLQ.json
      const declared = JSON.parse(await readFile("nats/streams/DLQ.json", "utf8")) as StreamConfig;
      await streams.manager.streams.add(declared);
    },
  ],
  [
    "full",
    async ({ streams }: Stack) => {
      await streams.manager.streams.update("DLQ", { max_msgs: 1 });
      await streams.connection.jetstream().publish("dlq.invalid.drop_created", "{}");
    },
    async ({ streams }: Stack) => void (await streams.manager.streams.update("DLQ", { max_msgs: -1 })),
  ],
] as const) {
  testWithStack(
    `the DLQ ${name}: the original stays, an alarm rises, and the letter is written once it can be`,
    { env: { TIMELINE_FANOUT_MAX_ATTEMPTS: "1", TIMELINE_RETRY_BASE_MS: "50" }, timeoutMs: 60_000 },
    async (stack) => {
      const { streams, upstreams, world } = stack;
      for (const author of ["ben", "cleo", "dan", "eve"]) world.follow("bob", author);
      world.post(DROP);
      upstreams.inject({ method: "GetFollowersList", user: "anna", code: status.INTERNAL });
      await lose(stack);
      await stack.publish(created(DROP));
      await eventually(async () => (await refusals(stack)) > 0, "the alarm rises");
      expect((await streams.manager.consumers.info("DROPS", "planner")).num_ack_pending).toBe(1);
      await bring(stack);
      const letters = async () =>
        (await streams.all("DLQ")).filter(({ subject }) => subject === "dlq.exhausted.drop_created");
      await eventually(async () => (await letters()).length === 1, "the letter is written");
      await streams.settled(1);
      expect(await letters()).toHaveLength(1);
    },
  );
}
