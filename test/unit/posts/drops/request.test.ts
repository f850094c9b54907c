import { expect, test } from "@jest/globals";
import { v7 } from "uuid";
import { readText } from "../../../../src/kernel/fields.js";
import { isUri, readAnyDropId, readDropId, readTexts } from "../../../../src/posts/drops/request.js";

test("an id of a drop is a UUID in any case, and lower case from then on", () => {
  const id = v7();
  expect(readDropId("drop_id", id.toUpperCase())).toBe(id);
  expect(readAnyDropId("drop_id", id.toUpperCase())).toBe(id);
  expect(readAnyDropId("drop_id", "https://far.example/A")).toBe("https://far.example/A");
  for (const bad of ["", " ", id.replaceAll("-", ""), `{${id}}`, `${id}\n`, "ｆ".repeat(36)])
    expect(() => readDropId("drop_id", bad)).toThrow(/^drop_id: is not a UUID$/);
});

test("a URI of a remote object is http or https, without spaces or control characters", () => {
  const good = [
    "https://far.example/1",
    "http://127.0.0.1:8080/@eve?x=1#y",
    "HTTPS://Far.Example",
    "https://bücher.example/ü",
  ];
  const bad = ["", "far.example", "//far.example", "ftp://far.example", "https:/far.example", "https://", "https://?x"];
  const worse = ["https://far.example/ 1", "https://far.example/\u0000", "https://far.example/\n", "https://exa mple"];
  for (const uri of good) expect([uri, isUri(uri)]).toEqual([uri, true]);
  for (const uri of [...bad, ...worse]) expect([uri, isUri(uri)]).toEqual([uri, false]);
});

test("a URI with letters beyond ASCII is one however often the check has run", () => {
  for (let n = 0; n < 500_000; n++) isUri(`https://far.example/${n % 100}`);
  expect(isUri("https://müller.example/users/al")).toBe(true);
});

test("texts are counted in code points", () => {
  expect(readText("body", "\u{1f600}".repeat(10), 10)).toHaveLength(20);
  expect(() => readText("body", "\u{1f600}".repeat(11), 10)).toThrow("body: must have at most 10 characters");
  expect(() => readText("body", "x".repeat(11), 10)).toThrow("body: must have at most 10 characters");
  expect(() => readText("body", "x\u0000", 10)).toThrow("body: must not contain NUL");
  expect(() => readText("body", "\ud800", 10)).toThrow("body: is not well-formed Unicode");
});

test("a drop needs a summary or a body", () => {
  expect(readTexts({ summary: "s", body: "" }, 10)).toEqual({ summary: "s", body: "" });
  expect(readTexts({ summary: "", body: "b" }, 10)).toEqual({ summary: "", body: "b" });
  expect(() => readTexts({ summary: "", body: "" }, 10)).toThrow(/^body: must not be empty/);
});
