import { afterAll, beforeAll, expect, test } from "@jest/globals";
import type { FanoutCompleted } from "../../../src/contracts/fanout.js";
import { HOUR } from "../../../src/kernel/time.js";
import { type Scraped, startScraping } from "../../support/scrape.js";

let metrics: Scraped;

beforeAll(async () => {
  metrics = await startScraping();
});
afterAll(() => metrics.close());

const ADMITTED = 1_790_000_000_000;
const landed = (event: string, createdAgo: number, landedAfter: number): FanoutCompleted => ({
  ...{ event, drop_id: "d", user_id: "u", recipients: 1, chunks: 1 },
  ...{ created_at: ADMITTED - createdAgo, admitted_at: ADMITTED, landed_at: ADMITTED + landedAfter },
  lag_ms: createdAgo + landedAfter,
});
const sums = (event: string) =>
  Promise.all(
    ["created", "admitted"].map((since) => metrics.value(`timeline_${since}_to_landed_seconds_sum`, { event })),
  );

test("a drop that was late before its admission shows so since its creation, and not since its admission", async () => {
  const { observeFanout } = await import("../../../src/fanout/observe.js");
  observeFanout.completed([landed("drop_created", 4_000, 500)]);
  expect(await sums("drop_created")).toEqual([4.5, 0.5]);
  const le = (bound: string) => metrics.value("timeline_created_to_landed_seconds_bucket", { le: bound });
  expect([await le("2"), await le("5")]).toEqual([0, 1]);
});

test("a drop from the past and a deletion have a time since their admission alone", async () => {
  const { observeFanout } = await import("../../../src/fanout/observe.js");
  observeFanout.completed([landed("ap_drop_received", 6 * HOUR + 1, 500), landed("drop_deleted", 0, 250)]);
  expect(await sums("ap_drop_received")).toEqual([undefined, 0.5]);
  expect(await sums("drop_deleted")).toEqual([undefined, 0.25]);
});

test("the bridge counts from the creation to the admission of a drop, and once with two bridges", async () => {
  const { observeBridge } = await import("../../../src/bridge/observe.js");
  const channel = "drop_created" as const;
  observeBridge.forwarded([
    { outcome: "admitted", channel, publishedAt: Date.now() - 3_000 },
    { outcome: "duplicate", channel, publishedAt: Date.now() - 3_000 },
    { outcome: "admitted", channel, publishedAt: Date.now() - 7 * HOUR },
    { outcome: "admitted", channel: "user_followed" },
  ]);
  expect(await metrics.value("timeline_published_to_admitted_seconds_count")).toBe(1);
  expect(await metrics.value("timeline_published_to_admitted_seconds_sum")).toBeGreaterThanOrEqual(3);
});
