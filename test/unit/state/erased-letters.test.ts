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
  ['{"user_id":"ada","user_id":"eve"}', "ada"],
  ['{"user_id":12345678901234567890}', "12345678901234567890"],
  ['{"recipients":[["bob"],3]}', "3"],
  ['{"text":"by ada, today"}', "ada"],
  ['{"us\\u0065r_id":3}', "3"],
])("the ids in %s have %s", (text, id) => {
  expect(idsOf(text)).toContain(id);
});

// Invariant 1.
test.each([
  ['{"user_id":"ada","retries":3}', "3"],
  ['{"user_id":"ada","sizes":[1,3],"more":{"depth":3}}', "3"],
  ['{"recipients":[{"age":3}],"is_new":true}', "3"],
  ['{"user_id":"ada","is_new":true}', "true"],
  ['{"drop_id":"3","seq":3,"at":[{"version":"3"}]}', "3"],
  ["3", "3"],
])("the ids in %s do not have %s, which names nobody there", (text, id) => {
  expect(idsOf(text)).not.toContain(id);
});

// Invariant 11.
test("a body of broken escapes is read without an exception for each", () => {
  const parse = jest.spyOn(JSON, "parse");
  idsOf('{"user_id":"ada", '.concat('"\\" '.repeat(1_000)));
  expect(parse).toHaveBeenCalledTimes(1);
  parse.mockRestore();
});
