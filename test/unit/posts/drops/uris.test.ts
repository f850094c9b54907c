import { expect, test } from "@jest/globals";
import fc from "fast-check";
import { v7 } from "uuid";
import { storedIdFault } from "../../../../src/kernel/fields.js";
import { publicUrl } from "../../../../src/kernel/urls.js";
import { localUserOr, urisOf } from "../../../../src/posts/drops/uris.js";

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

test("a URI of this server names a user, a drop, one of their collections, or a page of it", () => {
  const own = urisOf({ publicUrl: "https://here.example/social" });
  const id = v7();
  const named = (path: string) => own?.parse(`https://HERE.example/social${path}`);
  expect(own?.ofDrop(id)).toBe(`https://here.example/social/drops/${id}`);
  expect(named(`/drops/${id.toUpperCase()}`)).toEqual({ kind: "drops", id, collection: "" });
  expect(named("/users/ada%2fb")).toEqual({ kind: "users", id: "ada/b", collection: "" });
  expect(named("/users/ada/followers")).toEqual({ kind: "users", id: "ada", collection: "followers" });
  const page = { kind: "drops", id, collection: "likes" };
  expect(named(`/drops/${id}/likes?page_token=`)).toEqual({ ...page, pageToken: "" });
  expect(named(`/drops/${id}/likes?page_token=a-_9`)).toEqual({ ...page, pageToken: "a-_9" });
  for (const path of [
    ...["", "/", "/users", "/users/", "/drops/7", "/users/%", "/users/%00", "/users/%ff", "/groups/ada"],
    ...["/users/ada/", "/users/ada?x", "/users/ada#key", "/users/ada/followers?page=2", "/users/ada/a/b"],
    ...[`/users/${encodeURIComponent("https://far.example/users/eve")}`, `/users/${"x".repeat(129)}`],
    ...[`/drops/${id}?page_token=`, `/drops/${id}/likes?page_token=a%00`, `/drops/${id}/likes?page_token=a&b`],
  ])
    expect([path, named(path)]).toEqual([path, undefined]);
  expect(own?.parse("https://ada:b@here.example/social/users/ada")).toBeUndefined();
  expect(own?.parse("https://here.example/users/ada")).toBeUndefined();
});

test("the URI of any user names that user", () => {
  const own = urisOf({ publicUrl: "https://here.example" });
  const ids = fc.string({ unit: "binary", minLength: 1, maxLength: 30 }).filter((id) => !isUnnameable(id));
  fc.assert(fc.property(ids, (id) => own?.parse(own.ofUser(id))?.id === id));
  const uri = own?.ofUser("ada/b") as string;
  expect(localUserOr(uri, { publicUrl: "https://here.example" })).toBe("ada/b");
  for (const other of [`${uri}/followers`, "https://far.example/users/ada", "ada"])
    expect(localUserOr(other, { publicUrl: "https://here.example" })).toBe(other);
  expect(localUserOr(uri)).toBe(uri);
});

/** URLs resolve dots, and ids that are stored have no NUL and at most 128 bytes. */
const isUnnameable = (id: string): boolean => id === "." || id === ".." || storedIdFault(id) !== undefined;
