import { status } from "@grpc/grpc-js";
import { afterEach, beforeEach, expect, test } from "@jest/globals";
import type { Loop } from "../../src/kernel/loop.js";
import { createApprovalStore } from "../../src/users/approvals.sql.js";
import { describeUsers } from "../support/describe-users.js";
import { becomes, eventually } from "../support/eventually.js";
import { refusal } from "../support/grpc.js";
import { heldProcess, settle, type UsersProcess, usersProcess, WRONG_LISTS } from "../support/users.js";

const EVE = "https://far.example/users/eve";
const MOST = 5;

describeUsers("approval of followers", { emptied: true, maxFollowing: MOST }, ({ db, redis, users, client }, name) => {
  const loops: Loop[] = [];

  beforeEach(() => client.setProfile({ user_id: "star", approves_followers: true }));
  afterEach(() => Promise.all(loops.splice(0).map((loop) => loop.close())));

  const pair = (follower_id: string, following_id = "star") => ({ follower_id, following_id });
  const answer = (follower_id: string, user_id = "star") => ({ user_id, follower_id });
  const requests = async (user_id = "star") =>
    (await client.listFollowRequests({ user_id })).requests.map((request) => request.user_id);
  const followers = async (user_id = "star") => {
    await settle(db, users);
    return (await client.getFollowersList({ user_id })).user_ids;
  };
  const relation = async (user_id: string, target_id = "star") => {
    const [found] = (await client.getRelations({ user_id, target_ids: [target_id] })).relations;
    return { following: found?.following, requested: found?.requested };
  };
  const graphEvents = async () =>
    (await settle(db, users)).flatMap(({ subject, key }) =>
      subject.startsWith("graph.") ? [`${subject} ${key}`] : [],
    );
  const switchOff = (user_id = "star") => client.setProfile({ user_id, approves_followers: false });
  const begin = (process: UsersProcess = users): Loop => {
    const loop = process.accepting();
    loops.push(loop);
    return loop;
  };
  /** Makes requests of many users as a process writes them. */
  const insertRequests = (count: number, user_id = "star") =>
    db.query(
      `INSERT INTO users.followings (follower_id, following_id, version, active, changed_at, requested_at)
       SELECT 'u' || n, $1, 1, false, n, n FROM generate_series(1, $2::int) AS n`,
      [user_id, count],
    );

  /** The outbox holds nothing but events of requests, for the followed user alone. */
  const told = async (): Promise<string[]> => {
    const rows = await db.query<{ source: string; subject: string; owner: string; active: boolean }>(
      "SELECT source, subject, owner, (body::jsonb -> 'active')::boolean AS active FROM public.outbox ORDER BY id",
    );
    return rows.map(({ source, subject, owner, active }) => `${source} ${subject} ${owner} ${active}`);
  };
  const [ASKED, ENDED] = [true, false].map((active) => `requests activity.requested star ${active}`);

  test("a follow waits for its approval: no edge, no event but that of the request, and nothing in a list but the requests", async () => {
    const asked = await client.follow(pair("a"));
    expect(asked).toMatchObject({ changed: true, pending: true });
    expect(await client.follow(pair("a"))).toEqual({ ...asked, changed: false });
    expect(await graphEvents()).toEqual([]);
    expect(await told()).toEqual([ASKED]);
    expect((await client.getFollowingList({ user_id: "a" })).user_ids).toEqual([]);
    expect((await client.listFollowing({ user_id: "a" })).follows).toEqual([]);
    expect(await followers()).toEqual([]);
    expect((await client.isFollowing({ follower_id: "a", following_ids: ["star"] })).following).toEqual([false]);
    expect(await client.getFollowCounts({ user_id: "a" })).toEqual({ following: 0, followers: 0 });
    expect(await relation("a")).toEqual({ following: false, requested: true });
    expect(await relation("star", "a")).toEqual({ following: false, requested: false });
    expect(await requests()).toEqual(["a"]);
    const accepted = await client.acceptFollow(answer("a"));
    expect([accepted.changed, accepted.version > asked.version]).toEqual([true, true]);
    expect(await client.acceptFollow(answer("a"))).toEqual({ ...accepted, changed: false });
    expect(await client.follow(pair("a"))).toEqual({ changed: false, pending: false, version: accepted.version });
    expect((await client.getFollowingList({ user_id: "a" })).user_ids).toEqual(["star"]);
    expect(await graphEvents()).toEqual(["graph.followed a:star"]);
    expect(await followers()).toEqual(["a"]);
    expect(await relation("a")).toEqual({ following: true, requested: false });
    expect([await requests(), await db.query(WRONG_LISTS)]).toEqual([[], []]);
  });

  test("a request that is rejected or taken back is gone without an event of the graph, and may be made again", async () => {
    for (const end of [
      () => client.rejectFollow(answer("a")),
      () => client.removeFollower(answer("a")),
      () => client.unfollow(pair("a")),
    ]) {
      expect(await client.follow(pair("a"))).toMatchObject({ changed: true, pending: true });
      expect(await end()).toMatchObject({ changed: true });
      expect(await end()).toMatchObject({ changed: false });
      expect(await requests()).toEqual([]);
      expect(await relation("a")).toEqual({ following: false, requested: false });
      expect(await client.acceptFollow(answer("a"))).toMatchObject({ changed: false });
    }
    expect(await told()).toEqual([ASKED, ENDED, ASKED, ENDED, ASKED, ENDED]);
    expect(await client.rejectFollow(answer("nobody"))).toEqual({ changed: false, version: 0 });
    expect(await client.acceptFollow(answer("nobody"))).toEqual({ changed: false, version: 0 });
  });

  test("the followed user can remove a follower, and a rejection ends a follow that was accepted", async () => {
    await client.follow(pair("a", "open"));
    await client.follow(pair("a"));
    await client.acceptFollow(answer("a"));
    expect(await client.removeFollower(answer("a", "open"))).toMatchObject({ changed: true });
    expect(await client.rejectFollow(answer("a"))).toMatchObject({ changed: true });
    expect((await client.getFollowingList({ user_id: "a" })).user_ids).toEqual([]);
    const ended = (await graphEvents()).filter((event) => event.startsWith("graph.unfollowed"));
    expect(ended.sort()).toEqual(["graph.unfollowed a:open", "graph.unfollowed a:star"]);
    expect(await client.follow(pair("a"))).toMatchObject({ changed: true, pending: true });
    expect(await db.query(WRONG_LISTS)).toEqual([]);
  });

  test("a follow that stands stays while approval is switched on, and SetProfile without it leaves it as it is", async () => {
    await client.follow(pair("a", "b"));
    const on = await client.setProfile({ user_id: "b", display_name: "B", approves_followers: true });
    expect(on.profile?.approves_followers).toBe(true);
    expect((await client.setProfile({ user_id: "b", display_name: "B2" })).profile?.approves_followers).toBe(true);
    expect(await followers("b")).toEqual(["a"]);
    expect(await client.follow(pair("a", "b"))).toMatchObject({ changed: false, pending: false });
    expect(await client.follow(pair("c", "b"))).toMatchObject({ changed: true, pending: true });
    expect((await client.getProfile({ user_id: "b" })).profile).toMatchObject({ approves_followers: true });
    const { profiles } = await client.listProfiles({});
    expect(profiles.map((one) => [one.user_id, one.approves_followers])).toEqual([
      ["b", true],
      ["star", true],
    ]);
    expect((await client.setProfile({ user_id: "new" })).profile?.approves_followers).toBe(false);
    expect((await client.setProfile({ user_id: "b", approves_followers: false })).profile).toMatchObject({
      ...{ display_name: "", approves_followers: false },
    });
  });

  test("requests are listed newest first, in pages that stay exact", async () => {
    await insertRequests(7);
    await db.query("UPDATE users.followings SET requested_at = 3 WHERE follower_id IN ('u4', 'u5')");
    const found: string[] = [];
    for (let page_token = ""; ; ) {
      const page = await client.listFollowRequests({ user_id: "star", page_size: 2, page_token });
      found.push(...page.requests.map(({ user_id, since }) => `${user_id} ${since}`));
      page_token = page.next_page_token;
      if (page_token === "") break;
      // A request that comes meanwhile is on no later page.
      await client.follow(pair(`late${found.length}`));
      await client.rejectFollow(answer("u1"));
    }
    expect(found).toEqual(["u7 7", "u6 6", "u5 3", "u4 3", "u3 3", "u2 2"]);
    expect(await refusal(client.listFollowRequests({ user_id: "a", page_token: "x" }))).toEqual([
      ...[status.INVALID_ARGUMENT, "page_token: is not a token of this list"],
    ]);
  });

  test("many follows at once make requests where they are needed, and all count as what they are", async () => {
    const follows = [pair("a"), pair("a", "b"), pair("a"), pair("c")];
    expect(await client.followMany({ follows })).toEqual({ changed: 1, pending: 2 });
    expect(await client.followMany({ follows })).toEqual({ changed: 0, pending: 0 });
    expect((await requests()).sort()).toEqual(["a", "c"]);
    expect(await followers("b")).toEqual(["a"]);
  });

  test("a follow that moves to somebody who approves followers ends, and becomes a request", async () => {
    await client.follow(pair("a", "old"));
    expect(await client.follow({ ...pair("a"), replaces: "old" })).toMatchObject({ changed: true, pending: true });
    expect(await relation("a", "old")).toEqual({ following: false, requested: false });
    expect(await relation("a")).toEqual({ following: false, requested: true });
  });

  test("a block removes requests both ways, and forbids new ones", async () => {
    await client.setApproval({ user_id: "a", approves_followers: true });
    await client.follow(pair("a"));
    await client.follow(pair("star", "a"));
    await client.block({ user_id: "a", target_id: "star" });
    expect([await requests(), await requests("a")]).toEqual([[], []]);
    const refused = [status.FAILED_PRECONDITION, "following_id: one of the two users blocks the other"];
    expect(await refusal(client.follow(pair("a")))).toEqual(refused);
    expect(await refusal(client.follow(pair("star", "a")))).toEqual(refused);
    expect(await refusal(client.acceptFollow(answer("a")))).toEqual([
      ...[status.FAILED_PRECONDITION, "user_id: one of the two users blocks the other"],
    ]);
    await client.unblock({ user_id: "a", target_id: "star" });
    expect([await requests(), await relation("a")]).toEqual([[], { following: false, requested: false }]);
    expect((await settle(db, users)).map(({ subject }) => subject).sort()).toEqual([
      ...["graph.blocked", "graph.unblocked"],
    ]);
  });

  test("requests and follows together are at most as many as a user may follow", async () => {
    const locked = Array.from({ length: MOST }, (_, n) => `locked${n}`);
    for (const user_id of locked) await client.setApproval({ user_id, approves_followers: true });
    await client.follow(pair("a", "b"));
    for (const user_id of locked.slice(1)) await client.follow(pair("a", user_id));
    const refused = [status.RESOURCE_EXHAUSTED, `following_id: a user can follow at most ${MOST} others`];
    expect(await refusal(client.follow(pair("a")))).toEqual(refused);
    expect(await client.follow(pair("a", "locked1"))).toMatchObject({ changed: false, pending: true });
    const many = [pair("x", "y"), pair("a", "locked0")];
    expect((await refusal(client.followMany({ follows: many })))[1]).toMatch(/^follows\.1\.following_id: a user can/);
    expect(await relation("x", "y")).toEqual({ following: false, requested: false });
    await client.follow({ ...pair("a"), replaces: "b" });
    expect(await relation("a")).toEqual({ following: false, requested: true });
    // Follows that need no approval are not held up by requests; then an acceptance would be one too many.
    for (let n = 0; n < MOST; n++) await client.follow(pair("a", `open${n}`));
    expect(await refusal(client.acceptFollow(answer("a")))).toEqual([
      ...[status.RESOURCE_EXHAUSTED, `follower_id: follows ${MOST} others`],
    ]);
    expect(await relation("a")).toEqual({ following: false, requested: true });
  });

  test("a request is not pruned, and an actor who was asked to be followed is known", async () => {
    await client.setApproval({ user_id: EVE, approves_followers: true });
    expect(await client.follow(pair("a", EVE))).toMatchObject({ pending: true });
    await expect(client.getProfile({ user_id: EVE })).rejects.toMatchObject({ code: status.NOT_FOUND });
    expect(await client.acceptFollow(answer("a", "HTTPS://Far.example:443/users/eve"))).toMatchObject({
      changed: true,
    });
    expect(await followers(EVE)).toEqual(["a"]);
  });

  test("switching approval off accepts the user's requests, and no others", async () => {
    await client.setApproval({ user_id: "other", approves_followers: true });
    for (const one of ["a", "b", "full"]) await client.follow(pair(one));
    await client.follow(pair("a", "other"));
    for (let n = 0; n < MOST; n++) await client.follow(pair("full", `open${n}`));
    await settle(db, users);
    await switchOff();
    // Before its request is accepted, too.
    expect(await client.follow(pair("a"))).toMatchObject({ changed: true, pending: false });
    begin();
    await becomes(async () => expect([await requests(), await followers()]).toEqual([[], ["a", "b"]]));
    expect(await relation("full")).toEqual({ following: false, requested: false });
    expect(await requests("other")).toEqual(["a"]);
    expect((await client.getFollowingList({ user_id: "b" })).user_ids).toEqual(["star"]);
    expect(await client.follow(pair("d"))).toMatchObject({ changed: true, pending: false });
    expect([await followers(), await db.query(WRONG_LISTS)]).toEqual([["a", "b", "d"], []]);
  });

  test("requests made before the switch are accepted if approval is on again, and later ones wait", async () => {
    await client.follow(pair("a"));
    await switchOff();
    await eventually(async () => {
      const [row] = await db.query<{ past: boolean }>(
        "SELECT users.now_ms() > accept_until AS past FROM users.approvals",
      );
      return row?.past === true;
    }, "the next request is later");
    await client.setProfile({ user_id: "star", approves_followers: true });
    await client.follow(pair("b"));
    begin();
    await becomes(async () => expect([await followers(), await requests()]).toEqual([["a"], ["b"]]));
  });

  test("a request of a statement that began before the switch is accepted within a minute after it", async () => {
    await switchOff();
    const { accept } = createApprovalStore(db);
    const due = () => db.query("SELECT due_at - accept_until AS after FROM users.approvals");
    expect(await accept(10, MOST)).toEqual({ followers: [], withdrawn: 0 });
    expect(await due()).toEqual([{ after: 60_000 }]);
    expect(await accept(10, MOST)).toBeUndefined();
    await db.query("INSERT INTO users.followings VALUES ('late', 'star', 1, false, 1, false, false, users.now_ms())");
    await db.query("UPDATE users.approvals SET accept_until = accept_until - 60000, due_at = 1");
    expect(await accept(10, MOST)).toEqual({ followers: ["late"], withdrawn: 0 });
    // Nobody approves: the row has done its work.
    expect([await due(), await accept(10, MOST)]).toEqual([[], undefined]);
  });

  test("a switch off is carried on by another process, batch by batch, without a long transaction", async () => {
    const count = name === "PGlite" ? 1_000 : 5_000;
    await insertRequests(count);
    await client.setApproval({ user_id: "quick", approves_followers: true });
    await client.follow(pair("a", "quick"));
    await switchOff();
    await eventually(
      async () => (await createApprovalStore(db).accept(100, MOST))?.followers.length === 100,
      "a batch",
    );
    await client.setApproval({ user_id: "quick", approves_followers: false });
    // Users take turns: the one with many requests does not hold up the other.
    const others = usersProcess({ db, scripts: redis.scripts, maxFollowing: MOST });
    for (const process of [users, others]) begin(process);
    const waiting = async (user_id: string) =>
      (await db.query("SELECT FROM users.followings WHERE following_id = $1 AND requested_at IS NOT NULL", [user_id]))
        .length;
    let waitedFor = count;
    await eventually(async () => {
      waitedFor = await waiting("star");
      return (await waiting("quick")) === 0;
    }, "the other's requests are accepted");
    expect(waitedFor).toBeGreaterThan(0);
    await eventually(async () => (await waiting("star")) === 0, "all are accepted", 60_000);
    await Promise.all(loops.splice(0).map((loop) => loop.close()));
    const events = await settle(db, users);
    expect(new Set(events.map(({ key }) => key)).size).toBe(count + 1);
    expect(events.filter(({ subject }) => subject === "graph.followed")).toHaveLength(count + 1);
    expect(await db.query(WRONG_LISTS)).toEqual([]);
  }, 120_000);

  // Embedded, statements run one after another.
  const elsewhere = name === "PGlite" ? test.skip : test;

  elsewhere.each(["follow", "acceptFollow"] as const)(
    "a block waits for a %s that came first, and leaves neither a request nor a follow",
    async (method) => {
      if (method === "acceptFollow") await client.follow(pair("a"));
      const { process, held, release } = heldProcess(db, redis.scripts);
      const first = method === "follow" ? process.follow(pair("a")) : process.acceptFollow(answer("a"));
      await held;
      const blocking = users.block({ user_id: "star", target_id: "a" });
      await eventually(async () => {
        const waiting = await db.query(
          "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
        );
        return waiting.length === 1;
      }, "the block waits");
      release();
      expect([await first, await blocking]).toMatchObject([{ changed: true }, { changed: true }]);
      expect([await requests(), await followers(), await relation("a")]).toEqual([
        ...[[], [], { following: false, requested: false }],
      ]);
    },
  );

  elsewhere("a withdrawal and an acceptance at once leave one of the two, and lists that agree", async () => {
    const others = usersProcess({ db, scripts: redis.scripts, maxFollowing: MOST });
    for (let round = 0; round < 40; round++) {
      const one = `r${round}`;
      await users.follow(pair(one));
      const [accepted, withdrawn] = await Promise.all([
        others.acceptFollow(answer(one)),
        users.unfollow(pair(one)),
        users.follow(pair(one)),
      ]);
      expect([accepted.changed || withdrawn.changed]).toEqual([true]);
    }
    await settle(db, users);
    expect(await db.query(WRONG_LISTS)).toEqual([]);
    expect(await db.query("SELECT FROM users.followings WHERE active AND requested_at IS NOT NULL")).toEqual([]);
  });

  const IDS: [fault: string, id: string][] = [
    ["must not be empty", ""],
    ["must have at most 128 bytes", "x".repeat(129)],
    ["must not contain NUL", "a\u0000b"],
  ];

  test("invalid input is refused with the name of its field", async () => {
    const bad = async (call: Promise<unknown>, details: string) =>
      expect(await refusal(call)).toEqual([status.INVALID_ARGUMENT, details]);
    for (const [fault, id] of IDS) {
      for (const method of ["acceptFollow", "rejectFollow", "removeFollower"] as const) {
        await bad(client[method]({ user_id: id, follower_id: "b" }), `user_id: ${fault}`);
        await bad(client[method]({ user_id: "a", follower_id: id }), `follower_id: ${fault}`);
      }
      await bad(client.setApproval({ user_id: id, approves_followers: true }), `user_id: ${fault}`);
      await bad(client.listFollowRequests({ user_id: id }), `user_id: ${fault}`);
    }
    await bad(client.acceptFollow(answer("a", "a")), "follower_id: must not be the user");
  });
});
