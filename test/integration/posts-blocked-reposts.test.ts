import { status } from "@grpc/grpc-js";
import { beforeEach, expect, test } from "@jest/globals";
import type { DropDetails } from "../../src/gen/avion/posts.js";
import type { Limited } from "../../src/state/limits/limits.redis.js";
import { describePostsWithUsers } from "../support/describe-posts-with-users.js";
import { post, refusal, startPosts } from "../support/posts.js";

const NO_DROP = "NOT_FOUND drop_id: there is no such drop";
const NO_PARENT = "NOT_FOUND reply_to: there is no such drop";

describePostsWithUsers("reposts and blocks", (running) => {
  let people = 0;
  let [ada, bob, cid, dan] = ["", "", "", ""];

  beforeEach(() => {
    people++;
    [ada, bob, cid, dan] = [`ada-${people}`, `bob-${people}`, `cid-${people}`, `dan-${people}`];
  });

  const calls = () => running.posts.call;
  const by = (user_id: string, fields: object = {}) => post(running.posts, { user_id, ...fields });
  const share = async (drop_id: string, user_id: string) => (await calls().shareDrop({ drop_id, user_id })).repost_id;
  const shown = async (drop_ids: string[], viewer_id: string) =>
    (await calls().getDrops({ drop_ids, viewer_id })).results.map(({ drop }) => drop?.drop_id);
  const originals = (drops: readonly DropDetails[]) =>
    drops.map(({ drop_id, original }) => [drop_id, original?.drop_id]);
  /** Adds many reposts of a drop by Cid in one statement. */
  const manyReposts = (original: string, author: string, count: number) =>
    running.posts.db.query(
      `INSERT INTO posts.drops
         (drop_id, user_id, visibility, recipients, summary, body, updated_at, changed_at, repost_of, repost_author)
       SELECT overlay($1::text PLACING lpad(to_hex(n), 12, '0') FROM 25)::uuid, $2, 1, '{}', '', '', 0, 0, $1::uuid, $3
       FROM generate_series(1, $4::integer) n`,
      [original, cid, author, count],
    );

  test.each(["the author of the original blocks the viewer", "the viewer blocks the author of the original"])(
    "%s: somebody else's repost of it is NOT_FOUND, in no list, and there again after the block",
    async (direction) => {
      const { world } = running;
      const pair = direction.startsWith("the viewer") ? ([bob, ada] as const) : ([ada, bob] as const);
      const [original, others] = [await by(ada), await by(dan)];
      const [repost, visible] = [await share(original, cid), await share(others, cid)];
      const own = await by(cid);
      const viewer_id = bob;
      const page = async (fields: object = {}) =>
        originals((await calls().listUserDrops({ user_id: cid, reposts: true, viewer_id, ...fields })).drops);
      const before = [
        [own, undefined],
        [visible, others],
        [repost, original],
      ];
      expect(await page()).toEqual(before);

      world.block(...pair);
      for (const call of [
        calls().getDrop({ drop_id: repost, viewer_id }),
        calls().listRevisions({ drop_id: repost, viewer_id }),
        calls().listShares({ drop_id: repost, viewer_id }),
        calls().shareDrop({ drop_id: repost, user_id: bob }),
        calls().likeDrop({ drop_id: repost, user_id: bob }),
      ])
        expect(await refusal(call)).toBe(NO_DROP);
      expect(await refusal(by(bob, { reply_to: repost }))).toBe(NO_PARENT);
      expect(await shown([repost, visible, own], bob)).toEqual([visible, own]);
      expect(await page()).toEqual(before.slice(0, 2));
      expect((await calls().listUserShares({ user_id: cid, viewer_id })).shares).toMatchObject([{ drop_id: others }]);
      // Nobody else is concerned, and what the viewer may not see is not told by its tombstone either.
      expect(await shown([repost], dan)).toEqual([repost]);
      expect(await page({ viewer_id: "" })).toEqual(before);
      await calls().unshareDrop({ drop_id: original, user_id: cid });
      expect(await refusal(calls().getDrop({ drop_id: repost, viewer_id }))).toBe(NO_DROP);

      world.unblock(...pair);
      const again = await share(original, cid);
      expect(await shown([again], bob)).toEqual([again]);
      expect(await page()).toEqual([[again, original], ...before.slice(0, 2)]);
    },
  );

  test("a block of the sharer hides the repost and not the original", async () => {
    const original = await by(ada);
    const repost = await share(original, cid);
    running.world.block(cid, bob);
    expect(await shown([repost, original], bob)).toEqual([original]);
    expect(await refusal(calls().shareDrop({ drop_id: repost, user_id: bob }))).toBe(NO_DROP);
    expect((await calls().shareDrop({ drop_id: original, user_id: bob })).changed).toBe(true);
    expect((await calls().listShares({ drop_id: original, viewer_id: bob })).shares).toMatchObject([{ user_id: bob }]);
    expect((await calls().listShares({ drop_id: original, viewer_id: dan })).shares).toHaveLength(2);
  });

  test("a drop of somebody who blocks the user is neither shared, liked nor replied to, and nothing counts", async () => {
    const original = await by(ada);
    running.world.block(ada, bob);
    const one = { drop_id: original, user_id: bob };
    const counted: string[] = [];
    const limited: Limited = (uses, work) => {
      counted.push(...uses.map(({ kind }) => kind));
      return work.write();
    };
    const posts = await startPosts(running.posts.db, { ...running.asked, limited });
    try {
      await running.posts.written();
      expect(await refusal(posts.call.shareDrop(one))).toBe(NO_DROP);
      expect(await refusal(posts.call.likeDrop(one))).toBe(NO_DROP);
      expect(await refusal(post(posts, { user_id: bob, reply_to: original }))).toBe(NO_PARENT);
      expect([counted, await running.posts.written()]).toEqual([[], []]);
      await posts.call.likeDrop({ drop_id: original, user_id: dan });
      expect(counted).toEqual(["reactions"]);
    } finally {
      await posts.stop();
    }
  });

  test("a page is full over reposts of drops that the viewer may not see, and of deleted ones", async () => {
    const oldest = [await by(cid), await share(await by(dan), cid)];
    const [hidden, gone] = [await by(ada), await by(dan)];
    await manyReposts(hidden, ada, 250);
    await manyReposts(gone, dan, 250);
    // As a process leaves it that was killed between the tombstone of the original and those of its reposts.
    await running.posts.db.query("UPDATE posts.drops SET deleted_at = 1 WHERE drop_id = $1", [gone]);
    const newest = await by(cid);
    running.world.block(ada, bob);
    const list = { user_id: cid, viewer_id: bob, reposts: true, page_size: 2 };
    const first = await calls().listUserDrops(list);
    expect(first.drops.map(({ drop_id }) => drop_id)).toEqual([newest, oldest[1]]);
    const second = await calls().listUserDrops({ ...list, page_token: first.next_page_token });
    expect(second).toMatchObject({ drops: [{ drop_id: oldest[0] }], next_page_token: "" });
    const plain = await calls().listUserDrops({ ...list, reposts: false });
    expect(plain).toMatchObject({ drops: [{ drop_id: newest }, { drop_id: oldest[0] }], next_page_token: "" });
  });

  test("a page of reposts asks one question, and a share asks one", async () => {
    const ids = [await share(await by(ada), cid), await share(await by(dan), cid), await by(dan)];
    const asked = () => running.upstreams.calls("GetRelations", bob);
    expect(await shown(ids, bob)).toEqual(ids);
    expect(asked()).toBe(1);
    const [first] = ids as [string];
    await calls().shareDrop({ drop_id: first, user_id: bob });
    expect(asked()).toBe(2);
    const restore = running.upstreams.inject({ method: "GetRelations", code: status.UNAVAILABLE });
    try {
      expect(await refusal(calls().shareDrop({ drop_id: first, user_id: dan }))).toMatch(/^UNAVAILABLE user_id: /);
      expect(await refusal(calls().getDrop({ drop_id: first, viewer_id: dan }))).toMatch(/^UNAVAILABLE viewer_id: /);
    } finally {
      restore();
    }
  });
});
