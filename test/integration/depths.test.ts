import { afterAll, beforeAll, expect, test } from "@jest/globals";
import { silent } from "../../src/kernel/logger.js";
import { readTopology } from "../../src/platform/nats/declared.js";
import { becomes } from "../support/eventually.js";
import { type NatsBench, openNats } from "../support/nats.js";
import { type Scraped, startScraping } from "../support/scrape.js";

const EVERY_MS = 100;

let metrics: Scraped;
let bench: NatsBench;
let depths: { close(): Promise<void> | void };

beforeAll(async () => {
  metrics = await startScraping();
  bench = await openNats();
  const { startDepths } = await import("../../src/platform/nats/depths.js");
  depths = await startDepths(bench.connection, { ages: true, log: silent, everyMs: EVERY_MS });
});
afterAll(async () => {
  await depths.close();
  await bench.close();
  await metrics.close();
});

let ids = 0;
const publish = (subject: string) => bench.publish({ subject, body: Buffer.from("{}"), id: `m${ids++}` });
const shows = (name: string, labels: Record<string, string>, value: unknown) =>
  becomes(async () => expect(await metrics.value(name, labels)).toEqual(value));

test("every declared consumer and stream is sampled", async () => {
  const { streams, consumers } = await readTopology();
  for (const { name } of streams) {
    await shows("timeline_stream_messages", { stream: name }, 0);
    await shows("timeline_sample_up", { sample: `stream ${name}` }, 1);
  }
  for (const { config } of consumers) {
    await shows("timeline_queue_depth", { consumer: config.durable_name as string }, 0);
    await shows("timeline_queue_oldest_seconds", { consumer: config.durable_name as string }, 0);
  }
  for (const { name, max_bytes } of streams.filter((stream) => stream.max_bytes > 0))
    await shows("timeline_stream_max_bytes", { stream: name }, max_bytes);
});

const ageOf = (consumer: string) => metrics.value("timeline_queue_oldest_seconds", { consumer });

test("the age of the oldest unfinished message counts what its consumer is to do, and nothing else", async () => {
  await publish("drops.created");
  const waited = Date.now();
  await becomes(async () => expect(Date.now() - waited).toBeGreaterThan(1_500));
  await publish("graph.followed");
  await shows("timeline_queue_depth", { consumer: "graph" }, 1);
  const [later, earlier] = await Promise.all(["graph", "planner"].map(ageOf));
  expect(later).toBeLessThan(earlier as number);

  // Handed out and not acknowledged is not finished.
  const planner = await bench.connection.jetstream().consumers.get("DROPS", "planner");
  const message = await planner.next();
  await shows("timeline_queue_unacked", { consumer: "planner" }, 1);
  expect(await metrics.value("timeline_queue_oldest_seconds", { consumer: "planner" })).toBeGreaterThan(1.5);
  await message?.ackAck();
  await shows("timeline_queue_oldest_seconds", { consumer: "planner" }, 0);
});

test("a missing consumer or stream does not freeze the other gauges, and shows no old value itself", async () => {
  await bench.manager.consumers.delete("DROPS", "planner");
  await bench.manager.streams.delete("ENGAGEMENT");
  await publish("dlq.exhausted.drop_created");
  await shows("timeline_dlq_messages", {}, 1);
  await shows("timeline_stream_last_sequence", { stream: "DLQ" }, 1);
  await publish("fanout.job.add");
  await shows("timeline_queue_depth", { consumer: "worker" }, 1);
  await shows("timeline_queue_depth", { consumer: "planner" }, Number.NaN);
  await shows("timeline_sample_up", { sample: "consumer planner" }, 0);
  await shows("timeline_stream_bytes", { stream: "ENGAGEMENT" }, Number.NaN);
  await shows("timeline_sample_up", { sample: "stream ENGAGEMENT" }, 0);
  await shows("timeline_sample_up", { sample: "stream DLQ" }, 1);
});

test("while NATS is unavailable no value stands as if fresh", async () => {
  await shows("timeline_dlq_messages", {}, 1);
  bench.broker.kill("SIGKILL");
  await shows("timeline_dlq_messages", {}, Number.NaN);
  await shows("timeline_sample_up", { sample: "stream DLQ" }, 0);
  await bench.restart();
  await shows("timeline_dlq_messages", {}, 1);
  await shows("timeline_sample_up", { sample: "stream DLQ" }, 1);
});
