import { expect, test } from "@jest/globals";
import { readInstruments } from "../../support/instruments.js";
import { readMetricsList } from "../../support/metrics-list.js";
import { RECORDED } from "../shipping/rules.js";

// Once: a module makes its instruments when it is loaded.
const instruments = readInstruments();

test("docs/metrics.md lists every metric of the code, and no other", async () => {
  const made = await instruments;
  expect(made.length).toBeGreaterThan(60);
  const shown = made.map(({ name, type, description }) => ({ name, type, description }));
  const listed = readMetricsList().map(({ name, type, meaning }) => ({ name, type, description: meaning }));
  const byName = (one: { name: string }, other: { name: string }): number => (one.name < other.name ? -1 : 1);
  expect(listed.sort(byName)).toEqual(shown.sort(byName));
});

test("the bound of each objective is the bound of a bucket", async () => {
  const bounds = new Map((await instruments).map((one) => [one.name, one.bounds]));
  const missed = RECORDED.filter(({ record }) => record === "timeline:slo_missed:rate5m");
  const watched = missed.flatMap(({ expr }) => [...expr.matchAll(/(timeline_\w+)_bucket\{.*?le=~?"([\d.]+)/g)]);
  expect(watched.length).toBeGreaterThan(5);
  for (const [, name = "", bound] of watched)
    expect({ name, bounds: bounds.get(name) }).toEqual({ name, bounds: expect.arrayContaining([Number(bound)]) });
});
