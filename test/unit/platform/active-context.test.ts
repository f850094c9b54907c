import { expect, test } from "@jest/globals";
import { createContextKey, ROOT_CONTEXT } from "@opentelemetry/api";
import { ActiveContext } from "../../../src/platform/active-context.js";

const KEY = createContextKey("test");
const named = (name: string) => ROOT_CONTEXT.setValue(KEY, name);
const nameIn = (contexts: ActiveContext): unknown => contexts.active().getValue(KEY);
const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

test("work keeps its context over awaits and timers, beside work with another context and work with none", async () => {
  const contexts = new ActiveContext();
  const seen = async (): Promise<unknown[]> => {
    const names = [nameIn(contexts)];
    await turn();
    names.push(nameIn(contexts));
    await new Promise((resolve) => setTimeout(resolve));
    return [...names, nameIn(contexts)];
  };
  const all = await Promise.all([contexts.with(named("a"), seen), contexts.with(named("b"), seen), seen()]);
  expect(all).toEqual([Array(3).fill("a"), Array(3).fill("b"), Array(3).fill(undefined)]);
});

test("arguments, `this`, results and errors of work are handed on, of bound work too", async () => {
  const contexts = new ActiveContext();
  const of = function (this: { readonly by: number }, a: number): number {
    return a * this.by;
  };
  expect(contexts.with(named("a"), of, { by: 3 }, 2)).toBe(6);
  expect(() => contexts.with(named("a"), () => JSON.parse("{"))).toThrow(SyntaxError);
  await expect(contexts.with(named("a"), () => Promise.reject(new TypeError("no")))).rejects.toThrow(TypeError);
  expect(contexts.bind(named("bound"), (a: number) => [a, nameIn(contexts)])(1)).toEqual([1, "bound"]);
});

test("the store is enabled while work with a context runs, and no longer, however it ended", async () => {
  const contexts = new ActiveContext();
  const ends: (() => void)[] = [];
  const until = (): Promise<void> => new Promise((resolve) => ends.push(resolve));
  const late: unknown[] = [];
  // Outlives the work that it is started in, and so shows whether the store is enabled.
  const look = async (): Promise<void> => {
    await until();
    late.push(nameIn(contexts));
  };
  const long = contexts.with(named("long"), () => {
    void look();
    void look();
    return until();
  });
  contexts.with(named("short"), () => 1);
  await contexts.with(named("failed"), () => Promise.reject(new Error("no"))).catch(() => undefined);
  const [first, second, whole] = ends as [() => void, () => void, () => void];
  first();
  await turn();
  whole();
  await long;
  second();
  await turn();
  expect(late).toEqual(["long", undefined]);
});
