import { copyFile, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "@jest/globals";
import { v7 } from "uuid";
import { type DropDetails, RemoteKind, Visibility } from "../../src/gen/avion/posts.js";
import { AppError } from "../../src/kernel/errors.js";
import { silent } from "../../src/kernel/logger.js";
import { OUTBOX_MIGRATIONS } from "../../src/outbox/index.js";
import { type MigrationSource, migrate } from "../../src/platform/db/migrate.js";
import { monthOf } from "../../src/posts/drops/ids.js";
import { createPartitionStore } from "../../src/posts/drops/partitions.sql.js";
import { POSTS_MIGRATIONS } from "../../src/posts/index.js";
import { DATABASES, type DatabaseServer } from "../support/databases.js";
import { type PostsHarness, post, refusal, startPosts } from "../support/posts.js";

const { PUBLIC, UNLISTED, FOLLOWERS, DIRECT } = Visibility;
const ALL = [PUBLIC, UNLISTED, FOLLOWERS, DIRECT] as const;
const EVE = "https://far.example/users/eve";

/** The schema of posts before its migration of visibilities. */
async function earlierMigrations(): Promise<MigrationSource> {
  const folder = `${await mkdtemp(join(tmpdir(), "posts-migrations-"))}/`;
  for (const name of ["0001_posts.sql", "0002_page_secret.sql"])
    await copyFile(new URL(name, POSTS_MIGRATIONS.folder), join(folder, name));
  return { component: "posts", folder: pathToFileURL(folder) };
}

describe.each(DATABASES)("who may see drops on $name", ({ start }) => {
  let server: DatabaseServer;
  let posts: PostsHarness;
  let away = false;
  let asked: (readonly string[])[] = [];

  /** Ada and Eve are followed by Fay; Bob is whom direct drops are for; Sam is nobody in particular. */
  const follows = async (follower: string, people: readonly string[]) => {
    asked.push(people);
    if (away) throw new AppError("unavailable", "IsFollowing: UNAVAILABLE");
    return new Set(follower === "fay" ? people.filter((one) => one === "ada" || one === EVE) : []);
  };

  beforeAll(async () => {
    server = await start();
    posts = await startPosts(await server.newDatabase(), { followedAmong: follows });
  });
  beforeEach(() => {
    away = false;
    asked = [];
  });
  afterAll(async () => {
    await posts.stop();
    await server.stop();
  });

  const postAll = async (fields: object = {}): Promise<string[]> => {
    const ids: string[] = [];
    for (const visibility of ALL)
      ids.push(await post(posts, { visibility, recipients: visibility === DIRECT ? ["bob"] : [], ...fields }));
    return ids;
  };
  const idsOf = (drops: readonly (DropDetails | undefined)[]) => drops.map((drop) => drop?.drop_id);
  const shown = async (drop_ids: string[], viewer_id: string) =>
    (await posts.call.getDrops({ drop_ids, viewer_id })).results.map(
      ({ drop, tombstone }) => drop?.drop_id ?? tombstone?.id,
    );

  const MAY_SEE: readonly (readonly [viewer: string, readonly number[]])[] = [
    ["ada", [0, 1, 2, 3]],
    ["fay", [0, 1, 2]],
    ["bob", [0, 1, 3]],
    ["sam", [0, 1]],
  ];

  test.each(MAY_SEE)(
    "GetDrop, GetDrops and ListRevisions show %s what that person may see, and nothing else",
    async (viewer, which) => {
      const ids = await postAll();
      const visible = ids.filter((_, index) => which.includes(index));
      expect(await shown(ids, viewer)).toEqual(visible);
      for (const drop_id of ids) {
        const calls = [
          () => posts.call.getDrop({ drop_id, viewer_id: viewer }),
          () => posts.call.getDrop({ drop_id, revision: 1, viewer_id: viewer }),
          () => posts.call.listRevisions({ drop_id, viewer_id: viewer }),
        ];
        for (const call of calls) {
          if (visible.includes(drop_id)) await call();
          else expect(await refusal(call())).toBe("NOT_FOUND drop_id: there is no such drop");
        }
      }
    },
  );

  test("without a viewer a caller gets whatever it asks for by id, and of the replies those that everybody may see", async () => {
    const parent = await post(posts);
    const ids = await postAll({ reply_to: parent });
    expect(await shown(ids, "")).toEqual(ids);
    for (const drop_id of ids) expect((await posts.call.getDrop({ drop_id })).drop?.drop_id).toBe(drop_id);
    expect(idsOf((await posts.call.listReplies({ drop_id: parent })).replies)).toEqual(ids.slice(0, 2));
    expect(asked).toEqual([]);
  });

  test.each(MAY_SEE)("ListReplies shows %s what that person may see, page by page", async (viewer, which) => {
    const parent = await post(posts, { user_id: "tom" });
    const ids = [...(await postAll({ reply_to: parent })), ...(await postAll({ reply_to: parent }))];
    const visible = ids.filter((_, index) => which.includes(index % 4));
    for (const page_size of [1, 3, 100]) {
      const found: (string | undefined)[] = [];
      for (let page_token = ""; ; ) {
        const page = await posts.call.listReplies({ drop_id: parent, viewer_id: viewer, page_size, page_token });
        expect(page.replies.length).toBeLessThanOrEqual(page_size);
        found.push(...idsOf(page.replies));
        page_token = page.next_page_token;
        if (page_token === "") break;
      }
      expect(found).toEqual(visible);
    }
  });

  test("a page token of one viewer's replies is refused for another viewer", async () => {
    const parent = await post(posts);
    for (let n = 0; n < 2; n++) await post(posts, { reply_to: parent });
    const first = await posts.call.listReplies({ drop_id: parent, viewer_id: "bob", page_size: 1 });
    for (const viewer_id of ["", "sam"])
      expect(
        await refusal(posts.call.listReplies({ drop_id: parent, viewer_id, page_token: first.next_page_token })),
      ).toMatch(/^INVALID_ARGUMENT page_token/);
  });

  test("replies to a drop that the viewer may not see are answered with NOT_FOUND", async () => {
    const parent = await post(posts, { visibility: DIRECT, recipients: ["bob"] });
    const reply = await post(posts, { user_id: "bob", reply_to: parent });
    const replies = (viewer_id: string) => posts.call.listReplies({ drop_id: parent, viewer_id });
    expect(await refusal(replies("sam"))).toMatch(/^NOT_FOUND drop_id/);
    for (const viewer of ["bob", "ada", ""]) expect(idsOf((await replies(viewer)).replies)).toEqual([reply]);
  });

  test("a tombstone is shown to those who could see the drop; of a direct one to its author alone", async () => {
    const ids = await postAll();
    for (const drop_id of ids) await posts.call.deleteDrop({ drop_id, user_id: "ada" });
    expect(await shown(ids, "ada")).toEqual(ids);
    expect(await shown(ids, "fay")).toEqual(ids.slice(0, 3));
    for (const viewer of ["bob", "sam"]) expect(await shown(ids, viewer)).toEqual(ids.slice(0, 2));
  });

  test("while UserService is unavailable, only answers that depend on it are UNAVAILABLE", async () => {
    away = true;
    const parent = await post(posts, { user_id: "sam" });
    const ids = await postAll({ reply_to: parent });
    const [open, , followers, direct] = ids as [string, string, string, string];
    expect(await refusal(posts.call.getDrop({ drop_id: followers, viewer_id: "fay" }))).toMatch(/^UNAVAILABLE/);
    expect(await refusal(posts.call.getDrops({ drop_ids: ids, viewer_id: "fay" }))).toMatch(/^UNAVAILABLE/);
    expect(await refusal(posts.call.listReplies({ drop_id: parent, viewer_id: "fay" }))).toMatch(/^UNAVAILABLE/);
    expect(await shown([open, direct], "bob")).toEqual([open, direct]);
    expect(await shown(ids, "ada")).toEqual(ids);
    expect(idsOf((await posts.call.listReplies({ drop_id: parent })).replies)).toEqual(ids.slice(0, 2));
  });

  test("UserService is asked once a page, for all authors on it", async () => {
    const ids: string[] = [];
    for (const user_id of ["ada", "bob", "ada", "cid"]) ids.push(await post(posts, { user_id, visibility: FOLLOWERS }));
    expect(await shown(ids, "fay")).toEqual([ids[0], ids[2]]);
    expect(asked).toEqual([["ada", "bob", "cid"]]);
  });

  test.each(["getDrop", "listReplies", "listRevisions"] as const)(
    "%s refuses a viewer that is no user id",
    async (method) => {
      const drop_id = await post(posts);
      for (const viewer_id of ["x".repeat(129), "a\0b"])
        expect(await refusal(posts.call[method]({ drop_id, viewer_id }))).toMatch(/^INVALID_ARGUMENT viewer_id: \S/);
    },
  );

  test("replies count where everybody may see them, and stop counting when they are deleted", async () => {
    const parent = await post(posts);
    const ids = await postAll({ reply_to: parent });
    const replies = async () => {
      await posts.countAll();
      return (await posts.call.getCounts({ drop_ids: [parent] })).counts[0]?.replies;
    };
    expect(await replies()).toBe(2);
    for (const drop_id of ids) await posts.call.deleteDrop({ drop_id, user_id: "ada" });
    expect(await replies()).toBe(0);
  });

  test("a remote drop keeps its first visibility, under the same rule", async () => {
    const uris = ALL.map((visibility) => `https://far.example/notes/${visibility}`);
    for (const [index, visibility] of ALL.entries()) {
      const recipients = visibility === DIRECT ? ["bob"] : [];
      const put = { uri: uris[index] as string, kind: RemoteKind.DROP, actor_uri: EVE, document: "{}" };
      const { object } = await posts.call.putRemoteObject({ ...put, visibility, recipients });
      expect(object).toMatchObject({ visibility, recipients });
      const again = await posts.call.putRemoteObject({ ...put, document: '{"to":"as:Public"}' });
      expect(again.object).toMatchObject({ visibility, recipients });
    }
    expect((await posts.written()).slice(-4).map(({ body }) => [body["visibility"], body["recipients"]])).toEqual([
      ["public", undefined],
      ["unlisted", undefined],
      ["followers", undefined],
      ["direct", ["bob"]],
    ]);
    const listed = (await posts.call.getDropsByUserId({ user_id: EVE })).drops;
    expect(new Map(listed.map((drop) => [drop.drop_id, [drop.visibility, drop.recipients]]))).toEqual(
      new Map(ALL.map((visibility, index) => [uris[index], [visibility, visibility === DIRECT ? ["bob"] : []]])),
    );
    for (const [viewer, which] of [...MAY_SEE.slice(1), ["", [0, 1, 2, 3]] as const]) {
      for (const [index, uri] of uris.entries()) {
        const [object, replies] = [
          posts.call.getRemoteObject({ uri, viewer_id: viewer }),
          posts.call.listReplies({ drop_id: uri, viewer_id: viewer }),
        ];
        const answers = await Promise.allSettled([object, replies]);
        expect(answers.map(({ status }) => status)).toEqual(
          Array(2).fill(which.includes(index) ? "fulfilled" : "rejected"),
        );
        if (!which.includes(index)) expect(await refusal(object)).toBe("NOT_FOUND uri: there is no such object");
      }
    }
  });

  test("the document says what a request leaves out, and the actor's document names the followers", async () => {
    let made = 0;
    const put = async (document: object, fields: object = {}) => {
      const uri = `https://far.example/said/${++made}`;
      const request = { uri, kind: RemoteKind.DROP, actor_uri: EVE, document: JSON.stringify(document), ...fields };
      const { object } = await posts.call.putRemoteObject(request);
      return [object?.visibility, object?.recipients];
    };
    expect(await put({ to: "https://www.w3.org/ns/activitystreams#Public" })).toEqual([PUBLIC, []]);
    expect(await put({ cc: ["as:Public"] })).toEqual([UNLISTED, []]);
    expect(await put({ to: `${EVE}/followers` })).toEqual([FOLLOWERS, []]);
    expect(await put({ to: `${EVE}/followers` }, { actor_uri: "" })).toEqual([DIRECT, [`${EVE}/followers`]]);
    expect(await put({ to: "https://far.example/f/7" })).toEqual([FOLLOWERS, []]);
    expect(await put({ to: "https://near.example/f/7" })).toEqual([DIRECT, ["https://near.example/f/7"]]);
    expect(await put({ to: "bob" }, { visibility: DIRECT })).toEqual([DIRECT, ["bob"]]);
    expect(await put({ to: "bob" }, { visibility: DIRECT, recipients: ["cid", "cid"] })).toEqual([DIRECT, ["cid"]]);
    expect(await put({ to: "bob" }, { recipients: ["cid"] })).toEqual([DIRECT, ["cid"]]);
    expect(await put({ to: "as:Public" }, { visibility: DIRECT })).toEqual([DIRECT, []]);
    expect(await put({ to: 7 }, { visibility: PUBLIC })).toEqual([PUBLIC, []]);
    expect(await put({ to: 7 })).toEqual([DIRECT, []]);
    expect(await put({ cc: [{}] })).toEqual([DIRECT, []]);
    expect(await refusal(put({ to: "as:Public" }, { recipients: ["bob"] }))).toMatch(/^INVALID_ARGUMENT recipients: /);
    const actor = { uri: EVE, kind: RemoteKind.ACTOR, document: '{"followers":"https://far.example/f/7"}' };
    await posts.call.putRemoteObject(actor);
    expect(await put({ to: "https://far.example/f/7" })).toEqual([FOLLOWERS, []]);
    expect(await refusal(posts.call.putRemoteObject({ ...actor, visibility: PUBLIC }))).toMatch(
      /^INVALID_ARGUMENT visib/,
    );
    expect(await refusal(posts.call.putRemoteObject({ ...actor, recipients: ["bob"] }))).toMatch(
      /^INVALID_ARGUMENT recip/,
    );
    const many = Array.from({ length: 1_001 }, (_, n) => `u${n}`);
    expect(await put({}, { visibility: DIRECT, recipients: many.slice(1) })).toEqual([DIRECT, many.slice(1)]);
    expect(await refusal(put({}, { visibility: DIRECT, recipients: many }))).toMatch(/^INVALID_ARGUMENT recipients: /);
    expect(await refusal(put({}, { visibility: 9 }))).toMatch(/^INVALID_ARGUMENT visibility: /);
  });

  test("migrated remote drops get their document's visibility, and hidden replies are not counted", async () => {
    const db = await server.newDatabase();
    const earlier = await earlierMigrations();
    await migrate(db, [OUTBOX_MIGRATIONS, earlier], silent);
    await rm(earlier.folder, { recursive: true });
    const documents: Record<string, [string, Visibility, string[]]> = {
      public: ['{"to":["https://www.w3.org/ns/activitystreams#Public"],"cc":"x"}', PUBLIC, []],
      unlisted: [`{"to":"${EVE}/followers","cc":{"id":"as:Public"}}`, UNLISTED, []],
      followers: [`{"cc":["${EVE}/followers","bob"]}`, FOLLOWERS, []],
      direct: [`{"to":["bob",{"id":"cid"},"${"x".repeat(129)}"],"bto":"Public"}`, DIRECT, ["bob", "cid"]],
      nobody: ["{}", DIRECT, []],
      malformed: ['{"to":[7,null,{"id":8}]}', DIRECT, []],
      list: ['["as:Public"]', DIRECT, []],
      unreadable: ['{"to":"as:Public","name":"\\u0000"}', DIRECT, []],
    };
    for (const [name, [document]] of Object.entries(documents))
      await db.query(
        `INSERT INTO posts.remote_objects (uri, kind, actor_uri, document, fetched_at, expires_at, created_at)
         VALUES ($1, 1, $2, $3, 1, 1, 1)`,
        [`https://far.example/${name}`, EVE, document],
      );
    await createPartitionStore(db).make(monthOf(Date.now()));
    const [parent, ...replies] = Array.from({ length: 5 }, () => v7());
    for (const [index, id] of [parent, ...replies].entries())
      await db.query(
        `INSERT INTO posts.drops (drop_id, user_id, visibility, recipients, summary, body, updated_at, changed_at)
         VALUES ($1, 'ada', $2, '{}', '', 'x', 1, 1)`,
        [id, index || PUBLIC],
      );
    for (const id of replies)
      await db.query(
        `INSERT INTO posts.reactions (drop_id, kind, actor_id, active, version, counted, changed_at)
         VALUES ($1, 'reply', $2, true, 1, true, 1)`,
        [parent, id],
      );
    await db.query("INSERT INTO posts.counts (drop_id, likes, shares, replies) VALUES ($1, 3, 0, 4)", [parent]);
    const other = await startPosts(db);
    expect((await other.call.getCounts({ drop_ids: [parent as string] })).counts).toMatchObject([
      { likes: 3, replies: 2 },
    ]);
    const listed = (await other.call.getDropsByUserId({ user_id: EVE })).drops;
    expect(
      Object.fromEntries(listed.map((drop) => [drop.drop_id.slice(20), [drop.visibility, drop.recipients.toSorted()]])),
    ).toEqual(Object.fromEntries(Object.entries(documents).map(([name, [, ...seen]]) => [name, seen])));
    await other.stop();
  });
});
