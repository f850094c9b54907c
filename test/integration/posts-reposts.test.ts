import { afterAll, beforeAll, describe, expect, test } from "@jest/globals";
import { v7 } from "uuid";
import { Visibility } from "../../src/gen/avion/posts.js";
import { dateOfId } from "../../src/kernel/ids.js";
import { NO_PAYLOAD } from "../../src/posts/drops/payload.js";
import { DATABASES, type DatabaseServer } from "../support/databases.js";
import { type PostsHarness, post, refusal, startPosts } from "../support/posts.js";
import { NAMES_NOBODY } from "../support/world.js";

const { PUBLIC, UNLISTED, FOLLOWERS, DIRECT } = Visibility;
const NO_SUCH_DROP = "NOT_FOUND drop_id: there is no such drop";
const IS_REPOST = "FAILED_PRECONDITION drop_id: the drop is a repost";

describe.each(DATABASES)("reposts on $name", ({ start }) => {
  let server: DatabaseServer;
  let posts: PostsHarness;

  /** Fay follows Ada. */
  const follows = async (follower: string, people: readonly string[]) =>
    new Set(follower === "fay" ? people.filter((one) => one === "ada") : []);

  beforeAll(async () => {
    server = await start();
    posts = await startPosts(await server.newDatabase(), { followedAmong: follows });
  });
  afterAll(async () => {
    await posts.stop();
    await server.stop();
  });

  const share = async (drop_id: string, user_id = "bob"): Promise<string> => {
    const { repost_id } = await posts.call.shareDrop({ drop_id, user_id });
    return repost_id;
  };
  /** Events of drops come first: relays of their own publish those of reactions. */
  const written = async () => (await posts.written()).sort((a, b) => (a.subject < b.subject ? -1 : 1));
  const counts = async (drop_id: string) => {
    await posts.countAll();
    const [found] = (await posts.call.getCounts({ drop_ids: [drop_id] })).counts;
    return [found?.likes, found?.shares, found?.replies];
  };
  const shown = async (drop_id: string, viewer_id = "") =>
    (await posts.call.getDrops({ drop_ids: [drop_id], viewer_id })).results.map(({ drop }) => drop);

  test("a share makes a drop of its own, with its event, and names it again when it is repeated", async () => {
    const original = await post(posts, { visibility: UNLISTED, summary: "s", body: "text" });
    await posts.written();
    const shared = await posts.call.shareDrop({ drop_id: original.toUpperCase(), user_id: "bob" });
    const repost = shared.repost_id;
    expect(shared).toEqual({ changed: true, repost_id: expect.stringMatching(/^[0-9a-f-]{36}$/) });
    expect(repost > original).toBe(true);
    const created_at = dateOfId(repost);
    const of = { repost_of: original, repost_author: "ada" };
    expect(await written()).toEqual([
      {
        key: repost,
        subject: "drops.created",
        messageId: `drop_created:${repost}`,
        body: { drop_id: repost, user_id: "bob", visibility: "unlisted", created_at, ...of },
      },
      {
        key: `${original}:share:bob`,
        subject: "engagement.changed",
        messageId: `engagement:${original}:share:bob:1`,
        body: { drop_id: original, kind: "share", actor_id: "bob" },
      },
    ]);
    expect(await posts.call.shareDrop({ drop_id: original, user_id: "bob" })).toEqual({
      changed: false,
      repost_id: repost,
    });
    expect(await posts.written()).toEqual([]);

    const { drop } = await posts.call.getDrop({ drop_id: repost });
    expect(drop).toEqual({
      drop_id: repost,
      user_id: "bob",
      visibility: UNLISTED,
      recipients: [],
      reply_to: "",
      summary: "",
      body: "",
      revision: 1,
      created_at,
      updated_at: created_at,
      repost_of: original,
      mentions: [],
      ...NO_PAYLOAD,
    });
    const { drop: whole } = await posts.call.getDrop({ drop_id: original });
    expect(await shown(repost)).toEqual([{ ...drop, original: whole }]);
    expect(whole?.repost_of).toBe("");
    const listed = {
      user_id: "bob",
      visibility: UNLISTED,
      created_at,
      deleted: false,
      recipients: [],
      ...of,
      ...NAMES_NOBODY,
    };
    const one = { drop_id: repost, ...listed };
    for (const options of [{}, { without_direct: true }, { reader_id: "eve" }])
      expect((await posts.call.getDropsByUserId({ user_id: "bob", ...options })).drops).toEqual([one]);
    expect((await posts.call.listDrops({})).drops.slice(-1)).toEqual([one]);
    expect(await counts(original)).toEqual([0, 1, 0]);
    expect(await counts(repost)).toEqual([0, 0, 0]);
  });

  test("a share of a repost is one of its original", async () => {
    const original = await post(posts);
    const first = await share(original);
    const second = await share(first, "eve");
    expect(await shown(second)).toMatchObject([{ repost_of: original, user_id: "eve" }]);
    expect(await share(first)).toBe(first);
    expect(await counts(original)).toEqual([0, 2, 0]);
    expect(await posts.call.unshareDrop({ drop_id: first, user_id: "eve" })).toEqual({ changed: true });
    expect(await shown(first)).toHaveLength(1);
    expect((await posts.call.getDrop({ drop_id: second })).tombstone?.id).toBe(second);
    expect(await counts(original)).toEqual([0, 1, 0]);
  });

  test("an unshare deletes the repost, and the next share makes another one", async () => {
    const original = await post(posts);
    const first = await share(original);
    await posts.written();
    expect(await posts.call.unshareDrop({ drop_id: original, user_id: "bob" })).toEqual({ changed: true });
    expect((await written()).map(({ messageId, body }) => [messageId, body])).toEqual([
      [`drop_deleted:${first}`, { drop_id: first, user_id: "bob" }],
      [`engagement:${original}:share:bob:2`, { drop_id: original, kind: "share", actor_id: "bob" }],
    ]);
    expect((await posts.call.getDrop({ drop_id: first })).tombstone).toEqual({
      id: first,
      former_type: "drop",
      deleted_at: expect.any(Number),
    });
    expect((await posts.call.listDrops({})).drops.slice(-1)).toMatchObject([{ drop_id: first, deleted: true }]);
    expect(await posts.call.unshareDrop({ drop_id: original, user_id: "bob" })).toEqual({ changed: false });
    expect(await posts.written()).toEqual([]);
    expect(await counts(original)).toEqual([0, 0, 0]);
    expect(await share(original)).not.toBe(first);
    expect(await counts(original)).toEqual([0, 1, 0]);
  });

  test("the deletion of a repost by its author withdraws the share, once", async () => {
    const original = await post(posts);
    const repost = await share(original);
    await posts.written();
    const deletion = { drop_id: repost, user_id: "bob" };
    expect(await refusal(posts.call.deleteDrop({ drop_id: repost, user_id: "ada" }))).toBe(
      "INVALID_ARGUMENT user_id: is not the author",
    );
    const { tombstone } = await posts.call.deleteDrop(deletion);
    expect(tombstone).toEqual({ id: repost, former_type: "drop", deleted_at: expect.any(Number) });
    expect((await written()).map(({ messageId }) => messageId)).toEqual([
      `drop_deleted:${repost}`,
      `engagement:${original}:share:bob:2`,
    ]);
    const again = await share(original);
    expect(await posts.call.deleteDrop(deletion)).toEqual({ tombstone });
    expect(await refusal(posts.call.shareDrop({ drop_id: repost, user_id: "eve" }))).toBe(
      "FAILED_PRECONDITION drop_id: the drop is deleted",
    );
    expect(await shown(again)).toHaveLength(1);
    expect(await counts(original)).toEqual([0, 1, 0]);
  });

  test("a repost is neither edited, liked nor replied to", async () => {
    const original = await post(posts);
    const drop_id = await share(original);
    await posts.written();
    const edit = { drop_id, user_id: "bob", body: "mine", summary: "" };
    expect(await refusal(posts.call.editDrop(edit))).toBe(IS_REPOST);
    expect(await refusal(posts.call.likeDrop({ drop_id, user_id: "eve" }))).toBe(IS_REPOST);
    expect(await posts.call.unlikeDrop({ drop_id, user_id: "eve" })).toEqual({ changed: false });
    for (const fields of [{}, { idempotency_key: "key" }])
      expect(await refusal(post(posts, { reply_to: drop_id, ...fields }))).toBe(
        "FAILED_PRECONDITION reply_to: the drop is a repost",
      );
    expect(await posts.written()).toEqual([]);
    expect((await posts.call.listReplies({ drop_id })).replies).toEqual([]);
    expect((await posts.call.listRevisions({ drop_id })).revisions).toMatchObject([{ body: "", repost_of: original }]);
  });

  test("public and unlisted drops are shared, one's own for followers, and no other", async () => {
    const refused = "FAILED_PRECONDITION drop_id: the drop is neither public nor unlisted, nor one's own for followers";
    const ids: Record<number, string> = {};
    for (const visibility of [PUBLIC, UNLISTED, FOLLOWERS, DIRECT])
      ids[visibility] = await post(posts, { visibility, recipients: visibility === DIRECT ? ["bob"] : [] });
    const as = (visibility: Visibility, user_id: string) => {
      const sharing = posts.call.shareDrop({ drop_id: ids[visibility] as string, user_id });
      return sharing.then(
        ({ changed }) => changed,
        () => refusal(sharing),
      );
    };
    for (const user of ["ada", "fay", "sam"]) expect(await as(PUBLIC, user)).toBe(true);
    for (const user of ["ada", "fay", "sam"]) expect(await as(UNLISTED, user)).toBe(true);
    expect(await as(FOLLOWERS, "fay")).toBe(refused);
    expect(await as(FOLLOWERS, "sam")).toBe(NO_SUCH_DROP);
    expect(await as(DIRECT, "ada")).toBe(refused);
    expect(await as(DIRECT, "bob")).toBe(refused);
    expect(await as(DIRECT, "fay")).toBe(NO_SUCH_DROP);
    expect(await as(FOLLOWERS, "ada")).toBe(true);
    const own = await share(ids[FOLLOWERS] as string, "ada");
    expect(await shown(own, "fay")).toMatchObject([{ visibility: FOLLOWERS, original: { body: "hello" } }]);
    expect(await shown(own, "sam")).toEqual([]);
    expect(await refusal(posts.call.shareDrop({ drop_id: own, user_id: "fay" }))).toBe(refused);
    expect(await refusal(posts.call.shareDrop({ drop_id: own, user_id: "sam" }))).toBe(NO_SUCH_DROP);
    expect(await share(own, "ada")).toBe(own);
    for (const call of [posts.call.shareDrop, posts.call.unshareDrop])
      expect(await refusal(call({ drop_id: v7(), user_id: "ada" }))).toBe(NO_SUCH_DROP);
  });

  test("whoever may not see the original does not see the repost, and nobody does once the original is gone", async () => {
    const original = await post(posts);
    const repost = await share(original);
    // An original never becomes private: this stands for any reason why a viewer may not see it.
    const hide = (visibility: Visibility) =>
      posts.db.query("UPDATE posts.drops SET visibility = $2 WHERE drop_id = $1", [original, visibility]);
    await hide(FOLLOWERS);
    for (const viewer of ["fay", "ada", ""]) {
      expect(await shown(repost, viewer)).toMatchObject([{ drop_id: repost, original: { drop_id: original } }]);
      expect((await posts.call.getDrop({ drop_id: repost, viewer_id: viewer })).drop?.repost_of).toBe(original);
    }
    expect(await shown(repost, "sam")).toEqual([]);
    expect(await refusal(posts.call.getDrop({ drop_id: repost, viewer_id: "sam" }))).toBe(NO_SUCH_DROP);
    await hide(PUBLIC);

    // As a process leaves it that was killed between the tombstone of the original and those of its reposts.
    await posts.db.query("UPDATE posts.drops SET deleted_at = 1 WHERE drop_id = $1", [original]);
    for (const viewer_id of ["", "sam", "bob", "ada"]) {
      expect(await shown(repost, viewer_id)).toEqual([]);
      expect(await refusal(posts.call.getDrop({ drop_id: repost, viewer_id }))).toBe(NO_SUCH_DROP);
    }
    expect(await refusal(posts.call.shareDrop({ drop_id: repost, user_id: "sam" }))).toBe(NO_SUCH_DROP);
    // Its author deletes it all the same, and then it is a tombstone like any other.
    await posts.call.deleteDrop({ drop_id: repost, user_id: "bob" });
    expect((await posts.call.getDrop({ drop_id: repost })).tombstone?.id).toBe(repost);
  });

  test("reposts and other drops are answered together, in the order asked for", async () => {
    const [one, two] = [await post(posts, { body: "one" }), await post(posts, { body: "two" })];
    const [first, second] = [await share(one), await share(two)];
    const { results } = await posts.call.getDrops({ drop_ids: [second, one, first, v7(), second], viewer_id: "sam" });
    expect(results.map(({ drop }) => [drop?.drop_id, drop?.body, drop?.original?.body])).toEqual([
      [second, "", "two"],
      [one, "one", undefined],
      [first, "", "one"],
      [second, "", "two"],
    ]);
  });

  test("no repost is made while too many events wait to be published", async () => {
    const full = await startPosts(posts.db, { isFull: () => true });
    try {
      const sharing = full.call.shareDrop({ drop_id: await post(posts), user_id: "bob" });
      expect(await refusal(sharing)).toMatch(/^RESOURCE_EXHAUSTED/);
    } finally {
      await full.stop();
    }
  });
});
