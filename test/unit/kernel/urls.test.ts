import { expect, test } from "@jest/globals";
import { normalUri } from "../../../src/kernel/urls.js";

test.each([
  ["HTTPS://F.Example:443/c/4", "https://f.example/c/4"],
  ["http://f.example:80", "http://f.example/"],
  ["http://f.example:443/", "http://f.example:443/"],
  ["https://MÜLLER.example/al", "https://xn--mller-kva.example/al"],
  ["https://f.example/%78/%7e%2f%C3%a9?q=%41%26#%5f", "https://f.example/x/~%2F%C3%A9?q=A%26#_"],
  ["https://f.example/é", "https://f.example/%C3%A9"],
  ["https://f.example/a/./b/%2E%2e/c/..", "https://f.example/a/"],
  ["https://f.example/%2578", "https://f.example/%2578"],
  ["https://f.example/a//b/?", "https://f.example/a//b/?"],
])("the normal form of %s is %s, which is its own", (uri, normal) => {
  expect(normalUri(uri)).toBe(normal);
  expect(normalUri(normal)).toBe(normal);
});

test.each([
  "",
  "ada",
  "acct:Eve@Far.Example",
  "https://",
  "https:///x",
  "https://f.example/a b",
  "https://f.example/\n",
])("what is no URI of the web stays as it is: %j", (text) => {
  expect(normalUri(text)).toBe(text);
});
