import { expect, test } from "@jest/globals";
import { Incarnation } from "../../../src/platform/nats/incarnation.js";

// Invariant 1.
test("an answer to a question from before a suspicion is void; one asked since then counts", async () => {
  const incarnation = new Incarnation({ ask: async () => undefined, onGap: () => undefined });
  incarnation.answered()(1);
  const before = incarnation.answered();
  incarnation.suspect();
  before(1);
  expect(incarnation.current).toBeUndefined();
  incarnation.answered()(2);
  expect(incarnation.current).toBe(2);
  incarnation.close();
});
