import { expect, test } from "@jest/globals";
import { createProbe } from "../../../src/upstreams/faults.js";

const NOBODY = { asked: 0, answered: 0 };

/** A probe whose time passes when it is told to, and what was asked and noted. */
function setup(most = 1) {
  let time = 1_000_000;
  const seen: string[] = [];
  const probe = createProbe({ note: (subject, ok) => seen.push(`${subject} ${ok}`) }, { most, now: () => time });
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
  expect(await probe.ask("anna")).toEqual(NOBODY);
  expect(seen).toEqual([]);
});

test("the probe repeats the calls of others, and never that of the subject itself", async () => {
  const { probe, remember, seen, pass } = setup(3);
  for (const subject of ["ada", "bob", "bob"]) remember(subject);
  expect(await probe.ask("anna")).toEqual({ asked: 2, answered: 2 });
  expect(seen.sort()).toEqual(["ada true", "ask ada by 5000", "ask bob by 5000", "bob true"]);
  pass(250);
  expect(await probe.ask("bob")).toEqual({ asked: 1, answered: 1 });
});

// Invariant 8.
test("some of the many who were answered are asked, also those who do not answer any more", async () => {
  const { probe, remember, pass } = setup(3);
  for (let number = 0; number < 50; number++) remember(`gone-${number}`, () => Promise.reject(new Error("broken")));
  remember("there");
  let answered = 0;
  for (let time = 0; time < 20; time++, pass(250)) {
    const sample = await probe.ask("anna");
    expect(sample.asked).toBe(3);
    answered += sample.answered;
  }
  expect(answered).toBeLessThan(20);
});

test("a failure is noted and not thrown; those who ask meanwhile share it, and it is not repeated at once", async () => {
  const { probe, remember, seen, pass } = setup();
  remember("ada", () => Promise.reject(new Error("broken")));
  const answers = await Promise.all(["x", "y", "z"].map((subject) => probe.ask(subject)));
  expect(answers).toEqual(Array(3).fill({ asked: 1, answered: 0 }));
  pass(249);
  expect(await probe.ask("x")).toEqual({ asked: 1, answered: 0 });
  expect(seen).toEqual(["ask ada by 5000", "ada false"]);
  pass(1);
  await probe.ask("x");
  expect(seen).toHaveLength(4);
});

test("while others are asked, however long they take, nobody is asked again", async () => {
  const { probe, remember, seen, pass } = setup();
  let answer = (): void => undefined;
  remember("ada", () => new Promise<void>((resolve) => (answer = resolve)));
  const first = probe.ask("x");
  pass(4_000);
  const second = probe.ask("y");
  answer();
  expect(await Promise.all([first, second])).toEqual(Array(2).fill({ asked: 1, answered: 1 }));
  expect(seen).toEqual(["ask ada by 5000", "ada true"]);
});

// Invariant 8.
test("a clock that goes back does not make an old answer stand", async () => {
  const { probe, remember, seen, pass } = setup();
  let answer: () => Promise<unknown> = () => Promise.reject(new Error("broken"));
  remember("ada", () => answer());
  expect(await probe.ask("x")).toEqual({ asked: 1, answered: 0 });
  pass(-3_600_000);
  answer = async () => undefined;
  expect(await probe.ask("x")).toEqual({ asked: 1, answered: 1 });
  expect(seen.slice(2)).toEqual(["ask ada by 5000", "ada true"]);
});
