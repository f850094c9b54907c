import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { expect, test } from "@jest/globals";
import { AppError, codeOf, subjectOf } from "../../../src/kernel/errors.js";
import { type Others, Turns } from "../../../src/upstreams/faults.js";
import { eventually } from "../../support/eventually.js";

/** Calls that end when they are told to, in order. */
function setup(others: Others = "answered") {
  const turns = new Turns(async () => others);
  const calls: { readonly resolve: (answer: string) => void; readonly reject: (error: unknown) => void }[] = [];
  const ask = (subject: string): Promise<string> =>
    turns.take("Get", subject, () => new Promise((resolve, reject) => calls.push({ resolve, reject })));
  return { ask, calls };
}

const away = () => new AppError("failed", "no answer", { subject: "anna" });
const codesOf = (asked: readonly Promise<unknown>[]) =>
  Promise.all(asked.map((one) => one.then(String, (error: unknown) => `${codeOf(error)} ${subjectOf(error)}`)));

test("the calls that wait go on together once the first one is answered", async () => {
  const { ask, calls } = setup();
  const asked = ["anna", "anna", "anna"].map(ask);
  expect(calls).toHaveLength(1);
  calls[0]?.resolve("a");
  await asked[0];
  await new Promise(setImmediate);
  expect(calls).toHaveLength(3);
  asked.push(ask("anna"));
  expect(calls).toHaveLength(4);
  for (const { resolve } of calls) resolve("b");
  expect(await codesOf(asked)).toEqual(["a", "b", "b", "b"]);
});

// Invariant 8.
test("those who wait for a call that fails fast ask for themselves, in turn", async () => {
  const { ask, calls } = setup();
  const asked = ["anna", "anna", "arno"].map(ask);
  expect(calls).toHaveLength(2);
  calls[0]?.reject(away());
  calls[1]?.resolve("b");
  await expect(asked[0]).rejects.toThrow("no answer");
  await new Promise(setImmediate);
  expect(calls).toHaveLength(3);
  calls[2]?.reject(away());
  expect(await codesOf(asked)).toEqual(["failed anna", "failed anna", "b"]);
});

test.each<[Others, string]>([
  ["answered", "unavailable anna"],
  ["mixed", "unavailable anna"],
  ["failing", "unavailable undefined"],
])(
  "nobody waits long beside a call that hangs; it is the subject's fault unless others fail, too: %s",
  async (others, expected) => {
    const { ask, calls } = setup(others);
    const first = ask("anna");
    expect(await codesOf(Array.from({ length: 40 }, () => ask("anna")))).toEqual(Array(40).fill(expected));
    expect(calls).toHaveLength(1);
    calls[0]?.resolve("late");
    expect(await first).toBe("late");
  },
);

// Invariant 8.
test("a failure that took long counts for as long as it took, and says when to ask again", async () => {
  const { ask, calls } = setup();
  const first = ask("anna");
  await expect(ask("anna")).rejects.toThrow("not answered yet");
  calls[0]?.reject(away());
  const failure = { code: "failed", subject: "anna", retryAfterMs: expect.any(Number) };
  await expect(first).rejects.toMatchObject(failure);
  // It is no attempt of those that made no call.
  await expect(ask("anna")).rejects.toMatchObject({ code: "unavailable", subject: "anna" });
  expect(calls).toHaveLength(1);
});

test("a failure that comes fast, and one of an outage, are not kept", async () => {
  const { ask, calls } = setup();
  for (const error of [away(), new AppError("unavailable", "outage")]) {
    const failed = ask("anna");
    calls.at(-1)?.reject(error);
    await expect(failed).rejects.toThrow(error.message);
  }
  expect(calls).toHaveLength(2);
});

test("nothing is kept of an answer", async () => {
  const turns = new Turns(async () => "answered");
  const answer = new WeakRef(await turns.take("Get", "anna", async () => ({ list: "long" })));
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc") as () => void;
  await eventually(() => {
    collect();
    return answer.deref() === undefined;
  }, "the answer is freed");
});
