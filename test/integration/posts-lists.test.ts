import { beforeEach, expect, test } from "@jest/globals";
import { v7 } from "uuid";
import { Visibility } from "../../src/gen/avion/posts.js";
import { describePostsWithUsers } from "../support/describe-posts-with-users.js";
import { rewritten } from "../support/page-tokens.js";
import { post, refusal } from "../support/posts.js";

const { PUBLIC, UNLISTED, FOLLOWERS, DIRECT } = Visibility;

describePostsWithUsers("lists of posts", (running) => {
  let people = 0;
  let [ada, bob, cid, dan] = ["", "", "", ""];

  beforeEach(() => {
    people++;
    [ada, bob, cid, dan] = [`ada-${people}`, `bob-${people}`, `cid-${people}`, `dan-${people}`];
  });

  const calls = () => running.posts.call;
  const by = (user_id: string, fields: object = {}) => post(running.posts, { user_id, ...fields });
  const postAll = async (fields: object = {}): Promise<string[]> => {
    const ids: string[] = [];
    for (const visibility of [PUBLIC, UNLISTED, FOLLOWERS, DIRECT])
      ids.push(await by(ada, { visibility, recipients: visibility === DIRECT ? [bob] : [], ...fields }));
    return ids;
  };
  const like = (drop_id: string, user_id: string) => calls().likeDrop({ drop_id, user_id });
  const usersOf = (likes: readonly { readonly user_id: string }[]) => likes.map(({ user_id }) => user_id);
  const idsOf = (drops: readonly { readonly drop_id: string }[]) => drops.map(({ drop_id }) => drop_id);
  const likers = async (drop_id: string, viewer_id = "") =>
    usersOf((await calls().listLikes({ drop_id, viewer_id })).likes);
  const liked = async (user_id: string, viewer_id = "") =>
    idsOf((await calls().listUserLikes({ user_id, viewer_id })).likes);
  const dropsOf = async (user_id: string, fields: object = {}) =>
    idsOf((await calls().listUserDrops({ user_id, ...fields })).drops);
  /** Times of likes in one millisecond would be in the order of the ids. */
  const date = (drop_id: string, user_id: string, at: number) =>
    running.posts.db.query("UPDATE posts.reactions SET changed_at = $3 WHERE drop_id = $1 AND actor_id = $2", [
      ...[drop_id, user_id, at],
    ]);
  const insertDrops = (user_id: string, count: number, { above, fields }: { above: string; fields: string }) =>
    running.posts.db.query(
      `INSERT INTO posts.drops
         (drop_id, user_id, visibility, recipients, reply_to, deleted_at, summary, body, updated_at, changed_at)
       SELECT overlay($1::text PLACING lpad(to_hex(n), 12, '0') FROM 25)::uuid, $2, ${fields}, '', 'x', 0, 0
       FROM generate_series(1, $3::integer) n`,
      [above, user_id, count],
    );
  const walk = async <Page extends { readonly next_page_token: string }>(
    read: (page_token: string) => Promise<Page>,
    between: (page: Page) => Promise<unknown> = async () => undefined,
  ): Promise<Page[]> => {
    const pages: Page[] = [];
    for (let token = ""; ; ) {
      const page = await read(token);
      pages.push(page);
      token = page.next_page_token;
      if (token === "") return pages;
      await between(page);
    }
  };

  test("likes and shares are listed newest first, with their times, which a count leaves as they are", async () => {
    const drop_id = await by(ada);
    const started = Date.now();
    for (const user of [bob, cid, ada]) await like(drop_id, user);
    await calls().shareDrop({ drop_id, user_id: cid });
    const { likes } = await calls().listLikes({ drop_id });
    expect(likes.every(({ at }) => Math.abs(at - started) < 60_000)).toBe(true);
    for (const [index, user] of [bob, cid, ada].entries()) await date(drop_id, user, 1_000 + index);
    await running.posts.countAll();
    expect((await calls().listLikes({ drop_id })).likes).toEqual([
      { user_id: ada, at: 1_002 },
      { user_id: cid, at: 1_001 },
      { user_id: bob, at: 1_000 },
    ]);
    expect(usersOf((await calls().listShares({ drop_id })).shares)).toEqual([cid]);
    await like(drop_id, bob);
    expect(await likers(drop_id)).toEqual([ada, cid, bob]);
    await calls().unlikeDrop({ drop_id, user_id: bob });
    expect(await likers(drop_id)).toEqual([ada, cid]);
    await like(drop_id, bob);
    expect(await likers(drop_id)).toEqual([bob, ada, cid]);
    expect(await likers(drop_id, cid)).toEqual([bob, ada, cid]);
  });

  test("likes lack those who block, are blocked or muted, but not whose reposts alone are muted", async () => {
    const drop_id = await by(ada);
    const others = ["blocks", "blocked", "muted", "reposts"].map((name) => `${name}-${people}`) as [
      string,
      ...string[],
    ];
    for (const user of [...others, bob]) await like(drop_id, user);
    const [blocks, blocked, muted, reposts] = others as [string, string, string, string];
    running.world.block(blocks, bob);
    running.world.block(bob, blocked);
    running.world.mute(bob, muted);
    running.world.mute(bob, reposts, true);
    running.world.mute(bob, ada);
    expect(new Set(await likers(drop_id, bob))).toEqual(new Set([reposts, bob]));
    expect(new Set(await likers(drop_id, cid))).toEqual(new Set([...others, bob]));
    expect(new Set(await likers(drop_id))).toEqual(new Set([...others, bob]));
  });

  test("likes are for those who may see the drop; a deleted one has none", async () => {
    const [drop_id] = [await by(ada, { visibility: FOLLOWERS })];
    await like(drop_id, ada);
    const [asks, token] = [(viewer_id: string) => calls().listLikes({ drop_id, viewer_id }), { drop_id: v7() }];
    expect(await refusal(asks(cid))).toBe("NOT_FOUND drop_id: there is no such drop");
    expect(await refusal(calls().listShares({ drop_id, viewer_id: cid }))).toMatch(/^NOT_FOUND/);
    expect(await refusal(calls().listLikes(token))).toMatch(/^NOT_FOUND/);
    running.world.follow(cid, ada);
    for (const viewer of [cid, ada, ""]) expect(await likers(drop_id, viewer)).toEqual([ada]);
    await calls().deleteDrop({ drop_id, user_id: ada });
    expect(await asks(ada)).toEqual({ likes: [], next_page_token: "" });
    expect(await liked(ada, ada)).toEqual([]);
  });

  test("pages of likes are full, however many hidden people stand between, and end exactly", async () => {
    const drop_id = await by(ada);
    const likedBy = (name: string, count: number, from: number) =>
      running.posts.db.query(
        `INSERT INTO posts.reactions (drop_id, kind, actor_id, active, version, changed_at)
         SELECT $1, 'like', $2 || n, true, 1, $4::bigint + n FROM generate_series(1, $3::integer) n`,
        [drop_id, `${name}-${people}-`, count, from],
      );
    await likedBy("old", 5, 0);
    await likedBy("hidden", 2_500, 10);
    await likedBy("new", 4, 10_000);
    for (let n = 1; n <= 2_500; n++) running.world.mute(bob, `hidden-${people}-${n}`);
    const pages = await walk((page_token) => calls().listLikes({ drop_id, viewer_id: bob, page_size: 3, page_token }));
    expect(pages.map(({ likes }) => likes.map(({ at }) => at))).toEqual([
      [10_004, 10_003, 10_002],
      [10_001, 5, 4],
      [3, 2, 1],
    ]);
    const whole = await walk((page_token) => calls().listLikes({ drop_id, page_size: 5_000, page_token }));
    expect(whole.map(({ likes }) => likes.length)).toEqual([1_000, 1_000, 509]);
    expect((await calls().listLikes({ drop_id })).likes).toHaveLength(100);
  });

  test("paging lists each like once while likes come and go, and none twice", async () => {
    const drop_id = await by(ada);
    const names = Array.from({ length: 20 }, (_, n) => `u${n}-${people}`);
    for (const [index, name] of names.entries()) {
      await like(drop_id, name);
      await date(drop_id, name, 1_000 + (index >> 1));
    }
    let [step, gone] = [0, [] as string[]];
    const pages = await walk(
      (page_token) => calls().listLikes({ drop_id, page_size: 4, page_token }),
      async ({ likes }) => {
        const last = likes.at(-1)?.user_id as string;
        await calls().unlikeDrop({ drop_id, user_id: last });
        await like(drop_id, `later${step++}-${people}`);
        const next = names[names.length - 1 - 4 * step] as string;
        if (!likes.some(({ user_id }) => user_id === next)) {
          await calls().unlikeDrop({ drop_id, user_id: next });
          gone = [...gone, next];
        }
      },
    );
    const seen = pages.flatMap(({ likes }) => usersOf(likes));
    expect(new Set(seen).size).toBe(seen.length);
    expect(names.filter((name) => !gone.includes(name) && !seen.includes(name))).toEqual([]);
    expect(seen.filter((name) => name.startsWith("later"))).toEqual([]);
  });

  test("what a user likes and shares is listed as far as the viewer may see it", async () => {
    const ids = await postAll();
    const [open, unlisted, followers, direct] = ids as [string, string, string, string];
    const [gone, own] = [await by(cid), await by(dan, { visibility: FOLLOWERS })];
    for (const [index, drop_id] of [...ids, gone, own].entries()) {
      await like(drop_id, dan);
      await date(drop_id, dan, 1_000 + index);
    }
    await calls().shareDrop({ drop_id: open, user_id: dan });
    await calls().deleteDrop({ drop_id: gone, user_id: cid });
    running.world.follow(cid, ada);
    expect(await liked(dan)).toEqual([unlisted, open]);
    expect(await liked(dan, bob)).toEqual([direct, unlisted, open]);
    expect(await liked(dan, cid)).toEqual([followers, unlisted, open]);
    expect(await liked(dan, ada)).toEqual([direct, followers, unlisted, open]);
    expect(await liked(dan, dan)).toEqual([own, unlisted, open]);
    expect((await calls().listUserLikes({ user_id: dan })).likes[0]).toEqual({ drop_id: unlisted, at: 1_001 });
    expect(idsOf((await calls().listUserShares({ user_id: dan, viewer_id: bob })).shares)).toEqual([open]);
    running.world.block(ada, bob);
    expect(await liked(dan, bob)).toEqual([]);
    running.world.mute(cid, dan);
    running.world.mute(cid, ada);
    expect(await liked(dan, cid)).toEqual([followers, unlisted, open]);
    running.world.block(dan, cid);
    expect(await calls().listUserLikes({ user_id: dan, viewer_id: cid })).toEqual({ likes: [], next_page_token: "" });
    expect(idsOf((await calls().listUserShares({ user_id: dan, viewer_id: cid })).shares)).toEqual([]);
  });

  test("pages of a user's likes are full over deleted drops and those that the viewer may not see", async () => {
    const above = v7({ msecs: Date.now() - 1_000 });
    await by(ada);
    await insertDrops(ada, 2_400, {
      above,
      fields: "CASE n % 3 WHEN 0 THEN 1 ELSE 4 END, '{}', NULL, CASE n % 2 WHEN 0 THEN NULL ELSE 5 END",
    });
    await running.posts.db.query(
      `INSERT INTO posts.reactions (drop_id, kind, actor_id, active, version, changed_at)
       SELECT drop_id, 'like', $2, true, 1, 7 FROM posts.drops WHERE user_id = $1`,
      [ada, dan],
    );
    const pages = await walk((page_token) =>
      calls().listUserLikes({ user_id: dan, viewer_id: bob, page_size: 150, page_token }),
    );
    expect(pages.map(({ likes }) => likes.length)).toEqual([150, 150, 101]);
    const found = pages.flatMap(({ likes }) => idsOf(likes));
    expect(found).toEqual([...new Set(found)].sort().reverse());
  });

  test("a user's drops are listed newest first, replies only if asked for, as the viewer may see them", async () => {
    const ids = await postAll();
    const parent = await by(cid);
    const reply = await by(ada, { reply_to: parent });
    const gone = await by(ada);
    await calls().deleteDrop({ drop_id: gone, user_id: ada });
    running.world.follow(cid, ada);
    const [open, unlisted, followers, direct] = ids as [string, string, string, string];
    expect(await dropsOf(ada)).toEqual([unlisted, open]);
    expect(await dropsOf(ada, { replies: true })).toEqual([reply, unlisted, open]);
    expect(await dropsOf(ada, { viewer_id: bob, replies: true })).toEqual([reply, direct, unlisted, open]);
    expect(await dropsOf(ada, { viewer_id: cid })).toEqual([followers, unlisted, open]);
    expect(await dropsOf(ada, { viewer_id: ada })).toEqual([direct, followers, unlisted, open]);
    expect(await dropsOf(dan)).toEqual([]);
    const { drops } = await calls().listUserDrops({ user_id: ada, page_size: 1 });
    expect(drops).toEqual([(await calls().getDrop({ drop_id: unlisted })).drop]);
  });

  test("pages of a user's drops are full over 12,000 replies and direct drops to others", async () => {
    const at = Date.now() - 10_000;
    const old: string[] = [];
    for (let n = 0; n < 3; n++) old.unshift(await by(ada, { created_at: at - 10 + n }));
    await insertDrops(ada, 12_000, {
      above: v7({ msecs: at }),
      fields: `CASE n % 2 WHEN 0 THEN 1 ELSE 4 END, '{}', CASE n % 2 WHEN 0 THEN 'https://far.example/1' END, NULL`,
    });
    const young = await by(ada);
    const pages = await walk((page_token) =>
      calls().listUserDrops({ user_id: ada, viewer_id: bob, page_size: 2, page_token }),
    );
    expect(pages.map(({ drops }) => idsOf(drops))).toEqual([[young, old[0]], old.slice(1)]);
    expect(await dropsOf(ada, { replies: true, page_size: 1_000 })).toHaveLength(100);
    running.world.block(bob, ada);
    const next = { user_id: ada, viewer_id: bob, page_size: 2, page_token: pages[0]?.next_page_token as string };
    expect(await calls().listUserDrops(next)).toEqual({ drops: [], items: [], next_page_token: "" });
  });

  test("paging a user's drops sees each drop once while drops come and go", async () => {
    const there: string[] = [];
    for (let n = 0; n < 12; n++) there.unshift(await by(ada));
    const pages = await walk(
      (page_token) => calls().listUserDrops({ user_id: ada, page_size: 3, page_token }),
      async ({ drops }) => {
        await by(ada);
        await calls().deleteDrop({ drop_id: drops.at(-1)?.drop_id as string, user_id: ada });
      },
    );
    expect(pages.flatMap(({ drops }) => idsOf(drops))).toEqual(there);
  });

  // Invariant 6.
  test("a token of another list, person or viewer, and any other text, is refused", async () => {
    const drop_id = await by(ada);
    await by(ada);
    for (const user of [bob, cid]) await like(drop_id, user);
    const { next_page_token } = await calls().listLikes({ drop_id, page_size: 1 });
    const ofUser = (await calls().listUserDrops({ user_id: ada, page_size: 1 })).next_page_token;
    expect([next_page_token, ofUser]).not.toContain("");
    for (const page_token of rewritten(next_page_token))
      expect(await refusal(calls().listLikes({ drop_id, page_token }))).toMatch(/^INVALID_ARGUMENT page_token/);
    for (const call of [
      calls().listLikes({ drop_id, viewer_id: dan, page_token: next_page_token }),
      calls().listShares({ drop_id, page_token: next_page_token }),
      calls().listUserLikes({ user_id: bob, page_token: next_page_token }),
      calls().listUserDrops({ user_id: bob, page_token: ofUser }),
      calls().listUserDrops({ user_id: ada, replies: true, page_token: ofUser }),
      calls().listUserDrops({ user_id: ada, reposts: true, page_token: ofUser }),
    ])
      expect(await refusal(call)).toMatch(/^INVALID_ARGUMENT page_token/);
  });
});
