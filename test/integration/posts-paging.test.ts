import { beforeEach, expect, test } from "@jest/globals";
import { v7 } from "uuid";
import { type Drop, RemoteKind, Visibility } from "../../src/gen/avion/posts.js";
import { compareBytes } from "../../src/kernel/ids.js";
import { HOUR } from "../../src/kernel/time.js";
import type { Db } from "../../src/platform/db/db.js";
import { createDropReads } from "../../src/posts/drops/reads.sql.js";
import { describePosts } from "../support/describe-posts.js";
import { rewritten } from "../support/page-tokens.js";
import { post, refusal } from "../support/posts.js";
import { below, oneOf, type Random, seeded, ulid } from "../support/random.js";
import { NAMES_NOBODY } from "../support/world.js";

const newestFirst = (a: Drop, b: Drop): number => b.created_at - a.created_at || compareBytes(b.drop_id, a.drop_id);
const idsOf = (drops: readonly Drop[]): string[] => drops.map(({ drop_id }) => drop_id);

describePosts("pages of drops", {}, (posts) => {
  let people = 0;
  let ada: string;
  const base = Date.now() - HOUR;

  beforeEach(() => {
    ada = `ada-${++people}`;
  });

  const byUser = async (fields: { before?: number; max_id?: string; limit?: number; user_id?: string } = {}) =>
    (await posts.call.getDropsByUserId({ user_id: ada, ...fields })).drops;
  const remote = async (uri: string, created_at: number, actor_uri: string): Promise<void> => {
    await posts.call.putRemoteObject({
      uri,
      kind: RemoteKind.DROP,
      created_at,
      actor_uri,
      document: '{"to":"Public"}',
    });
  };

  /** Drops of an author in few milliseconds, so that many share one, and some months earlier. */
  const crowd = async (random: Random, count: number, author = ada): Promise<string[]> => {
    const made: string[] = [];
    for (let n = 0; n < count; n++) {
      const month = below(random, 3);
      const created_at = base - month * 31 * 24 * HOUR + below(random, 3);
      made.push(await post(posts, { user_id: author, created_at }));
    }
    return made;
  };

  // Invariant 5.
  test("of direct drops a reader gets their own, without other recipients; very many to others cost no page", async () => {
    const at = base - HOUR;
    const [first, last] = [await post(posts, { user_id: ada, created_at: at }), base + 1];
    const database = posts.db;
    await database.query(
      `INSERT INTO posts.drops (drop_id, user_id, visibility, recipients, summary, body, updated_at, changed_at)
       SELECT overlay($1::text PLACING lpad(to_hex(n), 12, '0') FROM 25)::uuid, $2, 4, '{bob,cyd}', '', 'x', 0, 0
       FROM generate_series(1, 5200) n`,
      [v7({ msecs: at + 1 }), ada],
    );
    const direct = (created_at: number, ...recipients: string[]) =>
      post(posts, { user_id: ada, created_at, visibility: Visibility.DIRECT, recipients });
    const oldest = await direct(at - 1, "dan", "bob");
    const newest = await direct(at + 2, "dan", "eve");
    const toMany = [newest, first, oldest];
    const seenBy = async (fields: object, limit = 40) => {
      const seen: Drop[] = [];
      for (let below = {}, pages = 1; pages < 9; pages++) {
        const { drops, end } = await posts.call.getDropsByUserId({ user_id: ada, limit, ...fields, ...below });
        seen.push(...drops);
        if (end) return { ids: idsOf(seen), recipients: seen.map(({ recipients }) => recipients.join()), pages };
        const lowest = drops.at(-1) as Drop;
        below = { max_id: lowest.drop_id, before: lowest.created_at };
      }
      throw new Error("the list does not end");
    };
    const dan = { ids: toMany, recipients: ["dan", "", "dan"] };
    expect(await seenBy({ reader_id: "dan", before: last })).toEqual({ ...dan, pages: 1 });
    expect(await seenBy({ reader_id: "dan" }, 2)).toEqual({ ...dan, pages: 2 });
    expect(await seenBy({ reader_id: "eve" })).toEqual({ ids: [newest, first], recipients: ["eve", ""], pages: 1 });
    for (const fields of [{ without_direct: true }, { reader_id: "fay" }])
      expect(await seenBy(fields)).toEqual({ ids: [first], recipients: [""], pages: 1 });
    const compared = await database.transaction(async (tx) => {
      await tx.query("SET LOCAL track_functions = 'all'");
      const page = await createDropReads(tx as Db).byAuthor(ada, { below: undefined, limit: 40, reader: "dan" });
      expect(idsOf(page.drops)).toEqual(toMany);
      return tx.query("SELECT pg_stat_get_xact_function_calls('posts.addressed'::regproc)::integer AS calls");
    });
    expect((compared[0] as { calls: number | null }).calls ?? 0).toBeLessThan(100);
    const bob = await posts.call.getDropsByUserId({ user_id: ada, reader_id: "bob", limit: 1_000 });
    expect([bob.end, bob.drops.length, bob.drops.every(({ recipients }) => recipients.join() === "bob")]).toEqual([
      ...[false, 1_000, true],
    ]);
    const itself = await posts.call.getDropsByUserId({ user_id: ada, reader_id: ada, limit: 1_000 });
    expect([itself.drops.length, itself.drops.every(({ recipients }) => recipients.length === 0)]).toEqual([
      1_000,
      true,
    ]);
    await posts.call.deleteDrop({ drop_id: newest, user_id: ada });
    expect((await seenBy({ reader_id: "dan" })).ids).toEqual([first, oldest]);
    // The author "a b" with the recipient "c" is not the author "a" with "b c".
    await database.query("UPDATE posts.drops SET user_id = $1 || ' x', recipients = '{dan}' WHERE drop_id = $2", [
      ada,
      oldest,
    ]);
    expect((await seenBy({ reader_id: "x dan" })).ids).toEqual([first]);
    expect((await byUser({ limit: 1_000 })).every(({ recipients }) => recipients.length === 2)).toBe(true);
  });

  test("all visibilities are answered newest first, without deleted ones, twenty unless asked otherwise", async () => {
    const ids: string[] = [];
    for (let n = 0; n < 24; n++)
      ids.unshift(
        await post(posts, {
          user_id: ada,
          visibility: (1 + (n % 4)) as Visibility,
          recipients: n % 4 === 3 ? ["bob"] : [],
        }),
      );
    await posts.call.deleteDrop({ drop_id: ids[1] as string, user_id: ada });
    const alive = ids.filter((_, n) => n !== 1);
    const drops = await byUser();
    expect(idsOf(drops)).toEqual(alive.slice(0, 20));
    expect(drops[0]).toEqual({
      drop_id: ids[0],
      user_id: ada,
      visibility: Visibility.DIRECT,
      created_at: expect.any(Number),
      deleted: false,
      recipients: ["bob"],
      repost_of: "",
      repost_author: "",
      ...NAMES_NOBODY,
    });
    expect(idsOf(await byUser({ limit: 1_000_000 }))).toEqual(alive);
    expect(idsOf(await byUser({ limit: 3, max_id: ids[1] as string }))).toEqual(ids.slice(2, 5));
    expect(await byUser({ user_id: "nobody" })).toEqual([]);
  });

  test.each([1, 2])("every cursor answers exactly what is older (seed %i)", async (seed) => {
    const random = seeded(seed);
    await crowd(random, 40);
    const all = await byUser({ limit: 1_000 });
    expect(all).toHaveLength(40);
    expect(all).toEqual([...all].sort(newestFirst));
    const texts = ["", "a", "f", "~", "é", "https://far.example/1", "0", v7(), ulid(random, base), "0198".repeat(20)];
    for (let round = 0; round < 60; round++) {
      const known = oneOf(random, all);
      const before = oneOf(random, [known.created_at, known.created_at + 1, known.created_at - 1, base + 7]);
      const max_id = oneOf(random, [known.drop_id, known.drop_id.slice(0, below(random, 36)), ...texts]);
      const limit = 1 + below(random, 50);
      const older = all.filter(
        (drop) => drop.created_at < before || (drop.created_at === before && compareBytes(drop.drop_id, max_id) < 0),
      );
      const asked = { before, max_id, limit };
      expect([asked, idsOf(await byUser(asked))]).toEqual([asked, idsOf(older).slice(0, limit)]);
    }
    for (const known of all)
      expect(idsOf(await byUser({ max_id: known.drop_id, limit: 1_000 }))).toEqual(
        idsOf(all.filter((drop) => newestFirst(drop, known) > 0)),
      );
  });

  test("an unknown id is as good as its date; one without is refused", async () => {
    const random = seeded(3);
    await crowd(random, 12);
    const all = await byUser({ limit: 1_000 });
    for (const id of [v7({ msecs: base + 1 }), ulid(random, base + 1), v7({ msecs: base + 1 }).toUpperCase()]) {
      const newer = (await byUser({ max_id: id, limit: 1_000 })).filter(({ created_at }) => created_at > base + 1);
      expect(newer).toEqual([]);
      expect((await byUser({ max_id: id, limit: 1_000 })).filter(({ created_at }) => created_at < base + 1)).toEqual(
        all.filter(({ created_at }) => created_at < base + 1),
      );
    }
    for (const max_id of ["nonsense", "https://far.example/unknown", "6f1c4f1e-0000-4000-8000-000000000000"])
      expect(await refusal(posts.call.getDropsByUserId({ user_id: ada, max_id }))).toMatch(/^INVALID_ARGUMENT max_id/);
  });

  test("paging sees every drop once while drops come and go", async () => {
    const random = seeded(4);
    const there = await crowd(random, 30);
    const seen: Drop[] = [];
    for (let cursor: Drop | undefined; ; ) {
      const page = await byUser({ limit: 4, ...(cursor && { before: cursor.created_at, max_id: cursor.drop_id }) });
      seen.push(...page);
      cursor = page.at(-1);
      if (cursor === undefined) break;
      await crowd(random, 2);
      await posts.call.deleteDrop({ drop_id: cursor.drop_id, user_id: ada });
    }
    const ids = idsOf(seen);
    expect(new Set(ids).size).toBe(ids.length);
    expect(there.filter((id) => !ids.includes(id))).toEqual([]);
    expect(seen).toEqual([...seen].sort(newestFirst));
  });

  test("a remote actor's stored drops are merged with those made here, in one order", async () => {
    const actor = `https://far.example/users/${people}`;
    const random = seeded(5);
    await crowd(random, 15, actor);
    for (let n = 0; n < 15; n++) await remote(`${actor}/notes/${n}`, base + below(random, 3), actor);
    await remote(`${actor}/notes/other`, base, `${actor}-other`);
    await posts.call.deleteRemoteObject({ uri: `${actor}/notes/3` });
    const all = await byUser({ user_id: actor, limit: 1_000 });
    expect(all).toHaveLength(29);
    expect(all).toEqual([...all].sort(newestFirst));
    expect(all.find(({ drop_id }) => drop_id.startsWith("https"))).toEqual({
      drop_id: expect.any(String),
      user_id: actor,
      visibility: Visibility.PUBLIC,
      created_at: expect.any(Number),
      deleted: false,
      recipients: [],
      repost_of: "",
      repost_author: "",
      ...NAMES_NOBODY,
    });
    const seen: string[] = [];
    for (let max_id = ""; ; ) {
      const page = await byUser({ user_id: actor, limit: 4, max_id });
      seen.push(...idsOf(page));
      max_id = page.at(-1)?.drop_id ?? "";
      if (max_id === "") break;
    }
    expect(seen).toEqual(idsOf(all));
    const gone = (await byUser({ user_id: actor, limit: 1_000, max_id: `${actor}/notes/3` })).length;
    expect(gone).toBeGreaterThan(0);
  });
});

describePosts("changes of drops", { emptied: true }, (posts) => {
  type Asked = { since?: number; until?: number; page_size?: number };
  const walk = async (asked: Asked = {}, between: () => Promise<unknown> = async () => undefined): Promise<Drop[]> => {
    const seen: Drop[] = [];
    for (let page_token = ""; ; ) {
      const page = await posts.call.listDrops({ ...asked, page_token });
      seen.push(...page.drops);
      page_token = page.next_page_token;
      if (page_token === "") return seen;
      await between();
    }
  };
  const changedAt = async (id: string): Promise<number> =>
    (await posts.db.query<{ at: number }>("SELECT changed_at AS at FROM posts.drops WHERE drop_id = $1", [id]))[0]
      ?.at as number;

  test("drops are listed by the time of publication or deletion, imports too, edits not", async () => {
    const started = Date.now();
    const old = await post(posts, {
      created_at: Date.UTC(2022, 0, 1),
      visibility: Visibility.DIRECT,
      recipients: ["b"],
    });
    const one = await post(posts);
    const two = await post(posts);
    await posts.call.editDrop({ drop_id: one, user_id: "ada", body: "edited" });
    await posts.call.deleteDrop({ drop_id: old, user_id: "ada" });
    const drops = await walk({ since: started - 1 });
    expect(drops.map(({ drop_id, deleted }) => [drop_id, deleted])).toEqual([
      [one, false],
      [two, false],
      [old, true],
    ]);
    expect(drops[2]).toEqual({
      drop_id: old,
      user_id: "ada",
      visibility: Visibility.DIRECT,
      created_at: Date.UTC(2022, 0, 1),
      deleted: true,
      recipients: [],
      repost_of: "",
      repost_author: "",
      ...NAMES_NOBODY,
    });
    expect(await walk({ since: 1, until: started - 1 })).toEqual([]);
  });

  test("the window is closed below and open above, and pages of one are exact where all share a millisecond", async () => {
    for (let n = 0; n < 9; n++) await post(posts);
    const uris = [1, 2, 3].map((n) => `https://far.example/${n}`);
    for (const uri of [...uris, "https://far.example/alive"])
      await posts.call.putRemoteObject({
        uri,
        kind: RemoteKind.DROP,
        document: "{}",
        actor_uri: "https://far.example/u",
      });
    for (const uri of uris) await posts.call.deleteRemoteObject({ uri });
    await posts.db.query("UPDATE posts.drops SET changed_at = 5000");
    await posts.db.query("UPDATE posts.remote_objects SET deleted_at = 5000 WHERE deleted_at IS NOT NULL");
    const all = idsOf(await walk());
    expect(all).toHaveLength(12);
    expect(all).toEqual([...all].sort(compareBytes));
    expect(all.slice(-3)).toEqual(uris);
    for (const page_size of [1, 2, 5, 12]) expect(idsOf(await walk({ page_size }))).toEqual(all);
    expect(idsOf(await walk({ since: 5000, until: 5001, page_size: 4 }))).toEqual(all);
    expect(await walk({ since: 5001 })).toEqual([]);
    expect(await walk({ until: 5000 })).toEqual([]);
    const [deleted] = (await walk()).slice(-1);
    expect(deleted).toEqual({
      drop_id: uris[2],
      user_id: "https://far.example/u",
      visibility: Visibility.PUBLIC,
      created_at: expect.any(Number),
      deleted: true,
      recipients: [],
      repost_of: "",
      repost_author: "",
      ...NAMES_NOBODY,
    });
  });

  test("drops published while pages are read come last, and none is lost or doubled", async () => {
    const before: string[] = [];
    for (let n = 0; n < 10; n++) before.push(await post(posts));
    const later: string[] = [];
    const seen = idsOf(
      await walk({ page_size: 3 }, async () => {
        if (later.length < 6) later.push(await post(posts), await post(posts, { created_at: Date.UTC(2023, 3, 1) }));
      }),
    );
    const order = async (ids: string[]): Promise<string[]> => {
      const times = new Map<string, number>();
      for (const id of ids) times.set(id, await changedAt(id));
      return [...ids].sort((a, b) => (times.get(a) as number) - (times.get(b) as number) || compareBytes(a, b));
    };
    expect(seen).toEqual(await order([...before, ...later]));
  });

  // Invariant 6.
  test("a token of another list, and any other text, is refused", async () => {
    const parent = await post(posts);
    for (let n = 0; n < 3; n++) await post(posts, { reply_to: parent });
    const { next_page_token } = await posts.call.listReplies({ drop_id: parent, page_size: 1 });
    expect(next_page_token).not.toBe("");
    for (const page_token of rewritten(next_page_token))
      expect(await refusal(posts.call.listReplies({ drop_id: parent, page_token }))).toMatch(
        /^INVALID_ARGUMENT page_token/,
      );
    for (const page_token of [next_page_token, "x", "W10"])
      expect(await refusal(posts.call.listDrops({ page_token }))).toMatch(/^INVALID_ARGUMENT page_token/);
    const other = await post(posts);
    expect(await refusal(posts.call.listReplies({ drop_id: other, page_token: next_page_token }))).toMatch(
      /^INVALID_ARGUMENT page_token/,
    );
  });
});
