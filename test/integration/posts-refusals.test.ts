import { afterAll, expect, test } from "@jest/globals";
import { v7 } from "uuid";
import { RemoteKind, RemoteReactionKind, Visibility } from "../../src/gen/avion/posts.js";
import { DAY, MINUTE } from "../../src/kernel/time.js";
import { describePosts } from "../support/describe-posts.js";
import { madeUpToken } from "../support/page-tokens.js";
import { type PostsHarness, post, refusal } from "../support/posts.js";

const ID = v7();
const LONG_ID = "é".repeat(65);
const NUL = "a\0b";
const INT64_MAX = 2n ** 63n - 1n;
const URI = "https://far.example/1";
const LONG_URI = `https://far.example/${"x".repeat(128)}`;

type Bad = Record<string, unknown>;
type Method = keyof PostsHarness["call"];

const drop = { user_id: "ada", visibility: Visibility.PUBLIC, body: "x" };
const remote = { uri: URI, kind: RemoteKind.DROP, document: "{}" };
const actor = { ...remote, kind: RemoteKind.ACTOR };
const like = { uri: URI, actor_uri: URI, object: ID, kind: RemoteReactionKind.LIKE };
const reaction = { drop_id: ID, user_id: "ada" };

/** Each method with what it is asked, each wrong in the field named first. */
const REFUSED: readonly (readonly [Method, field: string, Bad])[] = [
  ["createDrop", "user_id", { ...drop, user_id: "" }],
  ["createDrop", "user_id", { ...drop, user_id: LONG_ID }],
  ["createDrop", "user_id", { ...drop, user_id: NUL }],
  ["createDrop", "visibility", { ...drop, visibility: Visibility.UNSPECIFIED }],
  ["createDrop", "visibility", { ...drop, visibility: 5 }],
  ["createDrop", "visibility", { ...drop, visibility: -2 }],
  ["createDrop", "recipients", { ...drop, recipients: ["bob"] }],
  ["createDrop", "recipients", { ...drop, visibility: Visibility.DIRECT, recipients: Array(21).fill("bob") }],
  ["createDrop", "recipients", { ...drop, visibility: Visibility.DIRECT, recipients: ["bob", ""] }],
  ["createDrop", "recipients", { ...drop, visibility: Visibility.DIRECT, recipients: [NUL] }],
  ["createDrop", "reply_to", { ...drop, reply_to: "7" }],
  ["createDrop", "reply_to", { ...drop, reply_to: ID }],
  ["createDrop", "reply_to", { ...drop, reply_to: LONG_URI }],
  ["createDrop", "reply_to", { ...drop, reply_to: "ftp://far.example/1" }],
  ["createDrop", "summary", { ...drop, summary: "x".repeat(501) }],
  ["createDrop", "summary", { ...drop, summary: NUL }],
  ["createDrop", "body", { ...drop, body: "" }],
  ["createDrop", "body", { ...drop, body: "x".repeat(5_001) }],
  ["createDrop", "body", { ...drop, body: "\u{1f600}".repeat(5_001) }],
  ["createDrop", "body", { ...drop, body: NUL }],
  ["createDrop", "created_at", { ...drop, created_at: -1 }],
  ["createDrop", "created_at", { ...drop, created_at: Date.now() + DAY }],
  ["createDrop", "created_at", { ...drop, created_at: 1 }],
  ["createDrop", "created_at", { ...drop, created_at: Date.now() - 3_651 * DAY }],
  ["createDrop", "created_at", { ...drop, created_at: Number.MAX_SAFE_INTEGER }],
  ["createDrop", "created_at", { ...drop, created_at: INT64_MAX }],
  ["createDrop", "idempotency_key", { ...drop, idempotency_key: "k".repeat(129) }],
  ["createDrop", "idempotency_key", { ...drop, idempotency_key: NUL }],
  ["editDrop", "drop_id", { ...reaction, body: "x", drop_id: "" }],
  ["editDrop", "drop_id", { ...reaction, body: "x", drop_id: URI }],
  ["editDrop", "user_id", { ...reaction, body: "x", user_id: "" }],
  ["editDrop", "body", { ...reaction }],
  ["editDrop", "body", { ...reaction, body: "x".repeat(5_001) }],
  ["editDrop", "summary", { ...reaction, summary: "x".repeat(501) }],
  ["editDrop", "expected_revision", { ...reaction, body: "x", expected_revision: -1 }],
  ["deleteDrop", "drop_id", { ...reaction, drop_id: "x" }],
  ["deleteDrop", "user_id", { ...reaction, user_id: "" }],
  ["getDrop", "drop_id", { drop_id: "" }],
  ["getDrop", "drop_id", { drop_id: `${ID}0` }],
  ["getDrop", "drop_id", { drop_id: NUL }],
  ["getDrop", "revision", { drop_id: ID, revision: -1 }],
  ["getDrops", "drop_ids", { drop_ids: [ID, "x"] }],
  ["getDrops", "drop_ids", { drop_ids: Array(101).fill(ID) }],
  ["listRevisions", "drop_id", { drop_id: "x" }],
  ["listRevisions", "page_size", { drop_id: ID, page_size: -1 }],
  ["listRevisions", "page_token", { drop_id: ID, page_token: "x" }],
  ["getThread", "drop_id", { drop_id: "x" }],
  ["getThread", "drop_id", { drop_id: LONG_URI }],
  ["getThread", "viewer_id", { drop_id: ID, viewer_id: NUL }],
  ["getThread", "page_size", { drop_id: ID, page_size: -1 }],
  ["getThread", "page_token", { drop_id: ID, page_token: "x" }],
  ["listReplies", "drop_id", { drop_id: "x" }],
  ["listReplies", "drop_id", { drop_id: LONG_URI }],
  ["listReplies", "page_size", { drop_id: ID, page_size: -1 }],
  ["listReplies", "page_token", { drop_id: ID, page_token: "x" }],
  ...(["likeDrop", "unlikeDrop", "shareDrop", "unshareDrop"] as const).flatMap(
    (method): readonly (readonly [Method, string, Bad])[] => [
      [method, "drop_id", { ...reaction, drop_id: "x" }],
      [method, "user_id", { ...reaction, user_id: "" }],
      [method, "user_id", { ...reaction, user_id: NUL }],
    ],
  ),
  ...(["listLikes", "listShares"] as const).flatMap((method): readonly (readonly [Method, string, Bad])[] => [
    [method, "drop_id", { drop_id: "x" }],
    [method, "drop_id", { drop_id: LONG_URI }],
    [method, "viewer_id", { drop_id: ID, viewer_id: NUL }],
    [method, "page_size", { drop_id: ID, page_size: -1 }],
    [method, "page_token", { drop_id: ID, page_token: "x" }],
  ]),
  ...(["listUserLikes", "listUserShares", "listUserDrops"] as const).flatMap(
    (method): readonly (readonly [Method, string, Bad])[] => [
      [method, "user_id", { user_id: "" }],
      [method, "user_id", { user_id: LONG_ID }],
      [method, "viewer_id", { user_id: "ada", viewer_id: NUL }],
      [method, "page_size", { user_id: "ada", page_size: -1 }],
      [method, "page_token", { user_id: "ada", page_token: "x" }],
    ],
  ),
  ["getCounts", "drop_ids", { drop_ids: ["x"] }],
  ["getCounts", "drop_ids", { drop_ids: Array(201).fill(ID) }],
  ["getDropsByUserId", "user_id", { user_id: "" }],
  ["getDropsByUserId", "user_id", { user_id: LONG_ID }],
  ["getDropsByUserId", "user_id", { user_id: NUL }],
  ["getDropsByUserId", "limit", { user_id: "ada", limit: -1 }],
  ["getDropsByUserId", "before", { user_id: "ada", before: -1 }],
  ["getDropsByUserId", "max_id", { user_id: "ada", max_id: "x" }],
  ["getDropsByUserId", "max_id", { user_id: "ada", before: 5, max_id: NUL }],
  ["listDrops", "since", { since: -1 }],
  ["listDrops", "until", { until: -1 }],
  ["listDrops", "until", { until: INT64_MAX }],
  ["listDrops", "page_size", { page_size: -1 }],
  ["listDrops", "page_token", { page_token: "x" }],
  ...[[1, ID], [1], ["1", 2], [1e300, ID], [0.5, ID], [1, "\0"], [null, null]].map(
    (key): readonly [Method, string, Bad] => ["listDrops", "page_token", { page_token: madeUpToken("drops", key) }],
  ),
  ...[[ID], [7], ["no uuid"], []].map((key): readonly [Method, string, Bad] => [
    "listReplies",
    "page_token",
    { drop_id: ID, page_token: madeUpToken(`replies ${ID}`, key) },
  ]),
  ...[[1], ["1"], [1e300], [0.5], []].map((key): readonly [Method, string, Bad] => [
    "listRevisions",
    "page_token",
    { drop_id: ID, page_token: madeUpToken(`revisions ${ID}`, key) },
  ]),
  ["putRemoteObject", "uri", { ...remote, uri: "" }],
  ["putRemoteObject", "uri", { ...remote, uri: "acct:eve@far.example" }],
  ["putRemoteObject", "uri", { ...remote, uri: "https://" }],
  ["putRemoteObject", "uri", { ...remote, uri: `${URI} 2` }],
  ["putRemoteObject", "uri", { ...remote, uri: `${URI}\0` }],
  ["putRemoteObject", "uri", { ...remote, uri: LONG_URI }],
  ["putRemoteObject", "uri", { ...actor, uri: LONG_URI }],
  ["putRemoteObject", "kind", { ...remote, kind: RemoteKind.UNSPECIFIED }],
  ["putRemoteObject", "kind", { ...remote, kind: 9 }],
  ["putRemoteObject", "actor_uri", { ...remote, actor_uri: "eve" }],
  ["putRemoteObject", "actor_uri", { ...remote, actor_uri: LONG_URI }],
  ["putRemoteObject", "actor_uri", { ...actor, actor_uri: URI }],
  ["putRemoteObject", "created_at", { ...remote, created_at: -1 }],
  ["putRemoteObject", "document", { ...remote, document: "" }],
  ["putRemoteObject", "document", { ...remote, document: "{" }],
  ["putRemoteObject", "document", { ...remote, document: JSON.stringify("x".repeat(256 * 1_024)) }],
  ["putRemoteObject", "public_key", { ...actor, public_key: "MIIB" }],
  ["putRemoteObject", "public_key", { ...actor, public_key: `-----BEGIN X-----\n${"x".repeat(16_384)}` }],
  ["putRemoteObject", "public_key", { ...remote, public_key: "-----BEGIN PUBLIC KEY-----\n" }],
  ["putRemoteObject", "webfinger", { ...actor, webfinger: "eve" }],
  ["putRemoteObject", "webfinger", { ...actor, webfinger: "@@far.example" }],
  ["putRemoteObject", "webfinger", { ...actor, webfinger: "eve@far.example?x" }],
  ["putRemoteObject", "webfinger", { ...actor, webfinger: "eve@far.example#x" }],
  ["putRemoteObject", "webfinger", { ...actor, webfinger: "eve@far.example\\x" }],
  ["putRemoteObject", "webfinger", { ...actor, webfinger: "eve@.." }],
  ["putRemoteObject", "webfinger", { ...actor, webfinger: NUL }],
  ["putRemoteObject", "webfinger", { ...remote, webfinger: "eve@far.example" }],
  ["putRemoteObject", "max_age", { ...remote, max_age: -1 }],
  ["putRemoteObject", "reply_to", { ...remote, reply_to: "x" }],
  ["putRemoteObject", "reply_to", { ...remote, reply_to: LONG_URI }],
  ["putRemoteReaction", "uri", { ...like, uri: "x" }],
  ["putRemoteReaction", "actor_uri", { ...like, actor_uri: LONG_URI }],
  ["putRemoteReaction", "object", { ...like, object: LONG_URI }],
  ["putRemoteReaction", "object", { ...like, object: "" }],
  ["putRemoteReaction", "kind", { ...like, kind: RemoteReactionKind.UNSPECIFIED }],
  ["putRemoteReaction", "kind", { ...like, kind: 3 }],
  ["putRemoteReaction", "created_at", { ...like, created_at: -1 }],
  ["deleteRemoteReaction", "uri", { uri: "x" }],
  ["getRemoteObject", "uri", { uri: "x" }],
  ["getRemoteObject", "uri", { uri: `https://far.example/${"x".repeat(2_048)}` }],
  ["deleteRemoteObject", "uri", { uri: "javascript:alert(1)" }],
  ["resolveWebfinger", "webfinger", { webfinger: "" }],
  ["resolveWebfinger", "webfinger", { webfinger: "eve@far@example" }],
  ["resolveUri", "uri", { uri: "x" }],
  ["resolveUri", "uri", { uri: `https://far.example/${"x".repeat(2_048)}` }],
  ["resolveUri", "viewer_id", { uri: URI, viewer_id: NUL }],
  ["getActivity", "uri", { uri: "" }],
  ["getActivity", "viewer_id", { uri: URI, viewer_id: LONG_ID }],
];

describePosts("what posts refuse", {}, (posts) => {
  afterAll(async () => {
    expect(await posts.written()).toEqual([]);
  });

  test.each(REFUSED.map(([method, field, request], n) => ({ n, method, field, request })))(
    "$n: $method names $field",
    async ({ method, field, request }) => {
      const call = posts.call[method] as (request: Bad) => Promise<unknown>;
      expect(await refusal(call(request))).toMatch(new RegExp(`^INVALID_ARGUMENT ${field}: \\S`));
    },
  );

  test("every method is among them", () => {
    // A request without a field cannot be wrong.
    const withFields = Object.keys(posts.call).filter((method) => method !== "getRetention");
    expect([...new Set(REFUSED.map(([method]) => method))].sort()).toEqual(withFields.sort());
  });
});

describePosts("what posts just so take", {}, (posts) => {
  test("the longest values of all fields are stored unchanged", async () => {
    const longest = {
      user_id: "é".repeat(64),
      visibility: Visibility.DIRECT,
      recipients: Array.from({ length: 20 }, (_, n) => `${n}`.padStart(128, "r")),
      summary: "\u{1f600}".repeat(500),
      body: "\u{1f600}".repeat(5_000),
      idempotency_key: "k".repeat(128),
    };
    const { idempotency_key: _, ...kept } = longest;
    expect((await posts.call.createDrop(longest)).drop).toMatchObject(kept);
    expect((await posts.call.createDrop(longest)).drop).toMatchObject(kept);
  });

  test("a body may be empty under a summary; ids and texts may be any other text", async () => {
    const odd = "'; DROP TABLE posts.drops; -- \u202e \"{,}\\ ~floor $1";
    const id = await post(posts, { user_id: odd, summary: odd, body: "" });
    expect((await posts.call.getDrop({ drop_id: id })).drop).toMatchObject({ user_id: odd, summary: odd, body: "" });
    expect((await posts.call.likeDrop({ drop_id: id, user_id: odd })).changed).toBe(true);
    expect((await posts.call.getDropsByUserId({ user_id: odd })).drops).toHaveLength(1);
    const direct = { user_id: odd, visibility: Visibility.DIRECT, recipients: [odd, "{a,b}", "NULL", '"'] };
    const { drop: stored } = await posts.call.createDrop({ ...direct, body: odd });
    expect((await posts.call.getDrop({ drop_id: stored?.drop_id as string })).drop).toMatchObject(direct);
  });

  test("the oldest time an import may have", async () => {
    const created_at = Date.now() - 3_650 * DAY + MINUTE;
    const id = await post(posts, { created_at });
    expect((await posts.call.getDrop({ drop_id: id })).drop?.created_at).toBe(created_at);
    expect((await posts.call.getDropsByUserId({ user_id: "ada", before: created_at + 1 })).drops).toHaveLength(1);
    expect((await posts.call.getDropsByUserId({ user_id: "ada", before: Number.MAX_SAFE_INTEGER })).drops).toHaveLength(
      1,
    );
  });
});
