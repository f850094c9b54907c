import { beforeEach, expect, test } from "@jest/globals";
import { type ActivityEvent, activityId, parseStoredActivity } from "../../src/contracts/activity.js";
import type { OutboxEvent } from "../../src/contracts/outbox.js";
import { RemoteKind, RemoteReactionKind, Visibility } from "../../src/gen/avion/posts.js";
import { encodeId } from "../../src/kernel/ids.js";
import { createOutboxStore } from "../../src/outbox/store.sql.js";
import { describePosts } from "../support/describe-posts.js";
import { post } from "../support/posts.js";
import { forget, rowsNaming, startRelayOf } from "../support/posts-erasure.js";
import { oneOf, seeded, shuffled } from "../support/random.js";

const MAL = "https://far.example/users/mal";
const uri = (n: number): string => `https://far.example/likes/${n}`;

describePosts("what authors are told of their drops", { emptied: true }, (posts) => {
  let id: string;
  beforeEach(async () => {
    id = await post(posts);
  });

  /** Every event of the source, checked as a consumer of the stream checks it. */
  const told = async (): Promise<ActivityEvent[]> => {
    const rows = await posts.db.query<Pick<OutboxEvent, "subject" | "messageId" | "body">>(
      `SELECT subject, message_id AS "messageId", body FROM public.outbox WHERE source = 'activity' ORDER BY id`,
    );
    return rows.map(({ subject, messageId, body }) => {
      const event = parseStoredActivity(subject, Buffer.from(body));
      expect(activityId(event)).toBe(messageId);
      return event;
    });
  };
  const like = (user_id: string, drop_id = id) => posts.call.likeDrop({ drop_id, user_id });
  const unlike = (user_id: string, drop_id = id) => posts.call.unlikeDrop({ drop_id, user_id });
  const likers = async (): Promise<string[]> =>
    (await posts.call.listLikes({ drop_id: id })).likes.map(({ user_id }) => user_id).sort();

  test("a like and its end are events with the versions of the row; what changes nothing is none", async () => {
    const before = Date.now();
    for (const call of [like, like, unlike, unlike, like]) await call("bob b");
    const fields = { drop_id: id, author_id: "ada", user_id: "bob b", kind: "like" };
    const time = expect.any(Number) as unknown;
    expect((await told()).map(({ payload }) => payload)).toEqual([
      { ...fields, active: true, version: 1, created_at: time },
      { ...fields, active: false, version: 2 },
      { ...fields, active: true, version: 3, created_at: time },
    ]);
    const [first] = await told();
    expect(first?.payload.created_at).toBeGreaterThanOrEqual(before);
    await posts.call.shareDrop({ drop_id: id, user_id: "bob b" });
    expect(await told()).toHaveLength(3);
  });

  test("a like of a remote actor is an event with its own time, and so is the end of the last one", async () => {
    const put = (n: number, created_at: number) =>
      posts.call.putRemoteReaction({
        ...{ uri: uri(n), actor_uri: MAL, object: id, created_at },
        kind: RemoteReactionKind.LIKE,
      });
    const created_at = Date.now() - 100_000;
    await put(1, created_at);
    await put(2, created_at + 1);
    await posts.call.deleteRemoteReaction({ uri: uri(1), actor_uri: MAL });
    const fields = { drop_id: id, author_id: "ada", user_id: MAL, kind: "like" };
    expect((await told()).map(({ payload }) => payload)).toEqual([
      { ...fields, active: true, version: 1, created_at },
      { ...fields, active: false, version: 2 },
    ]);
  });

  test("a like of a remote drop is counted, and its author's server is the one to tell", async () => {
    const drop = { uri: "https://far.example/d/1", kind: RemoteKind.DROP, actor_uri: MAL, document: "{}" };
    await posts.call.putRemoteObject({ ...drop, visibility: Visibility.PUBLIC });
    await like("bob", drop.uri);
    await unlike("bob", drop.uri);
    expect(await told()).toEqual([]);
    expect((await posts.written()).filter(({ subject }) => subject === "engagement.changed")).toHaveLength(2);
  });

  test("in any order the newest versions say who likes the drop, however many calls run at once", async () => {
    const random = seeded(3);
    const people = ["bob", "cid", "dan"];
    await Promise.all(Array.from({ length: 60 }, () => (random() < 0.5 ? like : unlike)(oneOf(random, people))));
    const newest = new Map<string, { readonly version: number; readonly active: boolean }>();
    for (const event of shuffled(random, await told())) {
      if (event.name !== "drop_reacted") continue;
      const { user_id, active } = event.payload;
      const version = Number(event.payload.version);
      if ((newest.get(user_id)?.version ?? 0) < version) newest.set(user_id, { version, active });
    }
    expect([...newest].flatMap(([user, { active }]) => (active ? user : [])).sort()).toEqual(await likers());
  });

  test("somebody who likes and unlikes without end leaves two events to publish, and delays nobody", async () => {
    for (let n = 0; n < 200; n++) await (n % 2 === 0 ? like : unlike)("bob");
    await like("cid");
    const store = createOutboxStore(posts.db, "activity");
    const published: string[] = [];
    for (let events = await store.claim(500, 60_000); events.length > 0; events = await store.claim(500, 60_000)) {
      published.push(...events.map(({ messageId }) => messageId));
      await store.markPublished(events.map((event) => event.id));
    }
    const idOf = (user: string, version: number) => `drop_reacted:${encodeId(id)}:${user}:like:${version}`;
    expect(published).toEqual([idOf("bob", 1), idOf("cid", 1), idOf("bob", 200)]);
    expect(await store.prune(-1, 1_000)).toBe(201);
  });

  test("an erased author or reader is in no event that waits", async () => {
    const other = await post(posts, { user_id: "bob" });
    await like("eve");
    await like("ada", other);
    await like("eve", other);
    const relay = startRelayOf(posts.db);
    for (const user of ["eve", "ada"]) await forget(posts.store, user);
    await relay.close();
    for (const user of ["eve", "ada"])
      expect((await rowsNaming(posts.db, user)).filter((row) => !/drop_deleted|graph.erased/.test(row))).toEqual([]);
  });
});
