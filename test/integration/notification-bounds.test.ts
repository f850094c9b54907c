import { expect, test } from "@jest/globals";
import fc from "fast-check";
import { chunked } from "../../src/kernel/concurrency.js";
import { createMaintenanceStore } from "../../src/notifications/maintenance.sql.js";
import { createNotificationStore } from "../../src/notifications/store.sql.js";
import type { Db, Queries } from "../../src/platform/db/db.js";
import { eventually } from "../support/eventually.js";
import { describeNotifications } from "../support/notifications.js";

describeNotifications("bounds of notifications", (scene) => {
  const { words, own } = scene;

  test("of 1,500 likes of a star's drop the newest 1,000 are listed, and all are counted, however often they come", async () => {
    const star = own("star");
    await scene.bench.listen(star);
    const likes = Array.from({ length: 1_500 }, (_, index) => scene.bench.like(own("s1"), star, `fan${index}`, 1));
    const other = scene.bench.like(own("o1"), own("other"), "fan1", 1);
    await scene.bench.listen(own("other"));
    for (const part of chunked(likes, 100))
      await Promise.all([scene.bench.handle(...part), scene.bench.handle(...part)]);
    await scene.bench.handle(other);
    const countOf = async (): Promise<number> =>
      (await scene.bench.told(star)).reduce((sum, { count = 1 }) => sum + (count as number), 0);
    await eventually(async () => (await countOf()) >= 1_500, "all likes are told");
    expect(await countOf()).toBe(1_500);
    expect(await scene.bench.told(own("other"))).toHaveLength(1);
    let listed = 0;
    let max_id = "";
    for (let more = true; more; ) {
      const page = await scene.bench.list(star, { limit: 100, max_id });
      listed += page.notifications.length;
      [more, max_id] = [page.has_more, page.next_max_id];
    }
    expect(listed).toBe(1_000);
    expect(await scene.bench.unread(star)).toMatchObject({ count: 100 });
    // Once they are settled, rows beyond the newest are removed.
    const { trim } = createMaintenanceStore(scene.db, { settledMs: -60_000 });
    while (await trim(700));
    const rows = async () =>
      (await scene.db.query<{ rows: number }>("SELECT count(*) AS rows FROM notifications"))[0]?.rows;
    expect(await rows()).toBe(1_001);
    await scene.bench.handle(scene.bench.logged("drop_deleted", { drop_id: own("s1"), user_id: star }));
    expect(await rows()).toBe(1);
  }, 60_000);

  test("the deletion of a drop that many like removes at most 1,000 rows at a time", async () => {
    await scene.db.query(`INSERT INTO notifications
      (user_id, kind, slot, actor_id, drop_id, by_drop, version, rank, state, position, seq, expires_at)
      SELECT 'star', 3, 3, 'fan' || n, CASE WHEN n > 2500 THEN 's2' ELSE 's1' END, 's1', 1, 0, 1, n, n, 1e15::bigint
      FROM generate_series(1, 3700) n`);
    const steps: number[] = [];
    const watched = {
      transaction: <Result>(work: (queries: Queries) => Promise<Result>) =>
        scene.db.transaction((queries) => {
          const query = async <Row>(...asked: Parameters<Queries["query"]>): Promise<Row[]> => {
            const rows = await queries.query<Row>(...asked);
            steps.push(rows.length);
            return rows;
          };
          return work({ query, run: queries.run });
        }),
    } as Db;
    await createNotificationStore(watched).removeDrops(["s1"]);
    expect(steps).toEqual([1_000, 1_000, 500, 1_000, 200]);
    const left = await scene.db.query(
      "SELECT drop_id, state, count(*) AS rows FROM notifications GROUP BY drop_id, state",
    );
    expect(left).toEqual([{ drop_id: "s2", state: 2, rows: 1_200 }]);
  });

  test("notifications are removed after 90 days, and those that were taken back after eight", async () => {
    const { removeOld } = createMaintenanceStore(scene.db);
    const at = (days: number) => ({ time: Date.now() - days * 86_400_000 });
    const like = (drop: string, version: number, days: number) => ({
      ...scene.bench.like(drop, "ada", "bob", version),
      ...at(days),
    });
    await scene.bench.handle(like("a1", 1, 91), like("a2", 1, 89), like("a3", 2, 9), like("a4", 2, 7));
    while (await removeOld(1));
    const rows = await scene.db.query<{ drop_id: string }>("SELECT drop_id FROM notifications ORDER BY drop_id");
    expect(rows.map(({ drop_id }) => drop_id)).toEqual(["a2", "a4"]);
  });

  test("likes of a drop that had none for a day are announced by a new event", async () => {
    const [ada, drop] = [own("ada"), own("a1")];
    await scene.bench.listen(ada);
    for (const actor of ["bob", "cleo"]) {
      await scene.bench.handle(scene.bench.like(drop, ada, actor, 1));
      const tells = async () => (await scene.bench.told(ada)).some(({ actor_id }) => actor_id === actor);
      await eventually(tells, `the like of ${actor} is told`);
      await scene.db.query("DELETE FROM notification_groups");
    }
    expect((await scene.bench.told(ada)).map(({ count }) => count)).toEqual([undefined, undefined]);
  });

  test("a user without notifications for 98 days leaves nothing, and may get new ones", async () => {
    const { removeOld } = createMaintenanceStore(scene.db);
    const like = (user: string, days: number) => ({
      ...scene.bench.like("a1", user, "bob", 1),
      time: Date.now() - days * 86_400_000,
    });
    await scene.bench.handle(like("ada", 99), like("cleo", 97));
    while (await removeOld(1));
    const users = async () =>
      (await scene.db.query<{ user_id: string }>("SELECT user_id FROM notification_users ORDER BY 1")).map(
        (row) => row.user_id,
      );
    expect(await users()).toEqual(["cleo"]);
    await scene.bench.handle(scene.bench.like("a2", "ada", "bob", 1));
    expect(await words("ada")).toEqual(["LIKE bob a2"]);
    expect(await scene.bench.unread("ada")).toMatchObject({ count: 1 });
    expect(await users()).toEqual(["ada", "cleo"]);
  });

  test("no row names an erased user, and none names them again", async () => {
    await scene.bench.handle(
      scene.bench.like("a1", "ada", "bob", 1),
      scene.bench.like("b1", "bob", "ada", 1),
      scene.bench.like("b1", "bob", "cat", 1),
      scene.bench.like("a1", "ada", "cat", 1),
    );
    const reported: number[] = [];
    const left = async (count: number) => void reported.push(count);
    for (let again = 0; again < 2; again++)
      await scene.bench.running.forget("bob", { stopping: new AbortController().signal, left });
    expect(reported).toEqual([3]);
    expect(await words("ada")).toEqual(["LIKE cat a1"]);
    await scene.bench.handle(
      scene.bench.like("b1", "bob", "dan", 1),
      scene.bench.like("a1", "ada", "bob", 3),
      scene.bench.like("a2", "ada", "cat", 1),
    );
    expect(await words("ada")).toEqual(["LIKE cat a2", "LIKE cat a1"]);
    for (const table of ["notifications", "notification_users", "notification_groups"])
      expect(await scene.db.query(`SELECT FROM ${table} t WHERE t::text LIKE '%bob%'`)).toEqual([]);
  });

  // Invariant 3.
  test("any order of the events, with any of them twice, ends in what the newest versions say", async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(STEP, { maxLength: 25 }), fc.infiniteStream(fc.nat()), async (steps, shuffle) => {
        const user = `ada${++history}`;
        const events = steps.map((step) => ({ step, delivery: deliveryOfStep(user, step) }));
        const twice = [...events, ...events.filter((_, index) => index % 3 === 0)];
        const shuffled = twice
          .map((event) => ({ event, at: shuffle.next().value }))
          .sort((a, b) => a.at - b.at)
          .map(({ event }) => event.delivery);
        for (const part of chunked(shuffled, 4)) await scene.bench.handle(...part);
        expect((await words(user)).sort()).toEqual(wantedOf(user, steps));
      }),
      { numRuns: 15 },
    );
  }, 60_000);

  let history = 0;
  const deliveryOfStep = (user: string, { kind, actor, drop, version }: Step) => {
    const edge = { follower_id: actor, following_id: user, version };
    if (kind === "edge") return scene.bench.logged(version % 2 === 1 ? "user_followed" : "user_unfollowed", edge);
    if (kind === "request") return scene.bench.activity("user_requested", { ...edge, active: version % 2 === 1 });
    if (kind === "delete") return scene.bench.logged("drop_deleted", { drop_id: `${user}${drop}`, user_id: user });
    return scene.bench.like(`${user}${drop}`, user, actor, version);
  };
});

interface Step {
  readonly kind: "like" | "edge" | "request" | "delete";
  readonly actor: string;
  readonly drop: string;
  readonly version: number;
}

const STEP: fc.Arbitrary<Step> = fc.record({
  kind: fc.constantFrom("like", "like", "like", "edge", "request", "delete"),
  actor: fc.constantFrom("bob", "cat"),
  drop: fc.constantFrom("d1", "d2", "d3"),
  version: fc.integer({ min: 1, max: 8 }),
});

/** Odd versions make, even ones take back. Of equal versions of an edge the follow counts. */
function wantedOf(user: string, steps: readonly Step[]): string[] {
  const deleted = new Set(steps.flatMap(({ kind, drop }) => (kind === "delete" ? [drop] : [])));
  const newest = new Map<string, Step>();
  const rank = ({ version, kind }: Step): number => 2 * version + (kind === "edge" ? 1 : 0);
  for (const step of steps) {
    if (step.kind === "delete") continue;
    const key = step.kind === "like" ? `${step.actor} ${step.drop}` : step.actor;
    const known = newest.get(key);
    if (known === undefined || rank(step) > rank(known)) newest.set(key, step);
  }
  return [...newest.values()]
    .filter(({ kind, drop, version }) => version % 2 === 1 && !(kind === "like" && deleted.has(drop)))
    .map(({ kind, actor, drop }) =>
      kind === "like" ? `LIKE ${actor} ${user}${drop}` : `${kind === "edge" ? "FOLLOW" : "FOLLOW_REQUEST"} ${actor}`,
    )
    .sort();
}
