import { type ServiceError, status } from "@grpc/grpc-js";
import { expect, test } from "@jest/globals";
import { encodeId } from "../../src/kernel/ids.js";
import { describeUsers } from "../support/describe-users.js";
import { madeUpToken } from "../support/page-tokens.js";
import { settle, type UsersClient, wholeList } from "../support/users.js";

const refusal = (call: Promise<unknown>): Promise<ServiceError> =>
  call.then(
    (answer) => Promise.reject(new Error(`it answered ${JSON.stringify(answer)}`)),
    (error: ServiceError) => error,
  );

describeUsers("the users service", { maxFollowing: 50 }, ({ db, users, client }) => {
  const following = (user_id: string) => client.getFollowingList({ user_id });
  const followers = (user_id: string) => client.getFollowersList({ user_id });

  test("a follow shows in the follower's list at once, and in the other's once it is applied", async () => {
    expect(await following("f1")).toEqual({ user_ids: [], next_page_token: "", total_count: 0 });
    const before = Date.now() - 1_000;
    const { changed, version } = await client.follow({ follower_id: "f1", following_id: "t1" });
    expect([changed, version > before]).toEqual([true, true]);
    expect(await following("f1")).toEqual({ user_ids: ["t1"], next_page_token: "", total_count: 1 });
    expect((await followers("t1")).total_count).toBe(0);
    const published = await settle(db, users);
    expect(published.map(({ subject, messageId, key }) => ({ subject, messageId, key }))).toEqual([
      { subject: "edges.calm.t1", messageId: `edge:f1:t1:${version}`, key: "f1:t1" },
      { subject: "graph.followed", messageId: `user_followed:f1:t1:${version}`, key: "f1:t1" },
    ]);
    const [edge, graph] = published.map(({ body }) => JSON.parse(body) as Record<string, unknown>);
    expect(edge).toMatchObject({ follower_id: "f1", following_id: "t1", version, following: true });
    expect(graph).toEqual({ follower_id: "f1", following_id: "t1", version });
    expect(await followers("t1")).toEqual({ user_ids: ["f1"], next_page_token: "", total_count: 1 });
  });

  test("following again, or unfollowing a user who is not followed, changes nothing and writes no event", async () => {
    const first = await client.follow({ follower_id: "f2", following_id: "t2" });
    await settle(db, users);
    expect(await client.follow({ follower_id: "f2", following_id: "t2" })).toEqual({ ...first, changed: false });
    expect(await client.unfollow({ follower_id: "f2", following_id: "nobody" })).toEqual({
      changed: false,
      version: 0,
    });
    const left = await client.unfollow({ follower_id: "f2", following_id: "t2" });
    expect([left.changed, left.version > first.version]).toEqual([true, true]);
    expect(await client.unfollow({ follower_id: "f2", following_id: "t2" })).toEqual({ ...left, changed: false });
    expect((await settle(db, users)).map(({ subject }) => subject)).toEqual(["edges.calm.t2", "graph.unfollowed"]);
    expect(await client.getFollowCounts({ user_id: "f2" })).toEqual({ following: 0, followers: 0 });
    expect(await client.getFollowCounts({ user_id: "t2" })).toEqual({ following: 0, followers: 0 });
  });

  test("ids of any characters are kept apart, and go encoded into subjects", async () => {
    const odd = ["a:b", "{c}", "ünï", "\u{1F600}", "with space", "=b64", "*.>", '"quoted"\\', "timeline:x:users"];
    for (const id of odd) await client.follow({ follower_id: id, following_id: "odd" });
    for (const id of odd) await client.follow({ follower_id: "odd", following_id: id });
    const published = await settle(db, users);
    expect(published.filter(({ subject }) => subject === `edges.calm.${encodeId("*.>")}`)).toHaveLength(1);
    const sorted = [...odd].sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
    expect((await followers("odd")).user_ids).toEqual(sorted);
    expect((await following("odd")).user_ids).toEqual(sorted);
    for (const id of odd) expect((await followers(id)).user_ids).toEqual(["odd"]);
    expect(await wholeList(client.getFollowersList, "odd", 2)).toEqual(sorted);
  });

  test("beyond the limit a follow is refused and leaves nothing, also of many at once", async () => {
    const many = (from: number, count: number) =>
      Array.from({ length: count }, (_, n) => ({ follower_id: "full", following_id: `t${from + n}` }));
    expect(await client.followMany({ follows: many(0, 49) })).toEqual({ changed: 49, pending: 0 });
    const one = await refusal(
      client.followMany({ follows: [{ follower_id: "x", following_id: "y" }, ...many(49, 2)] }),
    );
    expect([one.code, one.details]).toEqual([
      status.RESOURCE_EXHAUSTED,
      "follows.1.following_id: a user can follow at most 50 others",
    ]);
    expect((await following("x")).total_count).toBe(0);
    await client.follow({ follower_id: "full", following_id: "t49" });
    const two = await refusal(client.follow({ follower_id: "full", following_id: "t50" }));
    expect([two.code, two.details]).toEqual([
      status.RESOURCE_EXHAUSTED,
      "following_id: a user can follow at most 50 others",
    ]);
    expect(await client.isFollowing({ follower_id: "full", following_ids: ["t49", "t50"] })).toEqual({
      following: [true, false],
    });
    // Whom one follows already is no more than one may.
    expect(await client.followMany({ follows: many(0, 50) })).toEqual({ changed: 0, pending: 0 });
    await client.unfollow({ follower_id: "full", following_id: "t3" });
    expect((await client.follow({ follower_id: "full", following_id: "t50" })).changed).toBe(true);
    expect((await settle(db, users)).filter(({ subject }) => subject.startsWith("graph."))).toHaveLength(52);
    expect(await client.getFollowCounts({ user_id: "full" })).toEqual({ following: 50, followers: 0 });
  });

  test("many follows at once: existing and repeated pairs are not counted", async () => {
    const pair = (follower_id: string, following_id: string) => ({ follower_id, following_id });
    await client.follow(pair("m1", "m2"));
    const follows = [pair("m1", "m2"), pair("m1", "m3"), pair("m1", "m3"), pair("m4", "m3")];
    expect(await client.followMany({ follows })).toEqual({ changed: 2, pending: 0 });
    expect((await following("m1")).user_ids).toEqual(["m2", "m3"]);
    await settle(db, users);
    expect((await followers("m3")).user_ids).toEqual(["m1", "m4"]);
    expect(await client.followMany({ follows: [] })).toEqual({ changed: 0, pending: 0 });
  });

  test("changes are listed by when they were applied, in pages", async () => {
    for (const user of ["c1", "c2", "c3"]) await client.follow({ follower_id: user, following_id: "changed" });
    await client.unfollow({ follower_id: "c2", following_id: "changed" });
    const since = (await db.query<{ now: number }>("SELECT users.now_ms() AS now"))[0]?.now ?? 0;
    expect((await client.listFollowChanges({ since })).changes).toEqual([]);
    await settle(db, users);
    const all = await client.listFollowChanges({ since });
    expect(all.changes.map(({ follower_id, following }) => `${follower_id} ${following}`).sort()).toEqual([
      "c1 true",
      "c2 false",
      "c3 true",
    ]);
    const first = await client.listFollowChanges({ since, page_size: 2 });
    const second = await client.listFollowChanges({ since, page_size: 2, page_token: first.next_page_token });
    expect([...first.changes, ...second.changes]).toEqual(all.changes);
    expect(second.next_page_token).toBe("");
    expect((await client.listFollowChanges({ since: 0, until: since })).changes).not.toContainEqual(all.changes[0]);
    expect((await client.listFollowChanges({ since: Number.MAX_SAFE_INTEGER })).changes).toEqual([]);
  });

  test("a profile that was set is read, by its prefix, too; no user has one from the start", async () => {
    const before = await refusal(client.getProfile({ user_id: "p/ann" }));
    expect(before.code).toBe(status.NOT_FOUND);
    const profile = { display_name: "Ann \u{1F600}".repeat(20), bio: "é".repeat(1_000), avatar_url: "https://x.org/a" };
    const set = await client.setProfile({ user_id: "p/ann", ...profile });
    expect(set.profile).toMatchObject({ user_id: "p/ann", ...profile });
    expect(await client.getProfile({ user_id: "p/ann" })).toEqual(set);
    await client.setProfile({ user_id: "p/ann", display_name: "Ann" });
    expect((await client.getProfile({ user_id: "p/ann" })).profile).toMatchObject({ display_name: "Ann", bio: "" });
    for (const user_id of ["p/bob", "p", "p/\u{10FFFF}", "q"]) await client.setProfile({ user_id });
    const first = await client.listProfiles({ prefix: "p/", page_size: 2 });
    const second = await client.listProfiles({ prefix: "p/", page_size: 2, page_token: first.next_page_token });
    const found = [...first.profiles, ...second.profiles].map(({ user_id }) => user_id);
    expect([found, second.next_page_token]).toEqual([["p/ann", "p/bob", "p/\u{10FFFF}"], ""]);
    expect((await client.listProfiles({})).profiles.map(({ user_id }) => user_id)).toEqual(
      expect.arrayContaining(["p", "q"]),
    );
  });

  const LONG = "x".repeat(129);
  const many = (count: number) => Array.from({ length: count }, (_, n) => `u${n}`);
  const IDS: [fault: string, id: string][] = [
    ["must not be empty", ""],
    ["must have at most 128 bytes", LONG],
    ["must not contain NUL", "a\u0000b"],
  ];
  const BAD: [method: keyof UsersClient, request: object, details: string][] = [
    ...IDS.flatMap(([fault, id]): [keyof UsersClient, object, string][] => [
      ["getFollowingList", { user_id: id }, `user_id: ${fault}`],
      ["getFollowersList", { user_id: id }, `user_id: ${fault}`],
      ["getFollowCounts", { user_id: id }, `user_id: ${fault}`],
      ["getProfile", { user_id: id }, `user_id: ${fault}`],
      ["setProfile", { user_id: id }, `user_id: ${fault}`],
      ["follow", { follower_id: id, following_id: "b" }, `follower_id: ${fault}`],
      ["follow", { follower_id: "a", following_id: id }, `following_id: ${fault}`],
      ["unfollow", { follower_id: id, following_id: "b" }, `follower_id: ${fault}`],
      ["unfollow", { follower_id: "a", following_id: id }, `following_id: ${fault}`],
      ["isFollowing", { follower_id: id, following_ids: ["b"] }, `follower_id: ${fault}`],
      ["isFollowing", { follower_id: "a", following_ids: ["b", id] }, `following_ids.1: ${fault}`],
      [
        "followMany",
        {
          follows: [
            { follower_id: "bad", following_id: "b" },
            { follower_id: "bad", following_id: id },
          ],
        },
        `follows.1.following_id: ${fault}`,
      ],
      ["followMany", { follows: [{ follower_id: id, following_id: "b" }] }, `follows.0.follower_id: ${fault}`],
    ]),
    ["follow", { follower_id: "a", following_id: "a" }, "following_id: must not be the follower"],
    [
      "followMany",
      { follows: [{ follower_id: "a", following_id: "a" }] },
      "follows.0.following_id: must not be the follower",
    ],
    [
      "followMany",
      { follows: many(1_001).map((following_id) => ({ follower_id: "a", following_id })) },
      "follows: must have at most 1000 entries",
    ],
    ["isFollowing", { follower_id: "a", following_ids: many(1_001) }, "following_ids: must have at most 1000 entries"],
    ["getFollowersList", { user_id: "a", page_size: -1 }, "page_size: must not be negative"],
    ["getFollowersList", { user_id: "a", page_token: "1000" }, "page_token: is not a token of this list"],
    [
      "getFollowersList",
      { user_id: "a", page_token: madeUpToken("following\na", ["b"]) },
      "page_token: is not a token of this list",
    ],
    [
      "getFollowingList",
      { user_id: "a", page_token: madeUpToken("following\nb", ["b"]) },
      "page_token: is not a token of this list",
    ],
    [
      "getFollowingList",
      { user_id: "a", page_token: madeUpToken("following\na", ["\u0000"]) },
      "page_token: is not a token of this list",
    ],
    [
      "getFollowersList",
      { user_id: "a", page_token: madeUpToken("followers\na", ["b"]) },
      "page_token: is not a token of this list",
    ],
    ["listProfiles", { page_token: madeUpToken("profiles\n", ["b"]) }, "page_token: is not a token of this list"],
    [
      "listFollowChanges",
      { page_token: madeUpToken("follow-changes", [1, "b", "c"]) },
      "page_token: is not a token of this list",
    ],
    ["listFollowChanges", { since: -1 }, "since: must be ms since the epoch, not negative"],
    ["listFollowChanges", { until: -1 }, "until: must be ms since the epoch, not negative"],
    ["listFollowChanges", { page_size: -5 }, "page_size: must not be negative"],
    [
      "listFollowChanges",
      { page_token: madeUpToken("follow-changes", [1, 2, 3]) },
      "page_token: is not a token of this list",
    ],
    ["listProfiles", { prefix: "a\u0000" }, "prefix: must not contain NUL"],
    ["listProfiles", { prefix: LONG }, "prefix: must have at most 128 bytes"],
    ["listProfiles", { page_token: "x" }, "page_token: is not a token of this list"],
    ["setProfile", { user_id: "a", display_name: "x".repeat(101) }, "display_name: must have at most 100 characters"],
    ["setProfile", { user_id: "a", display_name: "\u0000" }, "display_name: must not contain NUL"],
    ["setProfile", { user_id: "a", bio: "x".repeat(1_001) }, "bio: must have at most 1000 characters"],
    ["setProfile", { user_id: "a", bio: "a\u0000" }, "bio: must not contain NUL"],
    ["setProfile", { user_id: "a", avatar_url: "ftp://x.org/a" }, "avatar_url: must be an http or https URL"],
    ["setProfile", { user_id: "a", avatar_url: "javascript:alert(1)" }, "avatar_url: must be an http or https URL"],
    ["setProfile", { user_id: "a", avatar_url: "/a.png" }, "avatar_url: must be an http or https URL"],
    [
      "setProfile",
      { user_id: "a", avatar_url: `https://x.org/${"a".repeat(500)}` },
      "avatar_url: must have at most 500 characters",
    ],
  ];

  test("invalid input is refused with the name of its field, and changes nothing", async () => {
    const rows = () =>
      db.query("SELECT (SELECT count(*) FROM users.followings) AS f, (SELECT count(*) FROM users.profiles) AS p");
    const before = await rows();
    for (const [method, request, details] of BAD) {
      const call = client[method] as (request: object) => Promise<unknown>;
      const error = await refusal(call(request));
      expect([method, error.code, error.details]).toEqual([method, status.INVALID_ARGUMENT, details]);
    }
    expect(await rows()).toEqual(before);
  });
});
