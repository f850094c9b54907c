import { expect, test } from "@jest/globals";
import { eventually } from "../support/eventually.js";
import { describeNotifications } from "../support/notifications.js";

describeNotifications("events of notifications", (scene) => {
  const { words, own } = scene;

  test("listeners get each notification once, and for many likes of one drop one event a second", async () => {
    const [ada, bob] = [own("ada"), own("bob")];
    await scene.bench.listen(ada);
    const mention = scene.bench.logged("drop_created", { drop_id: own("b1"), user_id: "bob", mentions: [ada, bob] });
    await scene.bench.handle(mention);
    await scene.bench.handle(mention);
    const likes = Array.from({ length: 50 }, (_, index) => scene.bench.like(own("a1"), ada, `fan${index}`, 1));
    for (const like of likes) await scene.bench.handle(like);
    await scene.bench.handle(...likes.slice(0, 20));
    const countOf = (events: readonly Readonly<Record<string, unknown>>[]): number =>
      events.reduce((sum, { count = 1, kind }) => sum + (kind === "LIKE" ? (count as number) : 0), 0);
    await eventually(async () => countOf(await scene.bench.told(ada)) >= 50, "all likes are told");
    const told = await scene.bench.told(ada);
    expect(countOf(told)).toBe(50);
    expect(told.length).toBeLessThan(12);
    expect(told[0]).toEqual({
      ...{ event: "notification", kind: "MENTION", actor_id: "bob", drop_id: own("b1") },
      ...{ id: expect.stringMatching(/^\d{16}$/), created_at: expect.any(Number) },
    });
    expect(told[1]).toMatchObject({ kind: "LIKE", actor_id: "fan0", drop_id: own("a1") });
    expect(told.at(-1)).toMatchObject({ kind: "LIKE", actor_id: "fan49" });
    expect(await scene.bench.told(bob)).toEqual([]);
    expect(await words(bob)).toEqual([`MENTION bob ${own("b1")}`]);
  });

  test("a notification of an event admitted more than ten minutes ago is in the list, and on no stream", async () => {
    const ada = own("ada");
    await scene.bench.listen(ada);
    const late = { time: Date.now() - 11 * 60_000 };
    const [mention, liked, fresh] = [own("b1"), own("a1"), own("a2")];
    await scene.bench.handle(
      scene.bench.logged(
        "drop_created",
        { drop_id: mention, user_id: "bob", mentions: [ada], created_at: late.time },
        late,
      ),
      { ...scene.bench.like(liked, ada, "bob", 1), ...late },
    );
    await scene.bench.handle(scene.bench.like(fresh, ada, "bob", 1));
    expect(await words(ada)).toEqual([`LIKE bob ${fresh}`, `LIKE bob ${liked}`, `MENTION bob ${mention}`]);
    await eventually(
      async () => (await scene.bench.told(ada)).some(({ drop_id }) => drop_id === fresh),
      "the new one is told",
    );
    expect(await scene.bench.told(ada)).toHaveLength(1);
  });

  test("a stream event about people whom the user has hidden since the write is not sent", async () => {
    const ada = own("ada");
    const hide = async (): Promise<void> => {
      scene.bench.people.hides.set(ada, new Map([["bob", "all"]]));
      await scene.bench.hiddenChanged();
    };
    const mention = scene.bench.logged("drop_created", { drop_id: own("b1"), user_id: "bob", mentions: [ada] });
    await scene.bench.handle(mention, scene.bench.like(own("a1"), ada, "cleo", 1));
    await scene.bench.listen(ada);
    await scene.bench.handle(scene.bench.like(own("a1"), ada, "dan", 1));
    await scene.db.query("UPDATE notification_groups SET told_at = told_at + 2000");
    await scene.bench.handle(scene.bench.like(own("a1"), ada, "bob", 1));
    await hide();
    await scene.bench.handle(mention, scene.bench.like(own("a2"), ada, "eve", 1));
    const settled = async () => (await scene.db.query("SELECT FROM notification_groups WHERE pending")).length === 0;
    await eventually(settled, "no event is due");
    expect((await scene.bench.told(ada)).map(({ actor_id }) => actor_id)).toEqual(["dan", "eve"]);
  });

  test("an event of a like is not sent again when a later like is taken back", async () => {
    const [ada, drop] = [own("ada"), own("a1")];
    await scene.bench.listen(ada);
    await scene.bench.handle(scene.bench.like(drop, ada, "bob", 1));
    await scene.db.query("UPDATE notification_groups SET told_at = told_at + 1000");
    await scene.bench.handle(scene.bench.like(drop, ada, "cleo", 1));
    await scene.bench.handle(scene.bench.like(drop, ada, "cleo", 2));
    const settled = async () => (await scene.db.query("SELECT FROM notification_groups WHERE pending")).length === 0;
    await eventually(settled, "no event is due");
    expect(await scene.bench.told(ada)).toMatchObject([{ kind: "LIKE", actor_id: "bob" }]);
    await scene.bench.handle(scene.bench.like(drop, ada, "dan", 1));
    await eventually(async () => (await scene.bench.told(ada)).length === 2, "the next one is told");
    expect((await scene.bench.told(ada))[1]).toMatchObject({ kind: "LIKE", actor_id: "dan" });
  });

  test("a like that is taken back and given again notifies once", async () => {
    const ada = own("ada");
    await scene.bench.listen(ada);
    for (let version = 1; version <= 9; version++)
      await scene.bench.handle(scene.bench.like("a1", ada, "bob", version));
    expect(await words(ada)).toEqual(["LIKE bob a1"]);
    await scene.bench.handle(scene.bench.like("a2", ada, "bob", 1));
    await eventually(
      async () => (await scene.bench.told(ada)).some(({ drop_id }) => drop_id === "a2"),
      "the other is told",
    );
    expect((await scene.bench.told(ada)).map(({ drop_id }) => drop_id)).toEqual(["a1", "a2"]);
  });
});
