import { expect, test } from "@jest/globals";
import { v7 } from "uuid";
import { Visibility } from "../../../../src/gen/avion/posts.js";
import {
  announceOf,
  collectionOf,
  type Document,
  htmlOf,
  noteOf,
  pageOf,
  personOf,
  reactionOf,
  toJson,
  tombstoneOf,
} from "../../../../src/posts/documents/documents.js";
import { NO_PAYLOAD } from "../../../../src/posts/drops/payload.js";
import { type OwnUris, urisOf } from "../../../../src/posts/drops/uris.js";
import { faultsInActivity } from "../../../support/json-ld.js";

const { PUBLIC, UNLISTED, FOLLOWERS, DIRECT } = Visibility;
const HERE = "https://here.example";
const EVE = "https://far.example/users/eve";
const EVERYBODY = "https://www.w3.org/ns/activitystreams#Public";
const TIME = Date.UTC(2026, 0, 2, 3, 4, 5, 6);
const id = v7({ msecs: TIME });
const other = v7({ msecs: TIME });
const uris = urisOf({ publicUrl: HERE }) as OwnUris;

const drop = {
  ...{ drop_id: id, user_id: "ada", visibility: PUBLIC, recipients: [] as string[], reply_to: "" },
  ...{ summary: "", body: "hello", revision: 1, updated_at: TIME, deleted_at: null },
  ...{ repost_of: "", original_key: "", repost_author: "", reply_to_author: "", mentions: [] as string[] },
  ...NO_PAYLOAD,
};
const repost = { ...drop, repost_of: other, original_key: other, repost_author: "bob", body: "" };
const profile = {
  ...{ user_id: "ada", display_name: "Ada <3", bio: "I like\n<b>\n\nand &", avatar_url: "https://img.example/ada.png" },
  ...{ created_at: TIME, updated_at: TIME + 1_000, approves_followers: false },
};

const parsed = async (document: Document): Promise<Record<string, unknown>> => {
  const json = toJson(document);
  expect(await faultsInActivity(json)).toEqual([]);
  return JSON.parse(json);
};

test("a document that breaks the vocabulary is found", async () => {
  const faults = (document: Document): Promise<string[]> => faultsInActivity(toJson(document));
  expect(await faults({ id: HERE, type: "Note", contents: "x" })).toContain("_:contents is no property");
  expect(await faults({ id: HERE, type: "Drop" })).toContain("_:Drop is no class");
  expect(await faults({ id: HERE, type: "Note", published: "yesterday" })).toContain("yesterday is no time");
  expect((await faults({ id: HERE, type: "Note", actor: EVE })).join()).toMatch(/Note has no .*actor/);
  expect((await faults({ id: HERE, type: "Note", content: null })).join()).toMatch(/^JSON-LD makes/);
});

test("a note has the fields of its drop", async () => {
  const uri = `${HERE}/drops/${id}`;
  const note = {
    "@context": "https://www.w3.org/ns/activitystreams",
    ...{ id: uri, type: "Note", attributedTo: `${HERE}/users/ada`, content: "<p>hello</p>" },
    ...{ published: "2026-01-02T03:04:05.006Z", to: [EVERYBODY], cc: [`${HERE}/users/ada/followers`] },
    ...{ replies: `${uri}/replies`, likes: `${uri}/likes`, shares: `${uri}/shares` },
  };
  expect(await parsed(noteOf(uris, drop))).toEqual(note);
  const edited = { ...drop, summary: "a & b", body: "1 < 2\n\n'x'\r\ny", revision: 2, updated_at: TIME + 1_000 };
  expect(await parsed(noteOf(uris, { ...edited, reply_to: `${EVE}/1` }))).toEqual({
    ...note,
    ...{ summary: "<p>a &amp; b</p>", content: "<p>1 &lt; 2</p><p>&#39;x&#39;<br>y</p>" },
    ...{ updated: "2026-01-02T03:04:06.006Z", inReplyTo: `${EVE}/1` },
  });
  expect(await parsed(noteOf(uris, { ...drop, reply_to: other }))).toEqual({
    ...note,
    inReplyTo: `${HERE}/drops/${other}`,
  });
});

test.each([
  ["unlisted", { visibility: UNLISTED }, { to: [`${HERE}/users/ada/followers`], cc: [EVERYBODY] }],
  ["for followers", { visibility: FOLLOWERS }, { to: [`${HERE}/users/ada/followers`] }],
  [
    "direct",
    { visibility: DIRECT, recipients: ["b/b", EVE] },
    {
      to: [`${HERE}/users/b%2Fb`, EVE],
      tag: [`${HERE}/users/b%2Fb`, EVE].map((href) => ({ type: "Mention", href })),
    },
  ],
  ["direct to nobody", { visibility: DIRECT }, { to: [] }],
])("a note that is %s addresses its audience alone", async (_, fields, addressed) => {
  const { to, cc, tag } = await parsed(noteOf(uris, { ...drop, ...fields }));
  expect({ to, cc, tag }).toEqual(addressed);
});

test("an announce names the original and its author, local or remote", async () => {
  const announce = {
    "@context": "https://www.w3.org/ns/activitystreams",
    ...{ id: `${HERE}/drops/${id}`, type: "Announce", actor: `${HERE}/users/ada`, object: `${HERE}/drops/${other}` },
    ...{ published: "2026-01-02T03:04:05.006Z", to: [EVERYBODY] },
    cc: [`${HERE}/users/ada/followers`, `${HERE}/users/bob`],
  };
  expect(await parsed(announceOf(uris, repost))).toEqual(announce);
  expect(await parsed(announceOf(uris, { ...repost, repost_of: `${EVE}/1`, repost_author: EVE }))).toEqual({
    ...announce,
    ...{ object: `${EVE}/1`, cc: [`${HERE}/users/ada/followers`, EVE] },
  });
});

test("a person has the fields of the profile, or only an id if there is no profile", async () => {
  const uri = `${HERE}/users/ada`;
  const person = {
    "@context": "https://www.w3.org/ns/activitystreams",
    ...{ id: uri, type: "Person", preferredUsername: "ada" },
    ...{ inbox: `${uri}/inbox`, outbox: `${uri}/outbox`, followers: `${uri}/followers` },
  };
  expect(await parsed(personOf(uris, { id: "ada", profile: undefined }))).toEqual(person);
  const empty = { ...profile, display_name: "", bio: "", avatar_url: "x", created_at: 0, updated_at: 2 ** 53 - 1 };
  expect(await parsed(personOf(uris, { id: "ada", profile: empty }))).toEqual(person);
  expect(await parsed(personOf(uris, { id: "ada", profile }))).toEqual({
    ...person,
    ...{ name: "Ada <3", summary: "<p>I like<br>&lt;b&gt;</p><p>and &amp;</p>" },
    ...{ icon: { type: "Image", url: profile.avatar_url } },
    ...{ published: "2026-01-02T03:04:05.006Z", updated: "2026-01-02T03:04:06.006Z" },
  });
  expect(await parsed(personOf(uris, { id: "ada", profile: { ...profile, approves_followers: true } }))).toMatchObject({
    ...{ "@context": [person["@context"], { manuallyApprovesFollowers: "as:manuallyApprovesFollowers" }] },
    manuallyApprovesFollowers: true,
  });
});

test("collections, their pages and tombstones have the form of ActivityStreams", async () => {
  const [uri, object] = [`${HERE}/drops/${id}/shares`, `${HERE}/drops/${id}`];
  expect(await parsed(collectionOf(uri, 0))).toMatchObject({ totalItems: 0, first: `${uri}?page_token=` });
  expect(await parsed(collectionOf(uri, undefined))).not.toHaveProperty("totalItems");
  const shares = [
    { user_id: "bob", at: TIME, repost_id: other },
    { user_id: EVE, at: TIME, repost_id: other },
    { user_id: "cid", at: TIME, repost_id: null },
  ].map((share) => reactionOf(uris, "Announce", object, share));
  const page = await parsed(pageOf(uri, "", { items: shares, next_page_token: "next" }));
  const published = "2026-01-02T03:04:05.006Z";
  expect(page).toMatchObject({ id: `${uri}?page_token=`, partOf: uri, next: `${uri}?page_token=next` });
  expect(page["orderedItems"]).toEqual([
    { id: `${HERE}/drops/${other}`, type: "Announce", actor: `${HERE}/users/bob`, object, published },
    { type: "Announce", actor: EVE, object, published },
    { type: "Announce", actor: `${HERE}/users/cid`, object, published },
  ]);
  const last = await parsed(pageOf(uri, "next", { items: [], next_page_token: "" }));
  expect(last).toMatchObject({ id: `${uri}?page_token=next`, orderedItems: [] });
  expect(last).not.toHaveProperty("next");
  expect(await parsed(tombstoneOf(object, "Note", TIME))).toMatchObject({ formerType: "Note", deleted: published });
  expect(await parsed(tombstoneOf(object, "Person"))).not.toHaveProperty("deleted");
});

test.each([
  ["", undefined],
  ["a", "<p>a</p>"],
  ["<script>\"'&", "<p>&lt;script&gt;&quot;&#39;&amp;</p>"],
  ["a\nb\r\nc\n\n\nd", "<p>a<br>b<br>c</p><p>d</p>"],
])("the text %j is %j as HTML", (text, html) => {
  expect(htmlOf(text)).toBe(html);
});
