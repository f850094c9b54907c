import { expect, test } from "@jest/globals";
import fc from "fast-check";
import { createOldestFirst } from "../../../src/kernel/oldest-first.js";

/** Resolves once everything has happened that what has ended leads to. */
const settled = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/** Calls that end when they are told to. */
function controlled() {
  const begun: string[] = [];
  const ends = new Map<string, (error?: unknown) => void>();
  const call = (name: string): Promise<void> => {
    begun.push(name);
    return new Promise((resolve, reject) => ends.set(name, (error) => (error ? reject(error) : resolve())));
  };
  const end = async (name: string, error?: unknown): Promise<void> => {
    const ended = ends.get(name);
    ends.delete(name);
    ended?.(error);
    await settled();
  };
  return { begun, ends, call, end };
}

// Invariant 11.
test("calls of the oldest piece of work come first, and no more than the limit are under way", async () => {
  const { begun, call, end } = controlled();
  const calls = createOldestFirst(2);
  const [old, young] = [calls.queue("ann"), calls.queue("bob")];
  const made = [young.each(["y1", "y2", "y3"], call), old.each(["o1", "o2", "o3"], call)];
  expect(begun).toEqual(["y1", "y2"]);
  for (const name of ["y1", "y2", "o1", "o2", "o3", "y3"]) await end(name);
  expect(begun).toEqual(["y1", "y2", "o1", "o2", "o3", "y3"]);
  await Promise.all(made);
});

// Invariant 11.
test("each item has one call, whatever ends when, and older work begins all of its calls first", async () => {
  const sizes = fc.array(fc.nat(6), { minLength: 1, maxLength: 5 });
  await fc.assert(
    fc.asyncProperty(
      sizes,
      fc.integer({ min: 1, max: 4 }),
      fc.infiniteStream(fc.nat()),
      async (lengths, limit, choices) => {
        const { begun, ends, call, end } = controlled();
        const calls = createOldestFirst(limit);
        const finished: number[] = [];
        const names = lengths.map((length, work) => Array.from({ length }, (_, item) => `${work}-${item}`));
        const all = names.map(async (own, work) =>
          calls
            .queue("ann")
            .each(own, call)
            .then(() => finished.push(work)),
        );
        const total = names.flat().length;
        for (let ended = 0; ended < total; ended++) {
          expect(ends.size).toBe(Math.min(limit, total - ended));
          const open = [...ends.keys()];
          await end(open[(choices.next().value as number) % open.length] as string);
        }
        await Promise.all(all);
        expect(begun).toEqual(names.flat());
        expect(finished.sort((a, b) => a - b)).toEqual(lengths.map((_, work) => work));
      },
    ),
  );
});

test("work without calls, and calls that end at once, end", async () => {
  const calls = createOldestFirst(1);
  await calls.queue("ann").each([], async () => undefined);
  const seen: number[] = [];
  await calls.queue("ann").each(
    Array.from({ length: 50_000 }, (_, at) => at),
    async (at) => void seen.push(at),
  );
  expect(seen).toHaveLength(50_000);
});

test("the first call that fails ends the work: nothing begins after it, and the next one begins", async () => {
  const { begun, call, end } = controlled();
  const calls = createOldestFirst(2);
  const failing = calls.queue("ann").each(["a", "b", "c"], call);
  const next = calls.queue("ann").each(["d"], call);
  const failed = expect(failing).rejects.toThrow("away");
  await end("a", new Error("away"));
  await failed;
  expect(begun).toEqual(["a", "b", "d"]);
  await end("b", new Error("also away"));
  await end("d");
  await next;
});

test("a call that throws fails its work, and holds up no other", async () => {
  const calls = createOldestFirst(1);
  const broken = calls.queue("ann").each(["a", "b"], () => {
    throw new Error("broken");
  });
  await expect(broken).rejects.toThrow("broken");
  expect(await calls.queue("ann").one(async () => "answered")).toBe("answered");
});

test("an item is looked at when its turn comes", async () => {
  const { begun, call, end } = controlled();
  const wanted = new Set(["a", "b", "c", "d"]);
  function* left() {
    for (const name of ["a", "b", "c", "d"]) if (wanted.has(name)) yield name;
  }
  const work = createOldestFirst(1).queue("ann").each(left(), call);
  wanted.delete("c");
  await end("a");
  await end("b");
  expect(begun).toEqual(["a", "b", "d"]);
  await end("d");
  await work;
});

test("a single call yields its answer or its error", async () => {
  const queue = createOldestFirst(1).queue("ann");
  const failed = queue.one(() => Promise.reject(new Error("away")));
  const next = queue.one(async () => "answered");
  await expect(failed).rejects.toThrow("away");
  expect(await next).toBe("answered");
});

test("owners who have begun more calls lately come later, in steps of as many as are many", async () => {
  const calls = createOldestFirst(1, 4);
  const order: string[] = [];
  const made = ["ann", "bob", "eve"].map((owner, at) =>
    calls.queue(owner).each(Array(12 >> at).fill(0), async () => void order.push(owner)),
  );
  await Promise.all(made);
  // But for every eighth call, which is the oldest one's.
  const initials = order.map(([initial]) => initial).join("");
  expect(initials.slice(0, 11)).toBe("aaaabbbbaee");
});

// Invariant 11.
test("an owner of very many calls lately comes after the others, but for every eighth call", async () => {
  const calls = createOldestFirst(1);
  const order: string[] = [];
  const ends: (() => void)[] = [];
  const begin = (owner: string) => (): Promise<void> => {
    order.push(owner);
    return new Promise((resolve) => ends.push(resolve));
  };
  const endNext = async (): Promise<void> => {
    ends.shift()?.();
    await settled();
  };
  const greedy = calls.queue("ann").each(Array(6_000).fill(0), begin("ann"));
  while (order.length < 3_000) await endNext();
  const modest = calls.queue("bob").each(Array(100).fill(0), begin("bob"));
  order.length = 0;
  while (order.filter((owner) => owner === "bob").length < 100) await endNext();
  expect(order.filter((owner) => owner === "ann").length).toBeLessThan(20);
  expect(order).toContain("ann");
  while (ends.length > 0) await endNext();
  await Promise.all([greedy, modest]);
});
