import { expect, test } from "@jest/globals";
import { v7 } from "uuid";
import { Visibility } from "../../src/gen/avion/posts.js";
import { describePosts } from "../support/describe-posts.js";
import { eventually } from "../support/eventually.js";
import { post, refusal } from "../support/posts.js";

const UNKNOWN = v7();

describePosts("changing drops", {}, (posts, { name }) => {
  const edit = (drop_id: string, body: string, expected_revision = 0, user_id = "ada") =>
    posts.call.editDrop({ drop_id, user_id, body, summary: "", expected_revision });

  const rowsAbout = async (table: string, id: string): Promise<number> =>
    (await posts.db.query(`SELECT FROM posts.${table} WHERE drop_id = $1`, [id])).length;

  test("an edit keeps the version before, and writes an event with its revision and time", async () => {
    const id = await post(posts, { summary: "s", body: "one", visibility: Visibility.FOLLOWERS });
    const { drop: first } = await posts.call.getDrop({ drop_id: id });
    await posts.written();
    const woken = posts.woken();
    const { drop: second } = await edit(id, "two");
    expect(posts.woken()).toBe(woken + 1);
    expect(second).toEqual({ ...first, summary: "", body: "two", revision: 2, updated_at: expect.any(Number) });
    expect(second?.updated_at).toBeGreaterThanOrEqual(first?.updated_at as number);
    const { drop: third } = await edit(id, "three", 2);
    expect(await posts.call.getDrop({ drop_id: id })).toEqual({ drop: third });
    expect(await posts.call.getDrop({ drop_id: id, revision: 1 })).toEqual({ drop: first });
    expect(await posts.call.getDrop({ drop_id: id, revision: 2 })).toEqual({ drop: second });
    expect(await posts.call.getDrop({ drop_id: id, revision: 3 })).toEqual({ drop: third });
    expect(await posts.call.listRevisions({ drop_id: id })).toEqual({
      revisions: [third, second, first],
      next_page_token: "",
    });
    expect(await refusal(posts.call.getDrop({ drop_id: id, revision: 4 }))).toMatch(/^NOT_FOUND revision/);
    expect(await refusal(posts.call.getDrop({ drop_id: id, revision: 2 ** 31 - 1 }))).toMatch(/^NOT_FOUND revision/);
    expect(await posts.written()).toEqual(
      [second, third].map((drop) => ({
        key: id,
        subject: "drops.edited",
        messageId: `drop_edited:${id}:${drop?.revision}`,
        body: { drop_id: id, user_id: "ada", revision: drop?.revision, updated_at: drop?.updated_at },
      })),
    );
  });

  test("revisions are paged, and an edit in between doubles and loses none", async () => {
    const id = await post(posts, { body: "1" });
    for (let n = 2; n <= 7; n++) await edit(id, String(n));
    const first = await posts.call.listRevisions({ drop_id: id, page_size: 3 });
    await edit(id, "8");
    const second = await posts.call.listRevisions({ drop_id: id, page_size: 3, page_token: first.next_page_token });
    const third = await posts.call.listRevisions({ drop_id: id, page_size: 3, page_token: second.next_page_token });
    const bodies = [first, second, third].map(({ revisions }) => revisions.map(({ body }) => body));
    expect(bodies).toEqual([["7", "6", "5"], ["4", "3", "2"], ["1"]]);
    expect(third.next_page_token).toBe("");
  });

  test("edits at once each become a revision; of those that expect the same revision one does", async () => {
    const id = await post(posts, { body: "0" });
    const bodies = Array.from({ length: 12 }, (_, n) => `edit ${n}`);
    await Promise.all(bodies.map((body) => edit(id, body)));
    const { revisions } = await posts.call.listRevisions({ drop_id: id });
    expect(revisions.map(({ revision }) => revision)).toEqual(Array.from({ length: 13 }, (_, n) => 13 - n));
    expect(new Set(revisions.map(({ body }) => body))).toEqual(new Set(["0", ...bodies]));
    const outcomes = await Promise.allSettled(bodies.map((body) => edit(id, body, 13)));
    expect(outcomes.filter(({ status }) => status === "fulfilled")).toHaveLength(1);
    const events = (await posts.written()).filter(({ key, subject }) => key === id && subject === "drops.edited");
    expect(new Set(events.map(({ messageId }) => messageId)).size).toBe(13);
    expect(await refusal(edit(id, "late", 13))).toBe(
      "FAILED_PRECONDITION expected_revision: the drop is at revision 14",
    );
  });

  test("only the author edits and deletes a drop, and only one that exists", async () => {
    const id = await post(posts);
    expect(await refusal(edit(id, "mine", 0, "eve"))).toBe("INVALID_ARGUMENT user_id: is not the author");
    expect(await refusal(posts.call.deleteDrop({ drop_id: id, user_id: "eve" }))).toBe(
      "INVALID_ARGUMENT user_id: is not the author",
    );
    expect(await refusal(edit(UNKNOWN, "?"))).toMatch(/^NOT_FOUND drop_id/);
    expect(await refusal(posts.call.deleteDrop({ drop_id: UNKNOWN, user_id: "ada" }))).toMatch(/^NOT_FOUND drop_id/);
    expect(await refusal(posts.call.getDrop({ drop_id: UNKNOWN }))).toMatch(/^NOT_FOUND drop_id/);
    expect(await refusal(posts.call.listRevisions({ drop_id: UNKNOWN }))).toMatch(/^NOT_FOUND drop_id/);
    expect((await posts.call.getDrop({ drop_id: id })).drop?.body).toBe("hello");
  });

  test("a deleted drop is a tombstone without its texts", async () => {
    const id = await post(posts, {
      visibility: Visibility.DIRECT,
      recipients: ["bob"],
      summary: "secret",
      body: "secret",
    });
    await edit(id, "still secret");
    await posts.written();
    const woken = posts.woken();
    const deletion = { drop_id: id, user_id: "ada" };
    const { tombstone } = await posts.call.deleteDrop(deletion);
    expect(tombstone).toEqual({ id, former_type: "drop", deleted_at: expect.any(Number) });
    expect(await posts.written()).toEqual([
      {
        key: id,
        subject: "drops.deleted",
        messageId: `drop_deleted:${id}`,
        body: { drop_id: id, user_id: "ada" },
      },
    ]);
    expect(posts.woken()).toBe(woken + 1);
    expect(await posts.call.getDrop({ drop_id: id })).toEqual({ tombstone });
    expect(await posts.call.getDrop({ drop_id: id, revision: 1 })).toEqual({ tombstone });
    expect(await posts.call.listRevisions({ drop_id: id })).toEqual({ revisions: [], next_page_token: "" });
    const [row] = await posts.db.query<object>("SELECT * FROM posts.drops WHERE drop_id = $1", [id]);
    expect(JSON.stringify(row)).not.toMatch(/secret|bob/);
    expect(await rowsAbout("revisions", id)).toBe(0);

    expect(await posts.call.deleteDrop(deletion)).toEqual({ tombstone });
    expect(await posts.written()).toEqual([]);
    expect(await refusal(edit(id, "back"))).toBe("FAILED_PRECONDITION drop_id: the drop is deleted");
    expect(await refusal(posts.call.likeDrop(deletion))).toBe("FAILED_PRECONDITION drop_id: the drop is deleted");
    expect(await posts.call.unlikeDrop(deletion)).toEqual({ changed: false });
  });

  test("deleting at once writes one event", async () => {
    const id = await post(posts);
    await posts.written();
    const answers = await Promise.all(
      Array.from({ length: 10 }, () => posts.call.deleteDrop({ drop_id: id, user_id: "ada" })),
    );
    expect(new Set(answers.map(({ tombstone }) => tombstone?.deleted_at)).size).toBe(1);
    expect(await posts.written()).toHaveLength(1);
  });

  test("likes, shares and edits that race with a deletion leave nothing behind", async () => {
    for (let round = 0; round < 8; round++) {
      const id = await post(posts);
      const users = Array.from({ length: 12 }, (_, n) => `u${n}`);
      const racing = users.flatMap((user_id, n) => [
        posts.call.likeDrop({ drop_id: id, user_id }),
        posts.call.shareDrop({ drop_id: id, user_id }),
        post(posts, { reply_to: id, user_id }),
        ...(n % 4 === 0 ? [edit(id, `edit ${n}`)] : []),
      ]);
      const deletion = posts.call.deleteDrop({ drop_id: id, user_id: "ada" });
      await Promise.allSettled([...racing, deletion]);
      await posts.countAll();
      expect((await posts.call.getCounts({ drop_ids: [id] })).counts).toEqual([
        { drop_id: id, likes: 0, shares: 0, replies: 0 },
      ]);
      await posts.store.cleanup.purgeTombstones(1_000);
      expect(await posts.store.cleanup.purgeTombstones(1_000)).toBe(0);
      for (const table of ["reactions", "counts", "revisions"])
        expect([table, await rowsAbout(table, id)]).toEqual([table, 0]);
    }
  });

  test("likes and shares change once, each with an event of its own", async () => {
    const id = await post(posts);
    await posts.written();
    const ada = { drop_id: id, user_id: "ada:1" };
    const woken = posts.woken();
    const changed: boolean[] = [];
    for (const call of [
      posts.call.likeDrop,
      posts.call.likeDrop,
      posts.call.shareDrop,
      posts.call.shareDrop,
      posts.call.unlikeDrop,
      posts.call.unlikeDrop,
      posts.call.likeDrop,
      posts.call.unshareDrop,
      posts.call.unshareDrop,
    ])
      changed.push((await call(ada)).changed);
    expect(changed).toEqual([true, false, true, false, true, false, true, true, false]);
    // A share and its withdrawal wake the relay of drops, too, a like and its end that of activity.
    expect(posts.woken()).toBe(woken + 10);
    const events = (await posts.written()).filter(({ subject }) => subject === "engagement.changed");
    const actor = "=YWRhOjE";
    expect(events.map(({ messageId }) => messageId)).toEqual([
      `engagement:${id}:like:${actor}:1`,
      `engagement:${id}:share:${actor}:1`,
      `engagement:${id}:like:${actor}:2`,
      `engagement:${id}:like:${actor}:3`,
      `engagement:${id}:share:${actor}:2`,
    ]);
    expect(events[0]).toEqual({
      key: `${id}:like:${actor}`,
      subject: "engagement.changed",
      messageId: `engagement:${id}:like:${actor}:1`,
      body: { drop_id: id, kind: "like", actor_id: "ada:1" },
    });
    expect(await refusal(posts.call.likeDrop({ ...ada, drop_id: UNKNOWN }))).toMatch(/^NOT_FOUND drop_id/);
    expect(await refusal(posts.call.unshareDrop({ ...ada, drop_id: UNKNOWN }))).toMatch(/^NOT_FOUND drop_id/);
  });

  test("counts are answered for each drop asked for, zeros where there is nothing to count", async () => {
    const [one, two] = [await post(posts), await post(posts)];
    await Promise.all(["a", "b", "c"].map((user_id) => posts.call.likeDrop({ drop_id: one, user_id })));
    await posts.call.shareDrop({ drop_id: two, user_id: "a" });
    await posts.countAll();
    const { counts } = await posts.call.getCounts({ drop_ids: [two, UNKNOWN, one, "https://far.example/1"] });
    expect(counts.map(({ drop_id, likes, shares }) => [drop_id, likes, shares])).toEqual([
      [two, 0, 1],
      [UNKNOWN, 0, 0],
      [one, 3, 0],
      ["https://far.example/1", 0, 0],
    ]);
  });

  const onServer = name === "PGlite" ? test.skip : test;

  const waiting = (statements: number, what: string): Promise<void> =>
    eventually(async () => {
      const rows = await posts.db.query(
        `SELECT FROM pg_stat_activity
         WHERE datname = current_database() AND state = 'active' AND wait_event_type = 'Lock'`,
      );
      return rows.length === statements || `${rows.length} wait`;
    }, what);

  onServer("a deletion waits for a like that has begun, and comes after it", async () => {
    const like = { drop_id: await post(posts), user_id: "bob" };
    await posts.call.likeDrop(like);
    await posts.call.unlikeDrop(like);
    const racing = await posts.db.transaction(async (tx) => {
      await tx.query("SELECT FROM posts.reactions WHERE drop_id = $1 FOR UPDATE", [like.drop_id]);
      const liking = posts.call.likeDrop(like);
      await waiting(1, "the like waits for its row");
      const deletion = posts.call.deleteDrop({ drop_id: like.drop_id, user_id: "ada" });
      await waiting(2, "the deletion waits for the like");
      return [liking, deletion] as const;
    });
    expect(await racing[0]).toEqual({ changed: true });
    expect((await racing[1]).tombstone?.id).toBe(like.drop_id);
  });

  onServer("a deletion waits for a reply that has begun, and comes after it", async () => {
    const parent = await post(posts);
    const reply = { user_id: "bob", visibility: Visibility.PUBLIC, body: "re", reply_to: parent };
    const lost = new Error("rolled back");
    let racing: readonly [Promise<unknown>, Promise<unknown>] | undefined;
    const holding = posts.db.transaction(async (tx) => {
      await tx.query("INSERT INTO posts.idempotency VALUES ('bob', 'race', $1, 0)", [UNKNOWN]);
      const replying = posts.call.createDrop({ ...reply, idempotency_key: "race" });
      await waiting(1, "the reply waits for its key");
      const deletion = posts.call.deleteDrop({ drop_id: parent, user_id: "ada" });
      await waiting(2, "the deletion waits for the reply");
      racing = [replying, deletion];
      throw lost;
    });
    await expect(holding).rejects.toBe(lost);
    await Promise.all(racing ?? []);
    expect((await posts.call.listReplies({ drop_id: parent })).replies).toHaveLength(1);
  });
});
