import { expect, test } from "@jest/globals";
import { v7 } from "uuid";
import { publicUrl } from "../../../src/kernel/urls.js";
import { urisOf } from "../../../src/posts/uris.js";

test("the URIs of local users and drops begin with the public URL, and are read in any case of the host", () => {
  const own = urisOf({ publicUrl: publicUrl.parse("https://Here.Example/social/") });
  const id = v7();
  expect(own?.host).toBe("here.example");
  expect(own?.ofUser("ada/b")).toBe("https://here.example/social/users/ada%2Fb");
  expect(own?.dropOf(`HTTPS://HERE.example/social/drops/${id.toUpperCase()}`)).toBe(id);
  for (const uri of [
    `https://here.example/drops/${id}`,
    `https://here.example/social/drops/${id}/x`,
    `https://here.example.org/social/drops/${id}`,
    `https://here.example/social/drops/`,
    id,
    "",
  ])
    expect([uri, own?.dropOf(uri)]).toEqual([uri, undefined]);
  expect(own?.isOwn("https://here.example/social/users/ada")).toBe(true);
  expect(own?.isOwn("https://here.example/socially")).toBe(false);
});

test("without a public URL nothing here has a URI", () => {
  expect(urisOf({ publicUrl: undefined })).toBeUndefined();
});

test.each(["ftp://here.example", "https://here.example/?x", "https://ada:b@here.example", "here"])(
  "%s is no public URL",
  (text) => {
    expect(publicUrl.safeParse(text).success).toBe(false);
  },
);
