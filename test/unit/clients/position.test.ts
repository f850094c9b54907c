import { expect, test } from "@jest/globals";
import { createKeeper, readPosition } from "../../../clients/typescript/src/position.js";

test("a slow storage gets one position at a time, and the newest one at the end", async () => {
  const stored: string[] = [];
  const ends: Array<() => void> = [];
  const keep = createKeeper(
    {
      getItem: () => null,
      setItem: (_key, id) =>
        new Promise<void>((resolve) => {
          stored.push(id);
          ends.push(resolve);
        }),
    },
    "key",
  );
  for (const id of ["1", "2", "3"]) keep(id);
  expect(stored).toEqual(["1"]);
  ends.shift()?.();
  await new Promise(setImmediate);
  expect(stored).toEqual(["1", "3"]);
  ends.shift()?.();
  await new Promise(setImmediate);
  expect(stored).toEqual(["1", "3"]);
});

test("a storage that fails stops nothing, and has no position", async () => {
  const fail = () => {
    throw new Error("quota");
  };
  const storage = { getItem: fail, setItem: fail };
  expect(() => createKeeper(storage, "key")("1")).not.toThrow();
  expect(await readPosition(storage, "key")).toBe("");
  const late = createKeeper({ getItem: fail, setItem: async () => fail() }, "key");
  expect(() => late("1")).not.toThrow();
  await new Promise(setImmediate);
  expect(await readPosition(undefined, "key")).toBe("");
});
