import { afterAll, beforeAll, expect, test } from "@jest/globals";
import { RemoteKind, Visibility } from "../../src/gen/avion/posts.js";
import { DAY, MINUTE } from "../../src/kernel/time.js";
import { createFetcher } from "../../src/posts/remote/fetch.http.js";
import { createPostsStore } from "../../src/posts/store.sql.js";
import { describePosts } from "../support/describe-posts.js";
import { eventually } from "../support/eventually.js";
import { type HostileServer, json, startHostileServer } from "../support/hostile-server.js";
import { asAnotherProcess, POSTS_CONFIG, type PostsHarness, refusal, startPosts } from "../support/posts.js";

const { DROP, ACTOR, SERVER } = RemoteKind;
const EVE = "https://elsewhere.example/users/eve";
const PUBLIC = "https://www.w3.org/ns/activitystreams#Public";
const PUBLISHED = Date.UTC(2024, 1, 3);
const NOTE = { type: "Note", attributedTo: EVE, published: new Date(PUBLISHED).toISOString(), to: [PUBLIC] };

let server: HostileServer;
beforeAll(async () => {
  server = await startHostileServer();
});
afterAll(() => server.stop());

const fetcherOf = (timeoutMs = 10_000) => createFetcher({ userAgent: "test", timeoutMs, ...server.seam });

/** Answers nothing until it is released. */
function held(below?: string): { url: string; waiting: () => number; release(): void } {
  const waiting: (() => void)[] = [];
  let released = false;
  const url = server.add((request, response) => {
    const attributedTo = new URL("/users/eve", url).href;
    const answer = (): void => json({ ...NOTE, attributedTo, id: url })(request, response);
    if (released) answer();
    else waiting.push(answer);
  }, below);
  return {
    url,
    waiting: () => waiting.length,
    release: () => {
      released = true;
      for (const answer of waiting) answer();
    },
  };
}

describePosts("fetching", {}, (posts) => {
  let fetching: PostsHarness;
  beforeAll(async () => {
    fetching = await startPosts(posts.db, { fetcher: fetcherOf() });
  });
  afterAll(() => fetching.stop());

  const get = (uri: string, viewer_id = "") => fetching.call.getRemoteObject({ uri, viewer_id, fetch: true });
  const expire = (uri: string) =>
    posts.db.query("UPDATE posts.remote_objects SET expires_at = 1 WHERE uri = $1 RETURNING 1", [uri]);
  const forget = () => posts.db.query("UPDATE posts.fetches SET until = 1, started_at = 1 RETURNING 1");

  test("a drop that is missing is fetched once, with an event of its own time", async () => {
    const uri = server.document(NOTE);
    await fetching.written();
    const woken = fetching.woken();
    const { object } = await get(uri);
    expect(object).toMatchObject({
      ...{ uri, kind: DROP, actor_uri: EVE, created_at: PUBLISHED, visibility: Visibility.PUBLIC, expired: false },
      document: JSON.stringify({ ...NOTE, id: uri }),
    });
    expect((object?.expires_at ?? 0) - (object?.fetched_at ?? 0)).toBe(DAY);
    expect(fetching.woken()).toBe(woken + 1);
    expect((await fetching.written()).map(({ subject, body }) => [subject, body])).toEqual([
      ["drops.ap_received", { drop_id: uri, created_at: PUBLISHED, user_id: EVE, visibility: "public" }],
    ]);
    expect(await get(uri)).toEqual({ object });
    expect(await posts.call.getRemoteObject({ uri })).toEqual({ object });
    expect(server.asked(uri)).toBe(1);
  });

  test("an actor that is missing is fetched, and has no webfinger address", async () => {
    const uri = server.add((request, response) => {
      const publicKey = { owner: uri, publicKeyPem: "-----BEGIN PUBLIC KEY-----\nkey" };
      json({ id: uri, type: "Person", publicKey, preferredUsername: "eve" })(request, response);
    });
    expect((await get(uri)).object).toMatchObject({
      ...{ kind: ACTOR, public_key: "-----BEGIN PUBLIC KEY-----\nkey", webfinger: "" },
    });
  });

  test("nothing is fetched without TIMELINE_FETCH or without the field fetch", async () => {
    const uri = server.document(NOTE);
    const answer = "NOT_FOUND uri: there is no such object";
    expect(await refusal(posts.call.getRemoteObject({ uri, fetch: true }))).toBe(answer);
    expect(await refusal(fetching.call.getRemoteObject({ uri }))).toBe(answer);
    expect(server.asked(uri)).toBe(0);
  });

  test("the service itself asks no address that is not public, and says nothing about it", async () => {
    const real = await startPosts(posts.db, { fetcher: createFetcher({ userAgent: "test" }) });
    for (const uri of ["https://127.0.0.1/", "https://[::ffff:10.0.0.1]/", "https://169.254.169.254/latest/meta-data"])
      expect(await refusal(real.call.getRemoteObject({ uri, fetch: true }))).toBe(
        "NOT_FOUND uri: its server has no public address",
      );
    await real.stop();
  });

  test.each([
    ["http://elsewhere.example/1", "NOT_FOUND uri: only https on port 443, without a user, is fetched"],
    ["https://elsewhere.example:8443/1", "NOT_FOUND uri: only https on port 443, without a user, is fetched"],
    ["ftp://elsewhere.example/1", "INVALID_ARGUMENT uri: is not an http or https URI"],
  ])("%s is answered %s", async (uri, answer) => {
    expect(await refusal(get(uri))).toBe(answer);
  });

  test.each<[string, () => string, string]>([
    ["a status", () => server.add((_request, response) => void response.writeHead(404).end()), "no such object for us"],
    ["another id", () => server.add(json({ ...NOTE, id: "https://elsewhere.example/other" })), "has another id"],
    ["an actor elsewhere", () => server.document({ ...NOTE, attributedTo: "https://a.example/" }), "may be stored"],
    ["no object", () => server.add(json([])), "not a JSON object"],
    [
      "half a character",
      () =>
        server.add((_request, response) => {
          response.writeHead(200, { "content-type": "application/json" }).end(Buffer.from([0x22, 0xc3, 0x22]));
        }),
      "not a JSON object",
    ],
    ["too much", () => server.document({ ...NOTE, content: "x".repeat(1_024 * 1_024) }), "too large"],
    ["more than a put may have", () => server.document({ ...NOTE, content: "x".repeat(300_000) }), "may be stored"],
    ["a key that is none", () => actorWithKey("key"), "may be stored"],
  ])("an answer with %s is not found, and not asked for again soon", async (_what, make, words) => {
    const uri = make();
    const answer = await refusal(get(uri));
    expect(answer).toMatch(/^NOT_FOUND uri: /);
    expect(answer).toContain(words);
    expect(await refusal(get(uri))).toBe(answer);
    expect(server.asked(uri)).toBe(1);
    await forget();
    expect(await refusal(get(uri))).toBe(answer);
    expect(server.asked(uri)).toBe(2);
    expect(await refusal(posts.call.getRemoteObject({ uri }))).toMatch(/^NOT_FOUND/);
  });

  const actorWithKey = (publicKeyPem: string): string => {
    const uri = server.add((request, response) =>
      json({ id: uri, type: "Person", publicKey: { owner: uri, publicKeyPem } })(request, response),
    );
    return uri;
  };

  test("an outage of another server is UNAVAILABLE, and the server is not asked again soon", async () => {
    const impatient = await startPosts(posts.db, { fetcher: fetcherOf(300) });
    for (const [uri, words] of [
      [server.add((_request, response) => void response.writeHead(503).end()), "its server does not answer now"],
      [server.add((_request, response) => response.destroy()), "its server cannot be reached"],
      [server.add(() => undefined), "its server does not answer in time"],
    ] as const) {
      for (const _again of [1, 2])
        expect(await refusal(impatient.call.getRemoteObject({ uri, fetch: true }))).toBe(`UNAVAILABLE uri: ${words}`);
      expect(server.asked(uri)).toBe(1);
    }
    await impatient.stop();
  });

  test("the lifetime is what the server says, and five minutes at least", async () => {
    const lifetime = async (cache: string): Promise<number> => {
      const { object } = await get(server.document(NOTE, { "cache-control": cache }));
      return (object?.expires_at ?? 0) - (object?.fetched_at ?? 0);
    };
    expect(await lifetime("public, max-age=3600")).toBe(60 * MINUTE);
    for (const cache of ["max-age=1", "max-age=0", "no-store"]) expect(await lifetime(cache)).toBe(5 * MINUTE);
    expect(await lifetime("max-age=999999999")).toBe(365 * DAY);
  });

  test("an expired actor is fetched again, and keeps its webfinger address", async () => {
    const uri = server.add((request, response) => json({ id: uri, type: "Person", name: "new" })(request, response));
    const address = {
      webfinger: `eve${server.asked(uri)}@elsewhere.example`,
      webfinger_type: "a/b",
      webfinger_href: uri,
    };
    await posts.call.putRemoteObject({ uri, kind: ACTOR, document: "{}", ...address });
    expect((await get(uri)).object?.document).toBe("{}");
    await expire(uri);
    expect((await get(uri)).object).toMatchObject({
      ...address,
      expired: false,
      document: expect.stringContaining("new"),
    });
    expect(server.asked(uri)).toBe(1);
  });

  test("an expired drop keeps its time, and makes no new event", async () => {
    const uri = server.document({ ...NOTE, published: "2020-01-01T00:00:00Z" });
    await posts.call.putRemoteObject({ uri, kind: DROP, actor_uri: EVE, created_at: PUBLISHED, document: "{}" });
    await expire(uri);
    await fetching.written();
    expect((await get(uri)).object).toMatchObject({ created_at: PUBLISHED, document: expect.stringContaining("2020") });
    expect(await fetching.written()).toEqual([]);
  });

  test("an expired object that cannot be fetched is answered as it is", async () => {
    const gone = server.add((_request, response) => void response.writeHead(410).end());
    const other = server.add(json({ ...NOTE, id: "https://elsewhere.example/other" }));
    const stolen = server.document({ ...NOTE, attributedTo: "https://elsewhere.example/users/mallory" });
    for (const uri of [gone, other, stolen]) {
      await posts.call.putRemoteObject({ uri, kind: DROP, actor_uri: EVE, document: '{"to":"as:Public"}' });
      await expire(uri);
      expect((await get(uri)).object).toMatchObject({ expired: true, actor_uri: EVE, document: '{"to":"as:Public"}' });
      expect(server.asked(uri)).toBe(1);
    }
  });

  test("the document of a server is not fetched", async () => {
    const uri = server.document(NOTE);
    await posts.call.putRemoteObject({ uri, kind: SERVER, document: "{}", lrdd_template: "https://a.example/{uri}" });
    await expire(uri);
    expect((await get(uri)).object).toMatchObject({ kind: SERVER, expired: true });
    expect(server.asked(uri)).toBe(0);
  });

  test("a deleted object stays deleted, and is not fetched", async () => {
    const uri = server.document(NOTE);
    await posts.call.deleteRemoteObject({ uri });
    expect((await get(uri)).tombstone?.id).toBe(uri);
    expect(server.asked(uri)).toBe(0);
  });

  test("an object that is deleted while it is fetched stays deleted", async () => {
    const { url, waiting, release } = held();
    const answer = get(url);
    await eventually(async () => waiting() === 1, "the request is under way");
    await posts.call.deleteRemoteObject({ uri: url });
    release();
    expect((await answer).tombstone?.id).toBe(url);
  });

  test("an object that is put while it is fetched stays as it was put", async () => {
    const { url, waiting, release } = held();
    const answer = get(url);
    await eventually(async () => waiting() === 1, "the request is under way");
    const { object } = await posts.call.putRemoteObject({
      uri: url,
      kind: DROP,
      actor_uri: EVE,
      document: '{"content":"newer"}',
    });
    release();
    expect(await answer).toEqual({ object });
  });

  test("a fetched drop of a deleted actor, or that names an erased user, is refused as a put is", async () => {
    const actor = "https://elsewhere.example/users/gone";
    await posts.call.deleteRemoteObject({ uri: actor, kind: ACTOR });
    await posts.db.query("INSERT INTO posts.erased (user_id, marked_at) VALUES ('erased-ada', 1) RETURNING 1");
    for (const fields of [{ attributedTo: actor }, { to: ["erased-ada"] }])
      expect(await refusal(get(server.document({ ...NOTE, ...fields })))).toMatch(/^NOT_FOUND .* may be stored$/);
  });

  test("a URI of this server is not fetched", async () => {
    const config = { ...POSTS_CONFIG, publicUrl: "https://elsewhere.example" };
    const own = await startPosts(posts.db, { fetcher: fetcherOf(), config });
    const uri = server.document(NOTE);
    expect(await refusal(own.call.getRemoteObject({ uri, fetch: true }))).toMatch(/^NOT_FOUND/);
    expect(server.asked(uri)).toBe(0);
    await own.stop();
  });

  test("a drop that its viewer may not see is neither answered nor fetched for them", async () => {
    const uri = server.document({ ...NOTE, to: ["ada"] });
    expect(await refusal(get(uri, "bob"))).toBe("NOT_FOUND uri: there is no such object");
    expect((await get(uri, "ada")).object).toMatchObject({ visibility: Visibility.DIRECT, recipients: ["ada"] });
    await expire(uri);
    expect(await refusal(get(uri, "bob"))).toBe("NOT_FOUND uri: there is no such object");
    expect(server.asked(uri)).toBe(1);
  });

  test("two processes that miss an object at once make one request", async () => {
    const { url, waiting, release } = held();
    const db = await asAnotherProcess(posts.db);
    const store = createPostsStore(db);
    let turns = 0;
    const claim: typeof store.fetches.claim = async (...args) => {
      const turn = await store.fetches.claim(...args);
      turns += 1;
      return turn;
    };
    const fetches = { ...store.fetches, claim };
    const other = await startPosts(db, { fetcher: fetcherOf(), store: { ...store, fetches } });
    const first = get(url);
    await eventually(async () => waiting() === 1, "the request is under way");
    const more = [1, 2, 3].map(() => other.call.getRemoteObject({ uri: url, fetch: true }));
    await eventually(async () => turns > 1, "the other process has looked twice");
    release();
    const { object } = await first;
    expect(object?.uri).toBe(url);
    expect(await Promise.all(more)).toEqual([{ object }, { object }, { object }]);
    expect(server.asked(url)).toBe(1);
    await other.stop();
    if (db !== posts.db) await db.close();
  });

  test("a process that ended while it fetched holds up others only as long as its claim", async () => {
    const uri = server.document(NOTE);
    const claim = { uri, holder: "8b0f3c5e-5d0a-4a44-9d0a-0e3a3d0f5a01" };
    const room = { atOnce: 4, perMinute: 60 };
    const host = "elsewhere.example";
    expect(await posts.store.fetches.claim(claim, { host, leaseMs: 1, bounds: room })).toEqual({ state: "claimed" });
    expect((await get(uri)).object?.uri).toBe(uri);
    await posts.store.fetches.finish(claim, "status", MINUTE);
    await expire(uri);
    expect((await get(uri)).object?.expired).toBe(false);
  });

  test("a host is asked four times at once at most, and others are asked meanwhile", async () => {
    await forget();
    const all = [held(), held(), held(), held()];
    const answers = all.map(({ url }) => get(url));
    await eventually(async () => all.every(({ waiting }) => waiting() === 1), "the requests are under way");
    const uri = server.document(NOTE);
    expect(await refusal(get(uri))).toBe("RESOURCE_EXHAUSTED uri: too many objects are fetched");
    expect(server.asked(uri)).toBe(0);
    const beside = server.add((request, response) => {
      json({ ...NOTE, id: beside, attributedTo: "https://b.elsewhere.example/eve" })(request, response);
    }, "b");
    expect((await get(beside)).object?.uri).toBe(beside);
    for (const { release } of all) release();
    expect((await Promise.all(answers)).map(({ object }) => object?.uri)).toEqual(all.map(({ url }) => url));
    expect((await get(uri)).object?.uri).toBe(uri);
  });

  test("a process fetches 32 objects at once at most", async () => {
    const all = Array.from({ length: 32 }, (_, at) => held(`h${at}`));
    const answers = all.map(({ url }) => get(url));
    await eventually(async () => all.every(({ waiting }) => waiting() === 1), "the requests are under way");
    const uri = held("h32").url;
    expect(await refusal(get(uri))).toBe("RESOURCE_EXHAUSTED uri: too many objects are fetched");
    expect(server.asked(uri)).toBe(0);
    for (const { release } of all) release();
    expect((await Promise.all(answers)).map(({ object }) => object?.uri)).toEqual(all.map(({ url }) => url));
  });

  test("a host is asked a bounded number of times a minute by all processes together", async () => {
    const db = await asAnotherProcess(posts.db);
    const [one, two] = [posts.store, createPostsStore(db)];
    const claim = async ({ fetches }: typeof one, path: string, host = "busy.example") => {
      const made = { uri: `https://busy.example/${path}`, holder: "8b0f3c5e-5d0a-4a44-9d0a-0e3a3d0f5a01" };
      const { state } = await fetches.claim(made, { host, leaseMs: MINUTE, bounds: { atOnce: 9, perMinute: 3 } });
      if (state === "claimed") await fetches.finish(made, "fetched", 0);
      return state;
    };
    const states = await Promise.all(Array.from({ length: 40 }, (_, at) => claim(at % 2 ? one : two, String(at))));
    expect(states.filter((state) => state === "claimed")).toHaveLength(3);
    expect(states.filter((state) => state === "full")).toHaveLength(37);
    expect(await claim(one, "g", "other.example")).toBe("claimed");
    await forget();
    expect(await claim(two, "h")).toBe("claimed");
    if (db !== posts.db) await db.close();
  });

  test("rows of fetches are removed once they no longer count", async () => {
    await forget();
    await posts.store.cleanup.pruneFetches(1_000);
    await get(server.document(NOTE));
    expect(await posts.store.cleanup.pruneFetches(1_000)).toBe(0);
    await forget();
    expect(await posts.store.cleanup.pruneFetches(1_000)).toBe(1);
    expect(await posts.db.query("SELECT FROM posts.fetches")).toEqual([]);
  });
});
