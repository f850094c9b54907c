import { expect, test } from "@jest/globals";
import { RemoteKind, Visibility } from "../../src/gen/avion/posts.js";
import { describePosts } from "../support/describe-posts.js";
import { post } from "../support/posts.js";

const { PUBLIC } = Visibility;

describePosts("the state of drops", {}, (posts) => {
  test("GetDrops says what people have done with a drop, and the viewer", async () => {
    const uri = "https://far.example/notes/state";
    const actor_uri = "https://far.example/users/eve";
    const put = { uri, kind: RemoteKind.DROP, actor_uri, visibility: PUBLIC, document: "{}" };
    await posts.call.putRemoteObject(put);
    const [drop, plain, gone] = await Promise.all([post(posts), post(posts), post(posts)]);
    for (const drop_id of [drop, uri])
      for (const user_id of ["bob", "cid"]) await posts.call.likeDrop({ drop_id, user_id });
    await posts.call.unlikeDrop({ drop_id: drop, user_id: "cid" });
    const { repost_id } = await posts.call.shareDrop({ drop_id: drop, user_id: "bob" });
    const { repost_id: far } = await posts.call.shareDrop({ drop_id: uri, user_id: "bob" });
    await post(posts, { user_id: "cid", reply_to: drop });
    await posts.call.deleteDrop({ drop_id: gone, user_id: "ada" });
    await posts.countAll();
    const ask = { drop_ids: [drop, plain, uri, repost_id, far, gone], with_state: true };
    const { results } = await posts.call.getDrops({ ...ask, viewer_id: "bob" });
    const counted = { counts: { drop_id: drop, likes: 1, shares: 1, replies: 1 }, viewer: { liked: true, repost_id } };
    const remote = {
      counts: { drop_id: uri, likes: 2, shares: 1, replies: 0 },
      viewer: { liked: true, repost_id: far },
    };
    const none = { likes: 0, shares: 0, replies: 0 };
    const untouched = { counts: { drop_id: plain, ...none }, viewer: { liked: false, repost_id: "" } };
    expect(results).toMatchObject([counted, untouched, remote, counted, remote, { tombstone: { id: gone } }]);
    expect(results[5]?.counts ?? results[5]?.viewer).toBeUndefined();
    const cid = await posts.call.getDrops({ ...ask, viewer_id: "cid" });
    expect(cid.results[0]?.viewer).toEqual({ liked: false, repost_id: "" });
    expect(cid.results[2]?.viewer).toEqual({ liked: true, repost_id: "" });
    const nobody = await posts.call.getDrops({ ...ask, viewer_id: "" });
    expect(nobody.results[0]).toMatchObject({ counts: counted.counts });
    expect(nobody.results[0]?.viewer).toBeUndefined();
    const without = await posts.call.getDrops({ ...ask, viewer_id: "bob", with_state: false });
    expect(without.results[0]?.counts ?? without.results[0]?.viewer).toBeUndefined();
    await posts.call.unshareDrop({ drop_id: drop, user_id: "bob" });
    const after = await posts.call.getDrops({ ...ask, viewer_id: "bob" });
    expect(after.results[0]?.viewer).toEqual({ liked: true, repost_id: "" });
  });
});
