import { expect, test } from "@jest/globals";
import { Visibility } from "../../../../src/gen/avion/posts.js";
import { followersOf, maybeFollowers, narrowed, readAddressing } from "../../../../src/posts/drops/addressing.js";

const PUBLIC = "https://www.w3.org/ns/activitystreams#Public";
const EVE = "https://far.example/users/eve";
const FOLLOWERS = `${EVE}/followers`;
const BOB = "https://here.example/bob";
const direct = (...recipients: string[]) => ({ visibility: Visibility.DIRECT, recipients });
const forAll = (visibility: Visibility) => ({ visibility, recipients: [] });

test.each<[string, object, object]>([
  ["the public collection in to", { to: [PUBLIC], cc: [FOLLOWERS] }, forAll(Visibility.PUBLIC)],
  ["a single value", { to: PUBLIC }, forAll(Visibility.PUBLIC)],
  ["its short name", { to: ["as:Public"] }, forAll(Visibility.PUBLIC)],
  ["its shortest name", { to: [BOB, "Public"] }, forAll(Visibility.PUBLIC)],
  ["an object with an id", { to: { type: "Collection", id: PUBLIC } }, forAll(Visibility.PUBLIC)],
  ["the public collection in cc", { to: [FOLLOWERS, BOB], cc: PUBLIC }, forAll(Visibility.UNLISTED)],
  ["the followers in to", { to: [FOLLOWERS], cc: [BOB] }, forAll(Visibility.FOLLOWERS)],
  ["the followers in cc", { to: [BOB], cc: FOLLOWERS }, forAll(Visibility.FOLLOWERS)],
  [
    "the followers, spelled otherwise",
    { to: "HTTPS://FAR.example:443/a/../users/%65ve/followers//" },
    forAll(Visibility.FOLLOWERS),
  ],
  ["somebody else's followers", { to: [`${BOB}/followers`] }, direct(`${BOB}/followers`)],
  ["somebody", { to: [BOB, { id: EVE }], cc: BOB }, direct(BOB, EVE)],
  [
    "somebody aside",
    { bto: BOB, bcc: [EVE], audience: { id: FOLLOWERS.toUpperCase() } },
    direct(BOB, EVE, "https://far.example/USERS/EVE/FOLLOWERS"),
  ],
  ["the public collection where it does not make public", { bto: PUBLIC, bcc: PUBLIC, audience: [PUBLIC] }, direct()],
  [
    "an address that is like the public collection's",
    { to: [`${PUBLIC}s`, PUBLIC.toLowerCase()] },
    direct(`${PUBLIC}s`, PUBLIC.toLowerCase()),
  ],
  ["an address too long for an id of ours", { to: [BOB, `https://here.example/${"x".repeat(128)}`] }, direct(BOB)],
  ["a list with nothing in it", { to: [PUBLIC], cc: [null] }, forAll(Visibility.PUBLIC)],
  ["an empty URI", { to: [FOLLOWERS], cc: "" }, forAll(Visibility.FOLLOWERS)],
  ["an object without an id", { to: PUBLIC, cc: {} }, forAll(Visibility.PUBLIC)],
  ["a link in the place of an address", { to: [BOB], cc: [{ href: PUBLIC }] }, direct(BOB)],
  ["a list in a list", { to: [BOB], cc: [[PUBLIC]] }, forAll(Visibility.UNLISTED)],
  ["a list of JSON-LD", { to: { "@list": [BOB, { "@set": [EVE, [PUBLIC]] }] } }, forAll(Visibility.PUBLIC)],
  ["a set of JSON-LD", { cc: [{ "@set": [FOLLOWERS] }] }, forAll(Visibility.FOLLOWERS)],
  ["a set of one", { to: { "@set": BOB } }, direct(BOB)],
  ["a number and a truth", { to: [7, BOB], bcc: true }, direct(BOB)],
  ["an object with the id of JSON-LD", { to: [BOB], cc: { "@id": PUBLIC } }, forAll(Visibility.UNLISTED)],
  ["an object whose id cannot be read, with one of JSON-LD", { to: { id: "", "@id": BOB } }, direct(BOB)],
  ["ids that are names of every object", { to: ["__proto__", "constructor"] }, direct("__proto__", "constructor")],
  ["an address below a key that is no field", JSON.parse(`{"__proto__":{"to":"${PUBLIC}"}}`), direct()],
  ["somebody ten thousand times", { to: Array.from({ length: 10_000 }, () => BOB) }, direct(BOB)],
  ["what cannot be read before what can", { to: {}, cc: ["", PUBLIC] }, forAll(Visibility.UNLISTED)],
  ["nobody", {}, direct()],
  ["nobody, said so", { to: [], cc: null }, direct()],
  ["a document that is a list", [PUBLIC], direct()],
])("%s", (_, document, seen) => {
  expect(readAddressing(document, FOLLOWERS)).toEqual(seen);
});

test("without an actor no followers are addressed", () => {
  expect(readAddressing({ to: FOLLOWERS }, undefined)).toEqual(direct(FOLLOWERS));
});

test("what cannot be read addresses nobody, and is not refused", () => {
  for (const value of [7, "", [null], [{ href: PUBLIC }], [[7]], true, { id: 7 }])
    for (const field of ["to", "cc", "bcc"]) expect(readAddressing({ [field]: value }, FOLLOWERS)).toEqual(direct());
});

test("of two ids of an address the stricter one counts", () => {
  for (const to of [
    { id: PUBLIC, "@id": BOB },
    { id: BOB, "@id": PUBLIC },
  ])
    expect(readAddressing({ to }, FOLLOWERS)).toEqual(direct(BOB));
});

test("a list may be nested to any depth", () => {
  const to: unknown = JSON.parse(`${"[".repeat(100_000)}"${PUBLIC}"${"]".repeat(100_000)}`);
  expect(readAddressing({ to }, FOLLOWERS)).toEqual(forAll(Visibility.PUBLIC));
});

test.each([
  ["an activity for everybody", { to: FOLLOWERS }, { to: PUBLIC }, { to: FOLLOWERS }],
  ["an activity for fewer", { to: PUBLIC, cc: BOB, id: BOB }, { to: BOB }, { to: BOB, id: BOB }],
  ["an unlisted activity", { to: PUBLIC }, { to: FOLLOWERS, cc: PUBLIC }, { to: FOLLOWERS, cc: PUBLIC }],
  ["both for everybody", { to: PUBLIC, cc: BOB }, { to: [PUBLIC] }, { to: PUBLIC, cc: BOB }],
  ["people of both", { to: [BOB, EVE], bcc: FOLLOWERS }, { cc: [FOLLOWERS, BOB] }, { to: [BOB, FOLLOWERS] }],
  ["the people of the object", { cc: [BOB] }, { to: [EVE, BOB] }, { cc: [BOB] }],
  ["an activity without an audience", { to: PUBLIC }, { cc: null }, { to: PUBLIC }],
  ["an object without an audience", {}, { to: PUBLIC, bto: BOB }, { to: PUBLIC, bto: BOB }],
  ["an activity for nobody", { to: PUBLIC }, { to: [] }, { to: [] }],
])("of an object and the activity around it the narrower audience counts: %s", (_, object, activity, audience) => {
  expect(narrowed(object, activity)).toEqual(audience);
});

test("too many addresses are refused by the name of their field", () => {
  const to = Array.from({ length: 1_001 }, (_, n) => `${BOB}/${n}`);
  expect(() => readAddressing({ to }, FOLLOWERS)).toThrow("document.to: ");
});

test("an address on the actor's server may be its followers, unless it is mentioned, public or the actor", () => {
  const [one, two] = ["https://far.example/f/7", "https://far.example/users/al"];
  const tag = [{ type: "Mention", href: two }, null, 7];
  expect(maybeFollowers({ to: [one, PUBLIC, EVE, "bob", 7], cc: { id: two }, bto: BOB, bcc: one }, EVE)).toEqual([
    one,
    two,
  ]);
  expect(maybeFollowers({ to: [one, two], tag }, EVE)).toEqual([one]);
  expect(maybeFollowers({ to: [one] }, "")).toEqual([]);
});

test("the URI of an actor's followers is in its document, or formed as most servers do", () => {
  expect(followersOf(EVE, undefined)).toBe(FOLLOWERS);
  expect(followersOf(`${EVE}/`, "{}")).toBe(FOLLOWERS);
  expect(followersOf(EVE, '{"followers":"https://far.example/f/7"}')).toBe("https://far.example/f/7");
  expect(followersOf(EVE, '{"followers":{"id":"https://far.example/f/7"}}')).toBe("https://far.example/f/7");
  expect(followersOf(EVE, '{"followers":7}')).toBe(FOLLOWERS);
  expect(followersOf(EVE, `{"followers":["","${PUBLIC}"]}`)).toBe(FOLLOWERS);
  expect(followersOf("", undefined)).toBeUndefined();
});

test("in an audience only the URI of a local user is replaced by its id", () => {
  const [publicUrl, long] = ["https://here.example", "é".repeat(60)];
  const to = [`${publicUrl}/users/bob`, "bob", `${publicUrl}/users/${encodeURIComponent(long)}`, `${publicUrl}/bob`];
  expect(readAddressing({ to }, FOLLOWERS, { publicUrl })).toEqual(direct("bob", long, `${publicUrl}/bob`));
  expect(readAddressing({ to: to.slice(0, 2) }, FOLLOWERS)).toEqual(direct(`${publicUrl}/users/bob`, "bob"));
});
