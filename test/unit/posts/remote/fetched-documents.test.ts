import { expect, test } from "@jest/globals";
import { RemoteKind } from "../../../../src/gen/avion/posts.js";
import type { StoredRemoteObject } from "../../../../src/posts/drops/remote-drops.sql.js";
import { readFetched } from "../../../../src/posts/remote/fetched-documents.js";

const URI = "https://far.example/notes/1";
const ACTOR = "https://far.example/users/eve";
const NOTE = { id: URI, type: "Note", attributedTo: ACTOR, published: "2024-02-03T04:05:06.789Z" };
const PEM = "-----BEGIN PUBLIC KEY-----\nkey";
const EVE = { id: ACTOR, type: "Person", publicKey: { id: `${ACTOR}#main-key`, owner: ACTOR, publicKeyPem: PEM } };

const read = (content: unknown, uri = URI, stored?: Partial<StoredRemoteObject>) =>
  readFetched({ uri, document: JSON.stringify(content), maxAgeS: 60 }, stored as StoredRemoteObject | undefined);

test("a note becomes a drop created at the time that it was published", () => {
  expect(read(NOTE)).toMatchObject({
    ...{ uri: URI, kind: RemoteKind.DROP, actor_uri: ACTOR, created_at: Date.UTC(2024, 1, 3, 4, 5, 6, 789) },
    ...{ document: JSON.stringify(NOTE), max_age: 60, public_key: "", reply_to: "", recipients: [] },
  });
  expect(read({ ...NOTE, type: ["Question", "x:Other"], attributedTo: [{ id: ACTOR }, "x"] })).toMatchObject({
    ...{ kind: RemoteKind.DROP, actor_uri: ACTOR },
  });
});

test.each([
  ["2024-02-03T04:05", Date.UTC(2024, 1, 3, 4, 5)],
  ["2024-02-29T04:05:06", Date.UTC(2024, 1, 29, 4, 5, 6)],
  ["2024-02-03t04:05:06.1234567z", Date.UTC(2024, 1, 3, 4, 5, 6, 123)],
  ["2024-02-03T04:05:06+0530", Date.UTC(2024, 1, 2, 22, 35, 6)],
  ["2024-03-01T00:30:00-01:00", Date.UTC(2024, 2, 1, 1, 30)],
])("the time %s is UTC unless it names a zone, wherever the process runs", (published, created_at) => {
  const { TZ } = process.env;
  process.env["TZ"] = "America/New_York";
  expect(read({ ...NOTE, published })).toMatchObject({ created_at });
  if (TZ === undefined) delete process.env["TZ"];
  else process.env["TZ"] = TZ;
});

test.each(["Person", "Service", "Group", "Organization", "Application"])("a %s is an actor with its key", (type) => {
  expect(read({ ...EVE, type }, ACTOR)).toMatchObject({ kind: RemoteKind.ACTOR, public_key: PEM, webfinger: "" });
});

test("ids are compared in their normal form", () => {
  const id = "HTTPS://Far.Example:443/./notes/%31";
  expect(read({ ...NOTE, id })).toMatchObject({ uri: URI, kind: RemoteKind.DROP });
  const publicKey = { ...EVE.publicKey, owner: "https://far.example:443/users/%65ve" };
  expect(read({ ...EVE, publicKey }, ACTOR)).toMatchObject({ public_key: PEM });
});

test("a key of another owner, or without an owner, is not taken", () => {
  for (const publicKey of [{ ...EVE.publicKey, owner: URI }, { publicKeyPem: PEM }, "key", null, [3]])
    expect(read({ ...EVE, publicKey }, ACTOR)).toMatchObject({ kind: RemoteKind.ACTOR, public_key: "" });
  const publicKey = [{ owner: URI, publicKeyPem: "other" }, EVE.publicKey];
  expect(read({ ...EVE, publicKey }, ACTOR)).toMatchObject({ public_key: PEM });
});

test("a stored actor keeps its webfinger address, whatever its document says", () => {
  const address = {
    webfinger: "eve@far.example",
    webfinger_type: "text/html",
    webfinger_href: "https://far.example/@e",
  };
  expect(read({ ...EVE, preferredUsername: "adam", webfinger: "adam@near.example" }, ACTOR, address)).toMatchObject(
    address,
  );
});

test.each([
  ["text", "json"],
  [[NOTE], "json"],
  [null, "json"],
  [{ ...NOTE, id: undefined }, "id"],
  [{ ...NOTE, id: undefined, "@id": URI }, "id"],
  [{ ...NOTE, id: `${URI}/` }, "id"],
  [{ ...NOTE, id: [URI] }, "id"],
  [{ ...NOTE, type: "Create" }, "unfit"],
  [{ ...NOTE, type: "Collection" }, "unfit"],
  [{ ...NOTE, type: "Tombstone" }, "unfit"],
  [{ ...NOTE, type: undefined }, "unfit"],
  [{ ...NOTE, attributedTo: undefined }, "unfit"],
  [{ ...NOTE, attributedTo: "https://near.example/users/ada" }, "unfit"],
  [{ ...NOTE, attributedTo: "https://far.example:8443/users/eve" }, "unfit"],
  [{ ...NOTE, attributedTo: "https://eve.far.example/" }, "unfit"],
  [{ ...NOTE, attributedTo: "eve" }, "unfit"],
  [{ ...NOTE, published: undefined }, "unfit"],
  [{ ...NOTE, published: "yesterday" }, "unfit"],
  [{ ...NOTE, published: "2024-02-30T04:05:06Z" }, "unfit"],
  [{ ...NOTE, published: "2023-02-29T04:05:06Z" }, "unfit"],
  [{ ...NOTE, published: "2024-02-03T24:05:06Z" }, "unfit"],
  [{ ...NOTE, published: "2024-02-03T04:05:06 pm" }, "unfit"],
  [{ ...NOTE, published: 1_706_932_806_789 }, "unfit"],
  [{ ...NOTE, published: "1969-12-31T23:59:59Z" }, "unfit"],
])("%j is the fault %s", (content, fault) => {
  expect(read(content)).toEqual({ fault });
});

test("a text that is not JSON is the fault json", () => {
  expect(readFetched({ uri: URI, document: "{", maxAgeS: 0 }, undefined)).toEqual({ fault: "json" });
  expect(readFetched({ uri: URI, document: "[".repeat(1_000_000), maxAgeS: 0 }, undefined)).toEqual({ fault: "json" });
});
