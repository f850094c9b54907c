import { expect, test } from "@jest/globals";
import type { JetStreamManager } from "nats";
import { silent } from "../../src/kernel/logger.js";
import { consume } from "../../src/platform/nats/consume/consume.js";
import { applyTopology } from "../../src/platform/nats/topology.js";
import { watchTopology } from "../../src/platform/nats/watch-topology.js";
import { eventually } from "../support/eventually.js";
import { natsOfFile } from "../support/nats-of-file.js";

const bench = natsOfFile();

// Invariant 1.
test("a stream that is deleted is not made again before its files are gone, and hands out what it stores", async () => {
  const apply = (manager: JetStreamManager) => applyTopology(manager, { replicas: 1 }, silent);
  const watch = await watchTopology({ connection: bench.connection, apply, log: silent });
  const handled: string[] = [];
  const consuming = consume(bench.connection, {
    ...{ stream: "FANOUT", consumer: "worker", ackWaitMs: 15_000, concurrency: 8, log: silent },
    process: async ({ body }) => {
      handled.push(Buffer.from(body).toString());
      return { kind: "ack" };
    },
  });
  try {
    const created = async () =>
      (await bench.manager.consumers.info("FANOUT", "worker").catch(() => undefined))?.created;
    const before = await created();
    const asked = Date.now();
    await bench.manager.streams.delete("FANOUT");
    // A server may answer for what it has just deleted.
    const isMade = (at: string | undefined): boolean => at !== undefined && at !== before;
    await eventually(async () => isMade(await created()), "it is made again");
    // By the clock of the machine, which is that of the server: it goes on removing files after it has answered.
    const made = Date.parse((await bench.manager.streams.info("FANOUT")).created);
    expect(made - asked).toBeGreaterThanOrEqual(3_000);
    await bench.publish({ subject: "fanout.job.add.1", body: Buffer.from("after"), id: "after" });
    await eventually(() => handled.includes("after"), "its messages are handed out");
  } finally {
    watch.close();
    await consuming.close(100);
  }
});

// Invariant 1.
test("a stream that is deleted is made again, also where the clock goes back meanwhile", async () => {
  const apply = (manager: JetStreamManager) => applyTopology(manager, { replicas: 1 }, silent);
  const watch = await watchTopology({ connection: bench.connection, apply, log: silent });
  const now = Date.now;
  try {
    let isNoticed = false;
    watch.onPossibleLoss(() => {
      isNoticed = true;
    });
    await bench.manager.streams.delete("NOTIFY");
    await eventually(() => isNoticed && watch.fault?.includes("NOTIFY") === true, "it is noticed");
    await eventually(() => watch.fault === "NATS: NOTIFY is gone", "it is looked for");
    Date.now = () => now() - 3_600_000;
    await eventually(
      async () => (await bench.manager.streams.info("NOTIFY").catch(() => undefined)) !== undefined,
      "made",
    );
  } finally {
    Date.now = now;
    watch.close();
  }
});
