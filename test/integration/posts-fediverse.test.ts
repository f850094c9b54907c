import { afterAll, beforeAll, describe, expect, test } from "@jest/globals";
import { RemoteKind, RemoteReactionKind, Visibility } from "../../src/gen/avion/posts.js";
import { activity, itemsOf } from "../support/activities.js";
import { describePosts } from "../support/describe-posts.js";
import { SERVERS } from "../support/fediverse.js";
import { POSTS_CONFIG, type PostsHarness, post, startPosts } from "../support/posts.js";

const { PUBLIC, UNLISTED, FOLLOWERS, DIRECT } = Visibility;
const { ACTOR, DROP } = RemoteKind;
const HERE = "https://here.example";
const EVERYBODY = "https://www.w3.org/ns/activitystreams#Public";
const ADA = `${HERE}/users/ada`;

describePosts("documents as other servers send them", {}, (running, { name }) => {
  const posts = {} as PostsHarness;
  beforeAll(async () => {
    Object.assign(posts, await startPosts(running.db, { config: { ...POSTS_CONFIG, publicUrl: HERE } }));
  });
  afterAll(() => posts.stop());

  describe.each(SERVERS)("of %s", (_, server) => {
    const { actor } = server;
    const put = (document: { readonly id: string }) =>
      posts.call.putRemoteObject({
        ...{ uri: document.id, kind: DROP, actor_uri: actor.id, document: JSON.stringify(document) },
      });
    const audiences = [
      ["for everybody", PUBLIC, { to: [EVERYBODY], cc: [actor.followers, ADA], mentioned: [ADA] }, []],
      ["unlisted", UNLISTED, { to: [actor.followers], cc: [EVERYBODY], mentioned: [] }, []],
      ["for followers", FOLLOWERS, { to: [actor.followers], cc: [ADA], mentioned: [ADA] }, []],
      ["direct", DIRECT, { to: [ADA], cc: [], mentioned: [ADA] }, ["ada"]],
    ] as const;

    test("an actor keeps its document and its webfinger address", async () => {
      const document = JSON.stringify(actor);
      const { publicKeyPem: public_key } = actor["publicKey"] as { publicKeyPem: string };
      const { object } = await posts.call.putRemoteObject({
        ...{ uri: actor.id, kind: ACTOR, document, public_key, webfinger: server.webfinger },
      });
      expect(object).toMatchObject({ document, public_key, webfinger: server.webfinger });
      expect((await posts.call.resolveWebfinger({ webfinger: server.webfinger })).actor?.uri).toBe(actor.id);
      expect(await posts.call.resolveUri({ uri: actor.id })).toMatchObject({ remote: { uri: actor.id, kind: ACTOR } });
    });

    test.each(audiences)("a note that is %s reaches its audience", async (_, visibility, audience, recipients) => {
      const note = server.note(`${visibility}-${name}`, audience, null);
      const { object, created } = await put(note);
      expect(created).toBe(true);
      expect(object).toMatchObject({ visibility, recipients, reply_to: "", document: JSON.stringify(note) });
    });

    test("a direct note is shown to the local user whom it names by a URI", async () => {
      const note = server.note(`to-ada-${name}`, { to: [ADA], cc: [], mentioned: [ADA] }, null);
      await put(note);
      expect((await posts.call.getRemoteObject({ uri: note.id, viewer_id: "ada" })).object?.uri).toBe(note.id);
      const others = posts.call.getRemoteObject({ uri: note.id, viewer_id: "bob" });
      await expect(others).rejects.toThrow("uri: there is no such object");
    });

    test("a reply, a like and a share of a local drop are in its collections", async () => {
      const drop = await post(posts);
      const uri = `${HERE}/drops/${drop}`;
      const reply = server.note(`reply-${name}`, { to: [EVERYBODY], cc: [ADA], mentioned: [ADA] }, uri);
      expect((await put(reply)).object?.reply_to).toBe(drop);
      for (const kind of [RemoteReactionKind.LIKE, RemoteReactionKind.SHARE])
        await posts.call.putRemoteReaction({ uri: `${reply.id}/${kind}`, actor_uri: actor.id, object: uri, kind });
      await posts.countAll();
      expect(await itemsOf(posts, `${uri}/replies`)).toMatchObject({ total: 1, items: [reply.id] });
      expect(await itemsOf(posts, `${uri}/likes`)).toMatchObject({
        total: 1,
        items: [{ type: "Like", actor: actor.id }],
      });
      expect(await itemsOf(posts, `${uri}/shares`)).toMatchObject({
        total: 1,
        items: [{ actor: actor.id, object: uri }],
      });
    });

    test("a local reply and a local share name the note by its URI", async () => {
      const note = server.note(`parent-${name}`, { to: [EVERYBODY], cc: [], mentioned: [] }, null);
      await put(note);
      const reply = await post(posts, { user_id: "bob", reply_to: note.id });
      expect(await activity(posts, `${HERE}/drops/${reply}`)).toMatchObject({ inReplyTo: note.id });
      const { repost_id } = await posts.call.shareDrop({ drop_id: note.id, user_id: "bob" });
      expect(await activity(posts, `${HERE}/drops/${repost_id}`)).toMatchObject({
        ...{ type: "Announce", object: note.id, cc: [`${HERE}/users/bob/followers`, actor.id] },
      });
    });
  });
});
