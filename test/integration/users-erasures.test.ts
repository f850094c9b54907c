import { status } from "@grpc/grpc-js";
import { afterEach, beforeEach, expect, test } from "@jest/globals";
import { mapLimited } from "../../src/kernel/concurrency.js";
import { type Failpoint, hookFailpoints } from "../../src/kernel/failpoints.js";
import { encodeId } from "../../src/kernel/ids.js";
import { silent } from "../../src/kernel/logger.js";
import type { Loop } from "../../src/kernel/loop.js";
import { HOUR, MINUTE } from "../../src/kernel/time.js";
import { OWN_STEPS, startCompletingUnknown } from "../../src/users/erasures.js";
import { createErasureStore } from "../../src/users/erasures.sql.js";
import { describeUsers } from "../support/describe-users.js";
import { keysNaming, rowsNaming } from "../support/erased-rows.js";
import { erasedHere, erasing } from "../support/erasures.js";
import { becomes, eventually } from "../support/eventually.js";
import { deliver, relayAll, settle, usersProcess, WRONG_LISTS } from "../support/users.js";

const ALWAYS = { expires_at: 0, reposts_only: false };
const GONE = "göne";

describeUsers("erasures of users", { emptied: true }, ({ db, redis, users, client }, name) => {
  const loops: Loop[] = [];
  let warnings: string[] = [];

  beforeEach(() => {
    warnings = [];
  });
  afterEach(async () => {
    hookFailpoints(undefined);
    await Promise.all(loops.splice(0).map((loop) => loop.close()));
  });

  const begin = (deps: Partial<Parameters<typeof erasing>[0]> = {}): Loop => {
    const log = { ...silent, warn: (fields: object) => void warnings.push(JSON.stringify(fields)) };
    const loop = erasing({ db, scripts: redis.scripts, log, ...deps });
    loops.push(loop);
    return loop;
  };
  const erasureOf = async (user_id: string) => (await client.getErasure({ user_id })).erasure;
  /** Publishes events, and applies edges, until the erasure is completed. */
  const completed = (user_id: string) =>
    becomes(async () => {
      await settle(db, users);
      expect({ ...(await erasureOf(user_id)), warnings }).toMatchObject({ status: "completed", warnings: [] });
    });
  const left = async (id: string) => [...(await rowsNaming(db, [id])), ...(await keysNaming(redis.raw, id))];
  const pair = (follower_id: string, following_id: string) => ({ follower_id, following_id });
  const related = (user_id: string, target_id: string) => ({ user_id, target_id, ...ALWAYS });

  /** Everything that the tables can hold about a user, with everything around it in the caches. */
  async function fillWorld(): Promise<void> {
    for (const other of ["a", "b", "c", "d"]) {
      await users.follow(pair(other, GONE));
      await users.follow(pair(GONE, other));
      await users.follow(pair(other, `${other}2`));
    }
    await settle(db, users);
    await users.unfollow(pair("c", GONE));
    await users.unfollow(pair(GONE, "c"));
    await settle(db, users);
    await users.block(related("d", GONE));
    await users.block(related(GONE, "never"));
    await users.unblock(related(GONE, "never"));
    for (const [one, other] of [
      ["a", "b"],
      [GONE, "a"],
      ["b", GONE],
    ] as const)
      await users.mute(related(one, other));
    await client.setProfile({ user_id: GONE, display_name: "Gone", bio: "", avatar_url: "" });
    await client.setProfile({ user_id: "a", display_name: "A", bio: "", avatar_url: "" });
    await settle(db, users);
    for (const one of ["a", "b", "c", "d", GONE]) await readLists(one);
    // These are in the outbox, and in one list only.
    await users.follow(pair("e", GONE));
    await users.follow(pair(GONE, "e"));
    for (const user_id of [GONE, "locked"]) await client.setApproval({ user_id, approves_followers: true });
    await users.follow(pair("f", GONE));
    await users.follow(pair(GONE, "locked"));
  }

  async function readLists(user_id: string) {
    const [following, followers] = [
      await client.getFollowingList({ user_id }),
      await client.getFollowersList({ user_id }),
    ];
    return [following, followers].map(({ user_ids, total_count }) => `${user_ids.join()} ${total_count}`);
  }

  test("nothing of an erased user is left, and the lists and counts of others are right", async () => {
    await fillWorld();
    begin();
    const { erasure } = await client.eraseUser({ user_id: GONE });
    expect(erasure).toMatchObject({ user_id: GONE, completed_at: 0, status: "running" });
    await completed(GONE);
    const done = await erasureOf(GONE);
    expect(done?.steps.map(({ name, done, left }) => [name, done, left])).toEqual(
      ["followings", "followers", "relations", "profile", "outbox", "lists"].map((name) => [name, true, 0]),
    );
    expect((await client.eraseUser({ user_id: GONE })).erasure).toEqual(done);
    await settle(db, users);
    expect(await left(GONE)).toEqual([]);
    expect(await db.query(WRONG_LISTS)).toEqual([]);
    for (const one of ["a", "b", "c", "d"]) expect(await readLists(one)).toEqual([`${one}2 1`, " 0"]);
    expect((await client.listMutes({ user_id: "a" })).mutes.map(({ target_id }) => target_id)).toEqual(["b"]);
    expect((await client.listProfiles({})).profiles.map(({ user_id }) => user_id)).toEqual(["a"]);
  });

  test("reads find nothing of an erased user, and leave no key that names the user", async () => {
    await fillWorld();
    await client.eraseUser({ user_id: GONE });
    expect((await client.listProfiles({})).profiles.map(({ user_id }) => user_id)).toEqual(["a"]);
    await expect(client.getProfile({ user_id: GONE })).rejects.toMatchObject({ code: status.NOT_FOUND });
    begin();
    await completed(GONE);
    for (let time = 0; time < 2; time++) {
      expect(await readLists(GONE)).toEqual([" 0", " 0"]);
      expect(await client.getFollowCounts({ user_id: GONE })).toEqual({ following: 0, followers: 0 });
      expect((await client.listFollowers({ user_id: GONE })).follows).toEqual([]);
      expect((await client.getHidden({ user_id: "d" })).hidden).toEqual([]);
    }
    expect(await left(GONE)).toEqual([]);
  });

  test("every write in the user's name or at the user is refused, and names the field", async () => {
    await users.follow(pair("a", "b"));
    await client.eraseUser({ user_id: GONE });
    const refused = async (call: Promise<unknown>, field: string) =>
      expect(await call.catch(({ code, details }: { code: number; details: string }) => [code, details])).toEqual([
        status.FAILED_PRECONDITION,
        `${field}: is erased`,
      ]);
    for (const method of ["follow", "unfollow"] as const) {
      await refused(client[method](pair(GONE, "b")), "follower_id");
      await refused(client[method](pair("a", GONE)), "following_id");
    }
    for (const method of ["acceptFollow", "rejectFollow", "removeFollower"] as const) {
      await refused(client[method]({ user_id: GONE, follower_id: "b" }), "user_id");
      await refused(client[method]({ user_id: "a", follower_id: GONE }), "follower_id");
    }
    await refused(client.setApproval({ user_id: GONE, approves_followers: true }), "user_id");
    for (const method of ["block", "unblock", "mute", "unmute"] as const) {
      await refused(client[method](related(GONE, "b")), "user_id");
      await refused(client[method](related("a", GONE)), "target_id");
    }
    await refused(client.setProfile({ user_id: GONE, display_name: "", bio: "", avatar_url: "" }), "user_id");
    await refused(client.followMany({ follows: [pair("c", "d"), pair("c", GONE)] }), "follows.1.following_id");
    await refused(client.followMany({ follows: [pair("c", "d"), pair(GONE, "c")] }), "follows.1.follower_id");
    expect((await client.getFollowingList({ user_id: "c" })).user_ids).toEqual([]);
    expect((await client.follow(pair("c", "d"))).changed).toBe(true);
  });

  test("an id nobody has seen may be erased; what is not erased has no erasure", async () => {
    await expect(client.getErasure({ user_id: "nobody" })).rejects.toMatchObject({ code: status.NOT_FOUND });
    for (const method of ["eraseUser", "getErasure"] as const)
      await expect(client[method]({ user_id: "" })).rejects.toMatchObject({
        ...{ code: status.INVALID_ARGUMENT, details: expect.stringContaining("user_id") },
      });
    begin();
    await client.eraseUser({ user_id: "nobody" });
    await completed("nobody");
    await expect(client.follow(pair("a", "nobody"))).rejects.toMatchObject({ code: status.FAILED_PRECONDITION });
  });

  test("of many strangers only the ids are refused, and a person behind them is the only one whom all parts forget", async () => {
    const strangers = Array.from(
      { length: name === "PGlite" ? 100 : 1_000 },
      (_, n) => `https://far.example/users/${n}`,
    );
    await users.follow(pair("a", GONE));
    await settle(db, users);
    const ask = (user_id: string) => client.eraseUser({ user_id, only_if_known: true });
    await mapLimited([...strangers, GONE], 8, ask);
    const events = (await settle(db, users)).filter(({ subject }) => subject === "graph.erased");
    expect(events.map(({ key }) => key)).toEqual([encodeId(GONE)]);
    const stranger = strangers[0] as string;
    await expect(client.follow(pair(stranger, "a"))).rejects.toMatchObject({ code: status.FAILED_PRECONDITION });
    const erased = erasedHere();
    begin({ erased });
    const completing = startCompletingUnknown({
      store: createErasureStore(db),
      untilOlderEnded: async () => undefined,
      wakeRelay: () => undefined,
      log: silent,
    });
    try {
      await completed(GONE);
      for (const user of [strangers[0], strangers.at(-1)]) await completed(user as string);
    } finally {
      await completing.close();
    }
    expect([...erased.users.keys()]).toEqual([GONE]);
    expect((await erasureOf(stranger))?.steps).toEqual([]);
  });

  test("a stranger whom a row names after all is erased, and so is one whom an operator erases", async () => {
    for (const user_id of ["late", "operated"]) await client.eraseUser({ user_id, only_if_known: true });
    await db.query(
      "INSERT INTO users.profiles (user_id, display_name, bio, avatar_url, updated_at) VALUES ('late', '', '', '', 1)",
    );
    const store = createErasureStore(db);
    expect(await store.completeUnknown(["late", "operated"])).toEqual(["late"]);
    expect((await erasureOf("operated"))?.status).toBe("completed");
    expect(await store.erase("late", OWN_STEPS)).toBe(true);
    const { erasure } = await client.eraseUser({ user_id: "operated" });
    expect(erasure).toMatchObject({ status: "running", completed_at: 0 });
    const events = (await settle(db, users)).filter(({ subject }) => subject === "graph.erased");
    expect(events.map(({ key }) => key).sort()).toEqual(["late", "operated"]);
    await client.eraseUser({ user_id: "operated", only_if_known: true });
    expect(await settle(db, users)).toEqual([]);
  });

  test("erasures of people are claimed before those of remote actors", async () => {
    for (const user_id of ["https://far.example/users/1", "https://far.example/users/2", "bob"])
      await client.eraseUser({ user_id });
    const { claimed } = await createErasureStore(db).claim(1);
    expect(claimed.map(({ user_id }) => user_id)).toEqual(["bob"]);
  });

  test("an erasure is announced once, however often it is requested", async () => {
    let woken = 0;
    const process = usersProcess({ db, scripts: redis.scripts, wakeErasures: () => void woken++ });
    const answers = await Promise.all(
      Array.from({ length: 8 }, () => process.eraseUser({ user_id: GONE, only_if_known: false })),
    );
    expect(new Set(answers.map(({ erasure }) => JSON.stringify(erasure))).size).toBe(1);
    const events = await settle(db, users);
    expect([events.length, woken]).toEqual([1, 1]);
    expect(events[0]).toMatchObject({
      ...{ subject: "graph.erased", key: encodeId(GONE), messageId: `user_erased:${encodeId(GONE)}` },
    });
    const { requested_at: version } = answers[0]?.erasure ?? {};
    expect(JSON.parse(events[0]?.body ?? "")).toEqual({ user_id: GONE, version });
  });

  test("an erasure waits for the parts that are here, and is announced again while it does", async () => {
    const erased = erasedHere();
    erased.parts.set("timelines", { done: false, left: 0 });
    erased.parts.set("posts", { done: false, left: 7 });
    let woken = 0;
    begin({ erased, wakeRelay: () => void woken++ });
    await client.eraseUser({ user_id: GONE });
    const steps = async () => (await erasureOf(GONE))?.steps.slice(6).map(({ name, done, left }) => [name, done, left]);
    await settle(db, users);
    await becomes(async () =>
      expect(await steps()).toEqual([
        ["posts", false, 7],
        ["timelines", false, 0],
      ]),
    );
    expect(erased.users.get(GONE)).toBeGreaterThan(0);
    erased.parts.set("posts", { done: true, left: 0 });
    await becomes(async () => expect((await steps())?.[0]).toEqual(["posts", true, 0]));
    await settle(db, users);
    expect([woken, (await erasureOf(GONE))?.status]).toEqual([0, "running"]);
    await db.query("UPDATE users.erasures SET announced_at = announced_at - $1::bigint", [11 * MINUTE]);
    await becomes(async () =>
      expect((await settle(db, users)).map(({ subject }) => subject)).toEqual(["graph.erased"]),
    );
    expect(woken).toBe(1);
    // A part that gets the event again stays done.
    erased.parts.set("posts", { done: false, left: 1 });
    erased.parts.set("timelines", { done: true, left: 0 });
    await completed(GONE);
    expect(await left(GONE)).toEqual([]);
  });

  test("an erasure is not completed before its event is published", async () => {
    begin();
    await client.eraseUser({ user_id: GONE });
    const last = async () => (await erasureOf(GONE))?.steps.find(({ name }) => name === "lists")?.done;
    await eventually(async () => (await last()) === true, "all steps are done");
    expect((await erasureOf(GONE))?.status).toBe("running");
    await completed(GONE);
  });

  test("an edge that comes late changes nothing, and has no event", async () => {
    await users.follow(pair("a", GONE));
    await users.follow(pair(GONE, "a"));
    await users.follow(pair("a", "b"));
    const late = await relayAll({ db, prepare: users.prepare }, async () => undefined);
    begin();
    await client.eraseUser({ user_id: GONE });
    await completed(GONE);
    await deliver([users.normal, users.hot], late);
    expect((await settle(db, users)).map(({ subject, key }) => [subject, key])).toEqual([["graph.followed", "a:b"]]);
    await becomes(async () => expect(await left(GONE)).toEqual([]));
    expect(await db.query(WRONG_LISTS)).toEqual([]);
  });

  test("a mute of an erased user that ends has no event", async () => {
    await users.mute(related("a", GONE));
    await db.query("UPDATE users.relations SET expires_at = 5");
    await settle(db, users);
    await client.eraseUser({ user_id: GONE });
    expect(await users.endMutes(10)).toBe(0);
    expect((await settle(db, users)).map(({ subject }) => subject)).toEqual(["graph.erased"]);
  });

  const ENDS: readonly (readonly [point: Failpoint, time: number])[] = [
    ["erasure-ended", 1],
    ["erasure-ended", 2],
    ["erasure-dropped", 1],
    ["erasure-dropped", 2],
    ...Array.from({ length: 6 }, (_, step) => ["erasure-step", step + 1] as const),
    ["erasure-reported", 1],
  ];

  test.each(ENDS)("a process that ends at %s for time %d leaves the rest to another", async (point, time) => {
    await fillWorld();
    await client.eraseUser({ user_id: GONE });
    await settle(db, users);
    let met = 0;
    hookFailpoints(async (at) => {
      // Each list is in the cache again while the rows change.
      if (at === "erasure-ended" || at === "erasure-dropped")
        for (const one of ["a", "b", "c", "d"]) await readLists(one);
      if (at === point && ++met === time) throw new Error("the process ends here");
    });
    const loop = begin();
    await eventually(() => warnings.length > 0, "the process ends");
    await loop.close();
    warnings = [];
    begin();
    await completed(GONE);
    expect(await left(GONE)).toEqual([]);
    expect(await db.query(WRONG_LISTS)).toEqual([]);
    for (const one of ["a", "b", "c", "d"]) expect(await readLists(one)).toEqual([`${one}2 1`, " 0"]);
  });

  test("the edges of an erased user are in no list of changes", async () => {
    await users.follow(pair("a", GONE));
    await users.follow(pair("a", "b"));
    await settle(db, users);
    await client.eraseUser({ user_id: GONE });
    const { changes } = await client.listFollowChanges({ since: Date.now() - HOUR, until: 0 });
    expect(changes.map(({ following_id }) => following_id)).toEqual(["b"]);
  });
});
