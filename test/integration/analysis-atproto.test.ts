import { afterEach, beforeEach, expect, test } from "@jest/globals";
import { createAtprotoSource } from "../../src/analysis/sources/atproto.http.js";
import type { Source } from "../../src/analysis/sources/source.js";
import { HOUR, MINUTE, SECOND } from "../../src/kernel/time.js";
import { openBucket, outcome, readAll, readPosts } from "../support/analysis-sources.js";
import { type AppView, type AppViewFault, type Loose, startAppView } from "../support/appview.js";
import { eventually } from "../support/eventually.js";

const NOW = Date.now();
const [ADA, ANNA] = ["did:plc:ada", "did:web:anna.example"];

let view: AppView;
let source: Source;
let { bucket, state } = openBucket();

// The client remembers the state of its source: each test has a client of its own.
beforeEach(async () => {
  view = await startAppView();
  ({ bucket, state } = openBucket());
  source = createAtprotoSource({ url: view.url, bucket });
});
afterEach(() => view.stop());

const pageOf = (count: number, from = 0) =>
  Array.from({ length: count }, (_, n) => ({ createdAt: NOW - (from + n) * MINUTE }));

test("an unknown and a suspended account are answers", async () => {
  view.post(ANNA, { createdAt: NOW });
  view.suspend(ANNA);
  expect(await outcome(source, ADA)).toBe("account_unknown");
  expect(await outcome(source, ANNA)).toBe("account_suspended");
  expect(view.calls()).toBe(2);
});

test.each([
  [400, { error: "AccountDeactivated", message: "Account is deactivated" }, "account_suspended"],
  [403, { error: "AccountTakedown", message: "" }, "account_suspended"],
  [403, { error: "AccountSuspended", message: "" }, "account_suspended"],
  [401, { error: "AccountTakedown", message: "Account has been taken down" }, "account_suspended"],
  [400, { error: "RepoTakendown", message: "" }, "account_suspended"],
  [400, { error: "RepoSuspended", message: "" }, "account_suspended"],
  [400, { error: "DidDeactivated", message: "" }, "account_suspended"],
  [400, { error: "InvalidRequest", message: "Account has been taken down" }, "account_suspended"],
  [404, { error: "ActorNotFound", message: "" }, "account_unknown"],
  [400, { error: "DidNotFound", message: "" }, "account_unknown"],
  [400, { error: "InvalidRequest", message: "Could not find repo: did:plc:ada" }, "account_unknown"],
  [400, { error: "InvalidRequest", message: "Error: limit must be an integer" }, "failed"],
  [404, { error: "MethodNotImplemented", message: "" }, "failed"],
  [403, { error: "Forbidden", message: "" }, "failed"],
  [502, { error: "UpstreamFailure", message: "Profile not found" }, "failed"],
])("%i %j is understood as %s", async (status, body, expected) => {
  view.inject({ kind: status, body });
  expect(await outcome(source, ADA)).toBe(expected);
});

test("reposts and pinned posts do not count as posts; a post has the time at which it was first seen", async () => {
  view.post(
    ADA,
    { createdAt: NOW + HOUR, indexedAt: NOW, likes: 4 },
    { createdAt: NOW - HOUR, reason: "repost", likes: 1_000 },
    { createdAt: NOW - 2 * HOUR, indexedAt: NOW, shares: 2, quotes: 3 },
    { createdAt: NOW - 2 * HOUR, reason: "pin", shares: 2, quotes: 3 },
  );
  expect(await readPosts(source, ADA)).toEqual([
    { createdAt: NOW, likes: 4, shares: 0, replies: 0, quotes: 0 },
    { createdAt: NOW - 2 * HOUR, likes: 0, shares: 2, replies: 0, quotes: 3 },
  ]);
});

test("an account that only shares posts of others takes a bounded number of calls", async () => {
  view.post(ADA, ...pageOf(2_200).map((post) => ({ ...post, reason: "repost" as const })));
  expect(await outcome(source, ADA)).toBe("0 posts");
  expect([view.calls(), state.taken]).toEqual([20, 20]);
});

const BROKEN: readonly AppViewFault["kind"][] = [500, 502, 503, "reset", "truncated", "oversized", "malformed", "html"];

test.each(BROKEN)("%s for one account is a failure of that account, not an outage", async (kind) => {
  view.post(ADA, { createdAt: NOW });
  view.post(ANNA, { createdAt: NOW });
  expect(await outcome(source, ADA)).toBe("1 posts");
  view.inject({ did: ANNA, kind });
  expect(await outcome(source, ANNA)).toBe("failed");
  expect(await outcome(source, ADA)).toBe("1 posts");
});

test.each(["hang", "stalled"] as const)(
  "a server that ends within its first answer (%s) is an outage",
  async (kind) => {
    view.inject({ kind });
    const asked = outcome(source, ADA);
    await eventually(() => view.held() === 1, "the call is under way");
    await view.stop();
    expect(await asked).toBe("unavailable");
  },
);

test("an account for which the source hangs has failed after the time-out; the others are answered meanwhile", async () => {
  source = createAtprotoSource({ url: view.url, bucket, timeoutMs: SECOND });
  view.post(ADA, { createdAt: NOW });
  expect(await outcome(source, ADA)).toBe("1 posts");
  view.inject({ did: ANNA, kind: "hang" });
  const hanging = outcome(source, ANNA);
  await eventually(() => view.held() === 1, "the call hangs");
  expect(await outcome(source, ADA)).toBe("1 posts");
  expect(await hanging).toBe("failed");
  await eventually(() => view.held() === 0, "the call is given up");
});

/** Changes the first item of a feed. */
const changeFirst =
  (change: (item: Loose) => unknown): NonNullable<AppViewFault["change"]> =>
  ({ feed: [first, ...others], ...page }) => ({ ...page, feed: [change(first), ...others] });

test.each<[string, (item: Loose) => unknown]>([
  [
    "an embed with a URI that has a space",
    (item) => ({ ...item, post: { ...item.post, embed: { uri: "https://a b" } } }),
  ],
  ["a handle that is none", (item) => ({ ...item, post: { ...item.post, author: { did: ADA, handle: "" } } })],
  [
    "a record of another type",
    (item) => ({ ...item, post: { ...item.post, record: { createdAt: item.post.indexedAt } } }),
  ],
  [
    "counts that are texts",
    (item) => ({ ...item, post: { ...item.post, likeCount: "7", repostCount: -3, quoteCount: null } }),
  ],
  ["a reason that is null", (item) => ({ ...item, reason: null })],
])("%s does not matter to a measure", async (_what, change) => {
  view.post(ADA, { createdAt: NOW }, { createdAt: NOW - MINUTE, likes: 2 });
  view.inject({ did: ADA, kind: 200, change: changeFirst(change) });
  expect(await readAll(source, ADA)).toMatchObject([
    { createdAt: NOW, likes: 0, shares: 0, quotes: 0 },
    { createdAt: NOW - MINUTE, likes: 2 },
  ]);
});

test.each<[string, unknown]>([
  ["null", null],
  ["a text", "post"],
  ["no post", {}],
  ["a post without an author", { post: { record: { createdAt: "2026-01-01T00:00:00Z" } } }],
  ["a post without a time", { post: { author: { did: ADA }, record: {} } }],
  ["a record that is a list", { post: { author: { did: ADA }, record: [], indexedAt: 7 } }],
])("an item that is %s is left out and counted; the others are read", async (_what, item) => {
  view.post(ADA, { createdAt: NOW }, { createdAt: NOW - MINUTE, likes: 2 });
  view.inject({ did: ADA, kind: 200, change: changeFirst(() => item) });
  expect(await readAll(source, ADA)).toEqual([
    expect.objectContaining({ createdAt: NOW - MINUTE, likes: 2 }),
    "skipped",
  ]);
});

test.each<[string, string, string]>([
  ["of the year 0", "0000-01-01T00:00:00+01:00", "indexed"],
  ["before 2006", "2005-12-31T23:59:59Z", "indexed"],
  ["in the future", new Date(NOW + 24 * HOUR).toISOString(), "indexed"],
  ["that is none", "yesterday", "indexed"],
  ["of 2006", "2006-01-01T00:00:00.000Z", "created"],
])("a post with a time %s (%s) has the time when it was %s", async (_what, createdAt, expected) => {
  view.post(ADA, { createdAt: NOW });
  const record = { createdAt };
  view.inject({
    did: ADA,
    kind: 200,
    change: changeFirst((item) => ({ ...item, post: { ...item.post, record } })),
  });
  expect(await readAll(source, ADA)).toMatchObject([
    { createdAt: expected === "indexed" ? NOW : Date.parse(createdAt) },
  ]);
});

test("where neither time can be used the post is left out", async () => {
  view.post(ADA, { createdAt: NOW });
  const change = changeFirst((item) => ({
    post: { ...item.post, record: { createdAt: "0000-01-01T00:00:00+01:00" }, indexedAt: "9999-01-01T00:00:00Z" },
  }));
  view.inject({ did: ADA, kind: 200, change });
  expect(await readAll(source, ADA)).toEqual(["skipped"]);
});

test.each<AppViewFault["kind"]>(["malformed", "html", "oversized"])(
  "answers that cannot be read (%s) are about their accounts, never an outage, and take a token each",
  async (kind) => {
    const accounts = ["did:plc:odd1", "did:plc:odd2", "did:plc:odd3"];
    for (const did of accounts) {
      view.post(did, { createdAt: NOW });
      view.inject({ did, kind });
    }
    for (const did of accounts) expect(await outcome(source, did)).toBe("failed");
    expect(state.taken).toBe(3);
    expect(view.calls()).toBe(3);
  },
);

test("pages that overlap count a post once", async () => {
  view.post(ADA, ...pageOf(150));
  const first: Loose[] = [];
  view.inject({
    did: ADA,
    kind: 200,
    change: ({ feed, ...page }, { cursor }) => {
      if (cursor === undefined) first.push(...feed);
      return { ...page, feed: cursor === undefined ? feed : [...first.slice(-30), ...feed] };
    },
  });
  expect(await outcome(source, ADA)).toBe("150 posts");
});

test("an account whose pages are empty ends after three of them; one empty page does not end it", async () => {
  view.post(ADA, ...pageOf(2_500));
  view.post(ANNA, ...pageOf(250));
  view.inject({ did: ADA, kind: 200, change: (page) => ({ ...page, feed: [] }) });
  view.inject({
    did: ANNA,
    kind: 200,
    change: (page, { cursor }) => (cursor === undefined ? { ...page, feed: [] } : page),
  });
  expect(await outcome(source, ADA)).toBe("0 posts");
  expect(view.calls(ADA)).toBe(3);
  expect(await outcome(source, ANNA)).toBe("150 posts");
});

test("pages that go in a circle end", async () => {
  view.post(ADA, ...pageOf(500));
  view.inject({
    did: ADA,
    kind: 200,
    change: (page, { cursor }) => ({ ...page, cursor: cursor === "a" ? "b" : "a" }),
  });
  expect(await outcome(source, ADA)).toBe("failed");
  expect(view.calls()).toBe(3);
});

test("pages that lead to themselves end", async () => {
  view.post(ADA, ...pageOf(250));
  view.inject({ did: ADA, kind: "loop" });
  expect(await outcome(source, ADA)).toBe("failed");
  expect(view.calls()).toBe(2);
});

test("no redirect is followed", async () => {
  const other = await startAppView();
  try {
    other.post(ADA, { createdAt: NOW });
    view.inject({ kind: 302, headers: { location: `${other.url}/xrpc/app.bsky.feed.getAuthorFeed?actor=${ADA}` } });
    expect(await outcome(source, ADA)).toBe("failed");
    expect(other.calls()).toBe(0);
  } finally {
    await other.stop();
  }
});

test("a server that does not speak TLS, and a name that nobody has, are outages", async () => {
  for (const url of [view.url.replace("http:", "https:"), "http://appview.invalid"])
    expect(await outcome(createAtprotoSource({ url, bucket }), ADA)).toBe("unavailable");
});

const inAnHour = () => String(Math.floor(Date.now() / SECOND) + 3_600);

// Invariant 8.
test.each([
  ["a time, as the AT Protocol says it", () => ({ "ratelimit-reset": inAnHour() }), HOUR],
  ["a duration, as the IETF draft says it", () => ({ "ratelimit-reset": "120" }), 2 * MINUTE],
  ["Retry-After, which goes first", () => ({ "retry-after": "30", "ratelimit-reset": inAnHour() }), 30 * SECOND],
  ["Retry-After as a date", () => ({ "retry-after": new Date(Date.now() + HOUR).toUTCString() }), HOUR],
  ["nothing", () => ({}), MINUTE],
  ["a time that is past", () => ({ "ratelimit-reset": "1500000000" }), SECOND],
  ["a time that is far away", () => ({ "retry-after": "999999999" }), 24 * HOUR],
])("429 with %s holds the source and spends no attempt", async (_, headers, expected) => {
  view.inject({ did: ANNA, kind: 429, headers: headers() });
  expect(await outcome(source, ANNA)).toBe("unavailable");
  expect(state.holds).toHaveLength(1);
  expect(Math.abs((state.holds[0] as number) - expected)).toBeLessThanOrEqual(10 * SECOND);
});

// Invariant 8.
test("a read without a token goes on later where it stopped, and takes no token twice", async () => {
  view.post(ADA, ...pageOf(340));
  state.left = 2;
  expect(await outcome(source, ADA)).toBe("unavailable");
  state.left = 1;
  expect(await outcome(source, ADA)).toBe("unavailable");
  state.left = 1;
  expect(await readPosts(source, ADA)).toEqual(pageOf(340).map((post) => expect.objectContaining(post)));
  expect([view.calls(), state.taken]).toEqual([4, 4]);
  state.left = 4;
  expect(await outcome(source, ADA)).toBe("340 posts");
});

test("no more than eight accounts are read at once, and no more than four for one user; the others come again", async () => {
  const names = Array.from({ length: 9 }, (_, n) => `did:plc:many${n}`);
  view.inject({ kind: "hang" });
  const stop = new AbortController();
  const ask = (name: string, user: string) => outcome(source, name, { signal: stop.signal, user });
  // A user alone gets half of the places.
  const reads = names.slice(0, 4).map((name) => ask(name, "greedy"));
  await eventually(() => view.held() === 4, "four are read");
  expect(await ask(names[8] as string, "greedy")).toBe("unavailable");
  for (const user of ["ann", "bob", "cy", "dan"]) reads.push(ask(names[reads.length] as string, user));
  await eventually(() => view.held() === 8, "eight are read");
  expect(await ask(names[8] as string, "eve")).toBe("unavailable");
  expect(view.calls()).toBe(8);
  stop.abort();
  expect(new Set(await Promise.all(reads))).toEqual(new Set(["unavailable"]));
});
