import { setImmediate as nextTurn } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, test } from "@jest/globals";
import { v7 } from "uuid";
import type { Delivery, Handler } from "../../src/delivery/handler.js";
import { silent } from "../../src/kernel/logger.js";
import type { Db } from "../../src/platform/db/db.js";
import { createCalibration } from "../../src/posts/maintenance.js";
import { createCountEngagement } from "../../src/posts/reactions/reactions.js";
import { createReactionStore } from "../../src/posts/reactions/reactions.sql.js";
import { createPostsStore } from "../../src/posts/store.sql.js";
import { DATABASES, type DatabaseServer } from "../support/databases.js";
import { eventually } from "../support/eventually.js";
import { asAnotherProcess, type PostsHarness, post, startPosts, type Written } from "../support/posts.js";
import { below, duplicatedAndShuffled, oneOf, seeded, shuffled } from "../support/random.js";

const CONTEXT = { stopping: new AbortController().signal, log: silent };
const delivery = (body: unknown): Delivery => ({
  stream: "ENGAGEMENT",
  consumer: "counter",
  seq: 1,
  time: 0,
  subject: "engagement.changed",
  headers: { get: () => undefined, entries: () => [] },
  body: Buffer.from(typeof body === "string" ? body : JSON.stringify(body)),
  deliveries: 1,
});

describe.each(DATABASES)("counts on $name", ({ name, start }) => {
  let server: DatabaseServer;
  let posts: PostsHarness;
  let other: Db;
  /** Two processes that count. */
  let handlers: readonly Handler[];

  beforeAll(async () => {
    server = await start();
    const db = await server.newDatabase();
    posts = await startPosts(db);
    other = await asAnotherProcess(db);
    handlers = [posts.store, createPostsStore(other)].map(({ reactions }) => createCountEngagement(reactions));
  });
  afterAll(async () => {
    await posts.stop();
    if (other !== posts.db) await other.close();
    await server.stop();
  });

  const engagements = async (): Promise<Written[]> =>
    (await posts.written()).filter(({ subject }) => subject === "engagement.changed");
  const deliver = (handler: number, { body }: Written): Promise<void> =>
    (handlers[handler] as Handler)(delivery(body), CONTEXT);
  const counts = async (ids: readonly string[]) => (await posts.call.getCounts({ drop_ids: [...ids] })).counts;
  const calibrated = (steps = 100) =>
    createCalibration({
      drops: posts.store.reactions,
      lease: posts.store.lease,
      log: silent,
    })(steps);

  test.each([1, 2, 3])(
    "any order and doubling of events by two processes ends in what people did (seed %i)",
    async (seed) => {
      await engagements();
      const random = seeded(seed);
      const drops = [await post(posts), await post(posts), await post(posts)];
      const model = new Map(
        drops.map((id) => [id, { like: new Set<string>(), share: new Set<string>(), reply: new Set<string>() }]),
      );
      const pool: Written[] = [];
      const under: Promise<void>[] = [];
      for (let step = 0; step < 120; step++) {
        const drop_id = oneOf(random, drops);
        const of = model.get(drop_id) as NonNullable<ReturnType<typeof model.get>>;
        const user_id = `u${below(random, 6)}`;
        switch (below(random, 6)) {
          case 0:
            await posts.call.likeDrop({ drop_id, user_id });
            of.like.add(user_id);
            break;
          case 1:
            await posts.call.unlikeDrop({ drop_id, user_id });
            of.like.delete(user_id);
            break;
          case 2:
            await posts.call.shareDrop({ drop_id, user_id });
            of.share.add(user_id);
            break;
          case 3:
            await posts.call.unshareDrop({ drop_id, user_id });
            of.share.delete(user_id);
            break;
          case 4:
            of.reply.add(await post(posts, { reply_to: drop_id, user_id: "r" }));
            break;
          default:
            for (const reply of [...of.reply].slice(0, 1)) {
              await posts.call.deleteDrop({ drop_id: reply, user_id: "r" });
              of.reply.delete(reply);
            }
        }
        pool.push(...(await engagements()));
        if (pool.length > 0) under.push(deliver(below(random, 2), oneOf(random, pool)));
      }
      under.push(...duplicatedAndShuffled(random, pool).map((event) => deliver(below(random, 2), event)));
      await Promise.all(under);
      expect(await counts(drops)).toEqual(
        drops.map((drop_id) => {
          const of = model.get(drop_id);
          return { drop_id, likes: of?.like.size, shares: of?.share.size, replies: of?.reply.size };
        }),
      );
      expect((await calibrated()).corrected).toBe(0);
    },
  );

  // Invariant 3.
  test("many users and two processes at once on one drop lose and double no reaction", async () => {
    await engagements();
    const id = await post(posts);
    const random = seeded(7);
    const pool: Written[] = [];
    const person = async (user_id: string): Promise<void> => {
      for (let turn = 0; turn < 10; turn++) {
        const call = turn % 2 === 0 ? posts.call.likeDrop : posts.call.unlikeDrop;
        await call({ drop_id: id, user_id });
        const event = { body: { drop_id: id, kind: "like", actor_id: user_id } } as unknown as Written;
        pool.push(event);
        await Promise.all([deliver(turn % 2, event), deliver(below(random, 2), oneOf(random, pool))]);
      }
      if (below(random, 2) === 0) await posts.call.likeDrop({ drop_id: id, user_id });
    };
    const people = Array.from({ length: 15 }, (_, n) => `p${n}`);
    const checks: number[] = [];
    let done = false;
    const checking = (async () => {
      for (; !done; await nextTurn()) checks.push((await calibrated()).corrected);
    })();
    try {
      await Promise.all(people.map(person));
      await Promise.all(shuffled(random, [...pool, ...(await engagements())]).map((event, n) => deliver(n % 2, event)));
    } finally {
      done = true;
    }
    await checking;
    const [row] = await posts.db.query<{ n: number }>(
      "SELECT count(*) AS n FROM posts.reactions WHERE drop_id = $1 AND active",
      [id],
    );
    expect((await counts([id]))[0]?.likes).toBe(row?.n);
    expect(checks.filter((corrected) => corrected > 0)).toEqual([]);
  });

  test("a malformed message is invalid", async () => {
    const [handler] = handlers as [Handler];
    const good = { drop_id: v7(), kind: "like", actor_id: "ada" };
    for (const [body, field] of [
      ["{", "payload"],
      ["[]", "payload"],
      [{ ...good, drop_id: "7" }, "drop_id"],
      [{ ...good, drop_id: undefined }, "drop_id"],
      [{ ...good, kind: "love" }, "kind"],
      [{ ...good, actor_id: "" }, "actor_id"],
      [{ ...good, actor_id: "a\0" }, "actor_id"],
    ])
      await expect((async () => handler(delivery(body), CONTEXT))()).rejects.toMatchObject({
        code: "invalid",
        message: expect.stringContaining(field as string),
      });
    await expect(handler(delivery(good), CONTEXT)).resolves.toBeUndefined();
  });

  test("the calibration corrects wrong counts, and finds none afterwards", async () => {
    await posts.countAll();
    const ids: string[] = [];
    for (let n = 0; n < 5; n++) {
      const id = await post(posts);
      ids.push(id);
      for (let user = 0; user <= n; user++) await posts.call.likeDrop({ drop_id: id, user_id: `u${user}` });
      await posts.call.shareDrop({ drop_id: id, user_id: "u" });
    }
    await posts.countAll();
    const right = await counts(ids);
    await calibrated();
    const [more, fewer, lost, invented] = [ids[0], ids[1], ids[2], await post(posts)];
    await posts.db.query("UPDATE posts.counts SET likes = likes + 5 WHERE drop_id = $1", [more]);
    await posts.db.query("UPDATE posts.counts SET shares = 0, replies = 9 WHERE drop_id = $1", [fewer]);
    await posts.db.query("DELETE FROM posts.counts WHERE drop_id = $1", [lost]);
    await posts.db.query("INSERT INTO posts.counts VALUES ($1, 1, 0, 0)", [invented]);
    const found = await calibrated();
    expect(found).toMatchObject({ corrected: 4, overdue: 0 });
    expect(found.checked).toBeGreaterThanOrEqual(6);
    expect(await counts(ids)).toEqual(right);
    expect(await counts([invented])).toEqual([{ drop_id: invented, likes: 0, shares: 0, replies: 0 }]);
    expect((await calibrated()).corrected).toBe(0);
  });

  test("counts that are too low never fall below zero, and are right after the calibration", async () => {
    const id = await post(posts);
    for (const user_id of ["a", "b"]) await posts.call.likeDrop({ drop_id: id, user_id });
    await posts.countAll();
    await posts.db.query("UPDATE posts.counts SET likes = 0 WHERE drop_id = $1", [id]);
    await posts.call.unlikeDrop({ drop_id: id, user_id: "a" });
    await posts.countAll();
    expect((await counts([id]))[0]?.likes).toBe(0);
    expect((await calibrated()).corrected).toBe(1);
    expect((await counts([id]))[0]?.likes).toBe(1);
  });

  test("a reaction that waits for its event is no difference; after an hour it is counted", async () => {
    const id = await post(posts);
    await posts.call.likeDrop({ drop_id: id, user_id: "ada" });
    expect(await calibrated()).toMatchObject({ corrected: 0, overdue: 0 });
    expect((await counts([id]))[0]?.likes).toBe(0);
    await posts.db.query("UPDATE posts.reactions SET changed_at = changed_at - 3600001 WHERE drop_id = $1", [id]);
    expect(await calibrated()).toMatchObject({ corrected: 0, overdue: 1 });
    expect((await counts([id]))[0]?.likes).toBe(1);
  });

  test("the calibration continues where it stopped, and starts again after the last drop", async () => {
    await calibrated();
    await posts.db.query("DELETE FROM posts.counts");
    await posts.db.query("DELETE FROM posts.reactions");
    const ids = Array.from({ length: 450 }, () => v7());
    await posts.db.query(
      "INSERT INTO posts.counts (drop_id, likes, shares, replies) SELECT unnest($1::uuid[]), 0, 0, 0",
      [ids],
    );
    const checked: number[] = [];
    for (let step = 0; step < 4; step++) checked.push((await calibrated(1)).checked);
    expect(checked).toEqual([200, 200, 50, 200]);
  });

  const onServer = name === "PGlite" ? test.skip : test;

  const waits = (what: string): Promise<void> =>
    eventually(async () => {
      const rows = await posts.db.query(
        `SELECT FROM pg_stat_activity
         WHERE datname = current_database() AND state = 'active' AND wait_event_type = 'Lock'`,
      );
      return rows.length === 1;
    }, what);

  onServer("who counts what another one is counting waits for it, and adds nothing", async () => {
    const reaction = { drop_id: await post(posts), kind: "like", actor_id: "bob" } as const;
    await posts.call.likeDrop({ drop_id: reaction.drop_id, user_id: "bob" });
    const second = await posts.db.transaction(async (tx) => {
      await createReactionStore(tx as Db).count([reaction]);
      const counting = posts.store.reactions.count([reaction]);
      await waits("the second one waits");
      return { counting };
    });
    await second.counting;
    expect((await counts([reaction.drop_id]))[0]?.likes).toBe(1);
  });

  onServer("what is taken back while it is counted is counted as it is then", async () => {
    const reaction = { drop_id: await post(posts), kind: "like", actor_id: "bob" } as const;
    await posts.call.likeDrop({ drop_id: reaction.drop_id, user_id: "bob" });
    await posts.countAll();
    const second = await posts.db.transaction(async (tx) => {
      const set = "UPDATE posts.reactions SET active = $2 WHERE drop_id = $1";
      await posts.db.query(set, [reaction.drop_id, false]);
      await tx.query(set, [reaction.drop_id, true]);
      const counting = posts.store.reactions.count([reaction]);
      await waits("the counting waits");
      return { counting };
    });
    await second.counting;
    expect((await counts([reaction.drop_id]))[0]?.likes).toBe(1);
    expect((await calibrated()).corrected).toBe(0);
  });
});
