import { expect, test } from "@jest/globals";
import { codeOf } from "../../../src/kernel/errors.js";
import { graphEvent, pairKey, parseEdge, parsePair } from "../../../src/users/edges.js";

const bytes = (value: unknown): Uint8Array => Buffer.from(JSON.stringify(value));
const EDGE = { follower_id: "a", following_id: "b", version: 7, following: true, changed_at: 9 };

test("an edge is parsed, and unknown fields are ignored", () => {
  expect(parseEdge(bytes({ ...EDGE, more: 1 }))).toEqual(EDGE);
  expect(parseEdge(bytes({ ...EDGE, changed_at: undefined }))).toEqual({ ...EDGE, changed_at: undefined });
  expect(parsePair(bytes(EDGE))).toEqual({ follower_id: "a", following_id: "b" });
});

test.each([
  ["no follower", { ...EDGE, follower_id: undefined }, "follower_id: "],
  ["an empty id", { ...EDGE, following_id: "" }, "following_id: must not be empty"],
  ["a NUL", { ...EDGE, follower_id: "a\u0000" }, "follower_id: must not contain NUL"],
  ["a long id", { ...EDGE, follower_id: "a".repeat(129) }, "follower_id: must have at most 128 bytes"],
  ["a broken version", { ...EDGE, version: 1.5 }, "version: "],
  ["a version beyond numbers", { ...EDGE, version: 2 ** 53 }, "version: "],
  ["no state", { ...EDGE, following: undefined }, "following: "],
  ["no object", [], "payload: "],
])("%s is invalid", (_what, value, message) => {
  let error: unknown;
  try {
    parseEdge(bytes(value));
  } catch (caught) {
    error = caught;
  }
  expect([codeOf(error), (error as Error).message]).toEqual(["invalid", expect.stringContaining(message)]);
});

test("a message that is not JSON is invalid", () => {
  expect(() => parseEdge(Buffer.from("{"))).toThrow("payload: is not JSON in UTF-8");
});

test("the event of an edge has the name and id that a bridge would give it", () => {
  const edge = { follower_id: "ann/a", following_id: "b", version: 7, following: true };
  expect(graphEvent(edge)).toEqual({
    subject: "graph.followed",
    messageId: "user_followed:=YW5uL2E:b:7",
    body: JSON.stringify({ follower_id: "ann/a", following_id: "b", version: 7 }),
  });
  const { subject, messageId } = graphEvent({ ...EDGE, version: 8, following: false });
  expect([subject, messageId]).toEqual(["graph.unfollowed", "user_unfollowed:a:b:8"]);
});

test("no two pairs share a key", () => {
  const pairs = [
    { follower_id: "a", following_id: "b:c" },
    { follower_id: "a:b", following_id: "c" },
    { follower_id: "a", following_id: "b" },
  ];
  expect(new Set(pairs.map(pairKey)).size).toBe(pairs.length);
});
