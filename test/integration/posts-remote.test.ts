import { expect, test } from "@jest/globals";
import { RemoteKind, Visibility } from "../../src/gen/avion/posts.js";
import { DAY } from "../../src/kernel/time.js";
import { describePosts } from "../support/describe-posts.js";
import { refusal } from "../support/posts.js";

const { DROP, ACTOR, SERVER } = RemoteKind;
const ACTOR_URI = "https://far.example/users/eve";

describePosts("remote objects", {}, (posts) => {
  let made = 0;
  const newUri = (): string => `https://far.example/notes/${++made}`;
  const document = (text: string): string => `{ "content" : ${JSON.stringify(text)}, "to": "as:Public" }`;

  test("a remote drop is stored unchanged, with one event", async () => {
    const uri = newUri();
    const created_at = Date.now() - DAY;
    await posts.written();
    const woken = posts.woken();
    const put = { uri, kind: DROP, actor_uri: ACTOR_URI, created_at, document: document("one"), max_age: 60 };
    const first = await posts.call.putRemoteObject(put);
    expect(first).toEqual({
      object: {
        uri,
        kind: DROP,
        actor_uri: ACTOR_URI,
        created_at,
        document: document("one"),
        public_key: "",
        webfinger: "",
        webfinger_type: "",
        webfinger_href: "",
        lrdd_template: "",
        reply_to: "",
        fetched_at: expect.any(Number),
        expires_at: (first.object?.fetched_at ?? 0) + 60_000,
        expired: false,
        visibility: Visibility.PUBLIC,
        recipients: [],
        mentions: [],
        attachments: [],
        language: "",
        sensitive: false,
      },
      created: true,
    });
    expect(await posts.call.getRemoteObject({ uri })).toEqual({ object: first.object });
    expect(await posts.written()).toEqual([
      {
        key: uri,
        subject: "drops.ap_received",
        messageId: expect.stringMatching(/^ap_drop_received:=/),
        body: { drop_id: uri, created_at, user_id: ACTOR_URI, visibility: "public" },
      },
    ]);
    expect(posts.woken()).toBe(woken + 1);
    const again = await posts.call.putRemoteObject({ ...put, document: document("two"), max_age: 0 });
    expect(again.created).toBe(false);
    expect(again.object?.document).toBe(document("two"));
    expect((again.object?.expires_at ?? 0) - (again.object?.fetched_at ?? 0)).toBe(DAY);
    expect(await posts.written()).toEqual([]);
  });

  test("of many puts at once one finds the drop new", async () => {
    const uri = newUri();
    await posts.written();
    const answers = await Promise.all(
      Array.from({ length: 20 }, () => posts.call.putRemoteObject({ uri, kind: DROP, document: "{}" })),
    );
    expect(answers.filter(({ created }) => created)).toHaveLength(1);
    expect(await posts.written()).toHaveLength(1);
  });

  test("a time ahead of now is now, and none is now", async () => {
    const now = Date.now();
    for (const created_at of [now + DAY, 0]) {
      const { object } = await posts.call.putRemoteObject({ uri: newUri(), kind: DROP, created_at, document: "{}" });
      expect(object?.created_at).toBeGreaterThanOrEqual(now);
      expect(object?.created_at).toBeLessThanOrEqual(Date.now());
      const [event] = (await posts.written()).slice(-1);
      const nobody = { visibility: "direct", recipients: [] };
      expect(event?.body).toEqual({ drop_id: object?.uri, created_at: object?.created_at, ...nobody });
    }
  });

  // Invariant 3.
  test("a known drop keeps the time, actor, visibility and recipients of its event, whatever later puts say", async () => {
    const now = Date.now();
    const later = { visibility: Visibility.DIRECT, recipients: ["ada"] };
    for (const actor_uri of [ACTOR_URI, ""]) {
      const put = { uri: newUri(), kind: DROP, actor_uri, created_at: now - 500, document: document("one") };
      await posts.call.putRemoteObject(put);
      const [{ body } = { body: {} }] = await posts.written();
      for (const created_at of [now - 900, now - 100, 0])
        await posts.call.putRemoteObject({ ...put, ...later, actor_uri: ACTOR_URI, created_at });
      expect(await posts.written()).toEqual([]);
      const { object } = await posts.call.getRemoteObject({ uri: put.uri, viewer_id: "" });
      const { created_at, visibility, recipients } = object ?? {};
      expect({ created_at, actor_uri: object?.actor_uri }).toEqual({ created_at: now - 500, actor_uri });
      expect({ visibility, recipients }).toEqual({ visibility: Visibility.PUBLIC, recipients: [] });
      expect(body).toMatchObject({ drop_id: put.uri, created_at: now - 500, visibility: "public" });
      const { drops } = await posts.call.getDropsByUserId({ user_id: ACTOR_URI, limit: 100 });
      expect(drops.some(({ drop_id }) => drop_id === put.uri)).toBe(actor_uri !== "");
    }
  });

  test("a known drop keeps kind and actor", async () => {
    const uri = newUri();
    const put = { uri, kind: DROP, actor_uri: ACTOR_URI, document: "{}" };
    await posts.call.putRemoteObject(put);
    for (const actor_uri of ["", `${ACTOR_URI}-other`])
      expect(await refusal(posts.call.putRemoteObject({ ...put, actor_uri, document: '{"x":1}' }))).toMatch(
        /^FAILED_PRECONDITION actor_uri: the drop belongs to an/,
      );
    expect((await posts.call.getRemoteObject({ uri })).object).toMatchObject({ actor_uri: ACTOR_URI, document: "{}" });
    expect(await refusal(posts.call.putRemoteObject({ ...put, actor_uri: "", kind: ACTOR }))).toMatch(
      /^FAILED_PRECONDITION kind/,
    );
  });

  test("a deleted remote drop has one event, stays deleted, and has no texts", async () => {
    const uri = newUri();
    const put = { uri, kind: DROP, document: document("secret") };
    await posts.call.putRemoteObject(put);
    await posts.written();
    const { tombstone } = await posts.call.deleteRemoteObject({ uri });
    expect(tombstone).toEqual({ id: uri, former_type: "drop", deleted_at: expect.any(Number) });
    expect(await posts.written()).toEqual([
      {
        key: uri,
        subject: "drops.deleted",
        messageId: expect.stringMatching(/^drop_deleted:=/),
        body: { drop_id: uri },
      },
    ]);
    expect(await posts.call.deleteRemoteObject({ uri })).toEqual({ tombstone });
    expect(await posts.call.getRemoteObject({ uri })).toEqual({ tombstone });
    expect(await refusal(posts.call.putRemoteObject(put))).toBe("FAILED_PRECONDITION uri: the object is deleted");
    expect(await posts.written()).toEqual([]);
    const rows = await posts.db.query("SELECT * FROM posts.remote_objects WHERE uri = $1", [uri]);
    expect(JSON.stringify(rows)).not.toContain("secret");
  });

  test("a deletion that arrives before its object keeps the object from being stored", async () => {
    const uri = newUri();
    await posts.written();
    const { tombstone } = await posts.call.deleteRemoteObject({ uri });
    expect(tombstone).toEqual({ id: uri, former_type: "", deleted_at: expect.any(Number) });
    for (const kind of [DROP, ACTOR])
      expect(await refusal(posts.call.putRemoteObject({ uri, kind, document: "{}" }))).toMatch(
        /^FAILED_PRECONDITION uri/,
      );
    expect(await posts.written()).toEqual([]);
    expect((await posts.call.listDrops({ since: 1 })).drops.filter(({ drop_id }) => drop_id === uri)).toEqual([]);
  });

  test("an actor is found by its address, in any case, the one last fetched, until it is deleted", async () => {
    const public_key = "-----BEGIN PUBLIC KEY-----\nMIIB\n-----END PUBLIC KEY-----\n";
    const put = { kind: ACTOR, document: "{}", public_key, webfinger: "Eve@Far.Example" };
    const first = `${ACTOR_URI}/1`;
    const second = `${ACTOR_URI}/2`;
    await posts.written();
    const { object } = await posts.call.putRemoteObject({ ...put, uri: first });
    expect(object).toMatchObject({ webfinger: "eve@far.example", public_key, created_at: 0 });
    await posts.call.putRemoteObject({ ...put, uri: second });
    await posts.db.query("UPDATE posts.remote_objects SET fetched_at = fetched_at - 10 WHERE uri = $1", [first]);
    const found = async (webfinger: string) => (await posts.call.resolveWebfinger({ webfinger })).actor?.uri;
    expect(await found("eve@far.example")).toBe(second);
    await posts.call.deleteRemoteObject({ uri: second });
    expect(await found("EVE@far.example")).toBe(first);
    await posts.call.deleteRemoteObject({ uri: first });
    expect(await refusal(found("eve@far.example"))).toMatch(/^NOT_FOUND webfinger/);
    expect(await posts.written()).toEqual([]);
  });

  test.each(["al@müller.example", "@Al@Müller.example", "acct:al@xn--mller-kva.example", "ACCT:@al@MÜLLER.EXAMPLE."])(
    "however people write the address of an actor (%s), it is one",
    async (written) => {
      const uri = "https://xn--mller-kva.example/users/al";
      const put = { uri, kind: ACTOR, document: "{}" };
      for (const webfinger of ["@al@MÜLLER.example", "acct:AL@xn--mller-kva.example", written]) {
        const { object } = await posts.call.putRemoteObject({ ...put, webfinger });
        expect(object?.webfinger).toBe("al@xn--mller-kva.example");
        expect((await posts.call.resolveWebfinger({ webfinger: written })).actor?.uri).toBe(uri);
      }
    },
  );

  test.each([
    "al@bücher.example",
    "acct:al@bücher.example.",
    "acct:al@xn--bcher-kva.example",
    "al@xn--bcher-kva.example.",
  ])(
    "an actor whom an earlier version stored under %s is found by every form of the address, until a newer one has it",
    async (stored) => {
      const [old, newer] = ["https://xn--bcher-kva.example/1", "https://xn--bcher-kva.example/2"];
      await posts.db.query("DELETE FROM posts.remote_objects WHERE uri = ANY ($1::text[])", [[old, newer]]);
      const put = { kind: ACTOR, document: "{}", webfinger: "al@BÜCHER.example" };
      await posts.call.putRemoteObject({ ...put, uri: old });
      const asStored = "UPDATE posts.remote_objects SET webfinger = $2, fetched_at = fetched_at - 10 WHERE uri = $1";
      await posts.db.query(asStored, [old, stored]);
      const found = async () => {
        const forms = ["@Al@Bücher.example", "acct:al@xn--bcher-kva.example", "al@bücher.example.", stored];
        const answers = forms.map((webfinger) => posts.call.resolveWebfinger({ webfinger }));
        return new Set((await Promise.all(answers)).map(({ actor }) => actor?.uri));
      };
      expect(await found()).toEqual(new Set([old]));
      await posts.call.putRemoteObject({ ...put, uri: newer });
      expect(await found()).toEqual(new Set([newer]));
    },
  );

  test("an address that cannot be read does not lose a drop", async () => {
    const put = async (audience: object) => {
      const request = { uri: newUri(), kind: DROP, document: JSON.stringify(audience) };
      return (await posts.call.putRemoteObject(request)).object?.visibility;
    };
    for (const cc of [[null], "", {}, [[{}]], 7]) {
      expect(await put({ to: "as:Public", cc })).toBe(Visibility.PUBLIC);
      expect(await put({ cc })).toBe(Visibility.DIRECT);
    }
  });

  test("an actor who names the public collection as its followers makes no drop visible to them", async () => {
    const uri = "https://far.example/users/mallory";
    const followers = "https://www.w3.org/ns/activitystreams#Public";
    await posts.call.putRemoteObject({ uri, kind: ACTOR, document: JSON.stringify({ followers }) });
    const drop = { uri: newUri(), kind: DROP, actor_uri: uri, document: JSON.stringify({ bcc: followers }) };
    expect((await posts.call.putRemoteObject(drop)).object).toMatchObject({
      visibility: Visibility.DIRECT,
      recipients: [],
    });
  });

  test("an expired object is answered as expired", async () => {
    const uri = "https://far.example/nodeinfo/2.0";
    await posts.call.putRemoteObject({ uri, kind: SERVER, document: '"a server"', max_age: 1 });
    await posts.db.query("UPDATE posts.remote_objects SET expires_at = expires_at - 1001 WHERE uri = $1", [uri]);
    expect((await posts.call.getRemoteObject({ uri })).object).toMatchObject({ expired: true, document: '"a server"' });
    await posts.call.putRemoteObject({ uri, kind: SERVER, document: "1", max_age: Number.MAX_SAFE_INTEGER });
    const { object } = await posts.call.getRemoteObject({ uri });
    expect(object?.expired).toBe(false);
    expect((object?.expires_at ?? 0) - (object?.fetched_at ?? 0)).toBe(365 * DAY);
    expect(await refusal(posts.call.getRemoteObject({ uri: newUri() }))).toMatch(/^NOT_FOUND uri/);
  });

  // Invariant 4.
  test("with an actor its drops are deleted, each with one event, and it gets no new ones", async () => {
    const gone = "https://gone.example/users/mal";
    const put = (uri: string, actor_uri = gone) => ({ uri, kind: DROP, actor_uri, document: document("secret") });
    const uris = Array.from({ length: 2_300 }, (_, n) => `https://gone.example/notes/${n}`);
    for (const uri of uris.slice(0, 3)) await posts.call.putRemoteObject(put(uri));
    await posts.call.putRemoteObject(put("https://gone.example/other", `${gone}-2`));
    await posts.db.query(
      `INSERT INTO posts.remote_objects (uri, kind, actor_uri, created_at, visibility, document, fetched_at, expires_at)
       SELECT uri, 1, $2, 1, 1, 'secret', 1, 1 FROM unnest($1::text[]) uri`,
      [uris.slice(3), gone],
    );
    await posts.call.putRemoteObject({ uri: gone, kind: ACTOR, document: "{}" });
    await posts.written();
    const { tombstone } = await posts.call.deleteRemoteObject({ uri: gone });
    expect(tombstone).toMatchObject({ id: gone, former_type: "actor" });
    const written = await posts.written();
    expect(written.map(({ key }) => key).sort()).toEqual([...uris].sort());
    expect(new Set(written.map(({ subject }) => subject))).toEqual(new Set(["drops.deleted"]));
    expect(written[0]).toEqual({
      key: written[0]?.key,
      subject: "drops.deleted",
      messageId: expect.stringMatching(/^drop_deleted:=/),
      body: { drop_id: written[0]?.key },
    });
    expect((await posts.call.getDropsByUserId({ user_id: gone, limit: 10 })).drops).toEqual([]);
    expect((await posts.call.getDropsByUserId({ user_id: `${gone}-2`, limit: 10 })).drops).toHaveLength(1);
    expect((await posts.call.getRemoteObject({ uri: uris[5] as string })).tombstone).toBeDefined();
    const kept = await posts.db.query("SELECT 1 FROM posts.remote_objects WHERE actor_uri = $1 AND document <> ''", [
      gone,
    ]);
    expect(kept).toEqual([]);
    const refused = "FAILED_PRECONDITION actor_uri: the actor is deleted";
    expect(await refusal(posts.call.putRemoteObject(put("https://gone.example/new")))).toBe(refused);
    expect(await refusal(posts.call.putRemoteObject(put(uris[0] as string)))).toMatch(/^FAILED_PRECONDITION uri/);
    expect(await posts.call.deleteRemoteObject({ uri: gone })).toEqual({ tombstone });
    expect(await posts.written()).toEqual([]);
  });

  // Invariant 4.
  test("an actor that was deleted before it was ever stored gets no drops either", async () => {
    const gone = "https://gone.example/users/never";
    await posts.call.deleteRemoteObject({ uri: gone });
    const put = { uri: "https://gone.example/notes/one", kind: DROP, actor_uri: gone, document: document("one") };
    expect(await refusal(posts.call.putRemoteObject(put))).toBe("FAILED_PRECONDITION actor_uri: the actor is deleted");
  });

  test("objects that expired long ago are removed; drops are removed by the retention only", async () => {
    const [drop, dead] = [newUri(), newUri()];
    const actor = `${ACTOR_URI}/3`;
    const unknown = newUri();
    await posts.call.putRemoteObject({ uri: drop, kind: DROP, document: "{}", created_at: Date.now() - 200 * DAY });
    await posts.call.putRemoteObject({ uri: dead, kind: DROP, document: "{}", created_at: Date.now() - 200 * DAY });
    await posts.call.putRemoteObject({ uri: actor, kind: ACTOR, document: "{}" });
    await posts.call.deleteRemoteObject({ uri: unknown });
    await posts.call.deleteRemoteObject({ uri: dead });
    const { cleanup } = posts.store;
    const left = async (): Promise<unknown[]> =>
      (
        await posts.db.query<{ uri: string }>(
          "SELECT uri FROM posts.remote_objects WHERE uri = ANY($1::text[]) ORDER BY uri",
          [[drop, dead, actor, unknown]],
        )
      ).map(({ uri }) => uri);
    await cleanup.pruneRemoteObjects(90 * DAY, 100);
    expect(await left()).toHaveLength(4);
    await posts.db.query("UPDATE posts.remote_objects SET expires_at = expires_at - $1", [92 * DAY]);
    expect(await cleanup.pruneRemoteObjects(90 * DAY, 1)).toBe(1);
    while ((await cleanup.pruneRemoteObjects(90 * DAY, 2)) > 0);
    expect(await left()).toEqual([drop, dead].sort());
    // A tombstone is kept for as long after the deletion.
    expect(await cleanup.pruneRemoteDrops(Date.now() - 100 * DAY, 100)).toBe(1);
    expect(await left()).toEqual([dead]);
  });
});
