import { status } from "@grpc/grpc-js";
import { afterAll, beforeAll, expect, test } from "@jest/globals";
import { v7 } from "uuid";
import { RemoteKind, RemoteReactionKind, Visibility } from "../../src/gen/avion/posts.js";
import { createFollowersOf, createProfileOf } from "../../src/posts/relations.grpc.js";
import { connectUsers } from "../../src/upstreams/upstreams.grpc.js";
import { activity, itemsOf, NOTHING, typeOrRefusal } from "../support/activities.js";
import { describePostsWithUsers } from "../support/describe-posts-with-users.js";
import { POSTS_CONFIG, type PostsHarness, post, refusal, startPosts } from "../support/posts.js";
import { forget, startRelayOf } from "../support/posts-erasure.js";
import { compareBytes } from "../support/world.js";

const { PUBLIC, UNLISTED, FOLLOWERS, DIRECT } = Visibility;
const HERE = "https://here.example";
const EVE = "https://far.example/users/eve";
const userUri = (id: string): string => `${HERE}/users/${id}`;
const dropUri = (id: string): string => `${HERE}/drops/${id}`;
/** Likes and shares are told by their actors. */
const actorsOf = (items: readonly unknown[]): string[] => items.map((item) => (item as { actor: string }).actor);

describePostsWithUsers("documents of users and drops", (running) => {
  const posts = {} as PostsHarness;
  let users: ReturnType<typeof connectUsers>;

  beforeAll(async () => {
    users = connectUsers(running.upstreams.usersAddress, {});
    const asked = { ...running.asked, profileOf: createProfileOf(users), followersOf: createFollowersOf(users) };
    const config = { ...POSTS_CONFIG, publicUrl: HERE };
    Object.assign(posts, await startPosts(running.posts.db, { ...asked, config }));
  });
  afterAll(async () => {
    await posts.stop();
    users.close();
  });

  const resolved = (uri: string, viewer_id = "") => posts.call.resolveUri({ uri, viewer_id });
  const putDrop = async (uri: string, fields: object = {}): Promise<string> => {
    await posts.call.putRemoteObject({ uri, kind: RemoteKind.DROP, actor_uri: EVE, document: "{}", ...fields });
    return uri;
  };
  const react = (uri: string, object: string, kind: RemoteReactionKind) =>
    posts.call.putRemoteReaction({ uri, actor_uri: EVE, object, kind });
  const erase = async (user: string): Promise<void> => {
    const relay = startRelayOf(posts.db);
    await forget(posts.store, user);
    await relay.close();
  };

  test("a drop is a note, whatever the case of the host", async () => {
    const parent = await post(posts, { user_id: "ada" });
    const id = await post(posts, { user_id: "ada", reply_to: parent, summary: "news", body: "1 < 2" });
    const note = await activity(posts, `https://HERE.example/drops/${id}`);
    expect(note).toMatchObject({ id: dropUri(id), type: "Note", attributedTo: userUri("ada") });
    expect(note).toMatchObject({ content: "<p>1 &lt; 2</p>", summary: "<p>news</p>", inReplyTo: dropUri(parent) });
    expect(note).not.toHaveProperty("updated");
    await posts.call.editDrop({ drop_id: id, user_id: "ada", body: "2 < 3" });
    const edited = await activity(posts, dropUri(id));
    expect(edited).toMatchObject({ content: "<p>2 &lt; 3</p>", updated: expect.any(String) });
    expect(await resolved(dropUri(id).toUpperCase().replace("/DROPS/", "/drops/"))).toMatchObject({ drop_id: id });
  });

  test("a document has the audience of its drop", async () => {
    const { world } = running;
    const [author, recipient, blocked] = ["may-a", "may-r", "may-b"];
    world.follow("may-f", author);
    world.follow(blocked, author);
    world.block(author, blocked);
    const viewers = [author, "may-f", recipient, blocked, "may-s"];
    const drops: { id: string; visibility: Visibility; isDeleted: boolean }[] = [];
    for (const visibility of [PUBLIC, UNLISTED, FOLLOWERS, DIRECT])
      for (const isDeleted of [false, true]) {
        const recipients = visibility === DIRECT ? [recipient] : [];
        const id = await post(posts, { user_id: author, visibility, recipients });
        if (isDeleted) await posts.call.deleteDrop({ drop_id: id, user_id: author });
        drops.push({ id, visibility, isDeleted });
      }
    let shown = 0;
    for (const { id, visibility, isDeleted } of drops)
      for (const viewer_id of ["", ...viewers]) {
        const isForEverybody = visibility === PUBLIC || visibility === UNLISTED;
        const mayGet = posts.call.getDrop({ drop_id: id, viewer_id }).then(
          () => true,
          () => false,
        );
        const maySee = viewer_id === "" ? isForEverybody : await mayGet;
        const type = isDeleted ? "Tombstone" : "Note";
        expect([viewer_id, await typeOrRefusal(posts, dropUri(id), viewer_id)]).toEqual([
          viewer_id,
          maySee ? type : NOTHING,
        ]);
        const uri = resolved(dropUri(id), viewer_id);
        if (maySee) expect(await uri).toMatchObject({ drop_id: id });
        else expect(await refusal(uri)).toBe(NOTHING);
        for (const collection of ["replies", "likes", "shares"])
          for (const page of ["", "?page_token="]) {
            const expected = !maySee || isDeleted ? NOTHING : `OrderedCollection${page === "" ? "" : "Page"}`;
            expect(await typeOrRefusal(posts, `${dropUri(id)}/${collection}${page}`, viewer_id)).toBe(expected);
          }
        shown += maySee ? 1 : 0;
      }
    // Of each two drops: public and unlisted to all but the blocked, followers to author and follower, direct to author
    // and recipient, whom a tombstone does not keep.
    expect(shown).toBe(2 * 5 + 2 * 5 + 2 * 2 + 3);
  });

  test("a drop that is not for everybody is in no document that everybody gets", async () => {
    const [author, secret] = ["hush", "hush-hush"];
    const parent = await post(posts, { user_id: author });
    for (const visibility of [FOLLOWERS, DIRECT]) {
      const id = await post(posts, { user_id: author, visibility, reply_to: parent, body: secret });
      expect(await refusal(posts.call.getActivity({ uri: dropUri(id) }))).not.toContain(secret);
    }
    const hidden = await putDrop("https://far.example/hush", { visibility: FOLLOWERS, reply_to: parent });
    await posts.countAll();
    expect(await itemsOf(posts, `${dropUri(parent)}/replies`)).toEqual({ total: 0, items: [], pages: 1 });
    running.world.follow("hush-f", EVE);
    expect((await itemsOf(posts, `${dropUri(parent)}/replies`, "hush-f")).items).toEqual([hidden]);
  });

  test("a repost is an announce, and gone with its original", async () => {
    const original = await post(posts, { user_id: "ann" });
    const share = async (drop_id: string, user_id: string): Promise<string> =>
      (await posts.call.shareDrop({ drop_id, user_id })).repost_id;
    const repost = await share(original, "rea");
    expect(await activity(posts, dropUri(repost))).toMatchObject({
      ...{ type: "Announce", actor: userUri("rea"), object: dropUri(original) },
      cc: [`${userUri("rea")}/followers`, userUri("ann")],
    });
    const remote = await putDrop("https://far.example/ann", { visibility: PUBLIC });
    expect(await activity(posts, dropUri(await share(remote, "rea")))).toMatchObject({ object: remote });
    expect(await typeOrRefusal(posts, `${dropUri(repost)}/likes`)).toBe(NOTHING);
    const own = await share(await post(posts, { user_id: "rea", visibility: FOLLOWERS }), "rea");
    expect(await typeOrRefusal(posts, dropUri(own))).toBe(NOTHING);
    expect(await activity(posts, dropUri(own), "rea")).toMatchObject({
      type: "Announce",
      to: [`${userUri("rea")}/followers`],
    });
    running.world.block("ann", "blo");
    expect(await typeOrRefusal(posts, dropUri(repost), "blo")).toBe(NOTHING);
    await posts.call.deleteDrop({ drop_id: original, user_id: "ann" });
    expect(await activity(posts, dropUri(repost))).toMatchObject({ type: "Tombstone", formerType: "Announce" });
  });

  test("the repost of a remote actor has its URI on the actor's server", async () => {
    const original = await post(posts, { user_id: "ann" });
    const { repost_id } = await react("https://far.example/announces/1", original, RemoteReactionKind.SHARE);
    expect(repost_id).not.toBe("");
    expect(await typeOrRefusal(posts, dropUri(repost_id))).toBe(NOTHING);
    expect(await refusal(resolved(dropUri(repost_id)))).toBe(NOTHING);
    const { items } = await itemsOf(posts, `${dropUri(original)}/shares`);
    expect(items).toEqual([{ type: "Announce", actor: EVE, object: dropUri(original), published: expect.any(String) }]);
  });

  test("a user with a profile or with drops is a person; an erased user is a tombstone", async () => {
    running.world.addProfile("p/1", { display_name: "Pia", bio: "a\nb", created_at: 1, updated_at: 2 });
    expect(await activity(posts, userUri("p%2F1"))).toMatchObject({
      ...{ id: userUri("p%2F1"), type: "Person", preferredUsername: "p/1", name: "Pia", summary: "<p>a<br>b</p>" },
      ...{ published: "1970-01-01T00:00:00.001Z", followers: `${userUri("p%2F1")}/followers` },
    });
    expect(await resolved(userUri("p%2F1"))).toMatchObject({ user_id: "p/1" });
    await post(posts, { user_id: "pol" });
    expect(await activity(posts, userUri("pol"))).not.toHaveProperty("name");
    for (const path of ["", "/followers", "/followers?page_token="])
      expect(await typeOrRefusal(posts, `${userUri("nobody")}${path}`)).toBe(NOTHING);
    expect(await refusal(resolved(userUri("nobody")))).toBe(NOTHING);
    running.world.addProfile("era");
    const drop = await post(posts, { user_id: "era", body: "erased" });
    await erase("era");
    expect(await activity(posts, userUri("era"))).toMatchObject({ type: "Tombstone", formerType: "Person" });
    expect(await typeOrRefusal(posts, `${userUri("era")}/followers`)).toBe(NOTHING);
    expect(await refusal(resolved(userUri("era")))).toBe(NOTHING);
    const tombstone = await activity(posts, dropUri(drop));
    expect(tombstone).toMatchObject({ type: "Tombstone", formerType: "Note", deleted: expect.any(String) });
    expect(JSON.stringify(tombstone)).not.toMatch(/era\b|erased/);
  });

  test("users of whom one blocks the other are not found for each other, and left out of lists", async () => {
    const { world } = running;
    for (const user of ["blk-a", "blk-b"]) world.addProfile(user);
    world.block("blk-a", "blk-b");
    for (const [viewer, other] of [
      ["blk-a", "blk-b"],
      ["blk-b", "blk-a"],
    ] as const) {
      expect(await typeOrRefusal(posts, userUri(other), viewer)).toBe(NOTHING);
      expect(await typeOrRefusal(posts, `${userUri(other)}/followers?page_token=`, viewer)).toBe(NOTHING);
      expect(await refusal(resolved(userUri(other), viewer))).toBe(NOTHING);
      expect(await typeOrRefusal(posts, userUri(viewer), viewer)).toBe("Person");
    }
    await posts.call.putRemoteObject({ uri: EVE, kind: RemoteKind.ACTOR, document: "{}" });
    world.block("blk-a", EVE);
    expect(await refusal(resolved(EVE, "blk-a"))).toBe(NOTHING);
    expect(await resolved(EVE, "blk-b")).toMatchObject({ remote: { uri: EVE, kind: RemoteKind.ACTOR } });
    const drop = await post(posts, { user_id: "blk-c" });
    for (const user_id of ["blk-a", "blk-b", "blk-d"]) {
      await posts.call.likeDrop({ drop_id: drop, user_id });
      await post(posts, { user_id, reply_to: drop });
      world.follow(user_id, "blk-c");
    }
    world.mute("blk-a", "blk-d");
    const seenBy = async (viewer: string) => ({
      likes: actorsOf((await itemsOf(posts, `${dropUri(drop)}/likes`, viewer)).items),
      replies: (await itemsOf(posts, `${dropUri(drop)}/replies`, viewer)).items.length,
      followers: (await itemsOf(posts, `${userUri("blk-c")}/followers`, viewer)).items,
    });
    // A mute hides no drop.
    expect(await seenBy("blk-a")).toEqual({ likes: [userUri("blk-a")], replies: 2, followers: [userUri("blk-a")] });
    expect((await seenBy("")).likes).toEqual(["blk-d", "blk-b", "blk-a"].map(userUri));
  });

  test("collections are read page by page", async () => {
    const drop = await post(posts, { user_id: "col" });
    const uri = dropUri(drop);
    const people = Array.from({ length: 250 }, (_, n) => `col-${`${n}`.padStart(3, "0")}`);
    for (const user_id of people) {
      running.world.follow(user_id, "col");
      await posts.call.likeDrop({ drop_id: drop, user_id });
    }
    running.world.follow(EVE, "col");
    const { repost_id } = await posts.call.shareDrop({ drop_id: drop, user_id: "col-000" });
    await react("https://far.example/announces/2", drop, RemoteReactionKind.SHARE);
    const own: string[] = [];
    for (const user_id of people.slice(0, 30)) own.push(dropUri(await post(posts, { user_id, reply_to: drop })));
    const foreign = await putDrop("https://far.example/replies/1", { visibility: PUBLIC, reply_to: uri });
    await posts.countAll();
    const likes = await itemsOf(posts, `${uri}/likes`);
    expect({ ...likes, items: actorsOf(likes.items).sort(compareBytes) }).toEqual({
      total: 250,
      items: people.map(userUri),
      pages: 3,
    });
    const shares = await itemsOf(posts, `${uri}/shares`);
    expect(shares.total).toBe(2);
    expect(actorsOf(shares.items)).toEqual([EVE, userUri("col-000")]);
    expect(shares.items[1]).toMatchObject({ id: dropUri(repost_id), type: "Announce", object: uri });
    expect(await itemsOf(posts, `${uri}/replies`)).toEqual({ total: 31, items: [...own, foreign], pages: 2 });
    const followers = await itemsOf(posts, `${userUri("col")}/followers`);
    expect(followers).toEqual({ total: 251, items: [...people.map(userUri), EVE], pages: 3 });
    expect((await itemsOf(posts, `${userUri("col")}/followers`, "col-001")).items).toHaveLength(251);
  });

  test("a page token is valid for one list and one viewer", async () => {
    const { world } = running;
    world.addProfile("tok");
    for (let n = 0; n < 101; n++) world.follow(`tok-${n}`, "tok");
    const followers = `${userUri("tok")}/followers`;
    const { next } = await activity(posts, `${followers}?page_token=`);
    expect(await typeOrRefusal(posts, next as string)).toBe("OrderedCollectionPage");
    const refused = "INVALID_ARGUMENT page_token: is not a token of this list";
    expect(await typeOrRefusal(posts, next as string, "tok")).toBe(refused);
    expect(await typeOrRefusal(posts, `${followers}?page_token=AAAA`)).toBe(refused);
    const [, token = ""] = (next as string).split("=");
    expect(await typeOrRefusal(posts, `${dropUri(await post(posts))}/likes?page_token=${token}`)).toBe(refused);
  });

  test("a URI that names nothing here is not found", async () => {
    for (const uri of [
      ...[HERE, `${HERE}/`, `${HERE}/drops/7`, dropUri(v7()), `${dropUri(v7())}/likes`, `${HERE}/users/%00`],
      ...[`${HERE}/users/${encodeURIComponent(EVE)}`, `${userUri("ada")}/following`, `${userUri("ada")}/inbox`],
      ...[`${dropUri(await post(posts))}/followers`, "https://far.example/unknown"],
    ]) {
      expect([uri, await typeOrRefusal(posts, uri)]).toEqual([uri, NOTHING]);
      expect([uri, await refusal(resolved(uri))]).toEqual([uri, NOTHING]);
    }
    const uri = `${userUri("ada")}/followers`;
    expect(await typeOrRefusal(posts, uri)).toBe("OrderedCollection");
    expect(await refusal(resolved(uri))).toBe(NOTHING);
  });

  test("a remote object that was put is named by its URI, to those who may see it", async () => {
    const { world } = running;
    world.follow("rem-f", EVE);
    const of = (name: string): string => `https://far.example/rem/${name}`;
    await posts.call.putRemoteObject({ uri: of("actor"), kind: RemoteKind.ACTOR, document: "{}" });
    await posts.call.putRemoteObject({ uri: of("server"), kind: RemoteKind.SERVER, document: "{}" });
    await putDrop(of("public"), { visibility: PUBLIC });
    await putDrop(of("followers"), { visibility: FOLLOWERS });
    await putDrop(of("direct"), { visibility: DIRECT, recipients: [userUri("rem-r")] });
    await putDrop(of("gone"), { visibility: PUBLIC });
    for (const uri of [of("gone"), of("never")]) await posts.call.deleteRemoteObject({ uri });
    const found = async (viewer_id: string) => {
      const names = ["actor", "server", "public", "followers", "direct", "gone", "never"];
      const answers = await Promise.allSettled(names.map((name) => resolved(of(name), viewer_id)));
      return Object.fromEntries(
        answers.flatMap((answer, at) =>
          answer.status === "fulfilled" ? [[names[at], answer.value.remote?.kind]] : [],
        ),
      );
    };
    const { ACTOR, SERVER, DROP, UNSPECIFIED } = RemoteKind;
    const forAll = { actor: ACTOR, server: SERVER, public: DROP, gone: DROP, never: UNSPECIFIED };
    expect(await found("")).toEqual(forAll);
    expect(await found("rem-f")).toEqual({ ...forAll, followers: DROP });
    expect(await found("rem-r")).toEqual({ ...forAll, direct: DROP });
    expect(await typeOrRefusal(posts, of("public"))).toBe(NOTHING);
    expect(await running.posts.call.resolveUri({ uri: of("actor") })).toMatchObject({ remote: { uri: of("actor") } });
  });

  test("without a public URL nothing here has a document or a URI", async () => {
    const uri = dropUri(await post(posts));
    expect(await refusal(running.posts.call.getActivity({ uri }))).toBe(
      "FAILED_PRECONDITION uri: users and drops have no URIs here, since TIMELINE_PUBLIC_URL is not set",
    );
    expect(await refusal(running.posts.call.resolveUri({ uri }))).toBe(NOTHING);
  });

  test("an id that the users service refuses names no user", async () => {
    const restore = running.upstreams.inject({ method: "GetProfile", code: status.INVALID_ARGUMENT });
    expect(await typeOrRefusal(posts, userUri("odd"))).toBe(NOTHING);
    restore();
  });

  test("while the users service is away, documents that depend on it are UNAVAILABLE", async () => {
    running.world.addProfile("awa");
    const restores = (["GetProfile", "GetFollowersList", "GetRelations"] as const).map((method) => {
      const restore = running.upstreams.inject({ method, code: status.UNAVAILABLE });
      return restore;
    });
    const drop = await post(posts, { user_id: "awa" });
    expect(await typeOrRefusal(posts, userUri("awa"))).toMatch(
      /^UNAVAILABLE uri: the profile of the user is not known/,
    );
    expect(await typeOrRefusal(posts, dropUri(drop), "awo")).toMatch(/^UNAVAILABLE viewer_id: /);
    expect(await typeOrRefusal(posts, dropUri(drop))).toBe("Note");
    restores[0]?.();
    expect(await typeOrRefusal(posts, `${userUri("awa")}/followers`)).toMatch(/^UNAVAILABLE uri: the followers of/);
    for (const restore of restores) restore();
    expect(await typeOrRefusal(posts, `${userUri("awa")}/followers`)).toBe("OrderedCollection");
  });
});
