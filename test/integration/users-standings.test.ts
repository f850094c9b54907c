import { status } from "@grpc/grpc-js";
import { beforeEach, expect, test } from "@jest/globals";
import { Standing, type StandingEntry } from "../../src/gen/avion/users.js";
import { describeUsers } from "../support/describe-users.js";
import { refusal } from "../support/grpc.js";
import { settle } from "../support/users.js";

const { ACTIVE, LIMITED, SUSPENDED } = Standing;

describeUsers("standings", {}, ({ db, redis, users, client }) => {
  beforeEach(async () => {
    await db.run("TRUNCATE users.standings, users.followings, users.following_counts, users.erasures, public.outbox");
    await redis.raw.flushall();
    await users.standings.refresh();
  });

  const listed = async () => (await client.listStandings({})).entries.map(named);
  const named = ({ user_id, host, standing }: StandingEntry) => [user_id || host, standing];

  test("a change is told once, with a version that rises; repeating it, and lifting nothing, changes nothing", async () => {
    const until = Date.now() + 60_000;
    expect(await client.setStanding({ user_id: "a", standing: ACTIVE })).toEqual({ changed: false, version: 0 });
    const limited = await client.setStanding({ user_id: "a", standing: LIMITED, until, reason: "spam", by: "op" });
    expect(limited.changed).toBe(true);
    const again = await client.setStanding({ user_id: "a", standing: LIMITED, until, reason: "spam", by: "op" });
    expect(again).toEqual({ ...limited, changed: false });
    const suspended = await client.setStanding({ user_id: "a", standing: SUSPENDED, reason: "spam" });
    const lifted = await client.setStanding({ user_id: "a", standing: ACTIVE });
    const host = await client.setStanding({ host: "Spam.Example", standing: SUSPENDED });
    expect(limited.version < suspended.version && suspended.version < lifted.version).toBe(true);
    const events = await settle(db, users);
    const versionOf = ({ body }: (typeof events)[number]) => (JSON.parse(body) as { version: number }).version;
    events.sort((a, b) => versionOf(a) - versionOf(b));
    const told = (subject: object, standing: string, { version }: { version: number }, end = 0) => [
      "graph.standing",
      `standing_changed:${"host" in subject ? "@spam.example" : "a"}:${version}`,
      { ...subject, standing, until: end, version },
    ];
    expect(events.map(({ subject, messageId, body }) => [subject, messageId, JSON.parse(body)])).toEqual([
      told({ user_id: "a" }, "limited", limited, until),
      told({ user_id: "a" }, "suspended", suspended),
      told({ user_id: "a" }, "active", lifted),
      told({ host: "spam.example" }, "suspended", host),
    ]);
  });

  test("the standing in force of a user, of a host, and of an actor by their host or one above it", async () => {
    const of = async (asked: { user_id: string } | { host: string }) => (await client.getStanding(asked)).entry;
    await client.setStanding({ user_id: "a", standing: LIMITED, reason: "loud", by: "op" });
    await client.setStanding({ host: "spam.example", standing: SUSPENDED, reason: "wave" });
    await client.setStanding({ user_id: "https://a.spam.example/u/1", standing: LIMITED });
    expect(await of({ user_id: "a" })).toMatchObject({ user_id: "a", standing: LIMITED, reason: "loud", by: "op" });
    expect(await of({ user_id: "b" })).toMatchObject({ user_id: "b", standing: ACTIVE, version: 0 });
    const byHost = { host: "spam.example", standing: SUSPENDED, reason: "wave" };
    for (const asked of [{ user_id: "https://a.spam.example/u/1" }, { host: "b.spam.example" }])
      expect(await of(asked)).toMatchObject(byHost);
    expect(await of({ user_id: "https://notspam.example/u/1" })).toMatchObject({ standing: ACTIVE });
    await db.query("UPDATE users.standings SET until = 1 WHERE host <> ''");
    expect(await of({ host: "b.spam.example" })).toMatchObject({ standing: ACTIVE });
    expect(await listed()).toEqual([
      ["a", LIMITED],
      ["https://a.spam.example/u/1", LIMITED],
    ]);
  });

  test("lists go page by page, and changes name what was lifted", async () => {
    for (const user_id of ["c", "a", "b"]) await client.setStanding({ user_id, standing: SUSPENDED });
    await client.setStanding({ user_id: "b", standing: ACTIVE });
    const first = await client.listStandings({ page_size: 1 });
    const second = await client.listStandings({ page_size: 1, page_token: first.next_page_token });
    expect([...first.entries, ...second.entries].map(named)).toEqual([
      ["a", SUSPENDED],
      ["c", SUSPENDED],
    ]);
    const { entries } = await client.listStandingChanges({ since: Date.now() - 60_000, until: 0 });
    expect(entries.map(named)).toEqual([
      ["c", SUSPENDED],
      ["a", SUSPENDED],
      ["b", ACTIVE],
    ]);
    expect((await client.listStandingChanges({ since: Date.now() + 60_000 })).entries).toEqual([]);
  });

  test("what a suspended user writes is refused, once the event is about to be published, until the standing ends", async () => {
    await client.setStanding({ user_id: "a", standing: SUSPENDED });
    await client.setStanding({ user_id: "c", standing: LIMITED });
    await settle(db, users);
    await users.standings.refresh();
    const suspended = [status.FAILED_PRECONDITION, "follower_id: is suspended"];
    expect(await refusal(client.follow({ follower_id: "a", following_id: "b" }))).toEqual(suspended);
    expect(await refusal(client.followMany({ follows: [{ follower_id: "a", following_id: "b" }] }))).toEqual([
      status.FAILED_PRECONDITION,
      "follows.0.follower_id: is suspended",
    ]);
    for (const call of [client.block, client.mute])
      expect(await refusal(call({ user_id: "a", target_id: "b" }))).toEqual([
        status.FAILED_PRECONDITION,
        "user_id: is suspended",
      ]);
    for (const call of [client.acceptFollow, client.rejectFollow, client.removeFollower])
      expect(await refusal(call({ user_id: "a", follower_id: "b" }))).toEqual([
        status.FAILED_PRECONDITION,
        "user_id: is suspended",
      ]);
    expect((await client.removeFollower({ user_id: "b", follower_id: "a" })).changed).toBe(false);
    expect((await client.follow({ follower_id: "b", following_id: "a" })).changed).toBe(true);
    expect((await client.follow({ follower_id: "c", following_id: "b" })).changed).toBe(true);
    await client.setStanding({ user_id: "a", standing: ACTIVE });
    await settle(db, users);
    await users.standings.refresh();
    expect((await client.follow({ follower_id: "a", following_id: "b" })).changed).toBe(true);
  });

  test.each<[string, object, string]>([
    ["neither a user nor a host", { standing: LIMITED }, "user_id: must be set, or host, and not both"],
    ["both", { user_id: "a", host: "b.example", standing: LIMITED }, "user_id: must be set, or host, and not both"],
    ["no host", { host: "a/b", standing: LIMITED }, "host: must be the name of a host"],
    ["no standing", { user_id: "a" }, "standing: must be active, limited or suspended"],
    ["an end that has passed", { user_id: "a", standing: LIMITED, until: 5 }, "until: must be 0 or in the future"],
    [
      "a long reason",
      { user_id: "a", standing: LIMITED, reason: "x".repeat(501) },
      "reason: must have at most 500 characters",
    ],
  ])("%s is refused", async (_, request, fault) => {
    expect(await refusal(client.setStanding(request))).toEqual([status.INVALID_ARGUMENT, fault]);
  });

  test("an erased user gets no standing, and keeps none", async () => {
    await client.setStanding({ user_id: "a", standing: LIMITED });
    await client.eraseUser({ user_id: "b" });
    expect(await refusal(client.setStanding({ user_id: "b", standing: LIMITED }))).toEqual([
      status.FAILED_PRECONDITION,
      "user_id: is erased",
    ]);
    expect(await listed()).toEqual([["a", LIMITED]]);
  });
});
