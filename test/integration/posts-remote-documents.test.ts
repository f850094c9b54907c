import { expect, test } from "@jest/globals";
import { RemoteKind, RemoteReactionKind, Visibility } from "../../src/gen/avion/posts.js";
import { DAY } from "../../src/kernel/time.js";
import { describePosts } from "../support/describe-posts.js";
import { refusal } from "../support/posts.js";

const { DROP, ACTOR } = RemoteKind;
const ACTOR_URI = "https://far.example/users/eve";

describePosts("documents of remote objects", {}, (posts) => {
  let made = 0;
  const newUri = (): string => `https://far.example/notes/${++made}`;

  test("the newest document wins, whatever comes last; of two of one time the later call", async () => {
    const pem = (name: string): string => `-----BEGIN PUBLIC KEY-----\n${name}\n-----END PUBLIC KEY-----\n`;
    const put = async (uri: string, name: string, times: object, kind = ACTOR) => {
      const fields = kind === ACTOR ? { public_key: pem(name), webfinger: `${name}@far.example` } : {};
      const document = JSON.stringify({ name, ...times });
      const { object } = await posts.call.putRemoteObject({ uri, kind, document, ...fields });
      expect((await posts.call.getRemoteObject({ uri })).object).toEqual(object);
      expect(kind === DROP || object?.public_key === pem(object?.webfinger.split("@")[0] ?? "")).toBe(true);
      return JSON.parse(object?.document ?? "").name;
    };
    const [actor, drop] = [`${ACTOR_URI}/updated`, newUri()];
    expect(await put(actor, "a", {})).toBe("a");
    expect(await put(actor, "b", { updated: "2026-02-01T10:00:00+02:00" })).toBe("b");
    expect(await put(actor, "c", { updated: "2026-02-01T07:59:59.999Z" })).toBe("b");
    expect(await put(actor, "d", { updated: "2026-02-01T08:00:00" })).toBe("d");
    // The document of an actor may name no time at all.
    expect(await put(actor, "e", { published: "2020-01-01T00:00:00Z" })).toBe("e");
    expect(await put(actor, "f", { updated: "2026-01-31T00:00:00Z" })).toBe("e");
    expect(await put(actor, "g", { updated: "9999-01-01T00:00:00Z" })).toBe("g");
    expect(await put(actor, "h", { updated: new Date(Date.now() + DAY).toISOString() })).toBe("h");
    const published = "2026-01-01T00:00:00Z";
    expect(await put(drop, "a", { published, updated: "2026-01-02T00:00:00Z" }, DROP)).toBe("a");
    expect(await put(drop, "b", { published }, DROP)).toBe("a");
    expect(await put(drop, "c", { published, updated: "2026-01-02T00:00:01Z" }, DROP)).toBe("c");
    const names = ["01", "02", "03", "04", "05", "06", "07", "08", "09"];
    const at = newUri();
    await Promise.all(
      names.map((name) =>
        posts.call.putRemoteObject({
          uri: at,
          kind: DROP,
          document: JSON.stringify({ name, updated: `2026-01-${name}T00:00` }),
        }),
      ),
    );
    expect((await posts.call.getRemoteObject({ uri: at })).object?.document).toContain('"09"');
  });

  test("of an activity around a drop the drop is stored, for the fewer of the two, with its parent", async () => {
    const id = newUri();
    const inReplyTo = newUri();
    const note = { id, type: "Note", inReplyTo, content: "one", to: `${ACTOR_URI}/followers` };
    const create = { type: "Create", actor: ACTOR_URI, to: "as:Public", inReplyTo: newUri(), object: note };
    const activity = { "@context": "https://www.w3.org/ns/activitystreams", ...create };
    const put = (content: object, uri = id, kind = DROP) =>
      posts.call.putRemoteObject({
        uri,
        kind,
        actor_uri: kind === DROP ? ACTOR_URI : "",
        document: JSON.stringify(content),
      });
    const { object } = await put(activity);
    expect(object).toMatchObject({ uri: id, visibility: Visibility.FOLLOWERS, reply_to: inReplyTo });
    expect(JSON.parse(object?.document ?? "")).toEqual({ "@context": activity["@context"], ...note });
    const update = await put({ type: ["as:Update"], actor: { id: ACTOR_URI }, object: { ...note, content: "two" } });
    expect(update.object?.document).toContain("two");
    const person = { type: "Person", id: ACTOR_URI, followers: `${ACTOR_URI}/followers` };
    const actor = await put({ type: "Update", actor: ACTOR_URI, object: person }, ACTOR_URI, ACTOR);
    expect(JSON.parse(actor.object?.document ?? "")).toEqual(person);
    const group = "https://far.example/c/cats";
    const [other, public_] = [newUri(), { to: "as:Public" }];
    const made = { type: "Create", actor: ACTOR_URI, cc: "as:Public", object: { ...note, ...public_, id: other } };
    const announced = await put({ type: "Announce", actor: group, ...public_, object: made }, other);
    expect(announced.object).toMatchObject({ visibility: Visibility.UNLISTED, reply_to: inReplyTo });
  });

  test.each([
    [
      DROP,
      { type: "Delete", actor: ACTOR_URI, object: { id: "x", type: "Tombstone" } },
      "a Delete: DeleteRemoteObject",
    ],
    [DROP, { type: "Tombstone" }, "a Tombstone: DeleteRemoteObject"],
    [DROP, { type: "Like", object: { type: "Note" } }, "a Like: PutRemoteReaction"],
    [
      DROP,
      { type: "Announce", actor: ACTOR_URI, object: "https://far.example/1" },
      "an Announce without its object: Put",
    ],
    [
      DROP,
      { type: "Announce", actor: "https://near.example/a", object: { type: "Note" } },
      "an Announce whose actor is",
    ],
    [DROP, { type: "Create", object: { type: "Note" } }, "a Create whose actor is"],
    [DROP, { type: "Create", actor: ACTOR_URI, object: [{ type: "Note" }, { type: "Note" }] }, "a Create without its"],
    [DROP, { type: "Undo", object: {} }, "an Undo: DeleteRemoteReaction, UserService.Unfollow or"],
    [DROP, { type: "https://www.w3.org/ns/activitystreams#Follow" }, "a Follow: UserService.Follow"],
    [DROP, { "@type": ["x:Bite"], object: ACTOR_URI }, "a x:Bite: no method"],
    [DROP, { type: "OrderedCollection" }, "an OrderedCollection: no method"],
    [DROP, { type: "Person" }, "a Person: PutRemoteObject takes it with another kind"],
    [DROP, { type: "Update", actor: ACTOR_URI, object: { type: "Person" } }, "a Person: PutRemoteObject"],
    [ACTOR, { type: ["Note"] }, "a Note: PutRemoteObject takes it with another kind"],
    [ACTOR, [{ type: "Person" }], "not a JSON object"],
  ])("what is no object of kind %s is refused with the method that takes it: %j", async (kind, content, answer) => {
    const put = posts.call.putRemoteObject({ uri: newUri(), kind, document: JSON.stringify(content) });
    expect(await refusal(put)).toContain(`INVALID_ARGUMENT document: is ${answer}`);
  });

  test("an object with another id is refused", async () => {
    const document = JSON.stringify({ type: "Create", actor: ACTOR_URI, object: { type: "Note", id: newUri() } });
    for (const [text, of] of [
      [document, "object of the document"],
      [JSON.stringify({ id: newUri() }), "document"],
    ] as const)
      expect(await refusal(posts.call.putRemoteObject({ uri: newUri(), kind: DROP, document: text }))).toBe(
        `INVALID_ARGUMENT uri: is not the id of the ${of}`,
      );
  });

  const spellingsOf = (name: string): string[] => [
    `https://far.example/c/${name}x/~%2F`,
    `HTTPS://FAR.Example/c/${name}x/~%2f`,
    `https://far.example:443/c/${name}%78/%7E%2F`,
    `https://far.example/b/../c/./${name}x/~%2F`,
  ];

  test("a URI is one, however it is spelled", async () => {
    const [uri, ...others] = spellingsOf("1") as [string, string, string, string];
    const [eve, ...spelledEve] = spellingsOf("eve") as [string, string];
    await posts.written();
    for (const [n, spelling] of [...others, uri].entries()) {
      const document = JSON.stringify({ id: uri, to: "as:Public", n });
      const put = { uri: spelling, kind: DROP, actor_uri: spelledEve[n % 3] as string, document };
      expect(await posts.call.putRemoteObject(put)).toMatchObject({
        object: { uri, actor_uri: eve },
        created: n === 0,
      });
    }
    expect((await posts.written()).map(({ key }) => key)).toEqual([uri]);
    for (const spelling of others) {
      expect((await posts.call.getRemoteObject({ uri: spelling })).object?.uri).toBe(uri);
      expect((await posts.call.resolveUri({ uri: spelling })).remote).toEqual({ uri, kind: DROP });
      expect((await posts.call.getDrops({ drop_ids: [spelling] })).results[0]?.remote?.uri).toBe(uri);
      await posts.call.likeDrop({ drop_id: spelling, user_id: "bob" });
      const like = { uri: `${spelling}/like`, actor_uri: eve, object: spelling, kind: RemoteReactionKind.LIKE };
      await posts.call.putRemoteReaction(like);
      const reply = { uri: newUri(), kind: DROP, document: JSON.stringify({ inReplyTo: spelling, cc: "as:Public" }) };
      expect((await posts.call.putRemoteObject(reply)).object?.reply_to).toBe(uri);
      expect((await posts.call.getDropsByUserId({ user_id: spelledEve[0] as string })).drops[0]?.drop_id).toBe(uri);
    }
    await posts.countAll();
    expect((await posts.call.getCounts({ drop_ids: [uri] })).counts[0]).toMatchObject({ likes: 2, replies: 3 });
    expect((await posts.call.deleteRemoteObject({ uri: others[1] })).tombstone?.id).toBe(uri);
    for (const spelling of [uri, ...others])
      expect(await refusal(posts.call.putRemoteObject({ uri: spelling, kind: DROP, document: "{}" }))).toMatch(
        /^FAILED_PRECONDITION uri/,
      );
  });

  test("what an earlier version stored under another spelling is found under it", async () => {
    const [, old] = spellingsOf("old") as [string, string];
    const row =
      "INSERT INTO posts.remote_objects (uri, kind, actor_uri, fetched_at, expires_at) VALUES ($1, 1, $2, 1, 1)";
    await posts.db.query(row, [old, `${old}/by`]);
    expect((await posts.call.getRemoteObject({ uri: old })).object?.uri).toBe(old);
    const { object } = await posts.call.putRemoteObject({
      uri: old,
      kind: DROP,
      actor_uri: `${old}/by`,
      document: "{}",
    });
    expect([object?.uri, object?.actor_uri]).toEqual([old, `${old}/by`]);
    expect((await posts.call.deleteRemoteObject({ uri: old })).tombstone?.id).toBe(old);
  });

  test("what an actor names as its followers counts for drops that came before, unless the caller decided", async () => {
    const actor_uri = `${ACTOR_URI}/late`;
    const put = async (fields: object) => {
      const uri = newUri();
      const document = JSON.stringify({ to: ["https://Far.example/f/late/", "bob"] });
      await posts.call.putRemoteObject({ uri, kind: DROP, actor_uri, document, ...fields });
      return uri;
    };
    const named = (followers: string) =>
      posts.call.putRemoteObject({ uri: actor_uri, kind: ACTOR, document: JSON.stringify({ followers }) });
    await named("https://far.example/f/early");
    const uris = [await put({}), await put({ visibility: Visibility.DIRECT }), await put({ recipients: ["bob"] })];
    await posts.written();
    for (let twice = 0; twice < 2; twice++) await named("https://far.example:443/f/late");
    const events = await posts.written();
    expect(events.map(({ key, body }) => [key, body["visibility"]])).toEqual([[uris[0], "followers"]]);
    const seen = uris.map(async (uri) => (await posts.call.getRemoteObject({ uri })).object?.visibility);
    expect(await Promise.all(seen)).toEqual([Visibility.FOLLOWERS, Visibility.DIRECT, Visibility.DIRECT]);
  });

  test("nobody puts or deletes what is on another server, or of another actor", async () => {
    const uri = newUri();
    const put = { uri, kind: DROP, actor_uri: ACTOR_URI, document: "{}" };
    await posts.call.putRemoteObject(put);
    const elsewhere = ["https://near.example/users/eve", "http://far.example:8080/a", "https://x.far.example/a"];
    for (const actor_uri of elsewhere)
      for (const call of [
        posts.call.putRemoteObject({ ...put, uri: newUri(), actor_uri }),
        posts.call.deleteRemoteObject({ uri, actor_uri }),
      ])
        expect(await refusal(call)).toBe("INVALID_ARGUMENT actor_uri: is on another server than uri");
    await posts.call.putRemoteObject({ uri: `${ACTOR_URI}-own`, kind: ACTOR, document: "{}" });
    for (const one of [uri, `${ACTOR_URI}-own`])
      expect(await refusal(posts.call.deleteRemoteObject({ uri: one, actor_uri: `${ACTOR_URI}-other` }))).toBe(
        "FAILED_PRECONDITION actor_uri: the object belongs to another actor",
      );
    expect((await posts.call.deleteRemoteObject({ uri, actor_uri: ACTOR_URI })).tombstone?.former_type).toBe("drop");
  });
});
