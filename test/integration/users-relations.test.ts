import { status } from "@grpc/grpc-js";
import { beforeEach, expect, test } from "@jest/globals";
import { RelationKind } from "../../src/gen/avion/users.js";
import { createRelationStore } from "../../src/users/relations.sql.js";
import { describeUsers } from "../support/describe-users.js";
import { eventually } from "../support/eventually.js";
import { refusal } from "../support/grpc.js";
import { madeUpToken } from "../support/page-tokens.js";
import { settle, type UsersClient } from "../support/users.js";

const FAR = Date.now() + 86_400_000;

describeUsers("blocks and mutes", { maxRelations: 4 }, ({ db, redis, users, client }) => {
  beforeEach(async () => {
    await db.run("TRUNCATE users.relations, users.followings, users.following_counts, users.followers, public.outbox");
    await db.run("TRUNCATE users.follower_counts");
    await redis.raw.flushall();
  });

  const ab = { user_id: "a", target_id: "b" };
  const NONE = { following: false, followed_by: false, blocking: false, blocked_by: false, muting: false };
  const relation = (target_id: string, stated = {}) => ({
    ...{ target_id, ...NONE, mute_reposts_only: false, mute_expires_at: 0, requested: false },
    ...stated,
  });
  const between = async (user_id: string, ...target_ids: string[]) =>
    (await client.getRelations({ user_id, target_ids })).relations;
  const hidden = async (user_id: string) => (await client.getHidden({ user_id })).hidden;
  const follows = async (follower_id: string, following_id: string) =>
    (await client.follow({ follower_id, following_id })).changed;
  /** Lets the end of all mutes come, without ending them. */
  const letMutesEnd = () => db.query("UPDATE users.relations SET expires_at = 1 WHERE expires_at > 0");

  test("a change is told once, with a version that rises, and repeating it changes nothing", async () => {
    const before = Date.now() - 1_000;
    expect(await client.unblock(ab)).toEqual({ changed: false, version: 0 });
    const blocked = await client.block(ab);
    expect([blocked.changed, blocked.version > before]).toEqual([true, true]);
    expect(await client.block(ab)).toEqual({ ...blocked, changed: false });
    const unblocked = await client.unblock(ab);
    expect([unblocked.changed, unblocked.version > blocked.version]).toEqual([true, true]);
    expect(await client.unblock(ab)).toEqual({ ...unblocked, changed: false });
    const muted = await client.mute(ab);
    expect(await client.mute({ ...ab, expires_at: 0, reposts_only: false })).toEqual({ ...muted, changed: false });
    const until = await client.mute({ ...ab, expires_at: FAR });
    const reposts = await client.mute({ ...ab, expires_at: FAR, reposts_only: true });
    expect([until.changed, reposts.changed]).toEqual([true, true]);
    expect([muted.version < until.version, until.version < reposts.version]).toEqual([true, true]);
    const unmuted = await client.unmute(ab);
    const published = await settle(db, users);
    const events = published.map(({ subject, messageId, key, body }) => [subject, messageId, key, JSON.parse(body)]);
    const told = (event: string, kind: string, { version }: { version: number }, options = {}) => [
      `graph.${event}`,
      `user_${event}:a:b:${version}`,
      `${kind}:a:b`,
      { ...ab, version, expires_at: 0, reposts_only: false, ...options },
    ];
    expect(events).toEqual([
      told("blocked", "block", blocked),
      told("muted", "mute", muted),
      told("unblocked", "block", unblocked),
      told("muted", "mute", until, { expires_at: FAR }),
      told("muted", "mute", reposts, { expires_at: FAR, reposts_only: true }),
      told("unmuted", "mute", unmuted),
    ]);
  });

  test("the URI of an actor is one id, however it is spelled, and keeps a spelling that is stored", async () => {
    const [eve, other] = ["https://far.example/users/eve", "HTTPS://Far.example:443/users/%65ve"];
    expect((await client.follow({ follower_id: "a", following_id: other })).changed).toBe(true);
    expect((await client.follow({ follower_id: "a", following_id: eve })).changed).toBe(false);
    expect((await client.followMany({ follows: [{ follower_id: other, following_id: "b" }] })).changed).toBe(1);
    await settle(db, users);
    expect((await client.getFollowersList({ user_id: other })).user_ids).toEqual(["a"]);
    expect((await client.getFollowersList({ user_id: "b" })).user_ids).toEqual([eve]);
    await client.mute({ user_id: "b", target_id: other });
    expect((await client.getRelations({ user_id: "b", target_ids: [eve] })).relations[0]?.muting).toBe(true);
    expect((await client.block({ user_id: other, target_id: "a" })).changed).toBe(true);
    expect((await client.isFollowing({ follower_id: "a", following_ids: [eve, other] })).following).toEqual([
      false,
      false,
    ]);
    const old = "https://Old.example/users/ann";
    await db.query(
      "INSERT INTO users.followings (follower_id, following_id, version, active, changed_at) VALUES ('c', $1, 1, true, 1)",
      [old],
    );
    expect((await client.unfollow({ follower_id: "c", following_id: old })).changed).toBe(true);
  });

  test("a block ends the follows in both directions, and forbids new ones until it ends", async () => {
    await client.followMany({
      follows: [
        { follower_id: "a", following_id: "b" },
        { follower_id: "b", following_id: "a" },
        { follower_id: "b", following_id: "c" },
      ],
    });
    await settle(db, users);
    expect((await client.getFollowersList({ user_id: "a" })).user_ids).toEqual(["b"]);
    await client.block(ab);
    expect((await client.getFollowingList({ user_id: "a" })).user_ids).toEqual([]);
    expect((await client.getFollowingList({ user_id: "b" })).user_ids).toEqual(["c"]);
    const published = await settle(db, users);
    expect(published.map(({ subject }) => subject).sort()).toEqual([
      ...["edges.calm.a", "edges.calm.b", "graph.blocked", "graph.unfollowed", "graph.unfollowed"],
    ]);
    expect(await client.getFollowCounts({ user_id: "a" })).toEqual({ following: 0, followers: 0 });
    expect(await client.getFollowCounts({ user_id: "b" })).toEqual({ following: 1, followers: 0 });
    const refused = [status.FAILED_PRECONDITION, "following_id: one of the two users blocks the other"];
    expect(await refusal(client.follow({ follower_id: "a", following_id: "b" }))).toEqual(refused);
    expect(await refusal(client.follow({ follower_id: "b", following_id: "a" }))).toEqual(refused);
    // A block of each: both have to end.
    await client.block({ user_id: "b", target_id: "a" });
    await client.unblock(ab);
    expect(await refusal(client.follow({ follower_id: "a", following_id: "b" }))).toEqual(refused);
    await client.unblock({ user_id: "b", target_id: "a" });
    expect((await client.getFollowingList({ user_id: "a" })).user_ids).toEqual([]);
    expect([await follows("a", "b"), await follows("b", "a")]).toEqual([true, true]);
  });

  test("many follows at once are refused as a whole where one is between blocked users", async () => {
    await client.block(ab);
    await settle(db, users);
    const others = ["c", "d"].map((following_id) => ({ follower_id: "b", following_id }));
    expect(await refusal(client.followMany({ follows: [...others, { follower_id: "b", following_id: "a" }] }))).toEqual(
      [status.FAILED_PRECONDITION, "follows.2.following_id: one of the two users blocks the other"],
    );
    expect(await client.getFollowCounts({ user_id: "b" })).toEqual({ following: 0, followers: 0 });
    expect(await settle(db, users)).toEqual([]);
    expect(await client.followMany({ follows: others })).toEqual({ changed: 2, pending: 0 });
  });

  test("follows that share a statement with a refused one are set", async () => {
    await client.block(ab);
    const some = Array.from({ length: 20 }, (_, n) => [`u${n}`, "star"] as const);
    const set = await Promise.allSettled([...some, ["b", "a"] as const].map(([from, to]) => follows(from, to)));
    expect(set.map((one) => one.status)).toEqual([...some.map(() => "fulfilled"), "rejected"]);
    expect(await client.unfollow({ follower_id: "b", following_id: "a" })).toMatchObject({ changed: false });
  });

  test("relations are told in the order asked for, once for each time", async () => {
    await follows("a", "b");
    await follows("c", "a");
    await client.mute({ user_id: "a", target_id: "c", expires_at: FAR, reposts_only: true });
    await client.block({ user_id: "a", target_id: "d" });
    await client.block({ user_id: "e", target_id: "a" });
    await client.mute({ user_id: "f", target_id: "a" });
    expect(await between("a", "c", "b", "nobody", "d", "e", "f", "c", "a")).toEqual([
      relation("c", { followed_by: true, muting: true, mute_reposts_only: true, mute_expires_at: FAR }),
      relation("b", { following: true }),
      relation("nobody"),
      relation("d", { blocking: true }),
      relation("e", { blocked_by: true }),
      relation("f"),
      relation("c", { followed_by: true, muting: true, mute_reposts_only: true, mute_expires_at: FAR }),
      relation("a"),
    ]);
    expect(await between("a")).toEqual([]);
  });

  test("hidden are those who are blocked, who block and who are muted, each once and as strongly as it goes", async () => {
    await client.mute({ user_id: "a", target_id: "both", expires_at: FAR, reposts_only: true });
    await client.block({ user_id: "a", target_id: "both" });
    await client.block({ user_id: "blocker", target_id: "a" });
    await client.mute({ user_id: "a", target_id: "blocker" });
    await client.block({ user_id: "both", target_id: "a" });
    await client.mute({ user_id: "a", target_id: "muted", expires_at: FAR, reposts_only: true });
    await client.mute({ user_id: "muter", target_id: "a" });
    const blocked = { reposts_only: false, expires_at: 0, blocked: true };
    expect(await hidden("a")).toEqual([
      { target_id: "blocker", ...blocked },
      { target_id: "both", ...blocked },
      { target_id: "muted", reposts_only: true, expires_at: FAR, blocked: false },
    ]);
    expect(await hidden("both")).toEqual([{ target_id: "a", ...blocked }]);
    await client.unblock({ user_id: "a", target_id: "both" });
    await client.unblock({ user_id: "both", target_id: "a" });
    expect((await hidden("a"))[1]).toEqual({ target_id: "both", reposts_only: true, expires_at: FAR, blocked: false });
    expect(await hidden("both")).toEqual([]);
  });

  test("whom many users hide is one answer, which leaves out a user who has more than 100 hidden", async () => {
    await client.mute({ ...ab, reposts_only: true });
    for (const [user, count] of [
      ["full", 100],
      ["fuller", 101],
      ["fullest", 20_000],
    ])
      await db.query(
        `INSERT INTO users.relations (user_id, target_id, kind, version, active, expires_at, reposts_only, created_at, changed_at)
         SELECT 's' || n, $1, 1, 1, true, 0, false, 1, 1 FROM generate_series(1, $2::int) AS n`,
        [user, count],
      );
    const { users: answers } = await client.getHiddenOfMany({ user_ids: ["fullest", "a", "fuller", "full", "b", "a"] });
    expect(answers.map(({ user_id, hidden }) => [user_id, hidden.length])).toEqual([
      ["a", 1],
      ["full", 100],
      ["b", 0],
    ]);
    expect(answers[0]?.hidden).toEqual(await hidden("a"));
    expect(await client.getHiddenOfMany({ user_ids: [] })).toEqual({ users: [] });
  });

  test("lists have blocks and mutes apart, newest first; a change of a mute keeps its place", async () => {
    for (const target_id of ["x", "y", "z"]) {
      await client.mute({ user_id: "a", target_id });
      await eventually(async () => {
        const [row] = await db.query<{ past: boolean }>(
          "SELECT users.now_ms() > max(created_at) AS past FROM users.relations",
        );
        return row?.past === true;
      }, "the next one is newer");
    }
    await client.block({ user_id: "a", target_id: "x" });
    const { mutes } = await client.listMutes({ user_id: "a" });
    expect(mutes.map(({ target_id }) => target_id)).toEqual(["z", "y", "x"]);
    await client.mute({ user_id: "a", target_id: "x", expires_at: FAR, reposts_only: true });
    expect((await client.listMutes({ user_id: "a" })).mutes).toEqual([
      ...mutes.slice(0, 2),
      { ...mutes[2], expires_at: FAR, reposts_only: true },
    ]);
    const { blocks } = await client.listBlocks({ user_id: "a" });
    expect(blocks).toEqual([{ target_id: "x", created_at: expect.any(Number), expires_at: 0, reposts_only: false }]);
    await client.unblock({ user_id: "a", target_id: "x" });
    expect((await client.listBlocks({ user_id: "a" })).blocks).toEqual([]);
  });

  test("a mute that has ended counts as none before it is ended, and muting again is a change", async () => {
    const muted = await client.mute({ ...ab, expires_at: FAR });
    await letMutesEnd();
    expect(await between("a", "b")).toEqual([relation("b")]);
    expect([await hidden("a"), (await client.listMutes({ user_id: "a" })).mutes]).toEqual([[], []]);
    expect(await client.unmute(ab)).toEqual({ ...muted, changed: false });
    for (const target_id of ["c", "d", "e"]) await client.mute({ user_id: "a", target_id });
    const again = await client.mute({ ...ab, expires_at: FAR });
    expect([again.changed, again.version > muted.version]).toEqual([true, true]);
    expect(await refusal(client.block({ user_id: "a", target_id: "f" }))).toEqual([
      status.RESOURCE_EXHAUSTED,
      "target_id: a user can block and mute at most 4 others",
    ]);
  });

  test("the end of a mute is an event, and a change with a new version", async () => {
    const { endMutes } = createRelationStore(db);
    const muted = await client.mute({ ...ab, expires_at: FAR, reposts_only: true });
    await client.mute({ user_id: "a", target_id: "kept" });
    await settle(db, users);
    expect(await endMutes(10)).toBe(0);
    await letMutesEnd();
    expect([await endMutes(10), await endMutes(10)]).toEqual([1, 0]);
    const [ended, ...more] = await settle(db, users);
    const { version } = JSON.parse(ended?.body ?? "{}") as { version: number };
    expect([ended, more, version > muted.version]).toMatchObject([
      { messageId: `user_unmuted:a:b:${version}` },
      [],
      true,
    ]);
    expect(JSON.parse(ended?.body ?? "")).toEqual({ ...ab, version, expires_at: 0, reposts_only: false });
    expect(await client.unmute(ab)).toEqual({ changed: false, version });
  });

  test("blocks and mutes together are bounded; ending one makes room, and changing one needs none", async () => {
    for (const target_id of ["1", "2"]) await client.block({ user_id: "a", target_id });
    for (const target_id of ["1", "3"]) await client.mute({ user_id: "a", target_id });
    const full = [status.RESOURCE_EXHAUSTED, "target_id: a user can block and mute at most 4 others"];
    expect(await refusal(client.mute({ user_id: "a", target_id: "4" }))).toEqual(full);
    expect(await refusal(client.block({ user_id: "a", target_id: "3" }))).toEqual(full);
    expect((await client.mute({ user_id: "a", target_id: "3", expires_at: FAR })).changed).toBe(true);
    expect((await client.block({ user_id: "4", target_id: "a" })).changed).toBe(true);
    await client.unblock({ user_id: "a", target_id: "1" });
    const raced = await Promise.allSettled(
      ["5", "6", "7"].map((target_id) => client.block({ user_id: "a", target_id })),
    );
    expect(raced.filter((one) => one.status === "fulfilled")).toHaveLength(1);
  });

  test("changes of both kinds are listed by their time, also those that are not active any more", async () => {
    const pages = async (since: number, until = 0) => {
      const found = [];
      for (let page_token = ""; ; ) {
        const page = await client.listRelationChanges({ since, until, page_size: 1, page_token });
        found.push(...page.changes);
        page_token = page.next_page_token;
        if (page_token === "") return found;
      }
    };
    const since = Date.now() - 60_000;
    const { version } = await client.mute({ ...ab, expires_at: FAR, reposts_only: true });
    await client.block({ user_id: "c", target_id: "d" });
    const ended = await client.unblock({ user_id: "c", target_id: "d" });
    const mute = { ...ab, kind: RelationKind.MUTE, version, active: true, expires_at: FAR, reposts_only: true };
    const found = await pages(since);
    expect(found).toMatchObject([
      mute,
      { user_id: "c", target_id: "d", kind: RelationKind.BLOCK, version: ended.version, active: false, expires_at: 0 },
    ]);
    const [first, second] = found.map(({ changed_at }) => changed_at) as [number, number];
    expect(await pages(second + 1)).toEqual([]);
    expect(await pages(since, first)).toEqual([]);
    expect((await pages(first, second + 1)).length).toBe(2);
  });

  const IDS: [fault: string, id: string][] = [
    ["must not be empty", ""],
    ["must have at most 128 bytes", "x".repeat(129)],
    ["must not contain NUL", "a\u0000b"],
  ];
  const LISTS = ["listBlocks", "listMutes", "getHidden", "listFollowing", "listFollowers"] as const;
  const many = Array.from({ length: 1_001 }, (_, n) => `u${n}`);
  const BAD: [method: keyof UsersClient, request: object, details: string][] = [
    ...(["block", "unblock", "mute", "unmute"] as const).flatMap((method): [keyof UsersClient, object, string][] => [
      [method, { user_id: "a", target_id: "a" }, "target_id: must not be the user"],
      ...IDS.flatMap(([fault, id]): [keyof UsersClient, object, string][] => [
        [method, { ...ab, user_id: id }, `user_id: ${fault}`],
        [method, { ...ab, target_id: id }, `target_id: ${fault}`],
      ]),
    ]),
    ...LISTS.flatMap((method): [keyof UsersClient, object, string][] => [
      ...IDS.map(([fault, id]): [keyof UsersClient, object, string] => [method, { user_id: id }, `user_id: ${fault}`]),
      [method, { user_id: "a", page_size: -1 }, "page_size: must not be negative"],
      [
        method,
        { user_id: "a", page_token: madeUpToken("hidden\na", ["b"]) },
        "page_token: is not a token of this list",
      ],
    ]),
    ["mute", { ...ab, expires_at: 1 }, "expires_at: must be 0 or in the future"],
    ["mute", { ...ab, expires_at: Date.now() - 1_000 }, "expires_at: must be 0 or in the future"],
    ["mute", { ...ab, expires_at: -1 }, "expires_at: must be ms since the epoch, not negative"],
    ["getRelations", { user_id: "", target_ids: ["b"] }, "user_id: must not be empty"],
    ["getRelations", { user_id: "a", target_ids: ["b", ""] }, "target_ids.1: must not be empty"],
    ["getHiddenOfMany", { user_ids: ["a", ""] }, "user_ids.1: must not be empty"],
    ["getHiddenOfMany", { user_ids: many }, "user_ids: must have at most 256 entries"],
    ["getRelations", { user_id: "a", target_ids: many }, "target_ids: must have at most 1000 entries"],
    ["listRelationChanges", { since: -1 }, "since: must be ms since the epoch, not negative"],
    ["listRelationChanges", { until: -1 }, "until: must be ms since the epoch, not negative"],
    ["listRelationChanges", { page_token: "x" }, "page_token: is not a token of this list"],
  ];

  test("invalid input is refused with the name of its field, and changes nothing", async () => {
    for (const [method, request, details] of BAD) {
      const call = client[method] as (request: object) => Promise<unknown>;
      expect([method, ...(await refusal(call(request)))]).toEqual([method, status.INVALID_ARGUMENT, details]);
    }
    expect(await db.query("SELECT FROM users.relations")).toEqual([]);
  });
});
