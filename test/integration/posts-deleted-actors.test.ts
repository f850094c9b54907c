import { expect } from "@jest/globals";
import { RemoteKind, Visibility } from "../../src/gen/avion/posts.js";
import { AppError } from "../../src/kernel/errors.js";
import { eraseDeletedActors } from "../../src/posts/remote/deleted-actors.js";
import { longTest } from "../support/databases.js";
import { describePosts } from "../support/describe-posts.js";
import { POSTS_CONFIG, type PostsHarness, post, refusal, startPosts } from "../support/posts.js";
import { forget, startRelayOf } from "../support/posts-erasure.js";
import { quickTest as test } from "../support/suite.js";

const { DROP, ACTOR } = RemoteKind;
const MAL = "https://far.example/users/mal";
const PUBLIC = Visibility.PUBLIC;
/** A call waits for a batch of deletions in PGlite, which takes seconds on a busy machine. */
const LONG_MS = 60_000;

describePosts("deleted remote actors", { emptied: true }, (posts, { name }) => {
  let asked: string[] = [];
  let onlyIfKnown: boolean[] = [];
  let isAway = false;
  let isLacking = false;

  /** A service whose UserService answers as the test says. */
  const withUsers = async (work: (service: PostsHarness) => Promise<void>): Promise<void> => {
    [asked, onlyIfKnown, isAway, isLacking] = [[], [], false, false];
    const eraseUser = async (user: string, known: boolean) => {
      asked.push(user);
      onlyIfKnown.push(known);
      if (isAway) throw new AppError("unavailable", "EraseUser: UNAVAILABLE");
      return !isLacking;
    };
    const service = await startPosts(posts.db, { eraseUser });
    try {
      await work(service);
    } finally {
      await service.stop();
    }
  };
  const due = () => posts.store.remote.erasuresDue(10);
  const putDrop = (n: number, fields: object = {}) => {
    const uri = `https://far.example/notes/${n}`;
    const drop = { uri, kind: DROP, actor_uri: MAL, document: "{}", visibility: PUBLIC, ...fields };
    return posts.call.putRemoteObject(drop, LONG_MS);
  };
  const putActor = () => posts.call.putRemoteObject({ uri: MAL, kind: ACTOR, document: "{}" });

  test("an actor is erased as a user is, a drop or an unknown object is not", () =>
    withUsers(async ({ call }) => {
      await putActor();
      await putDrop(1);
      const alone = { uri: "https://far.example/notes/2", actor_uri: "" };
      await putDrop(2, alone);
      for (const uri of [alone.uri, "https://far.example/never"]) await call.deleteRemoteObject({ uri });
      expect(asked).toEqual([]);
      await call.deleteRemoteObject({ uri: MAL });
      expect(asked).toEqual([MAL]);
      expect(await due()).toEqual([]);
      expect((await posts.written()).filter(({ subject }) => subject === "graph.erased")).toEqual([]);
    }));

  test.each<[string, () => Promise<unknown>]>([
    ["drops", () => putDrop(1)],
    ["a reaction", async () => posts.call.likeDrop({ drop_id: await post(posts), user_id: MAL })],
    ["a repost", async () => posts.call.shareDrop({ drop_id: await post(posts), user_id: MAL })],
  ])("an actor that was never stored is erased if %s name it", (_, name) =>
    withUsers(async ({ call }) => {
      await name();
      await call.deleteRemoteObject({ uri: MAL });
      expect([asked, onlyIfKnown]).toEqual([[MAL], [false]]);
    }),
  );

  // Invariant 4.
  test("a stranger whom nothing names is only refused, and so is what comes later in their name", () =>
    withUsers(async ({ call, store }) => {
      await call.deleteRemoteObject({ uri: MAL, kind: ACTOR });
      expect([asked, onlyIfKnown]).toEqual([[MAL], [true]]);
      const drop_id = await post(posts);
      expect(await refusal(putActor())).toMatch(/^FAILED_PRECONDITION/);
      expect(await refusal(putDrop(1))).toMatch(/^FAILED_PRECONDITION/);
      expect(await refusal(call.likeDrop({ drop_id, user_id: MAL }))).toMatch(/^FAILED_PRECONDITION/);
      // A like that did not see the marker.
      await posts.db.query(
        `INSERT INTO posts.reactions (drop_id, kind, actor_id, active, version, counted, changed_at)
         VALUES ($1, 'like', $2, true, 1, false, 0)`,
        [drop_id, MAL],
      );
      await posts.db.query("UPDATE posts.remote_objects SET deleted_at = 1");
      await store.remote.removeDropsOfDeleted({ limit: 10, eventOf: () => ({}) as never });
      expect(await due()).toEqual([MAL]);
    }));

  test("what was a note is not erased as an actor, and what is of this server is refused", () =>
    withUsers(async ({ call }) => {
      const here = await startPosts(posts.db, { config: { ...POSTS_CONFIG, publicUrl: "https://here.example" } });
      const own = here.call.deleteRemoteObject({ uri: "https://here.example/users/ada", kind: ACTOR });
      const refused = await refusal(own);
      await here.stop();
      expect(refused).toMatch(/^INVALID_ARGUMENT uri: is of this server: DeleteDrop /);
      await putDrop(1);
      const uri = "https://far.example/notes/1";
      for (let twice = 0; twice < 2; twice++) {
        const { tombstone } = await call.deleteRemoteObject({ uri, kind: ACTOR });
        expect(tombstone?.former_type).toBe("drop");
      }
      expect([asked, await posts.store.erased.among([uri])]).toEqual([[], new Set()]);
    }));

  test("an actor that was never stored is erased if the caller knows it as one, later too", () =>
    withUsers(async ({ call }) => {
      const { tombstone } = await call.deleteRemoteObject({ uri: MAL });
      expect(asked).toEqual([]);
      expect((await call.deleteRemoteObject({ uri: MAL, kind: ACTOR })).tombstone).toEqual(tombstone);
      expect(asked).toEqual([MAL]);
    }));

  test("while the users service is away the erasure waits, and the maintenance asks again", () =>
    withUsers(async ({ call, store }) => {
      await putActor();
      isAway = true;
      await call.deleteRemoteObject({ uri: MAL });
      expect(await due()).toEqual([MAL]);
      const eraseUser = async (user: string) => asked.push(user) > 0;
      expect(await eraseDeletedActors({ store, eraseUser }, 10)).toBe(1);
      expect(asked).toEqual([MAL, MAL]);
      expect(await eraseDeletedActors({ store, eraseUser }, 10)).toBe(0);
    }));

  test("for a users service that cannot erase the event is written, once", () =>
    withUsers(async ({ call }) => {
      await putActor();
      isLacking = true;
      await posts.written();
      for (let twice = 0; twice < 2; twice++) {
        await call.deleteRemoteObject({ uri: MAL });
        await posts.store.erasure.mark(MAL);
      }
      expect(await posts.written()).toEqual([
        expect.objectContaining({
          subject: "graph.erased",
          messageId: expect.stringMatching(/^user_erased:=/),
          body: { user_id: MAL, version: 0 },
        }),
      ]);
    }));

  // Invariant 4.
  test("nothing is left of an erased actor but tombstones, and late objects are refused", async () => {
    await putActor();
    for (let n = 0; n < 3; n++) await putDrop(n);
    const liked = await post(posts);
    await posts.call.likeDrop({ drop_id: liked, user_id: MAL });
    const { repost_id } = await posts.call.shareDrop({ drop_id: liked, user_id: MAL });
    await posts.countAll();
    const relay = startRelayOf(posts.db);
    await forget(posts.store, MAL);
    const told = await relay.close();
    const deleted = told.filter(({ subject }) => subject === "drops.deleted").map(({ key }) => key);
    expect(deleted.sort()).toEqual([repost_id, ...[0, 1, 2].map((n) => `https://far.example/notes/${n}`)].sort());
    expect((await posts.call.getRemoteObject({ uri: MAL })).tombstone?.former_type).toBe("actor");
    expect((await posts.call.getDropsByUserId({ user_id: MAL })).drops).toEqual([]);
    expect((await posts.call.getCounts({ drop_ids: [liked] })).counts[0]).toMatchObject({ likes: 0, shares: 0 });
    const left = await posts.db.query(
      `SELECT FROM posts.reactions WHERE actor_id = $1 UNION ALL SELECT FROM posts.drops WHERE user_id = $1
       UNION ALL SELECT FROM posts.remote_objects WHERE actor_uri = $1 AND deleted_at IS NULL
       UNION ALL SELECT FROM public.outbox WHERE owner = $1 OR strpos(body, $1) > 0`,
      [MAL],
    );
    expect(left).toEqual([]);
    expect(await refusal(putActor())).toBe("FAILED_PRECONDITION uri: the object is deleted");
    // Tombstones go at their age, the mark stays.
    await posts.db.query("DELETE FROM posts.remote_objects");
    expect(await refusal(putDrop(9))).toBe("FAILED_PRECONDITION actor_uri: the user is erased");
    expect(await refusal(putActor())).toBe("FAILED_PRECONDITION uri: the user is erased");
  });

  longTest(name)(
    "thousands of drops of an actor go with their replies, likes and reposts, beside new drops",
    async () => {
      const parent = await post(posts);
      await putDrop(0);
      const others = await putDrop(1, { actor_uri: "https://far.example/users/eve" });
      await posts.call.shareDrop({ drop_id: "https://far.example/notes/0", user_id: "bob" });
      await posts.db.query(
        `INSERT INTO posts.remote_objects
           (uri, kind, actor_uri, created_at, visibility, document, fetched_at, expires_at, drop_id, reply_to, linked)
         SELECT 'https://far.example/many/' || n, 1, $1, 1, 1, '{}', 1, 1,
           overlay($2::text PLACING lpad(to_hex(n), 12, '0') FROM 25)::uuid, $2, 1
         FROM generate_series(1, 3000) n`,
        [MAL, parent],
      );
      await posts.db.query(
        `INSERT INTO posts.reactions (drop_id, kind, actor_id, active, version, counted, changed_at)
         SELECT reply_to::uuid, 'reply', uri, true, 1, true, 0 FROM posts.remote_objects WHERE reply_to = $1
         UNION ALL SELECT drop_id, 'like', 'bob', true, 1, true, 0 FROM posts.remote_objects WHERE reply_to = $1`,
        [parent],
      );
      await posts.db.query(
        "INSERT INTO posts.counts SELECT drop_id, 1, 0, 0 FROM posts.remote_objects WHERE reply_to = $1",
        [parent],
      );
      await posts.db.query("INSERT INTO posts.counts VALUES ($1, 0, 0, 3000)", [parent]);
      await putActor();
      let isGone = false;
      const busy = async () => {
        for (let n = 0; !isGone; n++)
          await putDrop(100_000 + n, { actor_uri: others.object?.actor_uri, reply_to: parent });
      };
      const relay = startRelayOf(posts.db);
      const working = busy();
      await posts.call.deleteRemoteObject({ uri: MAL }, LONG_MS);
      await forget(posts.store, MAL);
      isGone = true;
      await working;
      const told = await relay.close();
      expect(told.filter(({ key, subject }) => /many/.test(key) && subject === "drops.deleted")).toHaveLength(3_000);
      for (let counted = -1; counted !== 0; ) {
        await posts.countAll();
        counted = (await posts.db.query("SELECT FROM posts.reactions WHERE counted <> active")).length;
      }
      const [count] = (await posts.call.getCounts({ drop_ids: [parent] })).counts;
      const left = await posts.db.query("SELECT FROM posts.remote_objects WHERE kind = 1 AND deleted_at IS NULL");
      expect(count?.replies).toBe(left.length - 1);
      expect(await posts.db.query("SELECT FROM posts.reactions WHERE kind <> 'reply'")).toEqual([]);
      expect(
        await posts.db.query("SELECT FROM posts.drops WHERE repost_of IS NOT NULL AND deleted_at IS NULL"),
      ).toEqual([]);
    },
    120_000,
  );
});
