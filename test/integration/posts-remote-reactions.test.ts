import { status } from "@grpc/grpc-js";
import { beforeEach, expect, test } from "@jest/globals";
import { RemoteKind, RemoteReactionKind, Visibility } from "../../src/gen/avion/posts.js";
import { DAY, HOUR } from "../../src/kernel/time.js";
import { createdAtOf } from "../../src/posts/drops/ids.js";
import { linkReactions } from "../../src/posts/remote/reaction-links.js";
import { describePostsWithUsers } from "../support/describe-posts-with-users.js";
import { type PostsHarness, post, refusal } from "../support/posts.js";
import { forget, startRelayOf } from "../support/posts-erasure.js";

const { LIKE, SHARE } = RemoteReactionKind;
const { PUBLIC, FOLLOWERS, DIRECT } = Visibility;

describePostsWithUsers("reactions of remote actors, and to remote drops", (running) => {
  let posts: PostsHarness;
  let made = 0;
  let [ada, eve, mal] = ["", "", ""];

  beforeEach(() => {
    posts = running.posts;
    made++;
    [ada, eve, mal] = [`ada-${made}`, `https://far.example/users/eve-${made}`, `https://far.example/users/mal-${made}`];
  });

  const newUri = (): string => `https://far.example/${++made}`;
  const drop = async (fields: object = {}): Promise<string> => {
    const put = { uri: newUri(), kind: RemoteKind.DROP, actor_uri: eve, document: "{}", visibility: PUBLIC, ...fields };
    return (await posts.call.putRemoteObject(put)).object?.uri as string;
  };
  const react = async (object: string, kind: RemoteReactionKind, fields: object = {}) => {
    const uri = newUri();
    return { uri, ...(await posts.call.putRemoteReaction({ uri, actor_uri: mal, object, kind, ...fields })) };
  };
  const withdraw = async (uri: string, fields: object = {}) =>
    (await posts.call.deleteRemoteReaction({ uri, actor_uri: mal, ...fields })).changed;
  const counts = async (drop_id: string) => {
    await posts.countAll();
    const { likes, shares } = (await posts.call.getCounts({ drop_ids: [drop_id] })).counts[0] ?? {};
    return [likes, shares];
  };
  const likers = async (drop_id: string, viewer_id = "") =>
    (await posts.call.listLikes({ drop_id, viewer_id })).likes.map(({ user_id }) => user_id);
  const sharers = async (drop_id: string) =>
    (await posts.call.listShares({ drop_id })).shares.map(({ user_id }) => user_id);
  const both = async (): Promise<string[]> => [await post(posts, { user_id: ada }), await drop()];

  test("a local user likes and shares a remote drop as a local one", async () => {
    const uri = await drop();
    await posts.written();
    const [liking, sharing] = [
      { drop_id: uri, user_id: ada },
      { drop_id: uri, user_id: "bob" },
    ];
    expect(await posts.call.likeDrop(liking)).toEqual({ changed: true });
    expect(await posts.call.likeDrop(liking)).toEqual({ changed: false });
    const { repost_id } = await posts.call.shareDrop(sharing);
    expect(await posts.call.shareDrop(sharing)).toEqual({ changed: false, repost_id });
    expect(await counts(uri)).toEqual([1, 1]);
    expect([await likers(uri), await sharers(uri)]).toEqual([[ada], ["bob"]]);
    const created = (await posts.written()).find(({ subject }) => subject === "drops.created");
    expect(created?.body).toMatchObject({ drop_id: repost_id, user_id: "bob", repost_of: uri, repost_author: eve });
    expect((await posts.call.listUserLikes({ user_id: ada })).likes.map(({ drop_id }) => drop_id)).toEqual([uri]);
    expect((await posts.call.listUserShares({ user_id: "bob" })).shares.map(({ drop_id }) => drop_id)).toContain(uri);
    const { results } = await posts.call.getDrops({ drop_ids: [repost_id], viewer_id: ada });
    expect(results[0]?.drop).toMatchObject({ repost_of: uri, remote_original: { uri, actor_uri: eve } });
    expect(results[0]?.drop?.original).toBeUndefined();
    expect(await posts.call.shareDrop({ drop_id: repost_id, user_id: "cid" })).toMatchObject({ changed: true });
    expect(await counts(uri)).toEqual([1, 2]);
    expect(await posts.call.unlikeDrop(liking)).toEqual({ changed: true });
    expect(await posts.call.unshareDrop(sharing)).toEqual({ changed: true });
    expect(await posts.call.unshareDrop({ drop_id: uri, user_id: "cid" })).toEqual({ changed: true });
    expect(await counts(uri)).toEqual([0, 0]);
    expect((await posts.call.getDrop({ drop_id: repost_id })).tombstone?.id).toBe(repost_id);
  });

  test("reposts of a remote drop are its author's hidden with it, and go with it", async () => {
    const uri = await drop();
    const { repost_id } = await posts.call.shareDrop({ drop_id: uri, user_id: "bob" });
    running.world.block(eve, ada);
    expect(await refusal(posts.call.getDrop({ drop_id: repost_id, viewer_id: ada }))).toMatch(/^NOT_FOUND/);
    for (const call of [posts.call.likeDrop, posts.call.shareDrop])
      expect(await refusal(call({ drop_id: uri, user_id: ada }))).toBe("NOT_FOUND drop_id: there is no such drop");
    await posts.written();
    await posts.call.deleteRemoteObject({ uri });
    expect((await posts.call.getDrop({ drop_id: repost_id })).tombstone).toBeDefined();
    const deleted = (await posts.written()).filter(({ subject }) => subject === "drops.deleted").map(({ key }) => key);
    expect(deleted.sort()).toEqual([uri, repost_id].sort());
    expect(await refusal(posts.call.likeDrop({ drop_id: uri, user_id: "cid" }))).toBe(
      "FAILED_PRECONDITION drop_id: the drop is deleted",
    );
    expect(await counts(uri)).toEqual([0, 0]);
  });

  test("the drops of a remote actor are listed with their reposts, newest first, for who may see them", async () => {
    const now = Date.now();
    const put = (n: number, fields: object = {}) => drop({ actor_uri: mal, created_at: now - n * HOUR, ...fields });
    const others = await drop();
    const repost = (await react(others, SHARE, { created_at: now - 3 * HOUR })).repost_id;
    const [open, followed, direct, reply] = [
      await put(1),
      await put(2, { visibility: FOLLOWERS }),
      await put(4, { visibility: DIRECT, recipients: [ada] }),
      await put(5, { reply_to: others }),
    ];
    await posts.call.deleteRemoteObject({ uri: await put(0) });
    const list = async (fields: object) => {
      const names: (string | undefined)[] = [];
      for (let page_token = "", more = true; more; more = page_token !== "") {
        const page = await posts.call.listUserDrops({ user_id: mal, page_token, ...fields });
        names.push(...page.items.map((item) => item.drop?.drop_id ?? item.remote?.uri));
        page_token = page.next_page_token;
      }
      return names;
    };
    expect(await list({})).toEqual([open]);
    expect(await list({ replies: true, reposts: true, page_size: 1 })).toEqual([open, repost, reply]);
    running.world.follow("bob", mal);
    expect(await list({ viewer_id: "bob", reposts: true, page_size: 2 })).toEqual([open, followed, repost]);
    expect(await list({ viewer_id: ada, replies: true })).toEqual([open, direct, reply]);
    running.world.block(mal, ada);
    expect(await list({ viewer_id: ada })).toEqual([]);
  });

  test("a page of reposts of long remote drops ends where a message does", async () => {
    const document = JSON.stringify({ content: "x".repeat(250_000) });
    const reposts: string[] = [];
    for (let n = 0; n < 20; n++)
      reposts.unshift((await posts.call.shareDrop({ drop_id: await drop({ document }), user_id: ada })).repost_id);
    const list = (page_token = "") =>
      posts.call.listUserDrops({ user_id: ada, reposts: true, page_size: 100, page_token });
    const first = await list();
    const second = await list(first.next_page_token);
    expect(first.drops).toHaveLength(16);
    expect([...first.drops, ...second.drops].map(({ drop_id }) => drop_id)).toEqual(reposts);
    expect(await refusal(posts.call.getDrops({ drop_ids: reposts }))).toMatch(/^RESOURCE_EXHAUSTED drop_ids/);
  });

  test("an unknown remote drop is NOT_FOUND, and one for followers cannot be shared", async () => {
    for (const call of [posts.call.likeDrop, posts.call.shareDrop, posts.call.unshareDrop])
      expect(await refusal(call({ drop_id: newUri(), user_id: ada }))).toBe("NOT_FOUND drop_id: there is no such drop");
    running.world.follow(ada, eve);
    const forFollowers = await drop({ visibility: FOLLOWERS });
    expect(await refusal(posts.call.shareDrop({ drop_id: forFollowers, user_id: ada }))).toMatch(
      /^FAILED_PRECONDITION/,
    );
    expect(await refusal(posts.call.shareDrop({ drop_id: forFollowers, user_id: "bob" }))).toMatch(/^NOT_FOUND/);
  });

  test("a like of a remote actor counts once, under whatever URI, and is taken back under any of them", async () => {
    for (const object of await both()) {
      const first = await react(object, LIKE);
      expect(first.created).toBe(true);
      const again = { uri: first.uri, actor_uri: mal, object, kind: LIKE };
      expect((await posts.call.putRemoteReaction(again)).created).toBe(false);
      const second = await react(object, LIKE);
      const others = await react(object, LIKE, { actor_uri: eve });
      expect(await counts(object)).toEqual([2, 0]);
      expect((await likers(object)).sort()).toEqual([eve, mal]);
      expect(await withdraw(first.uri)).toBe(true);
      for (const { uri } of [first, second]) expect(await withdraw(uri)).toBe(false);
      expect(await counts(object)).toEqual([1, 0]);
      expect((await posts.call.putRemoteReaction({ ...again, created_at: Date.now() })).created).toBe(true);
      expect(await counts(object)).toEqual([2, 0]);
      expect(await withdraw("", { object, kind: LIKE })).toBe(true);
      expect(await withdraw(newUri(), { object, kind: LIKE })).toBe(false);
      await react(object, LIKE);
      expect(await withdraw(newUri(), { object, kind: LIKE })).toBe(true);
      expect(await withdraw(others.uri, { actor_uri: eve, object, kind: LIKE })).toBe(true);
      expect(await counts(object)).toEqual([0, 0]);
    }
  });

  test("a like that was undone does not come back, and a later one under its URI is a like", async () => {
    const now = Date.now();
    for (const object of await both()) {
      const { uri } = await react(object, LIKE, { created_at: now - HOUR });
      await withdraw(uri);
      const like = { uri, actor_uri: mal, object, kind: LIKE };
      const put = (created_at: number) => posts.call.putRemoteReaction({ ...like, created_at });
      expect(await refusal(put(now - HOUR))).toBe("FAILED_PRECONDITION uri: the reaction is deleted");
      expect(await counts(object)).toEqual([0, 0]);
      expect((await put(now - HOUR + 1)).created).toBe(true);
      expect((await put(now - HOUR)).created).toBe(false);
      expect(await counts(object)).toEqual([1, 0]);
      // Without a time it may be the undone one, delivered again.
      await withdraw(uri);
      expect(await refusal(put(0))).toBe("FAILED_PRECONDITION uri: the reaction is deleted");
      expect(await counts(object)).toEqual([0, 0]);
      expect((await react(object, LIKE)).created).toBe(true);
      await posts.db.query("UPDATE posts.remote_reactions SET deleted_at = deleted_at - $2 WHERE uri = $1", [uri, DAY]);
      expect((await put(0)).created).toBe(true);
      expect(await counts(object)).toEqual([1, 0]);
    }
  });

  test("an undo that is delivered again takes back no like that came since", async () => {
    for (const object of await both()) {
      const first = await react(object, LIKE);
      expect(await withdraw(first.uri)).toBe(true);
      await react(object, LIKE);
      expect(await withdraw(first.uri)).toBe(false);
      expect(await withdraw(first.uri, { object, kind: LIKE })).toBe(false);
      expect(await counts(object)).toEqual([1, 0]);
    }
  });

  test("nobody takes back the reaction of somebody else", async () => {
    const object = await post(posts, { user_id: ada });
    const { uri } = await react(object, LIKE);
    for (const [fields, answer] of [
      [{ actor_uri: eve }, "FAILED_PRECONDITION actor_uri: the reaction has another one"],
      [{ actor_uri: "https://near.example/a" }, "INVALID_ARGUMENT actor_uri: is on another server than uri"],
      [{ object: newUri(), kind: LIKE }, "FAILED_PRECONDITION object: the reaction has another one"],
      [{ kind: SHARE }, "FAILED_PRECONDITION kind: the reaction has another one"],
      [{ kind: 3 }, "INVALID_ARGUMENT kind: must be like or share"],
      [{ object: "x" }, "INVALID_ARGUMENT object: is not a UUID"],
      [{ uri: "" }, "INVALID_ARGUMENT uri: is not an http or https URI"],
    ] as const)
      expect(await refusal(withdraw(uri, fields))).toBe(answer);
    const unseen = newUri();
    const nobody = "INVALID_ARGUMENT actor_uri: is not an http or https URI";
    expect(await refusal(withdraw(unseen, { actor_uri: "" }))).toBe(nobody);
    await withdraw(unseen, { actor_uri: eve });
    await posts.call.putRemoteReaction({ uri: unseen, actor_uri: mal, object, kind: LIKE });
    expect(await withdraw("", { object, kind: LIKE, actor_uri: eve })).toBe(false);
    expect(await counts(object)).toEqual([1, 0]);
    // The actor of a stored reaction is known. That of the other URI goes with it.
    expect(await withdraw(uri, { actor_uri: "" })).toBe(true);
    expect(await counts(object)).toEqual([0, 0]);
  });

  test("a share for fewer than its drop is listed for these, and so is its repost", async () => {
    for (const object of await both()) {
      const made = await Promise.all(
        [FOLLOWERS, DIRECT, PUBLIC].map((visibility, n) =>
          react(object, SHARE, { visibility, actor_uri: `${eve}/${object.length}/${n}` }),
        ),
      );
      const [followed, hidden, open] = [0, 1, 2].map((n) => `${eve}/${object.length}/${n}`) as [string, string, string];
      const listed = async (viewer_id: string) =>
        (await posts.call.listShares({ drop_id: object, viewer_id })).shares.map(({ user_id }) => user_id).sort();
      const shares = async (user_id: string, viewer_id: string) =>
        (await posts.call.listUserShares({ user_id, viewer_id })).shares.length;
      running.world.follow("bob", followed);
      expect(await counts(object)).toEqual([0, 3]);
      expect([await listed(""), await listed("cid")]).toEqual([[open], [open]]);
      expect([await listed("bob"), await listed(hidden)]).toEqual([[followed, open], [hidden, open].sort()]);
      expect([await shares(followed, "bob"), await shares(followed, "cid"), await shares(followed, "")]).toEqual([
        1, 0, 0,
      ]);
      expect([await shares(open, ""), await shares(hidden, "bob"), await shares(hidden, hidden)]).toEqual([1, 0, 1]);
      const reposts = made.map(({ repost_id }) => repost_id);
      const { results } = await posts.call.getDrops({ drop_ids: reposts, viewer_id: "bob" });
      expect(results.map(({ drop }) => [drop?.drop_id, drop?.visibility])).toEqual([
        [reposts[0], FOLLOWERS],
        [reposts[2], PUBLIC],
      ]);
      const events = (await posts.written()).filter(({ key }) => reposts.includes(key));
      expect(events.map(({ body }) => String(body["visibility"])).sort()).toEqual(["direct", "followers", "public"]);
    }
  });

  test("a share of a remote actor is a repost of its time for the actor's followers", async () => {
    const created_at = Date.now() - 70 * DAY;
    for (const object of await both()) {
      await posts.written();
      const { uri, repost_id } = await react(object, SHARE, { created_at });
      expect(createdAtOf(repost_id)).toBe(created_at);
      const created = (await posts.written()).find(({ subject }) => subject === "drops.created");
      expect(created?.body).toMatchObject({ drop_id: repost_id, user_id: mal, created_at, repost_of: object });
      expect(await counts(object)).toEqual([0, 1]);
      expect((await posts.call.getDropsByUserId({ user_id: mal })).drops).toContainEqual(
        expect.objectContaining({ drop_id: repost_id, repost_of: object, created_at }),
      );
      expect(await react(object, SHARE)).toMatchObject({ created: true, repost_id });
      expect(await withdraw(uri)).toBe(true);
      expect(await counts(object)).toEqual([0, 0]);
    }
  });

  test("a deleted share takes its repost back", async () => {
    for (const object of await both()) {
      const { uri, repost_id } = await react(object, SHARE);
      await withdraw(uri);
      expect(await counts(object)).toEqual([0, 0]);
      expect((await posts.call.getDrop({ drop_id: repost_id })).tombstone?.id).toBe(repost_id);
      const again = await react(object, SHARE);
      expect(again.repost_id).not.toBe(repost_id);
    }
  });

  test("reactions that come before their object count once it is stored; deleted ones do not", async () => {
    const uri = newUri();
    const [like, share] = [await react(uri, LIKE), await react(uri, SHARE)];
    const gone = await react(uri, LIKE, { actor_uri: eve });
    await withdraw(gone.uri, { actor_uri: eve });
    expect(share).toMatchObject({ created: true, repost_id: "" });
    expect(await counts(uri)).toEqual([0, 0]);
    await drop({ uri });
    expect(await counts(uri)).toEqual([1, 1]);
    expect(await withdraw(like.uri)).toBe(true);
    expect(await counts(uri)).toEqual([0, 1]);
    const secret = newUri();
    await react(secret, SHARE);
    await drop({ uri: secret, visibility: DIRECT, recipients: [ada] });
    expect(await counts(secret)).toEqual([0, 0]);
  });

  test("a deletion that comes before its reaction keeps it out", async () => {
    const uri = newUri();
    expect(await withdraw(uri)).toBe(false);
    const object = await post(posts, { user_id: ada });
    const like = { uri, actor_uri: mal, object, kind: LIKE };
    const put = (created_at: number) => posts.call.putRemoteReaction({ ...like, created_at });
    for (const created_at of [0, Date.now() - HOUR])
      expect(await refusal(put(created_at))).toBe("FAILED_PRECONDITION uri: the reaction is deleted");
    expect(await counts(object)).toEqual([0, 0]);
    await posts.db.query("UPDATE posts.remote_reactions SET deleted_at = deleted_at - $2 WHERE uri = $1", [uri, DAY]);
    expect((await put(0)).created).toBe(true);
    expect(await counts(object)).toEqual([1, 0]);
  });

  test("between blocked people reactions and replies of remote actors are NOT_FOUND", async () => {
    const object = await post(posts, { user_id: ada });
    const reply = await drop({ actor_uri: mal, reply_to: object });
    running.world.block(ada, mal);
    for (const kind of [LIKE, SHARE])
      expect(await refusal(react(object, kind))).toBe("NOT_FOUND object: there is no such drop");
    expect(await refusal(drop({ actor_uri: mal, reply_to: object }))).toBe("NOT_FOUND reply_to: there is no such drop");
    expect((await posts.call.listReplies({ drop_id: object, viewer_id: ada })).items).toEqual([]);
    // An update of what is stored is no new reply.
    expect(await drop({ uri: reply, actor_uri: mal, reply_to: object })).toBe(reply);
    const restore = running.upstreams.inject({ method: "GetRelations", code: status.UNAVAILABLE });
    expect(await refusal(react(object, LIKE))).toMatch(/^UNAVAILABLE actor_uri/);
    restore();
  });

  test("a viewer does not see remote actors whom they mute among those who like a drop", async () => {
    const object = await post(posts, { user_id: ada });
    await react(object, LIKE);
    expect(await likers(object, ada)).toEqual([mal]);
    running.world.mute(ada, mal);
    expect(await likers(object, ada)).toEqual([]);
  });

  test("nothing is left of the reactions of an erased actor, and none comes later", async () => {
    const [local, remote] = await both();
    const kept = newUri();
    for (const object of [local, remote, kept]) for (const kind of [LIKE, SHARE]) await react(object as string, kind);
    const relay = startRelayOf(posts.db);
    await forget(posts.store, mal);
    await relay.close();
    expect(await refusal(react(local as string, LIKE))).toBe("FAILED_PRECONDITION actor_uri: the user is erased");
    await drop({ uri: kept });
    for (const object of [local, remote, kept]) expect(await counts(object as string)).toEqual([0, 0]);
    const rows = `SELECT FROM posts.remote_reactions WHERE actor_uri = $1 UNION ALL
      SELECT FROM posts.reactions WHERE actor_id = $1 UNION ALL SELECT FROM posts.drops WHERE user_id = $1`;
    expect(await posts.db.query(rows, [mal])).toEqual([]);
  });

  test("the maintenance counts what a process that died has left", async () => {
    const object = await post(posts, { user_id: ada });
    const { uri } = await react(object, LIKE);
    await posts.db.query("UPDATE posts.remote_reactions SET deleted_at = 1 WHERE uri = $1", [uri]);
    await posts.db.query(
      "INSERT INTO posts.remote_reactions (uri, actor_uri, object, kind, created_at) VALUES ($1, $2, $3, 2, $4)",
      [newUri(), eve, object, Date.now() - HOUR],
    );
    while ((await linkReactions({ store: posts.store, now: Date.now }, 10)) > 0);
    expect(await counts(object)).toEqual([0, 1]);
  });

  test("fields that cannot be read, and other reactions under a known URI, are refused", async () => {
    const object = await post(posts, { user_id: ada });
    const good = { uri: newUri(), actor_uri: mal, object, kind: LIKE };
    const put = (fields: object) => posts.call.putRemoteReaction({ ...good, ...fields });
    await put({});
    for (const [fields, answer] of [
      [{ uri: "x" }, "INVALID_ARGUMENT uri: is not an http or https URI"],
      [{ actor_uri: "" }, "INVALID_ARGUMENT actor_uri: is not an http or https URI"],
      [{ object: "x" }, "INVALID_ARGUMENT object: is not a UUID"],
      [{ kind: 0 }, "INVALID_ARGUMENT kind: must be like or share"],
      [{ visibility: FOLLOWERS }, "INVALID_ARGUMENT visibility: may be set for shares only"],
      [{ created_at: -1 }, "INVALID_ARGUMENT created_at: must be ms since the epoch, not negative"],
      [
        { uri: newUri(), object: object.replace(/.$/, (last) => (last === "0" ? "1" : "0")) },
        "NOT_FOUND object: there is no such drop",
      ],
      [{ actor_uri: "https://near.example/a" }, "INVALID_ARGUMENT actor_uri: is on another server than uri"],
      [{ actor_uri: eve }, "FAILED_PRECONDITION actor_uri: the reaction has another one"],
      [{ object: newUri() }, "FAILED_PRECONDITION object: the reaction has another one"],
      [{ kind: SHARE }, "FAILED_PRECONDITION kind: the reaction has another one"],
    ] as const)
      expect(await refusal(put(fields))).toBe(answer);
    expect(await refusal(withdraw("x"))).toMatch(/^INVALID_ARGUMENT uri/);
    await posts.call.deleteDrop({ drop_id: object, user_id: ada });
    expect(await refusal(put({ uri: newUri() }))).toBe("FAILED_PRECONDITION object: the drop is deleted");
  });
});
