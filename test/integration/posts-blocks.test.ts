import { status } from "@grpc/grpc-js";
import { beforeEach, expect, test } from "@jest/globals";
import { RemoteKind, Visibility } from "../../src/gen/avion/posts.js";
import { MINUTE } from "../../src/kernel/time.js";
import { createFollowedAmong, createRelationsTo } from "../../src/posts/relations.grpc.js";
import { connectUsers } from "../../src/upstreams/upstreams.grpc.js";
import { describePostsWithUsers } from "../support/describe-posts-with-users.js";
import { post, refusal, startPosts } from "../support/posts.js";
import { startUpstreams } from "../support/upstreams.js";
import { World } from "../support/world.js";

const { PUBLIC, FOLLOWERS, DIRECT } = Visibility;
const NO_DROP = "NOT_FOUND drop_id: there is no such drop";
const UNKNOWN = "the users they block, and who block them, are not known";

describePostsWithUsers("blocks", (running) => {
  let people = 0;
  let [ada, bob, cid, eveUri] = ["", "", "", ""];

  beforeEach(() => {
    people++;
    [ada, bob, cid] = [`ada-${people}`, `bob-${people}`, `cid-${people}`];
    eveUri = `https://far.example/users/${people}`;
  });

  const calls = () => running.posts.call;
  const by = (user_id: string, fields: object = {}) => post(running.posts, { user_id, ...fields });
  const remoteDrop = async (name: string, fields: object = {}): Promise<string> => {
    const uri = `${eveUri}/notes/${name}`;
    const put = { uri, kind: RemoteKind.DROP, actor_uri: eveUri, document: "{}", visibility: PUBLIC };
    await calls().putRemoteObject({ ...put, ...fields });
    return uri;
  };
  const idsOf = (drops: readonly ({ readonly drop_id: string } | undefined)[]) => drops.map((drop) => drop?.drop_id);
  const shown = async (drop_ids: string[], viewer_id: string) =>
    (await calls().getDrops({ drop_ids, viewer_id })).results.map(
      ({ drop, tombstone, remote }) => drop?.drop_id ?? tombstone?.id ?? remote?.uri,
    );
  /** Adds many replies in one statement. */
  const manyReplies = (reply_to: string, user_id: string, count: number) =>
    running.posts.db.query(
      `INSERT INTO posts.drops (drop_id, user_id, visibility, recipients, reply_to, summary, body, updated_at, changed_at)
       SELECT overlay($1::text PLACING lpad(to_hex(n), 12, '0') FROM 25)::uuid, $2, 1, '{}', $1, '', 'x', 0, 0
       FROM generate_series(1, $3::integer) n`,
      [reply_to, user_id, count],
    );

  test.each(["the author blocks the viewer", "the viewer blocks the author"])(
    "%s: a drop, its versions, replies, likes and shares are NOT_FOUND until the block ends",
    async (direction) => {
      const { world } = running;
      const [own, direct] = [await by(ada), await by(ada, { visibility: DIRECT, recipients: [bob] })];
      const [remote, others] = [await remoteDrop("1"), await by(cid)];
      const [viewer_id, blocked] = [bob, direction === "the author blocks the viewer"];
      world.follow(bob, ada);
      const forFollowers = await by(ada, { visibility: FOLLOWERS });
      const all = [own, direct, forFollowers, remote, others];
      const asked = [
        () => calls().getDrop({ drop_id: own, viewer_id }),
        () => calls().getDrop({ drop_id: own, viewer_id, revision: 1 }),
        () => calls().getDrop({ drop_id: direct, viewer_id }),
        () => calls().getDrop({ drop_id: forFollowers, viewer_id }),
        () => calls().listRevisions({ drop_id: own, viewer_id }),
        () => calls().listReplies({ drop_id: own, viewer_id }),
        () => calls().listReplies({ drop_id: remote, viewer_id }),
        () => calls().listLikes({ drop_id: own, viewer_id }),
        () => calls().listShares({ drop_id: own, viewer_id }),
      ];
      expect(await shown(all, bob)).toEqual(all);
      const pairs = [ada, eveUri].map((target): [string, string] => (blocked ? [target, bob] : [bob, target]));
      for (const pair of pairs) world.block(...pair);
      for (const call of asked) expect(await refusal(call())).toBe(NO_DROP);
      expect(await refusal(calls().getRemoteObject({ uri: remote, viewer_id }))).toBe(
        "NOT_FOUND uri: there is no such object",
      );
      expect(await shown(all, bob)).toEqual([others]);
      expect(await calls().listUserDrops({ user_id: ada, viewer_id })).toEqual({
        drops: [],
        items: [],
        next_page_token: "",
      });
      // Both are hidden from each other, and from nobody else.
      expect(await shown([await by(bob)], ada)).toEqual([]);
      expect(await shown([own, remote], cid)).toEqual([own, remote]);
      expect(await shown([own, remote], "")).toEqual([own, remote]);
      expect(await shown([own, direct], ada)).toEqual([own, direct]);
      for (const pair of pairs) world.unblock(...pair);
      for (const call of asked.filter((_, index) => index !== 3)) await call();
      // The block has ended the follow.
      expect(await shown(all, bob)).toEqual([own, direct, remote, others]);
    },
  );

  test("a mute hides neither drops nor replies nor the author's page", async () => {
    const [own, remote] = [await by(ada), await remoteDrop("1")];
    const reply = await by(ada, { reply_to: own });
    for (const target of [ada, eveUri]) running.world.mute(bob, target);
    expect(await shown([own, remote], bob)).toEqual([own, remote]);
    expect(idsOf((await calls().listReplies({ drop_id: own, viewer_id: bob })).replies)).toEqual([reply]);
    expect(idsOf((await calls().listUserDrops({ user_id: ada, viewer_id: bob })).drops)).toEqual([own]);
    expect(await calls().likeDrop({ drop_id: own, user_id: bob })).toEqual({ changed: true });
  });

  test("replies of blocked people are left out, and the pages stay filled", async () => {
    const parent = await by(cid);
    await manyReplies(parent, ada, 450);
    const kept = [await by(cid, { reply_to: parent }), await by(bob, { reply_to: parent })];
    running.world.block(ada, bob);
    const first = await calls().listReplies({ drop_id: parent, viewer_id: bob, page_size: 1 });
    expect(idsOf(first.replies)).toEqual(kept.slice(0, 1));
    const page = { drop_id: parent, viewer_id: bob, page_size: 1, page_token: first.next_page_token };
    expect(await calls().listReplies(page)).toMatchObject({ replies: [{ drop_id: kept[1] }], next_page_token: "" });
    expect((await calls().listReplies({ drop_id: parent, viewer_id: cid })).replies).toHaveLength(20);
  });

  test("a page asks one question, about each person once, and none about the viewer", async () => {
    const asked = () => running.upstreams.calls("GetRelations", bob);
    const ids = [await by(ada), await by(bob), await by(cid), await by(ada, { visibility: FOLLOWERS })];
    ids.push(await remoteDrop("1"));
    await shown(ids, bob);
    expect(asked()).toBe(1);
    await shown([await by(bob), await by(ada, { visibility: DIRECT })], bob);
    await calls().likeDrop({ drop_id: ids[1] as string, user_id: bob });
    await by(bob, { reply_to: ids[1] as string });
    expect(asked()).toBe(1);
    await calls().listUserDrops({ user_id: ada, viewer_id: bob });
    expect(asked()).toBe(2);
    await calls().likeDrop({ drop_id: ids[0] as string, user_id: bob });
    expect(asked()).toBe(3);
  });

  test("between blocked people likes, shares and replies are NOT_FOUND, and what there is can be taken back", async () => {
    const { world } = running;
    const [own, remote] = [await by(ada), await remoteDrop("1")];
    const reaction = { drop_id: own, user_id: bob };
    await calls().likeDrop(reaction);
    await calls().shareDrop(reaction);
    const keyed = { reply_to: own, idempotency_key: "k" };
    const reply = await by(bob, keyed);
    world.block(ada, bob);
    world.block(bob, eveUri);
    await running.posts.written();
    expect(await refusal(calls().likeDrop(reaction))).toBe(NO_DROP);
    expect(await refusal(calls().shareDrop(reaction))).toBe(NO_DROP);
    for (const reply_to of [own, remote])
      expect(await refusal(by(bob, { reply_to }))).toBe("NOT_FOUND reply_to: there is no such drop");
    expect(await refusal(by(bob, { reply_to: "0198f000-0000-7000-8000-000000000000" }))).toBe(
      "INVALID_ARGUMENT reply_to: there is no such drop",
    );
    // The same key returns what it has made before.
    expect(await by(bob, keyed)).toBe(reply);
    expect(await running.posts.written()).toEqual([]);
    expect(await calls().unlikeDrop(reaction)).toEqual({ changed: true });
    expect((await calls().unshareDrop(reaction)).changed).toBe(true);
    await calls().deleteDrop({ drop_id: reply, user_id: bob });
    await by(cid, { reply_to: own });
    await by(ada, { reply_to: own });
  });

  test("while UserService is unavailable, what depends on a block is UNAVAILABLE, and one's own drops are answered", async () => {
    const [own, others, remote] = [await by(bob), await by(ada), await remoteDrop("1")];
    const restore = running.upstreams.inject({ method: "GetRelations", code: status.UNAVAILABLE });
    try {
      await running.posts.written();
      const viewer_id = bob;
      for (const call of [
        calls().getDrop({ drop_id: others, viewer_id }),
        calls().getDrops({ drop_ids: [own, remote], viewer_id }),
        calls().getRemoteObject({ uri: remote, viewer_id }),
        calls().listUserDrops({ user_id: ada, viewer_id }),
        calls().listUserLikes({ user_id: ada, viewer_id }),
        calls().listReplies({ drop_id: others, viewer_id }),
      ])
        expect(await refusal(call)).toBe(`UNAVAILABLE viewer_id: ${UNKNOWN}`);
      for (const call of [
        calls().likeDrop({ drop_id: others, user_id: bob }),
        calls().shareDrop({ drop_id: others, user_id: bob }),
        by(bob, { reply_to: others }),
        by(bob, { reply_to: remote }),
      ])
        expect(await refusal(call)).toBe(`UNAVAILABLE user_id: ${UNKNOWN}`);
      expect(await running.posts.written()).toEqual([]);
      expect(await shown([own], bob)).toEqual([own]);
      expect(await shown([own, others, remote], "")).toEqual([own, others, remote]);
      expect(idsOf((await calls().listUserDrops({ user_id: bob, viewer_id })).drops)).toEqual([own]);
      await calls().likeDrop({ drop_id: own, user_id: bob });
      await by(bob, { reply_to: own });
      await by(bob);
      expect((await calls().unlikeDrop({ drop_id: others, user_id: bob })).changed).toBe(false);
    } finally {
      restore();
    }
  });

  test("GetDrops takes remote drops, as the viewer may see them", async () => {
    const [open, gone] = [await remoteDrop("open"), await remoteDrop("gone")];
    const direct = await remoteDrop("direct", { visibility: DIRECT, recipients: [bob] });
    const forFollowers = await remoteDrop("followers", { visibility: FOLLOWERS });
    const [own, unknown, early] = [await by(ada), `${eveUri}/notes/unknown`, `${eveUri}/notes/early`];
    await calls().putRemoteObject({ uri: eveUri, kind: RemoteKind.ACTOR, document: "{}" });
    for (const uri of [gone, early]) await calls().deleteRemoteObject({ uri });
    const all = [open, own, gone, direct, forFollowers, unknown, early, eveUri];
    expect(await shown(all, bob)).toEqual([open, own, gone, direct, early]);
    expect(await shown(all, cid)).toEqual([open, own, gone, early]);
    running.world.follow(cid, eveUri);
    expect(await shown(all, cid)).toEqual([open, own, gone, forFollowers, early]);
    expect(await shown(all, "")).toEqual([open, own, gone, direct, forFollowers, early]);
    const { results } = await calls().getDrops({ drop_ids: [open, gone, early], viewer_id: bob });
    expect(results).toEqual([
      { remote: (await calls().getRemoteObject({ uri: open })).object },
      { tombstone: { id: gone, former_type: "drop", deleted_at: expect.any(Number) } },
      { tombstone: { id: early, former_type: "", deleted_at: expect.any(Number) } },
    ]);
  });

  test("remote drops that exceed a message are RESOURCE_EXHAUSTED, and fewer of them are answered", async () => {
    const document = JSON.stringify({ content: "x".repeat(255 * 1_024) });
    const uris: string[] = [];
    for (let n = 0; n < 17; n++) uris.push(await remoteDrop(`${n}`, { document }));
    expect(await refusal(calls().getDrops({ drop_ids: uris }))).toMatch(
      /^RESOURCE_EXHAUSTED drop_ids: .*ask for fewer/,
    );
    expect(await shown(uris.slice(1), bob)).toEqual(uris.slice(1));
  });

  test("a UserService without relations is asked for follows, and again for relations after a minute", async () => {
    const world = new World();
    const upstreams = await startUpstreams(world);
    const users = connectUsers(upstreams.usersAddress, {});
    let now = Date.now();
    const relationsTo = createRelationsTo(users, () => now);
    const posts = await startPosts(running.posts.db, { followedAmong: createFollowedAmong(users), relationsTo });
    const restore = upstreams.inject({ method: "GetRelations", code: status.UNIMPLEMENTED });
    try {
      const [open, forFollowers] = [await by(ada), await by(ada, { visibility: FOLLOWERS })];
      const [closed, asked] = [await by(cid, { visibility: FOLLOWERS }), () => upstreams.calls("GetRelations")];
      const seen = async () =>
        (await posts.call.getDrops({ drop_ids: [open, forFollowers, closed], viewer_id: bob })).results.map(
          ({ drop }) => drop?.drop_id,
        );
      world.follow(bob, ada);
      expect(await seen()).toEqual([open, forFollowers]);
      world.block(ada, bob);
      world.follow(bob, ada);
      expect(await seen()).toEqual([open, forFollowers]);
      expect((await posts.call.likeDrop({ drop_id: open, user_id: bob })).changed).toBe(true);
      expect(asked()).toBe(1);
      restore();
      now += MINUTE;
      expect(await seen()).toEqual([]);
      expect(asked()).toBe(2);
    } finally {
      await posts.stop();
      users.close();
      await upstreams.stop();
    }
  });

  test("an answer that lacks a person shows nothing", async () => {
    const drop_id = await by(ada);
    const { relation } = running.world;
    running.world.relation = (user, target) => ({ ...relation.call(running.world, user, target), target_id: "other" });
    try {
      expect(await refusal(calls().getDrop({ drop_id, viewer_id: bob }))).toBe(`UNAVAILABLE viewer_id: ${UNKNOWN}`);
    } finally {
      running.world.relation = relation;
    }
  });
});
