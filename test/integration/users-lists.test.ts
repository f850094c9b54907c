import { randomUUID } from "node:crypto";
import { status } from "@grpc/grpc-js";
import { expect, test } from "@jest/globals";
import { listReader, MAX_LISTS, MAX_MEMBERS } from "../../src/contracts/lists.js";
import type { Db } from "../../src/platform/db/db.js";
import { listKey } from "../../src/state/keys.js";
import { createLimits } from "../../src/state/limits/limits.redis.js";
import { createMemberListStore } from "../../src/users/member-lists.sql.js";
import { describeUsers } from "../support/describe-users.js";
import { rowsNaming } from "../support/erased-rows.js";
import { erasedHere, erasing } from "../support/erasures.js";
import { becomes } from "../support/eventually.js";
import { refusal } from "../support/grpc.js";
import { serveUsers, settle, usersProcess } from "../support/users.js";

const { NOT_FOUND, INVALID_ARGUMENT, RESOURCE_EXHAUSTED, FAILED_PRECONDITION } = status;
const NO_LIST = [NOT_FOUND, "list_id: is no list of the user"];
const EVE = "https://far.example/users/eve";

describeUsers("lists of users", { emptied: true }, ({ db, redis, users, client }, name) => {
  const create = async (user_id = "ada", title = "Friends"): Promise<string> =>
    (await client.lists.createList({ user_id, title })).list?.list_id ?? "";
  const members = async (list_id: string, user_id = "ada") =>
    (await client.lists.listMembers({ user_id, list_id })).member_ids;
  const add = (list_id: string, ...member_ids: string[]) =>
    client.lists.addListMembers({ user_id: "ada", list_id, member_ids });
  const remove = (list_id: string, ...member_ids: string[]) =>
    client.lists.removeListMembers({ user_id: "ada", list_id, member_ids });

  test("a list is made, renamed, listed newest first and deleted", async () => {
    const first = await create("ada", "First");
    const second = await create("ada", "Second");
    await create("bob", "His");
    const { list } = await client.lists.renameList({ user_id: "ada", list_id: first, title: "One" });
    expect(list).toEqual({ list_id: first, title: "One", created_at: expect.any(Number) });
    expect(await client.lists.getList({ user_id: "ada", list_id: first })).toEqual({ list });
    const { lists } = await client.lists.listLists({ user_id: "ada" });
    expect(lists.map(({ title }) => title)).toEqual(["Second", "One"]);
    await client.lists.deleteList({ user_id: "ada", list_id: first });
    expect((await client.lists.listLists({ user_id: "ada" })).lists.map(({ list_id }) => list_id)).toEqual([second]);
    expect(await refusal(client.lists.getList({ user_id: "ada", list_id: first }))).toEqual(NO_LIST);
  });

  test("lists are paged: each is on one page, while newer ones are made", async () => {
    const made = [await create(), await create(), await create()];
    const page = await client.lists.listLists({ user_id: "ada", page_size: 2 });
    await create();
    const { lists } = await client.lists.listLists({
      user_id: "ada",
      page_size: 2,
      page_token: page.next_page_token,
    });
    expect([...page.lists, ...lists].map(({ list_id }) => list_id)).toEqual(made.reverse());
  });

  test("members are added and removed once each, and are paged by their bytes", async () => {
    const list = await create();
    expect(await add(list, "carol", "bob", EVE, "bob")).toEqual({ changed: 3 });
    expect(await add(list, "bob", "dave")).toEqual({ changed: 1 });
    expect(await remove(list, "carol", "nobody")).toEqual({ changed: 1 });
    expect(await add(list)).toEqual({ changed: 0 });
    expect(await members(list)).toEqual(["bob", "dave", EVE]);
    const page = await client.lists.listMembers({ user_id: "ada", list_id: list, page_size: 2 });
    const next = { user_id: "ada", list_id: list, page_size: 2, page_token: page.next_page_token };
    expect([page.member_ids, (await client.lists.listMembers(next)).member_ids]).toEqual([["bob", "dave"], [EVE]]);
  });

  test("a list exists for its owner only, in every call", async () => {
    const list_id = await create();
    await add(list_id, "bob");
    const others = { user_id: "bob", list_id };
    const calls = [
      client.lists.getList(others),
      client.lists.renameList({ ...others, title: "Mine" }),
      client.lists.deleteList(others),
      client.lists.addListMembers({ ...others, member_ids: ["bob"] }),
      client.lists.removeListMembers({ ...others, member_ids: ["bob"] }),
      client.lists.listMembers(others),
      client.lists.getListReader(others),
    ];
    for (const call of calls) expect(await refusal(call)).toEqual(NO_LIST);
    expect(await members(list_id)).toEqual(["bob"]);
    expect((await client.lists.listLists({ user_id: "bob" })).lists).toEqual([]);
  });

  test("bad input names the field", async () => {
    const list_id = await create();
    const owned = { user_id: "ada", list_id };
    const many = Array.from({ length: MAX_MEMBERS + 1 }, (_, n) => `m${n}`);
    const calls: [Promise<unknown>, string][] = [
      [client.lists.createList({ user_id: "", title: "x" }), "user_id: must not be empty"],
      [client.lists.createList({ user_id: "ada", title: " " }), "title: must not be empty"],
      [client.lists.renameList({ ...owned, title: "x".repeat(101) }), "title: must have at most 100 characters"],
      [client.lists.getList({ user_id: "ada", list_id: "" }), "list_id: must not be empty"],
      [client.lists.addListMembers({ ...owned, member_ids: ["bob", ""] }), "member_ids.1: must not be empty"],
      [client.lists.addListMembers({ ...owned, member_ids: many }), "member_ids: must have at most 500 entries"],
      [client.lists.listMembers({ ...owned, page_token: "x" }), "page_token: is not a token of this list"],
    ];
    for (const [call, words] of calls) expect(await refusal(call)).toEqual([INVALID_ARGUMENT, words]);
  });

  test("a user can have 50 lists, also if two calls make the last one at once", async () => {
    for (let made = 1; made < MAX_LISTS; made++) await create();
    const both = await Promise.allSettled([create(), create()]);
    expect(both.map((result) => result.status).sort()).toEqual(["fulfilled", "rejected"]);
    expect(await refusal(create())).toEqual([RESOURCE_EXHAUSTED, "user_id: a user can have at most 50 lists"]);
    await create("bob");
  });

  test("a list can have 500 members, and a call that would pass that adds none, also beside another one", async () => {
    const list = await create();
    await add(list, ...Array.from({ length: MAX_MEMBERS - 2 }, (_, n) => `m${n}`));
    const full = [RESOURCE_EXHAUSTED, "member_ids: a list can have at most 500 members"];
    expect(await refusal(add(list, "a", "b", "c"))).toEqual(full);
    const both = await Promise.allSettled([add(list, "a", "b"), add(list, "c", "d")]);
    expect(both.map((result) => result.status).sort()).toEqual(["fulfilled", "rejected"]);
    expect(await members(list)).toHaveLength(MAX_MEMBERS);
    await remove(list, "m1");
    expect(await add(list, "e")).toEqual({ changed: 1 });
  });

  test("additions count in a limit of their own, and removals and repetitions do not", async () => {
    const limits = createLimits(redis.scripts);
    const limitFollows = { most: 2, withinMs: 60_000, within: "1m" };
    const limited = await serveUsers(
      usersProcess({ db, scripts: redis.scripts, limitFollows, limited: limits.limited }),
    );
    try {
      const list_id = await create();
      const change = (...member_ids: string[]) => ({ user_id: "ada", list_id, member_ids });
      const many = Array.from({ length: 18 }, (_, number) => `m${number}`);
      await limited.lists.addListMembers(change("a", ...many));
      // The limit is ten times that of follows, and members who were there do not count.
      await limited.lists.addListMembers(change("b", ...many));
      const [code, text] = await refusal(limited.lists.addListMembers(change("c")));
      expect([code, text]).toEqual([RESOURCE_EXHAUSTED, "at most 20 new members of lists within 1m"]);
      expect(await limited.lists.addListMembers(change("a", "b"))).toEqual({ changed: 0 });
      expect(await limited.lists.removeListMembers(change("a"))).toEqual({ changed: 1 });
      await limited.follow({ follower_id: "ada", following_id: "bob" });
    } finally {
      await limited.close();
      await limits.close();
    }
  });

  test("each change of a member is an event of an edge, whose versions rise and which names no owner", async () => {
    const list = await create();
    await add(list, "bob", EVE);
    await remove(list, "bob");
    await add(list, "bob");
    const events = (await settle(db, users)).map(({ subject, body }) => [subject, JSON.parse(body)] as const);
    const ofBob = events.filter(([, { following_id }]) => following_id === "bob");
    expect(ofBob.map(([subject]) => subject)).toEqual(["graph.followed", "graph.unfollowed", "graph.followed"]);
    const versions = ofBob.map(([, { version }]) => Number(version));
    expect(versions).toEqual([...new Set(versions)].sort((a, b) => a - b));
    expect(new Set(events.map(([, { follower_id }]) => follower_id))).toEqual(new Set([listReader(list)]));
    // Nobody sees a list as a follower.
    expect((await client.getFollowersList({ user_id: "bob" })).total_count).toBe(0);
    expect((await client.listFollowChanges({})).changes).toEqual([]);
  });

  test("the reader of a list is its members, and whom of them the owner follows", async () => {
    const list_id = await create();
    await add(list_id, "bob", "carol", "dave");
    await client.follow({ follower_id: "ada", following_id: "carol" });
    await client.follow({ follower_id: "bob", following_id: "ada" });
    await client.follow({ follower_id: "ada", following_id: "erin" });
    expect(await client.lists.getListReader({ user_id: "ada", list_id })).toEqual({
      member_ids: ["bob", "carol", "dave"],
      followed_ids: ["carol"],
      owner_id: "ada",
    });
    const anybody = await client.lists.getListReader({ user_id: "", list_id });
    expect(anybody).toMatchObject({ owner_id: "ada", followed_ids: ["carol"] });
    await client.unfollow({ follower_id: "ada", following_id: "carol" });
    expect((await client.lists.getListReader({ user_id: "ada", list_id })).followed_ids).toEqual([]);
  });

  test("the lists with a member are found, of all owners or of some, page by page", async () => {
    const [one, two, his] = [await create(), await create(), await create("bob")];
    await create("carol");
    await add(one, "star");
    await add(two, "star");
    await client.lists.addListMembers({ user_id: "bob", list_id: his, member_ids: ["star"] });
    const find = async (owner_ids: string[] = []) =>
      (await client.lists.findLists({ member_id: "star", owner_ids })).list_ids;
    expect(await find()).toEqual([one, two, his].sort());
    expect(await find(["bob", "carol"])).toEqual([his]);
    const page = await client.lists.findLists({ member_id: "star", page_size: 2 });
    const rest = await client.lists.findLists({ member_id: "star", page_token: page.next_page_token });
    expect([...page.list_ids, ...rest.list_ids]).toEqual([one, two, his].sort());
  });

  test("a deleted list leaves no member and no timeline", async () => {
    const list_id = await create();
    await add(list_id, "bob");
    await redis.raw.zadd(listKey(list_id), 1, "d1");
    await client.lists.deleteList({ user_id: "ada", list_id });
    expect(await db.query("SELECT 1 AS row FROM users.list_members")).toEqual([]);
    expect(await redis.raw.exists(listKey(list_id))).toBe(0);
  });

  // Embedded, statements run one after another.
  const elsewhere = name === "PGlite" ? test.skip : test;
  elsewhere("a list that is deleted while members are added leaves none of them", async () => {
    const list_id = await create();
    const waiting = `SELECT FROM pg_stat_activity
      WHERE datname = current_database() AND state = 'active' AND wait_event_type = 'Lock'`;
    let deleting: Promise<unknown> = Promise.resolve();
    const transaction: Db["transaction"] = (work) =>
      db.transaction(async (queries) => {
        const result = await work(queries);
        deleting = client.lists.deleteList({ user_id: "ada", list_id });
        await becomes(async () => expect(await db.query(waiting)).toHaveLength(1));
        return result;
      });
    const store = createMemberListStore({ ...db, transaction });
    expect(await store.add({ user_id: "ada", list_id }, ["bob", "carol"])).toBe(2);
    await deleting;
    expect(await db.query("SELECT 1 AS row FROM users.list_members")).toEqual([]);
  });

  test("an erasure removes members who are left of a list that is gone", async () => {
    await db.query("INSERT INTO users.list_members (list_id, member_id, user_id) VALUES ('gone', 'bob', 'ada')");
    await client.eraseUser({ user_id: "ada", only_if_known: true });
    const loop = erasing({ db, scripts: redis.scripts, erased: erasedHere() });
    try {
      await becomes(async () => expect(await db.query("SELECT 1 AS row FROM users.list_members")).toEqual([]));
    } finally {
      await loop.close();
    }
  });

  test("an erasure removes the user's lists with their timelines, and the user from the lists of others", async () => {
    const [mine, other] = [await create(), await create("bob")];
    await add(mine, "carol");
    await client.lists.addListMembers({ user_id: "bob", list_id: other, member_ids: ["ada", "carol"] });
    await redis.raw.zadd(listKey(mine), 1, "d1");
    await settle(db, users);
    await client.eraseUser({ user_id: "ada", only_if_known: true });
    const here = erasedHere();
    const loop = erasing({ db, scripts: redis.scripts, erased: here });
    try {
      const steps = async () => (await client.getErasure({ user_id: "ada" })).erasure?.steps.every(({ done }) => done);
      await becomes(async () => expect(await steps()).toBe(true));
    } finally {
      await loop.close();
    }
    expect((await rowsNaming(db, ["ada"])).filter((row) => !row.startsWith("public.outbox"))).toEqual([]);
    expect(await redis.raw.exists(listKey(mine))).toBe(0);
    expect(await members(other, "bob")).toEqual(["carol"]);
  });

  test("an erased user makes no list, and is no member of one", async () => {
    const list_id = await create();
    await client.eraseUser({ user_id: "mallory" });
    expect(await refusal(create("mallory"))).toEqual([FAILED_PRECONDITION, "user_id: is erased"]);
    expect(await refusal(add(list_id, "bob", "mallory"))).toEqual([FAILED_PRECONDITION, "member_ids.1: is erased"]);
    expect(await members(list_id)).toEqual([]);
  });

  test("a suspended user changes no list, and reads them", async () => {
    const list_id = await create();
    await users.standings.record([{ user_id: "ada", standing: "suspended", until: 0, version: "5" }]);
    await users.standings.refresh();
    const suspended = [FAILED_PRECONDITION, "user_id: is suspended"];
    expect(await refusal(create())).toEqual(suspended);
    expect(await refusal(add(list_id, "bob"))).toEqual(suspended);
    expect(await members(list_id)).toEqual([]);
  });

  test("an unknown list is not found", async () => {
    expect(await refusal(client.lists.getList({ user_id: "ada", list_id: randomUUID() }))).toEqual(NO_LIST);
  });
});
