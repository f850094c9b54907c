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

test("a stored position that no header takes is handed on as one that the gateway does not know", async () => {
  const stored = (id: string) => readPosition({ getItem: () => id, setItem: () => undefined }, "key");
  expect(await stored("1-2.3\n")).toBe("1-2.3");
  for (const id of ["\0\0\0", "1\n2", "日"]) {
    expect(() => new Headers({ "last-event-id": id })).toThrow();
    expect(new Headers({ "last-event-id": await stored(id) }).get("last-event-id")).toBe("unreadable");
  }
});
