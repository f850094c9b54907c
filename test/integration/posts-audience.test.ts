import { expect, test } from "@jest/globals";
import { type PutRemoteObjectRequest, RemoteKind, Visibility } from "../../src/gen/avion/posts.js";
import { decideWaiting } from "../../src/posts/remote/audience.js";
import { describePosts } from "../support/describe-posts.js";

const { DROP, ACTOR } = RemoteKind;
const { FOLLOWERS, DIRECT } = Visibility;

describePosts("drops whose audience the document of their actor decides", { emptied: true }, (posts) => {
  const EVE = "https://far.example/users/eve";
  const COLLECTION = "https://far.example/f/7";
  const ANN = "https://far.example/users/ann";
  let made = 0;

  const putDrop = async (document: object, fields: Partial<PutRemoteObjectRequest> = {}) => {
    const put = { uri: `https://far.example/notes/${++made}`, kind: DROP, actor_uri: EVE, ...fields };
    return (await posts.call.putRemoteObject({ ...put, document: JSON.stringify(document) })).object;
  };
  const putActor = (document: object, uri = EVE) =>
    posts.call.putRemoteObject({ uri, kind: ACTOR, document: JSON.stringify(document) });
  const audience = async (uri = "") => {
    const { object } = await posts.call.getRemoteObject({ uri });
    return [object?.visibility, object?.recipients];
  };
  const events = async () =>
    (await posts.written()).map(({ key, body }) => [key, body["visibility"], body["recipients"]]);
  const listed = async () => (await posts.call.getDropsByUserId({ user_id: EVE })).drops.map(({ drop_id }) => drop_id);

  test("a drop for a collection that no actor names waits as for followers, without an event", async () => {
    const drop = await putDrop({ to: COLLECTION, cc: ["bob"] });
    expect([drop?.visibility, drop?.recipients]).toEqual([FOLLOWERS, []]);
    expect(await events()).toEqual([]);
    expect(await listed()).toEqual([]);
    await putDrop({ to: COLLECTION }, { uri: drop?.uri as string });
    expect(await events()).toEqual([]);
  });

  test("the actor that names the collection makes the drop one for followers, with one event", async () => {
    const drop = await putDrop({ to: COLLECTION });
    await putActor({ followers: COLLECTION }, ANN);
    expect(await events()).toEqual([]);
    for (let twice = 0; twice < 2; twice++) await putActor({ followers: COLLECTION });
    expect(await events()).toEqual([[drop?.uri, "followers", undefined]]);
    expect(await audience(drop?.uri)).toEqual([FOLLOWERS, []]);
    expect(await listed()).toEqual([drop?.uri]);
  });

  test("the actor that names another collection makes the drop direct, without erased recipients", async () => {
    const tag = ["bob", "cid"].map((href) => ({ type: "Mention", href }));
    const drop = await putDrop({ to: [COLLECTION, "bob", "cid"], tag });
    await posts.store.erasure.mark("cid");
    await putActor({ followers: `${EVE}/others` });
    const told = (await posts.written()).map(({ key, body }) => [
      key,
      body["visibility"],
      body["recipients"],
      body["mentions"],
    ]);
    expect(told).toEqual([[drop?.uri, "direct", [COLLECTION, "bob"], ["bob"]]]);
    expect(await audience(drop?.uri)).toEqual([DIRECT, [COLLECTION, "bob"]]);
  });

  test("an actor that is stored, or mentioned, is no collection", async () => {
    await putActor({}, ANN);
    expect((await putDrop({ to: ANN }))?.visibility).toBe(DIRECT);
    const tag = { type: "Mention", href: COLLECTION };
    expect((await putDrop({ to: COLLECTION, tag }))?.visibility).toBe(DIRECT);
    expect((await putDrop({ to: COLLECTION }, { recipients: ["bob"] }))?.recipients).toEqual(["bob"]);
  });

  test("a document that was replaced while the drop waited makes it no more open", async () => {
    const drop = await putDrop({ to: COLLECTION });
    await putDrop({ to: "as:Public" }, { uri: drop?.uri as string });
    await putActor({});
    expect(await events()).toEqual([[drop?.uri, "followers", undefined]]);
  });

  test("a reply that came before its parent names no author of it once it is decided", async () => {
    const reply_to = "https://far.example/notes/parent";
    const putParent = () => putDrop({ to: "as:Public" }, { uri: reply_to });
    const early = await putDrop({ to: COLLECTION }, { reply_to });
    await putParent();
    const late = await putDrop({ to: COLLECTION }, { reply_to });
    await posts.written();
    await putActor({ followers: COLLECTION });
    const told = (await posts.written()).map(({ key, body }) => [key, body["reply_to"], body["reply_to_author"]]);
    expect(told).toEqual([
      [early?.uri, reply_to, undefined],
      [late?.uri, reply_to, EVE],
    ]);
  });

  test("a deleted drop is not decided", async () => {
    const drop = await putDrop({ to: COLLECTION });
    await posts.call.deleteRemoteObject({ uri: drop?.uri as string });
    await posts.written();
    await putActor({ followers: COLLECTION });
    expect(await events()).toEqual([]);
  });

  test("drops and their actor may come at the same time", async () => {
    for (let round = 0; round < 10; round++) {
      const actor_uri = `${EVE}/${round}`;
      const [drop] = await Promise.all([
        putDrop({ to: COLLECTION }, { actor_uri }),
        putActor({ followers: COLLECTION }, actor_uri),
      ]);
      expect(await audience(drop?.uri)).toEqual([FOLLOWERS, []]);
      expect(await events()).toEqual([[drop?.uri, "followers", undefined]]);
    }
  });

  test("the maintenance decides what a process that died has left", async () => {
    const drops = [await putDrop({ to: COLLECTION }), await putDrop({ to: COLLECTION })];
    await posts.db.query(
      "INSERT INTO posts.remote_objects (uri, kind, document, fetched_at, expires_at) VALUES ($1, 2, $2, 1, 1)",
      [EVE, JSON.stringify({ followers: COLLECTION })],
    );
    expect(await decideWaiting(posts)).toBe(2);
    expect(await events()).toEqual(drops.map((drop) => [drop?.uri, "followers", undefined]));
  });
});
