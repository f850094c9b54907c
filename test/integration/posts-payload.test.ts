import { afterAll, beforeAll, expect, test } from "@jest/globals";
import { type CreateDropRequest, RemoteKind, Visibility } from "../../src/gen/avion/posts.js";
import { activity } from "../support/activities.js";
import { describePostsWithUsers } from "../support/describe-posts-with-users.js";
import { POSTS_CONFIG, type PostsHarness, post, refusal, startPosts } from "../support/posts.js";
import { forget, rowsNaming, startRelayOf } from "../support/posts-erasure.js";

const { PUBLIC, FOLLOWERS, DIRECT } = Visibility;
const HERE = "https://here.example";
const EVE = "https://far.example/users/eve";

const IMAGE = { url: "https://cdn.example/a.png", media_type: "image/png", description: "a cat", width: 3, height: 2 };
const EXTRA = { b: [1, null, { ä: "x" }], a: -1.5, c: {} };

const nested = (levels: number): object => (levels === 1 ? {} : { a: nested(levels - 1) });

describePostsWithUsers("what drops have besides their texts", (running) => {
  const posts = {} as PostsHarness;
  beforeAll(async () => {
    const config = { ...POSTS_CONFIG, publicUrl: HERE };
    Object.assign(posts, await startPosts(running.posts.db, { ...running.asked, config }));
  });
  afterAll(async () => {
    await posts.stop();
  });
  const get = async (drop_id: string, viewer_id = "") => (await posts.call.getDrop({ drop_id, viewer_id })).drop;

  test("a drop comes back as it was made, and a version as it was", async () => {
    const more = { mentions: ["bob", EVE], attachments: [IMAGE], language: "de-AT", sensitive: true, extra: EXTRA };
    const { drop } = await posts.call.createDrop({ user_id: "ada", visibility: PUBLIC, body: "", ...more });
    expect(drop).toMatchObject(more);
    const drop_id = drop?.drop_id as string;
    const stored = await get(drop_id);
    expect(stored).toEqual(drop);
    expect(JSON.stringify(stored?.extra)).toBe(JSON.stringify(EXTRA));
    const edited = await posts.call.editDrop({ drop_id, user_id: "ada", body: "no picture", mentions: ["cid"] });
    expect(edited.drop).toMatchObject({ mentions: ["cid"], attachments: [], language: "", sensitive: false });
    expect(edited.drop?.extra).toBeUndefined();
    const { revisions } = await posts.call.listRevisions({ drop_id });
    expect(revisions[1]).toMatchObject({ ...more, mentions: [] });
    const [event] = (await posts.written()).filter(({ key }) => key === drop_id);
    expect(event?.body).toMatchObject({ mentions: ["bob", EVE] });
    const { drops } = await posts.call.getDropsByUserId({ user_id: "ada" });
    expect(drops.find((found) => found.drop_id === drop_id)).toMatchObject({ mentions: ["cid"], reply_to: "" });
    await posts.call.deleteDrop({ drop_id, user_id: "ada" });
    const sql = "SELECT FROM posts.drops WHERE drop_id = $1 AND payload IS NULL AND mentions IS NULL";
    expect(await posts.db.query(sql, [drop_id])).toHaveLength(1);
  });

  test.each<[string, Partial<CreateDropRequest>]>([
    ["mentions: must have at most 50 entries", { mentions: Array.from({ length: 51 }, (_, n) => `u${n}`) }],
    ["mentions: must have at most 128 bytes", { mentions: ["bob", "x".repeat(129)] }],
    ["attachments: must have at most 16 entries", { attachments: Array.from({ length: 17 }, () => IMAGE) }],
    ["attachments.1.url: is no https URL", { attachments: [IMAGE, { ...IMAGE, url: "http://cdn.example/a.png" }] }],
    [
      "attachments.0.url: is no https URL",
      { attachments: [{ ...IMAGE, url: `https://x.example/${"y".repeat(2_048)}` }] },
    ],
    ["attachments.0.media_type: is no media type", { attachments: [{ ...IMAGE, media_type: "image" }] }],
    [
      "attachments.0.description: must have at most 1500",
      { attachments: [{ ...IMAGE, description: "x".repeat(1_501) }] },
    ],
    ["attachments.0.width: must be at least 0", { attachments: [{ ...IMAGE, width: -1 }] }],
    ["language: is no language tag", { language: "no language" }],
    ["extra: must have at most 16384 bytes", { extra: { a: "x".repeat(16_384) } }],
    ["extra: must have at most 25 levels", { extra: nested(26) }],
    ["extra: has a value that is no JSON", { extra: { a: Number.NaN } }],
    ["extra: must not contain NUL", { extra: { a: "\0" } }],
    ["body: must not be empty without", { body: "" }],
  ])("bad input is refused with its field: %s", async (words, fields) => {
    expect(await refusal(post(posts, fields))).toContain(`INVALID_ARGUMENT ${words}`);
    const drop_id = await post(posts);
    const edit = { drop_id, user_id: "ada", body: "x", ...fields };
    expect(await refusal(posts.call.editDrop(edit))).toContain(`INVALID_ARGUMENT ${words}`);
  });

  test("the largest drop is taken, and 100 of them stop no list", async () => {
    const attachments = Array.from({ length: 16 }, () => ({ ...IMAGE, description: "ä".repeat(1_500) }));
    const user_id = "max";
    const extra = nested(25);
    const ids = await Promise.all(
      Array.from({ length: 100 }, () => post(posts, { user_id, body: "ä".repeat(5_000), attachments, extra })),
    );
    expect(await refusal(posts.call.getDrops({ drop_ids: ids }))).toMatch(
      /^RESOURCE_EXHAUSTED drop_ids: .* ask for fewer$/,
    );
    expect((await posts.call.getDrops({ drop_ids: ids.slice(0, 50) })).results).toHaveLength(50);
    const { drops, next_page_token } = await posts.call.listUserDrops({
      ...{ user_id, viewer_id: "", page_size: 100 },
    });
    expect(drops.length).toBeGreaterThan(50);
    expect(next_page_token).not.toBe("");
  });

  test("a reply names the author of its parent, in events, lists and its note", async () => {
    const uri = "https://far.example/notes/parent";
    await posts.call.putRemoteObject({
      uri,
      kind: RemoteKind.DROP,
      actor_uri: EVE,
      document: "{}",
      visibility: PUBLIC,
    });
    for (const [reply_to, reply_to_author, href] of [
      [await post(posts, { user_id: "bob" }), "bob", `${HERE}/users/bob`],
      [uri, EVE, EVE],
    ] as const) {
      await posts.written();
      const drop_id = await post(posts, { user_id: "rae", reply_to, mentions: ["cid"] });
      const [event] = (await posts.written()).filter(({ subject }) => subject === "drops.created");
      expect(event?.body).toMatchObject({ reply_to, reply_to_author, mentions: ["cid"] });
      const { drops } = await posts.call.getDropsByUserId({ user_id: "rae", limit: 1 });
      expect(drops).toMatchObject([{ drop_id, reply_to, reply_to_author, mentions: ["cid"] }]);
      const changes = await posts.call.listDrops({ since: 0, page_size: 1_000 });
      expect(changes.drops.find((drop) => drop.drop_id === drop_id)).toMatchObject({ reply_to, reply_to_author });
      const note = await activity(posts, `${HERE}/drops/${drop_id}`);
      expect(note["cc"]).toEqual([`${HERE}/users/rae/followers`, href, `${HERE}/users/cid`]);
      expect(note["tag"]).toEqual([href, `${HERE}/users/cid`].map((person) => ({ type: "Mention", href: person })));
    }
  });

  test("a note has attachments, a warning and a language; that of a direct drop names its recipients alone", async () => {
    const drop_id = await post(posts, { attachments: [IMAGE], sensitive: true, language: "de", body: "Hallo" });
    expect(await activity(posts, `${HERE}/drops/${drop_id}`)).toMatchObject({
      attachment: [{ type: "Document", mediaType: "image/png", url: IMAGE.url, name: "a cat", width: 3, height: 2 }],
      ...{ sensitive: true, content: "<p>Hallo</p>", contentMap: { de: "<p>Hallo</p>" } },
    });
    const parent = await post(posts, { user_id: "eva" });
    const direct = { visibility: DIRECT, recipients: ["bob"], mentions: ["cid"], reply_to: parent };
    const note = await activity(posts, `${HERE}/drops/${await post(posts, direct)}`, "ada");
    expect(note).not.toHaveProperty("cc");
    expect(note["tag"]).toEqual([{ type: "Mention", href: `${HERE}/users/bob` }]);
  });

  test("a drop for followers is also for the author of its parent and whom it mentions, unless a block stands between", async () => {
    const reply_to = await post(posts, { user_id: "fay" });
    const drop_id = await post(posts, { user_id: "gus", visibility: FOLLOWERS, reply_to, mentions: ["hal", "ivy"] });
    running.world.block("ivy", "gus");
    await posts.call.likeDrop({ drop_id, user_id: "hal" });
    for (const viewer of ["fay", "hal"]) {
      expect(await get(drop_id, viewer)).toBeDefined();
      const { items } = await posts.call.listReplies({ drop_id: reply_to, viewer_id: viewer });
      expect(items).toHaveLength(1);
      expect((await posts.call.listUserLikes({ user_id: "hal", viewer_id: viewer })).likes).toHaveLength(1);
    }
    for (const viewer of ["ivy", "jan"]) expect(await refusal(get(drop_id, viewer))).toMatch(/^NOT_FOUND/);
  });

  test("a remote drop has what its document says, and a bad part spoils nothing else", async () => {
    const uri = "https://far.example/notes/rich";
    const image = { type: "Image", mediaType: "image/png", url: IMAGE.url, name: "a cat", width: 3, height: 2 };
    const document = {
      tag: [{ type: "Mention", href: `${HERE}/users/bob` }, { type: "Hashtag", href: "https://x.example/t" }, 7],
      attachment: [
        image,
        { ...image, url: "http://plain.example/a.png" },
        null,
        { url: { href: IMAGE.url, mediaType: 5 } },
      ],
      ...{ contentMap: { fr: "salut" }, sensitive: true },
    };
    const put = (content: object) =>
      posts.call.putRemoteObject({
        ...{ uri, kind: RemoteKind.DROP, actor_uri: EVE, document: JSON.stringify(content), visibility: FOLLOWERS },
      });
    const { object } = await put(document);
    const bare = { url: IMAGE.url, media_type: "", description: "", width: 0, height: 0 };
    const expected = { mentions: ["bob"], attachments: [IMAGE, bare], language: "fr", sensitive: true };
    expect(object).toMatchObject(expected);
    const { object: shown } = await posts.call.getRemoteObject({ uri, viewer_id: "bob" });
    expect(shown).toMatchObject(expected);
    const { drops } = await posts.call.getDropsByUserId({ user_id: EVE, limit: 100 });
    expect(drops.find((drop) => drop.drop_id === uri)).toMatchObject({ mentions: ["bob"] });
    const updated = await put({ attachment: { type: "Image", url: IMAGE.url } });
    expect(updated.object).toMatchObject({ mentions: [], attachments: [bare], sensitive: false });
    for (const odd of [{ tag: 5, attachment: "x", contentMap: [], sensitive: "yes" }, { tag: { type: "Mention" } }])
      expect((await put(odd)).object).toMatchObject({ mentions: [], attachments: [], language: "", sensitive: false });
    await posts.call.deleteRemoteObject({ uri });
  });

  test("an erased user is mentioned nowhere, and by nobody any more", async () => {
    const user = "zoe-erased";
    const parent = await post(posts, { user_id: user });
    const reply = await post(posts, { reply_to: parent, mentions: ["bob", user] });
    await posts.call.editDrop({ drop_id: reply, user_id: "ada", body: "edited", mentions: [user] });
    const other = await post(posts, { mentions: [user] });
    await posts.call.editDrop({ drop_id: other, user_id: "ada", body: "edited" });
    const uri = "https://far.example/notes/naming";
    const tag = [
      { type: "Mention", href: `${HERE}/users/${user}` },
      { type: "Mention", href: `${HERE}/users/bob` },
    ];
    const put = (named = uri) =>
      posts.call.putRemoteObject({
        ...{ uri: named, kind: RemoteKind.DROP, actor_uri: EVE, document: JSON.stringify({ tag }), visibility: PUBLIC },
      });
    await posts.written();
    await put();
    expect((await posts.written()).map(({ body }) => body["mentions"])).toEqual([[user, "bob"]]);
    const relay = startRelayOf(posts.db);
    await forget(posts.store, user);
    await relay.close();
    expect((await get(reply))?.mentions).toEqual([]);
    expect((await put()).object?.mentions).toEqual(["bob"]);
    await posts.written();
    const late = `${uri}-late`;
    await put(late);
    expect((await posts.written()).map(({ body }) => body["mentions"])).toEqual([["bob"]]);
    await posts.db.query("UPDATE posts.remote_objects SET document = '{}' WHERE uri = ANY ($1)", [[uri, late]]);
    expect(await rowsNaming(posts.db, user)).toEqual([]);
    const refused = "FAILED_PRECONDITION mentions: the user is erased";
    expect(await refusal(post(posts, { mentions: [user] }))).toBe(refused);
    const edit = { drop_id: reply, user_id: "ada", body: "again", mentions: [user] };
    expect(await refusal(posts.call.editDrop(edit))).toBe(refused);
  });
});
