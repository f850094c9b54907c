import { expect, test } from "@jest/globals";
import { NotificationKind } from "../../src/gen/avion/notifications.js";
import { headersWith } from "../support/deliveries.js";
import { eventually } from "../support/eventually.js";
import { describeNotifications, hoursAgo, inWords } from "../support/notifications.js";

describeNotifications("notifications", (scene) => {
  const { words, own } = scene;

  test("each kind is listed, the newest first, with its drop", async () => {
    const { logged, activity } = scene.bench;
    await scene.bench.handle(
      logged("user_followed", { follower_id: "bob", following_id: "ada", version: 1 }),
      activity("user_requested", { follower_id: "cleo", following_id: "ada", version: 1, active: true }),
      scene.bench.like("a1", "ada", "bob", 1),
      logged("drop_created", { drop_id: "r1", user_id: "bob", repost_of: "a1", repost_author: "ada" }),
      logged("drop_created", { drop_id: "b1", user_id: "bob", reply_to: "a1", reply_to_author: "ada" }),
      logged("drop_created", { drop_id: "b2", user_id: "bob", mentions: ["ada", "cleo"] }),
    );
    const all = ["MENTION bob b2", "REPLY bob b1", "REPOST bob a1", "LIKE bob a1", "FOLLOW_REQUEST cleo", "FOLLOW bob"];
    expect(await words("ada")).toEqual(all);
    expect(await words("cleo")).toEqual(["MENTION bob b2"]);
    const { notifications } = await scene.bench.list("ada");
    expect(notifications.map(({ id }) => id)).toEqual(
      [...notifications]
        .map(({ id }) => id)
        .sort()
        .reverse(),
    );
    for (const { created_at } of notifications) expect(Math.abs(Date.now() - created_at)).toBeLessThan(60_000);
    expect(await scene.bench.unread("ada")).toEqual({ count: 6, newest_id: notifications[0]?.id });
    expect(inWords(await scene.bench.list("ada", { kinds: [NotificationKind.LIKE, NotificationKind.REPLY] }))).toEqual([
      "REPLY bob b1",
      "LIKE bob a1",
    ]);
  });

  test("a reply that mentions the author of its parent is a reply only, and nobody is notified of their own acts", async () => {
    await scene.bench.handle(
      scene.bench.logged("drop_created", {
        ...{ drop_id: "b1", user_id: "bob", reply_to: "a1", reply_to_author: "ada", mentions: ["ada", "bob"] },
      }),
      scene.bench.logged("drop_created", { drop_id: "a2", user_id: "ada", reply_to: "a1", reply_to_author: "ada" }),
      scene.bench.like("a1", "ada", "ada", 1),
      scene.bench.logged("drop_created", { drop_id: "r1", user_id: "ada", repost_of: "a1", repost_author: "ada" }),
    );
    expect(await words("ada")).toEqual(["REPLY bob b1"]);
    expect(await words("bob")).toEqual([]);
  });

  test("a direct drop notifies its recipients, and a drop for followers those whom it answers and mentions", async () => {
    const answer = { reply_to: "a1", reply_to_author: "ada", user_id: "bob" };
    await scene.bench.handle(
      scene.bench.logged("drop_created", { ...answer, drop_id: "b1", visibility: "direct", recipients: ["cleo"] }),
      scene.bench.logged("drop_created", { ...answer, drop_id: "b2", visibility: "direct", recipients: ["ada"] }),
      scene.bench.logged("drop_created", { ...answer, drop_id: "b3", visibility: "followers", mentions: ["cleo"] }),
    );
    expect(await words("ada")).toEqual(["REPLY bob b3", "REPLY bob b2"]);
    expect(await words("cleo")).toEqual(["MENTION bob b3"]);
  });

  test("the newest version decides, in whatever order the events come", async () => {
    await scene.bench.handle(scene.bench.like("a1", "ada", "bob", 2));
    await scene.bench.handle(scene.bench.like("a1", "ada", "bob", 1));
    expect(await words("ada")).toEqual([]);
    await scene.bench.handle(scene.bench.like("a1", "ada", "bob", 3));
    await scene.bench.handle(scene.bench.like("a1", "ada", "bob", 2));
    expect(await words("ada")).toEqual(["LIKE bob a1"]);
  });

  test("an acceptance replaces the request by the follow, even if both have the same version", async () => {
    const edge = { follower_id: "bob", following_id: "ada" };
    await scene.bench.handle(scene.bench.activity("user_requested", { ...edge, version: 5, active: true }));
    expect(await words("ada")).toEqual(["FOLLOW_REQUEST bob"]);
    await scene.bench.handle(scene.bench.logged("user_followed", { ...edge, version: 6 }));
    await scene.bench.handle(scene.bench.activity("user_requested", { ...edge, version: 6, active: false }));
    expect(await words("ada")).toEqual(["FOLLOW bob"]);
    await scene.bench.handle(scene.bench.activity("user_requested", { ...edge, version: 5, active: true }));
    expect(await words("ada")).toEqual(["FOLLOW bob"]);
    await scene.bench.handle(scene.bench.logged("user_unfollowed", { ...edge, version: 7 }));
    expect(await words("ada")).toEqual([]);
  });

  test("a deletion takes back the notifications of a drop, whether it comes before or after them", async () => {
    const repost = scene.bench.logged("drop_created", {
      drop_id: "r1",
      user_id: "bob",
      repost_of: "a1",
      repost_author: "ada",
    });
    const reply = scene.bench.logged("drop_created", {
      drop_id: "b1",
      user_id: "bob",
      reply_to_author: "ada",
      reply_to: "a1",
    });
    await scene.bench.handle(
      repost,
      reply,
      scene.bench.like("a1", "ada", "cleo", 1),
      scene.bench.like("a2", "ada", "cleo", 1),
    );
    await scene.bench.handle(scene.bench.logged("drop_deleted", { drop_id: "r1", user_id: "bob" }));
    expect(await words("ada")).toEqual(["LIKE cleo a2", "LIKE cleo a1", "REPLY bob b1"]);
    await scene.bench.handle(repost);
    await scene.bench.handle(scene.bench.logged("drop_deleted", { drop_id: "b1", user_id: "bob" }), reply);
    await scene.bench.handle(scene.bench.logged("drop_deleted", { drop_id: "a1", user_id: "ada" }));
    await scene.bench.handle(reply, scene.bench.like("a1", "ada", "dan", 1));
    expect(await words("ada")).toEqual(["LIKE cleo a2"]);
  });

  test("a repost that was undone before it notified anybody does not keep the next one from notifying", async () => {
    const ada = own("ada");
    await scene.bench.listen(ada);
    const shared = { user_id: "bob", repost_of: own("a1"), repost_author: ada };
    const [first, second] = [own("r1"), own("r2")];
    await scene.bench.handle(
      scene.bench.logged("drop_created", { ...shared, drop_id: first, created_at: Date.now() - 2_000 }),
      scene.bench.logged("drop_deleted", { drop_id: first, user_id: "bob" }),
    );
    expect(await words(ada)).toEqual([]);
    await scene.bench.handle(scene.bench.logged("drop_created", { ...shared, drop_id: second }));
    expect(await words(ada)).toEqual([`REPOST bob ${own("a1")}`]);
    await eventually(async () => (await scene.bench.told(ada)).length > 0, "the repost is told");
    expect(await scene.bench.told(ada)).toMatchObject([{ kind: "REPOST", actor_id: "bob" }]);
  });

  test("a repost that is made again notifies once, and keeps its place in the list", async () => {
    const shared = { user_id: "bob", repost_of: "a1", repost_author: "ada" };
    await scene.bench.handle(
      scene.bench.logged("drop_created", { ...shared, drop_id: "r1", created_at: Date.now() - 2_000 }),
    );
    const [first] = (await scene.bench.list("ada")).notifications;
    await scene.bench.handle(
      scene.bench.logged("drop_created", { ...shared, drop_id: "r2", created_at: Date.now() - 1_000 }),
    );
    await scene.bench.handle(scene.bench.logged("drop_deleted", { drop_id: "r1", user_id: "bob" }));
    expect((await scene.bench.list("ada")).notifications).toEqual([first]);
  });

  test("acts of a hidden actor never notify, and notifications from before are back afterwards", async () => {
    const { people } = scene.bench;
    await scene.bench.handle(scene.bench.like("a1", "ada", "bob", 1), scene.bench.like("a1", "ada", "cleo", 1));
    people.hides.set("ada", new Map([["bob", "all"]]));
    await scene.bench.hiddenChanged();
    const late = scene.bench.like("a2", "ada", "bob", 1);
    await scene.bench.handle(late);
    expect(await words("ada")).toEqual(["LIKE cleo a1"]);
    expect(await scene.bench.unread("ada")).toMatchObject({ count: 1 });
    people.hides.clear();
    await scene.bench.hiddenChanged();
    await scene.bench.handle(late);
    expect(await words("ada")).toEqual(["LIKE cleo a1", "LIKE bob a1"]);
  });

  test("a mute of reposts hides no other notification", async () => {
    scene.bench.people.hides.set("ada", new Map([["bob", "reposts"]]));
    await scene.bench.handle(
      scene.bench.like("a1", "ada", "bob", 1),
      scene.bench.logged("drop_created", { drop_id: "r1", user_id: "bob", repost_of: "a1", repost_author: "ada" }),
    );
    expect(await words("ada")).toEqual(["LIKE bob a1"]);
  });

  test("the suspended notify nobody, and the limited those who follow them", async () => {
    const { standings } = scene.bench.state;
    await standings.record([
      { user_id: "bob", standing: "suspended", until: 0, version: 1 },
      { user_id: "cleo", standing: "limited", until: 0, version: 1 },
    ]);
    await standings.refresh();
    scene.bench.people.follows.add("dan cleo");
    const likes = ["ada", "dan"].flatMap((user) => [
      scene.bench.like(`${user}1`, user, "bob", 1),
      scene.bench.like(`${user}1`, user, "cleo", 1),
    ]);
    await scene.bench.handle(...likes);
    expect(await words("ada")).toEqual([]);
    expect(await words("dan")).toEqual(["LIKE cleo dan1"]);
    await standings.record([{ user_id: "cleo", standing: "suspended", until: 0, version: 2 }]);
    await standings.refresh();
    expect(await words("dan")).toEqual([]);
  });

  test("a repost for followers notifies an author who follows, and a direct one nobody", async () => {
    scene.bench.people.follows.add("ada bob");
    const repost = (drop_id: string, repost_author: string, visibility: string) =>
      scene.bench.logged("drop_created", {
        ...{ drop_id, user_id: "bob", repost_of: `${drop_id}-original`, repost_author, visibility, recipients: [] },
      });
    await scene.bench.handle(
      repost("r1", "ada", "followers"),
      repost("r2", "cleo", "followers"),
      repost("r3", "ada", "direct"),
      repost("r4", "cleo", "unlisted"),
    );
    expect(await words("ada")).toEqual(["REPOST bob r1-original"]);
    expect(await words("cleo")).toEqual(["REPOST bob r4-original"]);
  });

  test("a reply to a suspended user notifies nobody whom it mentions", async () => {
    const { standings } = scene.bench.state;
    await standings.record([{ user_id: "sue", standing: "suspended", until: 0, version: 1 }]);
    await standings.refresh();
    const reply = (drop_id: string, reply_to_author: string) =>
      scene.bench.logged("drop_created", {
        drop_id,
        user_id: "bob",
        reply_to: "p1",
        reply_to_author,
        mentions: ["ada"],
      });
    await scene.bench.handle(reply("b1", "sue"), reply("b2", "fay"));
    expect(await words("ada")).toEqual(["MENTION bob b2"]);
  });

  test("an event older than six hours at its admission notifies nobody", async () => {
    const old = hoursAgo(7);
    await scene.bench.handle(
      scene.bench.logged("drop_created", { drop_id: "b1", user_id: "bob", mentions: ["ada"], created_at: old }),
      scene.bench.activity("drop_reacted", {
        ...{ drop_id: "a1", author_id: "ada", user_id: "bob", kind: "like", active: true, version: 1, created_at: old },
      }),
      scene.bench.logged(
        "user_followed",
        { follower_id: "bob", following_id: "ada", version: 1 },
        { headers: headersWith({ "Dlq-First-Seen": new Date(old).toISOString() }) },
      ),
      scene.bench.logged("user_followed", { follower_id: "cleo", following_id: "ada", version: 1, created_at: old }),
    );
    expect(await words("ada")).toEqual([]);
  });

  test("a reply by a remote user notifies, and a mention of one does not: their own server does that", async () => {
    await scene.bench.handle(
      scene.bench.logged("ap_drop_received", {
        ...{
          drop_id: "https://far.example/1",
          user_id: "https://far.example/eve",
          reply_to_author: "ada",
          reply_to: "a1",
        },
      }),
      scene.bench.logged("drop_created", { drop_id: "b1", user_id: "bob", mentions: ["https://far.example/eve"] }),
    );
    expect(await words("ada")).toEqual(["REPLY https://far.example/eve https://far.example/1"]);
    expect(await words("https://far.example/eve")).toEqual([]);
  });

  test("a drop of another scene.server is told to whom it mentions, a direct one to its recipients only", async () => {
    const eve = "https://far.example/eve";
    const remote = (drop_id: string, fields: object) =>
      scene.bench.logged("ap_drop_received", { drop_id, user_id: eve, mentions: ["ada", "cleo"], ...fields });
    await scene.bench.handle(
      remote("https://far.example/1", {}),
      remote("https://far.example/2", { visibility: "direct", recipients: ["ada"] }),
    );
    expect(await words("ada")).toEqual([
      `MENTION ${eve} https://far.example/2`,
      `MENTION ${eve} https://far.example/1`,
    ]);
    expect(await words("cleo")).toEqual([`MENTION ${eve} https://far.example/1`]);
  });

  test("hidden people leave no gaps in pages", async () => {
    for (let index = 1; index <= 30; index++)
      await scene.bench.handle(scene.bench.like(`a${index}`, "ada", index % 3 === 0 ? "bob" : "cleo", 1));
    scene.bench.people.hides.set("ada", new Map([["bob", "all"]]));
    await scene.bench.hiddenChanged();
    const drops: string[] = [];
    let max_id = "";
    for (let more = true; more; ) {
      const page = await scene.bench.list("ada", { limit: 6, max_id });
      drops.push(...page.notifications.map(({ drop_id }) => drop_id));
      max_id = page.next_max_id;
      more = page.has_more;
    }
    const wanted = Array.from({ length: 30 }, (_, index) => 30 - index).filter((index) => index % 3 !== 0);
    expect(drops).toEqual(wanted.map((index) => `a${index}`));
    expect(await scene.bench.list("ada", { max_id: "0000000000000001" })).toEqual({
      ...{ notifications: [], has_more: false, next_max_id: "0000000000000001" },
    });
  });

  test.each([
    ["limit", { limit: 101 }],
    ["limit", { limit: -1 }],
    ["kinds", { kinds: [0] }],
    ["max_id", { max_id: "17" }],
  ])("a list with a bad %s is refused, and the field named", async (field, asked) => {
    await expect(scene.bench.list("ada", asked)).rejects.toMatchObject({
      code: "invalid",
      message: expect.stringContaining(field),
    });
  });

  test("the mark of what is read moves up only, and listeners are told", async () => {
    const ada = own("ada");
    await scene.bench.listen(ada);
    for (const drop of ["a1", "a2", "a3"]) await scene.bench.handle(scene.bench.like(drop, ada, "bob", 1));
    const [newest, middle] = (await scene.bench.list(ada)).notifications.map(({ id }) => id) as [string, string];
    expect(await scene.bench.markRead(ada, middle)).toEqual({ changed: true });
    expect(await scene.bench.unread(ada)).toEqual({ count: 1, newest_id: newest });
    // Also one from the future marks no more than there is.
    expect(await scene.bench.markRead(ada, "9999999999999999")).toEqual({ changed: true });
    expect(await scene.bench.markRead(ada, middle)).toEqual({ changed: false });
    expect(await scene.bench.unread(ada)).toEqual({ count: 0, newest_id: newest });
    await scene.bench.handle(scene.bench.like("a4", ada, "bob", 1));
    expect(await scene.bench.unread(ada)).toMatchObject({ count: 1 });
    const told = (await scene.bench.told(ada)).filter(({ event }) => event === "notifications_read");
    expect(told).toEqual([middle, newest].map((up_to_id) => ({ event: "notifications_read", up_to_id })));
    await expect(scene.bench.markRead(ada, "")).rejects.toMatchObject({ code: "invalid" });
  });
});
