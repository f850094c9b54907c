import { expect, test } from "@jest/globals";
import { createProbe } from "../../../src/platform/outages.js";

/** A probe whose time passes when it is told to, and what was asked and noted. */
function setup() {
  let time = 1_000_000;
  const seen: string[] = [];
  const probe = createProbe({ note: (subject, ok) => seen.push(`${subject} ${ok}`) }, () => time);
  const remember = (subject: string, outcome: () => Promise<unknown> = async () => undefined): void =>
    probe.remember(subject, (deadline) => {
      seen.push(`ask ${subject} by ${deadline - time}`);
      return outcome();
    });
  const pass = (ms: number): void => {
    time += ms;
  };
  return { probe, remember, pass, seen };
}

test("without a successful call there is nothing to probe", async () => {
  const { probe, seen } = setup();
  expect(await probe.ask("anna")).toBeUndefined();
  expect(seen).toEqual([]);
});

test("the probe repeats the last successful call for another subject", async () => {
  const { probe, remember, seen, pass } = setup();
  remember("ada");
  remember("bob");
  expect(await probe.ask("anna")).toBe(true);
  expect(seen).toEqual(["ask bob by 1000", "bob true"]);
  pass(250);
  await probe.ask("bob");
  expect(seen.slice(2)).toEqual(["ask ada by 1000", "ada true"]);
});

test("many answers for one subject do not displace the other subject", async () => {
  const { probe, remember, seen } = setup();
  remember("ada");
  for (let time = 0; time < 5; time++) remember("bob");
  await probe.ask("bob");
  expect(seen).toEqual(["ask ada by 1000", "ada true"]);
});

test("a failure is noted and not thrown; those who ask meanwhile share it, and it is not repeated at once", async () => {
  const { probe, remember, seen, pass } = setup();
  remember("ada", () => Promise.reject(new Error("broken")));
  const answers = await Promise.all(["x", "y", "z"].map((subject) => probe.ask(subject)));
  expect(answers).toEqual([false, false, false]);
  pass(249);
  expect(await probe.ask("x")).toBe(false);
  expect(seen).toEqual(["ask ada by 1000", "ada false"]);
  pass(1);
  await probe.ask("x");
  expect(seen).toHaveLength(4);
});

test("a clock that goes back does not make an old answer stand", async () => {
  const { probe, remember, seen, pass } = setup();
  let answer: () => Promise<unknown> = () => Promise.reject(new Error("broken"));
  remember("ada", () => answer());
  expect(await probe.ask("x")).toBe(false);
  pass(-3_600_000);
  answer = async () => undefined;
  expect(await probe.ask("x")).toBe(true);
  expect(seen.slice(2)).toEqual(["ask ada by 1000", "ada true"]);
});
