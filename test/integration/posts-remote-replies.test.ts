import { expect, test } from "@jest/globals";
import { type PutRemoteObjectRequest, RemoteKind, type Reply, Visibility } from "../../src/gen/avion/posts.js";
import { silent } from "../../src/kernel/logger.js";
import { DAY, HOUR } from "../../src/kernel/time.js";
import { createCalibration } from "../../src/posts/maintenance.js";
import { linkDrops } from "../../src/posts/remote/links.js";
import { describePosts } from "../support/describe-posts.js";
import { POSTS_CONFIG, type PostsHarness, post, refusal, startPosts } from "../support/posts.js";
import { forget, startRelayOf } from "../support/posts-erasure.js";

const { PUBLIC, UNLISTED, FOLLOWERS, DIRECT } = Visibility;
const publicUrl = "https://here.example";
const EVE = "https://far.example/users/eve";

const nameOf = ({ drop, remote }: Reply): string => drop?.drop_id ?? remote?.uri ?? "";

describePosts("remote replies", {}, (posts) => {
  let made = 0;
  const newUri = (): string => `https://far.example/notes/${++made}`;

  const put = (fields: Partial<PutRemoteObjectRequest> = {}, on: PostsHarness = posts) =>
    on.call.putRemoteObject({
      ...{ uri: newUri(), kind: RemoteKind.DROP, actor_uri: EVE, visibility: PUBLIC, document: "{}", ...fields },
    });
  const putReply = async (reply_to: string, fields: Partial<PutRemoteObjectRequest> = {}): Promise<string> =>
    (await put({ reply_to, ...fields })).object?.uri as string;
  const remove = (uri: string) => posts.call.deleteRemoteObject({ uri });
  const items = async (drop_id: string, viewer_id = "") =>
    (await posts.call.listReplies({ drop_id, viewer_id, page_size: 100 })).items.map(nameOf);
  const replies = async (drop_id: string): Promise<number | undefined> => {
    await posts.countAll();
    return (await posts.call.getCounts({ drop_ids: [drop_id] })).counts[0]?.replies;
  };
  const calibrated = () =>
    createCalibration({ drops: posts.store.reactions, lease: posts.store.lease, log: silent })(1_000);

  test("a document that replies to a drop of this server by its URI, or by its id, is among its replies", async () => {
    const here = await startPosts(posts.db, { config: { ...POSTS_CONFIG, publicUrl } });
    const parent = await post(posts);
    const written = [
      `${publicUrl}/drops/${parent}`,
      `HTTPS://Here.Example/drops/${parent.toUpperCase()}`,
      { id: `${publicUrl}/drops/${parent}` },
      [`${publicUrl}/drops/${parent}`],
      parent,
    ];
    const uris: string[] = [];
    for (const inReplyTo of written) {
      const { object } = await put({ document: JSON.stringify({ inReplyTo }) }, here);
      expect(object?.reply_to).toBe(parent);
      uris.push(object?.uri as string);
    }
    for (const inReplyTo of [
      null,
      7,
      {},
      "urn:x",
      `${publicUrl}/users/${parent}x y`,
      `https://x.example/${"y".repeat(128)}`,
    ])
      expect((await put({ document: JSON.stringify({ inReplyTo }) }, here)).object?.reply_to).toBe("");
    for (const drop_id of [parent, `${publicUrl}/drops/${parent}`]) {
      const page = await here.call.listReplies({ drop_id, page_size: 100 });
      expect(page.items.map(nameOf).sort()).toEqual(uris.sort());
      expect(page.replies).toEqual([]);
      await posts.countAll();
      expect((await here.call.getCounts({ drop_ids: [drop_id] })).counts).toMatchObject([{ drop_id, replies: 5 }]);
    }
    await here.stop();
  });

  test("replies of all servers are in the order of time, and pages show each of them once", async () => {
    for (const parent of [await post(posts), (await put()).object?.uri as string]) {
      const now = Date.now();
      const expected: string[] = [];
      for (let n = 0; n < 12; n++) {
        const created_at = now - 12 * HOUR + n * HOUR;
        const isOwn = n % 3 === 1;
        expected.push(
          isOwn ? await post(posts, { reply_to: parent, created_at }) : await putReply(parent, { created_at }),
        );
      }
      expect(await items(parent)).toEqual(expected);
      expect(await replies(parent)).toBe(12);
      for (const page_size of [1, 5]) {
        const seen: string[] = [];
        const own: string[] = [];
        for (let page_token = ""; ; ) {
          const page = await posts.call.listReplies({ drop_id: parent, page_size, page_token });
          seen.push(...page.items.map(nameOf));
          own.push(...page.replies.map(({ drop_id }) => drop_id));
          page_token = page.next_page_token;
          if (page_token === "") break;
        }
        expect(seen).toEqual(expected);
        expect(own).toEqual(expected.filter((_, n) => n % 3 === 1));
      }
    }
  });

  test("a reply counts once, however often it is put, and no longer once it is deleted", async () => {
    const parent = await post(posts);
    const uri = await putReply(parent);
    await posts.written();
    for (const reply_to of [parent, ""]) {
      const { object, created } = await put({ uri, reply_to, document: '{"content":"new"}' });
      expect([object?.reply_to, object?.document, created]).toEqual([parent, '{"content":"new"}', false]);
    }
    expect(await posts.written()).toEqual([]);
    expect(await replies(parent)).toBe(1);
    for (let twice = 0; twice < 2; twice++) await remove(uri);
    expect(await replies(parent)).toBe(0);
    expect(await items(parent)).toEqual([]);
    expect(await refusal(put({ uri, reply_to: parent }))).toBe("FAILED_PRECONDITION uri: the object is deleted");
    expect(await replies(parent)).toBe(0);
  });

  test("a reply that comes before its parent counts once that has come", async () => {
    const parent = newUri();
    const uris = [await putReply(parent), await putReply(parent), await putReply(parent, { visibility: FOLLOWERS })];
    await remove(uris[0] as string);
    expect(await replies(parent)).toBe(0);
    await put({ uri: parent, created_at: Date.now() - 400 * DAY });
    expect(await replies(parent)).toBe(1);
    expect(await items(parent)).toEqual([uris[1]]);
    await put({ uri: parent });
    expect(await replies(parent)).toBe(1);
  });

  test("the event of a reply and the drops of its actor name the same author of the parent", async () => {
    const told = async () =>
      (await posts.written()).filter(({ subject }) => subject === "drops.ap_received").map(({ body }) => body);
    const listed = async (uri: string) => {
      const request = { user_id: EVE, limit: 200, max_created_at: 0, max_drop_id: "" };
      return (await posts.call.getDropsByUserId(request)).drops.find(({ drop_id }) => drop_id === uri);
    };
    const late = newUri();
    const parents: [string, string | undefined][] = [
      [await post(posts, { user_id: "bob" }), "bob"],
      [
        (await put({ actor_uri: "https://far.example/users/cat" })).object?.uri as string,
        "https://far.example/users/cat",
      ],
      [late, undefined],
    ];
    const erasedParent = await post(posts, { user_id: "dan" });
    await posts.store.erasure.mark("dan");
    parents.push([erasedParent, undefined]);
    await told();
    for (const [reply_to, author] of parents) {
      const uri = await putReply(reply_to);
      const [event] = await told();
      expect([event?.["reply_to"], event?.["reply_to_author"]]).toEqual([reply_to, author]);
      if (reply_to === late) await put({ uri: late, actor_uri: "https://far.example/users/cat" });
      expect(await listed(uri)).toMatchObject({ reply_to, reply_to_author: author ?? "" });
      await told();
    }
  });

  test("a drop of this server that replies to a remote one counts there until it is deleted", async () => {
    const parent = (await put()).object?.uri as string;
    const reply = await post(posts, { reply_to: parent });
    await post(posts, { reply_to: parent, visibility: DIRECT, recipients: ["bob"] });
    expect(await replies(parent)).toBe(1);
    await posts.call.deleteDrop({ drop_id: reply, user_id: "ada" });
    expect(await replies(parent)).toBe(0);
    await post(posts, { reply_to: parent, user_id: "gus" });
    expect(await replies(parent)).toBe(1);
    const relay = startRelayOf(posts.db);
    await forget(posts.store, "gus");
    await relay.close();
    expect(await replies(parent)).toBe(0);
    expect(await calibrated()).toMatchObject({ corrected: 0 });
  });

  test("a reply that is made while its remote parent is put either counts and is listed, or is refused", async () => {
    const parent = newUri();
    const { remote } = posts.store;
    const store = {
      ...posts.store,
      // The parent comes after the call has looked for its id, and before it looks for its author.
      remote: {
        ...remote,
        dropsByUris: async (uris: readonly string[]) => {
          await put({ uri: parent });
          return remote.dropsByUris(uris);
        },
      },
    };
    const meeting = await startPosts(posts.db, { store });
    expect(await refusal(post(meeting, { reply_to: parent }))).toBe("INVALID_ARGUMENT reply_to: there is no such drop");
    await meeting.stop();
    const reply = await post(posts, { reply_to: parent });
    expect(await items(parent)).toEqual([reply]);
    expect(await replies(parent)).toBe(1);
    const parents = Array.from({ length: 100 }, newUri);
    const tried = (reply_to: string): Promise<number> =>
      post(posts, { reply_to }).then(
        () => 1,
        () => 0,
      );
    const made = await Promise.all(parents.map((uri) => Promise.all([tried(uri), tried(uri), put({ uri })])));
    for (const [n, [one, other]] of made.entries()) {
      const uri = parents[n] as string;
      expect([(await items(uri)).length, await replies(uri)]).toEqual([one + other, one + other]);
    }
    expect(await calibrated()).toMatchObject({ corrected: 0 });
  });

  test("only public and unlisted replies count, and a viewer sees those that address them", async () => {
    const parent = await post(posts);
    const [open, unlisted, , direct] = [
      await putReply(parent),
      await putReply(parent, { visibility: UNLISTED }),
      await putReply(parent, { visibility: FOLLOWERS }),
      await putReply(parent, { visibility: DIRECT, recipients: ["bob"] }),
    ];
    expect(await replies(parent)).toBe(2);
    expect((await items(parent)).sort()).toEqual([open, unlisted].sort());
    expect((await items(parent, "bob")).sort()).toEqual([open, unlisted, direct].sort());
  });

  test("with a remote drop its counts go, and late replies to it count nowhere", async () => {
    const parent = (await put()).object?.uri as string;
    await putReply(parent);
    await post(posts, { reply_to: parent });
    expect(await replies(parent)).toBe(2);
    await remove(parent);
    await putReply(parent);
    expect(await replies(parent)).toBe(0);
    const rows = await posts.db.query(
      `SELECT FROM posts.reactions r JOIN posts.remote_objects o USING (drop_id) WHERE o.uri = $1
       UNION ALL SELECT FROM posts.counts c JOIN posts.remote_objects o USING (drop_id) WHERE o.uri = $1`,
      [parent],
    );
    expect(rows).toEqual([]);
  });

  test("a page of long documents ends where a message does, and the next one goes on", async () => {
    const parent = await post(posts);
    const document = JSON.stringify({ content: "x".repeat(250_000) });
    for (let n = 0; n < 20; n++) await putReply(parent, { document });
    const first = await posts.call.listReplies({ drop_id: parent, page_size: 100 });
    expect(first.items).toHaveLength(16);
    const second = await posts.call.listReplies({ drop_id: parent, page_size: 100, page_token: first.next_page_token });
    expect(second.items).toHaveLength(4);
    expect(second.next_page_token).toBe("");
  });

  test("what an earlier version has stored is linked by the maintenance", async () => {
    const parent = newUri();
    const uris = [newUri(), newUri()];
    const insert = (uri: string, document: object) =>
      posts.db.query(
        `INSERT INTO posts.remote_objects (uri, kind, actor_uri, created_at, visibility, document, fetched_at, expires_at)
         VALUES ($1, 1, $2, $3, 1, $4, 1, 1)`,
        [uri, EVE, Date.now() - HOUR, JSON.stringify(document)],
      );
    await insert(parent, {});
    for (const uri of uris) await insert(uri, { inReplyTo: parent });
    await posts.db.query(
      `INSERT INTO posts.drops (drop_id, user_id, visibility, recipients, reply_to, summary, body, updated_at, changed_at)
       SELECT (left(drop_id::text, 24) || 'abcdefabcdef')::uuid, 'bob', 1, '{}', $2, '', 'x', 1, 1 FROM posts.drops WHERE drop_id = $1`,
      [await post(posts), parent],
    );
    while ((await linkDrops({ store: posts.store, now: Date.now }, 2)) > 0);
    expect(await replies(parent)).toBe(3);
    expect((await items(parent)).filter((uri) => uris.includes(uri)).sort()).toEqual(uris.sort());
    await remove(uris[0] as string);
    expect(await replies(parent)).toBe(2);
  });

  test("a deletion by an earlier version is found by the maintenance", async () => {
    const parent = await post(posts);
    const uri = await putReply(parent);
    expect(await replies(parent)).toBe(1);
    await posts.db.query("UPDATE posts.remote_objects SET deleted_at = 1 WHERE uri = $1", [uri]);
    while ((await linkDrops({ store: posts.store, now: Date.now }, 10)) > 0);
    expect(await replies(parent)).toBe(0);
  });

  test("with an actor its replies go from counts and lists", async () => {
    const actor_uri = "https://far.example/users/mal";
    const parent = await post(posts);
    for (let n = 0; n < 3; n++) await putReply(parent, { actor_uri });
    expect(await replies(parent)).toBe(3);
    const relay = startRelayOf(posts.db);
    await forget(posts.store, actor_uri);
    await relay.close();
    expect(await replies(parent)).toBe(0);
    expect(await items(parent)).toEqual([]);
  });

  test("a reply to a drop of this server that never was makes no month for it", async () => {
    const months = async () => (await posts.store.partitions.months()).map(({ name }) => name);
    const before = await months();
    for (const reply_to of ["00000000-0000-7000-8000-000000000000", "0fffffff-ffff-7fff-bfff-ffffffffffff"]) {
      const uri = await putReply(reply_to);
      expect((await posts.call.getRemoteObject({ uri })).object?.reply_to).toBe(reply_to);
    }
    expect(await months()).toEqual(before);
    expect(await posts.store.links.unlinked(10)).toEqual([]);
  });

  test("a field that is none is refused", async () => {
    expect(await refusal(put({ reply_to: "x" }))).toBe("INVALID_ARGUMENT reply_to: is not a UUID");
    expect(await refusal(put({ kind: RemoteKind.ACTOR, actor_uri: "", visibility: 0, reply_to: newUri() }))).toBe(
      "INVALID_ARGUMENT reply_to: is of a drop",
    );
  });
});
