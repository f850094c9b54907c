import { expect, jest, test } from "@jest/globals";
import { idsIn } from "../../../src/state/erased/erased-letters.js";

const idsOf = (text: string) => idsIn(Buffer.from(text));

test.each([
  ['{"user_id":"ada"', "ada"],
  ['{"user_id":"caf\\u00e9"', "café"],
  ['{"user_id":"https:\\/\\/a.example\\/ada"', "https://a.example/ada"],
  ['{"user_id":"\\ud83d\\ude00"', "😀"],
  ['{"user_id":"ada\\n"', "ada"],
  ['{"user_id":"\\u0061d\\u0061\\q"', "ada\\q"],
  ["follower_id=ada", "ada"],
])("the ids in %s have %s", (text, id) => {
  expect(idsOf(text)).toContain(id);
});

// Invariant 11.
test("a body of broken escapes is read without an exception for each", () => {
  const parse = jest.spyOn(JSON, "parse");
  idsOf('{"user_id":"ada", '.concat('"\\" '.repeat(1_000)));
  expect(parse).not.toHaveBeenCalled();
  parse.mockRestore();
});
