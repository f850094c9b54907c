import { expect, test } from "@jest/globals";
import { readInstruments } from "../../support/instruments.js";
import { readMetricsList } from "../../support/metrics-list.js";

test("docs/metrics.md lists every metric of the code, and no other", async () => {
  const made = await readInstruments();
  expect(made.length).toBeGreaterThan(60);
  const listed = readMetricsList().map(({ name, type, meaning }) => ({ name, type, description: meaning }));
  const byName = (one: { name: string }, other: { name: string }): number => (one.name < other.name ? -1 : 1);
  expect(listed.sort(byName)).toEqual(made.sort(byName));
});
