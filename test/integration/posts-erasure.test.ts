import { afterEach, expect } from "@jest/globals";
import { RemoteKind, Visibility } from "../../src/gen/avion/posts.js";
import { hookFailpoints } from "../../src/kernel/failpoints.js";
import { silent } from "../../src/kernel/logger.js";
import { createCalibration } from "../../src/posts/maintenance.js";
import { createPostsStore } from "../../src/posts/store.sql.js";
import { longTest } from "../support/databases.js";
import { describePosts } from "../support/describe-posts.js";
import { eventually } from "../support/eventually.js";
import { failpointsOf } from "../support/failpoints.js";
import { asAnotherProcess, type PostsHarness, post, refusal } from "../support/posts.js";
import { dyingStore, forget, rowsNaming, startRelayOf } from "../support/posts-erasure.js";
import { quickTest as test } from "../support/suite.js";

const { PUBLIC, DIRECT } = Visibility;
const STEPS = [
  "older",
  "drops",
  "reposts",
  "purge",
  "reactions",
  "recipients",
  "keys",
  "published",
  "tombstones",
  "events",
];

const REMOTE = { kind: RemoteKind.DROP, document: "{}" };
const remoteUri = (user: string, n: number): string => `https://far.example/${user.length}/${n}-${Date.now()}`;

interface Small {
  readonly own: readonly string[];
  readonly liked: string;
  readonly addressed: string;
  readonly alone: string;
  readonly remote: string;
  /** Another's repost of a drop of the user. */
  readonly repost: string;
}

/** One of everything that names a user. */
async function makeSmall(posts: PostsHarness, user: string): Promise<Small> {
  const { call } = posts;
  const liked = await post(posts, { user_id: "bob" });
  const first = await post(posts, { user_id: user, idempotency_key: "k" });
  const gone = await post(posts, { user_id: user });
  const reply = await post(posts, { user_id: user, reply_to: liked });
  const direct = await post(posts, { user_id: user, visibility: DIRECT, recipients: ["bob"] });
  await call.editDrop({ drop_id: first, user_id: user, body: "edited" });
  for (const drop_id of [first, gone]) await call.likeDrop({ drop_id, user_id: "bob" });
  const { repost_id: repost } = await call.shareDrop({ drop_id: first, user_id: "cid" });
  await call.shareDrop({ drop_id: gone, user_id: "cid" });
  await call.deleteDrop({ drop_id: gone, user_id: user });
  await call.likeDrop({ drop_id: liked, user_id: user });
  await call.likeDrop({ drop_id: liked, user_id: "cid" });
  const own = await call.shareDrop({ drop_id: liked, user_id: user });
  const unliked = await post(posts, { user_id: "bob" });
  for (const drop_id of [unliked, liked]) await call.likeDrop({ drop_id, user_id: user });
  await call.unlikeDrop({ drop_id: unliked, user_id: user });
  const addressed = await post(posts, { user_id: "bob", visibility: DIRECT, recipients: ["cid", user] });
  const alone = await post(posts, { user_id: "bob", visibility: DIRECT, recipients: [user] });
  const remote = remoteUri(user, Math.random());
  await call.putRemoteObject({ ...REMOTE, uri: remote, visibility: DIRECT, recipients: [user, "cid"] });
  return { own: [first, gone, reply, direct, own.repost_id], liked, addressed, alone, remote, repost };
}

const calibrated = ({ store: { reactions, lease } }: PostsHarness) =>
  createCalibration({ drops: reactions, lease, log: silent })(100);

describePosts("the erasure of a user's posts", {}, (posts, { name }) => {
  afterEach(() => hookFailpoints(undefined));

  const erased = async (user: string): Promise<void> => {
    const relay = startRelayOf(posts.db);
    try {
      await forget(posts.store, user);
    } finally {
      await relay.close();
    }
  };
  const countsOf = async (id: string) => (await posts.call.getCounts({ drop_ids: [id] })).counts[0];

  const expectForgotten = async (user: string, small: Small): Promise<void> => {
    const { call } = posts;
    await posts.countAll();
    expect(await rowsNaming(posts.db, user)).toEqual([]);
    for (const drop_id of [...small.own, small.repost])
      expect((await call.getDrop({ drop_id })).tombstone?.id).toBe(drop_id);
    expect(await countsOf(small.liked)).toEqual({ drop_id: small.liked, likes: 1, shares: 0, replies: 0 });
    expect((await call.listLikes({ drop_id: small.liked })).likes.map(({ user_id }) => user_id)).toEqual(["cid"]);
    expect((await call.getDrop({ drop_id: small.addressed })).drop?.recipients).toEqual(["cid"]);
    expect((await call.getDrop({ drop_id: small.alone, viewer_id: "bob" })).drop?.recipients).toEqual([]);
    expect((await call.getRemoteObject({ uri: small.remote })).object?.recipients).toEqual(["cid"]);
    const reads = [call.listUserDrops, call.listUserLikes, call.listUserShares] as const;
    for (const read of reads) expect(Object.values(await read({ user_id: user }))[0]).toEqual([]);
    expect((await call.getDropsByUserId({ user_id: user })).drops).toEqual([]);
    expect(await calibrated(posts)).toMatchObject({ corrected: 0, overdue: 0 });
  };

  test("nothing is left of a user but tombstones without their name, and others' lists and counts are right", async () => {
    const small = await makeSmall(posts, "eve-all");
    await posts.countAll();
    const lefts: number[] = [];
    const relay = startRelayOf(posts.db);
    await forget(posts.store, "eve-all", { left: (rows) => lefts.push(rows) });
    const told = (await relay.close()).filter(({ subject }) => subject === "drops.deleted").map(({ key }) => key);
    for (const id of [...small.own, small.repost]) expect(told.filter((key) => key === id)).toHaveLength(1);
    expect([lefts[0], lefts.at(-1)]).toEqual([7, 0]);
    await expectForgotten("eve-all", small);
    await erased("eve-all");
    await expectForgotten("eve-all", small);
  });

  test("the deletions name the author, and tombstones do until they are published", async () => {
    const id = await post(posts, { user_id: "eve-told" });
    const forgetting = forget(posts.store, "eve-told");
    const author = async () =>
      (await posts.db.query<{ user_id: string }>("SELECT user_id FROM posts.drops WHERE drop_id = $1", [id]))[0];
    await eventually(async () => (await posts.call.getDrop({ drop_id: id })).tombstone !== undefined, "a tombstone");
    expect(await author()).toEqual({ user_id: "eve-told" });
    const relay = startRelayOf(posts.db);
    await forgetting;
    expect(await author()).toEqual({ user_id: "" });
    const told = (await relay.close()).filter(({ key }) => key === id);
    expect(told.map(({ subject }) => subject)).toEqual(["drops.created", "drops.deleted"]);
    expect(JSON.parse(told[1]?.body as string)).toEqual({ drop_id: id, user_id: "eve-told" });
    const { drops } = await posts.call.listDrops({ since: 0 });
    expect(drops.find(({ drop_id }) => drop_id === id)).toMatchObject({ deleted: true, user_id: "" });
  });

  test("where events cannot be published the erasure is unavailable, and completes later", async () => {
    const small = await makeSmall(posts, "eve-away");
    const stopping = new AbortController();
    let looks = 0;
    const { erasure } = posts.store;
    const isUnpublished = (user: string): Promise<boolean> => {
      looks += 1;
      if (looks === 3) stopping.abort();
      return erasure.isUnpublished(user);
    };
    const store = { ...posts.store, erasure: { ...erasure, isUnpublished } };
    const forgetting = forget(store, "eve-away", { stopping: stopping.signal });
    await expect(forgetting).rejects.toMatchObject({ code: "unavailable" });
    await erased("eve-away");
    await expectForgotten("eve-away", small);
  });

  test.each(STEPS)("a process that dies before the step %s leaves what the next one completes", async (step) => {
    const user = `eve-${step}`;
    const small = await makeSmall(posts, user);
    hookFailpoints(failpointsOf(`posts-forgetting=throw@${step}`));
    await expect(erased(user)).rejects.toThrow("failpoint");
    hookFailpoints(undefined);
    await erased(user);
    await expectForgotten(user, small);
  });

  longTest(name)(
    "a process may die between any two statements",
    async () => {
      for (let calls = 1; ; calls++) {
        const user = `eve-dies-${calls}-`;
        const small = await makeSmall(posts, user);
        if (calls % 2 === 0) await posts.countAll();
        const relay = startRelayOf(posts.db, 1);
        const died = await forget(dyingStore(posts.db, calls), user).then(
          () => false,
          () => true,
        );
        if (died) await forget(posts.store, user);
        await relay.close();
        await expectForgotten(user, small);
        if (!died) break;
      }
    },
    240_000,
  );

  test("two erasures of one user beside each other write one event a drop", async () => {
    const small = await makeSmall(posts, "eve-two");
    const other = await asAnotherProcess(posts.db);
    const relay = startRelayOf(posts.db);
    const stores = [posts.store, createPostsStore(other), posts.store];
    await Promise.all(stores.map((store) => forget(store, "eve-two")));
    const told = (await relay.close()).filter(({ subject }) => subject === "drops.deleted").map(({ key }) => key);
    for (const id of [...small.own, small.repost]) expect(told.filter((key) => key === id)).toHaveLength(1);
    await expectForgotten("eve-two", small);
    if (other !== posts.db) await other.close();
  });

  test("an event on its way about a reaction that is gone changes nothing", async () => {
    const drop_id = await post(posts, { user_id: "bob" });
    await posts.call.likeDrop({ drop_id, user_id: "cid" });
    await posts.countAll();
    await posts.call.likeDrop({ drop_id, user_id: "eve-late" });
    const late = [{ drop_id, kind: "like", actor_id: "eve-late" }] as const;
    await erased("eve-late");
    await posts.store.reactions.count(late);
    expect(await countsOf(drop_id)).toMatchObject({ likes: 1 });
    expect(await rowsNaming(posts.db, "eve-late")).toEqual([]);
  });

  test("users whose ids are words of events take no other event with them", async () => {
    const [drop_id, other] = [await post(posts, { user_id: "like" }), await post(posts, { user_id: "bob" })];
    await posts.call.likeDrop({ drop_id: other, user_id: "cid" });
    const rows = () => posts.db.query(`SELECT FROM public.outbox WHERE body LIKE '%${other}%'`);
    const before = await rows();
    const quoted = 'a "quoted" \\ id é';
    await posts.call.likeDrop({ drop_id: other, user_id: quoted });
    await post(posts, { user_id: quoted });
    for (const user of ["like", "public", "drop_id", quoted]) await erased(user);
    expect(await posts.db.query("SELECT FROM public.outbox WHERE strpos(body, 'quoted') > 0")).toEqual([]);
    expect((await posts.call.getDrop({ drop_id })).tombstone?.id).toBe(drop_id);
    expect(await rows()).toHaveLength(before.length);
  });

  test("every write in the name of an erased user, or at one, is refused with the field that names them", async () => {
    const { call } = posts;
    const own = await post(posts, { user_id: "eve-x", idempotency_key: "k" });
    const others = await post(posts, { user_id: "bob" });
    await call.shareDrop({ drop_id: others, user_id: "eve-x" });
    const uri = "https://far.example/known";
    await call.putRemoteObject({ ...REMOTE, uri, visibility: DIRECT, recipients: ["eve-x", "cid"] });
    await erased("eve-x");
    const drop = { user_id: "eve-x", visibility: PUBLIC, body: "x" };
    const reaction = { drop_id: others, user_id: "eve-x" };
    const direct = { user_id: "bob", visibility: DIRECT, body: "x", recipients: ["cid", "eve-x"] };
    const remote = { ...REMOTE, uri: "https://far.example/new", visibility: DIRECT };
    const refused = async (field: string, made: Promise<unknown>): Promise<void> =>
      expect(await refusal(made)).toBe(`FAILED_PRECONDITION ${field}: the user is erased`);
    await refused("user_id", call.createDrop(drop));
    await refused("user_id", call.createDrop({ ...drop, idempotency_key: "k" }));
    await refused("user_id", call.createDrop({ ...drop, reply_to: others }));
    await refused("user_id", call.createDrop({ ...drop, created_at: Date.now() - 1_000 }));
    await refused("user_id", call.editDrop({ drop_id: own, user_id: "eve-x", body: "y" }));
    await refused("user_id", call.deleteDrop({ drop_id: own, user_id: "eve-x" }));
    await refused("user_id", call.likeDrop(reaction));
    await refused("user_id", call.unlikeDrop(reaction));
    await refused("user_id", call.shareDrop(reaction));
    await refused("user_id", call.unshareDrop(reaction));
    await refused("recipients", call.createDrop(direct));
    await refused("recipients", call.createDrop({ ...direct, idempotency_key: "r" }));
    await refused("recipients", call.putRemoteObject({ ...remote, recipients: ["eve-x", "cid"] }));
    await refused("actor_uri", call.putRemoteObject({ ...remote, actor_uri: await erasedUri(), recipients: ["cid"] }));
    for (const made of [
      call.likeDrop({ drop_id: own, user_id: "bob" }),
      call.shareDrop({ drop_id: own, user_id: "bob" }),
    ])
      expect(await refusal(made)).toBe("FAILED_PRECONDITION drop_id: the drop is deleted");
    expect(await refusal(post(posts, { user_id: "bob", reply_to: own }))).toMatch(/^INVALID_ARGUMENT reply_to: /);
    // It is fetched again: its recipients stay.
    const again = await call.putRemoteObject({ ...REMOTE, uri, visibility: DIRECT, recipients: ["eve-x", "cid"] });
    expect([again.created, again.object?.recipients]).toEqual([false, ["cid"]]);
    expect(await rowsNaming(posts.db, "eve-x")).toEqual([]);
  });

  const erasedUri = async (): Promise<string> => {
    const uri = "https://far.example/users/eve";
    await erased(uri);
    return uri;
  };

  test("the drops of others are created beside those that are refused", async () => {
    await erased("eve-beside");
    const drops = Array.from({ length: 60 }, (_, n) =>
      post(posts, {
        user_id: n % 3 === 0 ? "eve-beside" : `u${n}`,
        ...(n % 3 === 1 ? { visibility: DIRECT, recipients: [n % 2 === 0 ? "eve-beside" : "cid"] } : {}),
      }).then(
        () => true,
        () => false,
      ),
    );
    const made = await Promise.all(drops);
    expect(made).toEqual(drops.map((_, n) => n % 3 !== 0 && (n % 3 !== 1 || n % 2 !== 0)));
    expect(await rowsNaming(posts.db, "eve-beside")).toEqual([]);
  });
});
