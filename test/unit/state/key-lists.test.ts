import { expect, test } from "@jest/globals";
import { createKeyLists } from "../../../src/state/key-lists.js";

test("lists are kept, and short ones take room, too", () => {
  const lists = createKeyLists({ isCluster: false, slotOf: () => 0, nodeAt: () => "" });
  const keysOf = (packed: string) => lists.merged([{ keys: [packed], items: [] }])[0]?.keys;
  const first = keysOf("anna");
  for (let number = 0; number < 1_000; number++) keysOf(`user-${number}`);
  expect(keysOf("anna")).toBe(first);
  for (let number = 0; number < 150_000; number++) keysOf(`user-${number}`);
  expect(keysOf("anna")).not.toBe(first);
});
