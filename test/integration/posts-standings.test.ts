import { afterAll, beforeAll, describe, expect, test } from "@jest/globals";
import type { Standing } from "../../src/contracts/standings.js";
import { RemoteKind, Visibility } from "../../src/gen/avion/posts.js";
import { DATABASES, type DatabaseServer } from "../support/databases.js";
import { type PostsHarness, post, refusal, startPosts } from "../support/posts.js";

const NO_DROP = "NOT_FOUND drop_id: there is no such drop";

describe.each(DATABASES)("suspended users on $name", ({ start }) => {
  let server: DatabaseServer;
  let posts: PostsHarness;
  const standings = new Map<string, Standing>();
  const standingOf = (user: string): Standing => standings.get(user) ?? "active";

  beforeAll(async () => {
    server = await start();
    const isSuspended = (user: string) => standingOf(user) === "suspended";
    posts = await startPosts(await server.newDatabase(), { standingOf, isSuspended });
  });
  afterAll(async () => {
    await posts.stop();
    await server.stop();
  });

  test("their drops, reposts, reposts of theirs, replies and reactions are hidden from everybody until it is lifted", async () => {
    const { call } = posts;
    const [own, others] = [await post(posts), await post(posts, { user_id: "bob" })];
    const { repost_id: ofTheirs } = await call.shareDrop({ drop_id: own, user_id: "bob" });
    const { repost_id: byThem } = await call.shareDrop({ drop_id: others, user_id: "ada" });
    const replies = [await post(posts, { user_id: "cat", reply_to: own }), await post(posts, { reply_to: others })];
    await call.likeDrop({ drop_id: others, user_id: "ada" });
    const all = [own, others, ofTheirs, byThem, ...replies];
    const shown = async (viewer_id: string) =>
      (await call.getDrops({ drop_ids: all, viewer_id })).results.map(({ drop }) => drop?.drop_id);
    const likes = async (viewer_id: string) => (await call.listLikes({ drop_id: others, viewer_id })).likes.length;
    const around = async (viewer_id: string) => {
      const about = { drop_id: others, viewer_id };
      const [{ shares }, { replies: below }, { results }] = [
        await call.listShares(about),
        await call.getThread(about),
        await call.getDrops({ drop_ids: [others], viewer_id, with_state: true }),
      ];
      return [shares.length, below.map(({ reply }) => reply?.drop?.drop_id), results[0]?.drop?.drop_id];
    };
    for (const viewer of ["", "bob"])
      expect([await shown(viewer), await likes(viewer), await around(viewer)]).toEqual([
        ...[all, 1],
        [1, [replies[1]], others],
      ]);

    standings.set("ada", "suspended");
    for (const viewer of ["", "bob", "ada"])
      expect([viewer, await shown(viewer), await likes(viewer), await around(viewer)]).toEqual([
        ...[viewer, [others], 0],
        [0, [], others],
      ]);
    for (const drop_id of [own, ...replies]) expect(await refusal(call.getThread({ drop_id }))).toBe(NO_DROP);
    expect(await refusal(call.getDrop({ drop_id: own }))).toBe(NO_DROP);
    expect(await refusal(call.listReplies({ drop_id: own, viewer_id: "bob" }))).toBe(NO_DROP);
    expect(await refusal(call.likeDrop({ drop_id: own, user_id: "bob" }))).toBe(NO_DROP);
    expect((await call.listUserDrops({ user_id: "ada" })).drops).toEqual([]);
    expect((await call.listReplies({ drop_id: others })).replies).toEqual([]);

    standings.set("ada", "limited");
    expect([await shown("bob"), await likes("")]).toEqual([all, 1]);
    standings.clear();
    expect([await shown("bob"), await likes(""), await around("bob")]).toEqual([all, 1, [1, [replies[1]], others]]);
  });

  test("what is written in their name is refused, but for deletions by their server", async () => {
    const { call } = posts;
    const [own, others] = [await post(posts), await post(posts, { user_id: "bob" })];
    const actor_uri = "https://spam.example/u/1";
    const remote = { uri: "https://spam.example/1", kind: RemoteKind.DROP, actor_uri, document: "{}" };
    const put = () => call.putRemoteObject({ ...remote, visibility: Visibility.PUBLIC });
    await put();
    for (const user of ["ada", actor_uri]) standings.set(user, "suspended");
    const user_id = "ada";
    for (const write of [
      () => post(posts),
      () => call.editDrop({ drop_id: own, user_id, body: "x" }),
      () => call.deleteDrop({ drop_id: own, user_id }),
      () => call.likeDrop({ drop_id: others, user_id }),
      () => call.unlikeDrop({ drop_id: others, user_id }),
      () => call.shareDrop({ drop_id: others, user_id }),
      () => call.unshareDrop({ drop_id: others, user_id }),
    ])
      expect(await refusal(write())).toBe("FAILED_PRECONDITION user_id: is suspended");
    expect(await refusal(put())).toBe("FAILED_PRECONDITION actor_uri: is suspended");
    await call.deleteRemoteObject({ uri: remote.uri, kind: RemoteKind.DROP, actor_uri });
    standings.clear();
    await call.deleteDrop({ drop_id: own, user_id });
  });
});
