import { afterAll, beforeAll, expect, test } from "@jest/globals";
import { metrics } from "@opentelemetry/api";
import { silent } from "../../../src/kernel/logger.js";
import type { Sample } from "../../../src/telemetry/samples.js";
import { becomes } from "../../support/eventually.js";
import { type Scraped, startScraping } from "../../support/scrape.js";

let scraped: Scraped;
beforeAll(async () => {
  scraped = await startScraping();
});
afterAll(() => scraped.close());

test("a sample that fails or hangs does not stop the others, and what is no longer found is NaN", async () => {
  const { startSampling } = await import("../../../src/telemetry/samples.js");
  const gauge = metrics.getMeter("test").createGauge("held");
  let round = 0;
  const waiting: (() => void)[] = [];
  const samples: Sample[] = [
    {
      name: "hangs",
      take: async () => {
        if (round > 0) await new Promise<void>((resolve) => waiting.push(resolve));
        return [{ gauge, labels: { of: "hangs" }, value: 3 }];
      },
    },
    {
      name: "breaks",
      take: async () => {
        if (round > 0) throw new Error("broken");
        return [{ gauge, labels: { of: "breaks" }, value: 7 }];
      },
    },
    {
      name: "shrinks",
      take: async () => ["a", "b"].slice(round).map((of) => ({ gauge, labels: { of }, value: round })),
    },
  ];
  const sampling = startSampling(samples, { everyMs: 20, log: silent });
  const shows = (wanted: Record<string, number>) =>
    becomes(async () => {
      const held = (await scraped.scrape()).filter(({ name }) => name === "held");
      expect(Object.fromEntries(held.map(({ labels, value }) => [labels["of"], value]))).toEqual(wanted);
    });
  try {
    await shows({ hangs: 3, breaks: 7, a: 0, b: 0 });
    round = 1;
    await shows({ hangs: Number.NaN, breaks: Number.NaN, a: Number.NaN, b: 1 });
    expect(await scraped.value("timeline_sample_up", { sample: "breaks" })).toBe(0);
    expect(await scraped.value("timeline_sample_up", { sample: "shrinks" })).toBe(1);
    expect(await scraped.value("timeline_sample_up", { sample: "hangs" })).toBe(0);
    expect(waiting).toHaveLength(1);
    round = 0;
    waiting[0]?.();
    await shows({ hangs: 3, breaks: 7, a: 0, b: 0 });
  } finally {
    await sampling.close();
  }
});
