import { rm } from "node:fs/promises";
import { join } from "node:path";
import { credentials } from "@grpc/grpc-js";
import { expect, test } from "@jest/globals";
import { PostServiceClient, PostServiceService, RemoteKind, Visibility } from "../../src/gen/avion/posts.js";
import { RelationKind, UserServiceClient, UserServiceService } from "../../src/gen/avion/users.js";
import { silent } from "../../src/kernel/logger.js";
import type { Db } from "../../src/platform/db/db.js";
import { openPglite } from "../../src/platform/db/pglite.js";
import { openPostgres } from "../../src/platform/db/postgres.js";
import { call } from "../support/analysis-http.js";
import { temporaryFolder } from "../support/brokers.js";
import { becomes } from "../support/eventually.js";
import { callsOf } from "../support/grpc.js";
import { ANALYSIS, BEFORE_FEDERATION, DEAD, DROPS, EVE, insertOlderRows, NOTE, T } from "../support/older-rows.js";
import { emptyTables, migrateTo } from "../support/older-schema.js";
import { postgresPrograms, startPostgres } from "../support/postgres.js";
import { openReader } from "../support/reader.js";
import { type Stack, startStack } from "../support/stack.js";

const ROLES = "users,posts,bridge,fanout,api,gateway,analysis,rewards";
const PAGE = { page_size: 0, page_token: "" };

interface OlderDatabase {
  readonly db: Db;
  readonly env: Readonly<Record<string, string>>;
}

const DATABASES: Readonly<Record<string, (stack: Stack) => Promise<OlderDatabase>>> = {
  PGlite: async (stack) => {
    const folder = await temporaryFolder("upgrade");
    stack.afterServices(() => rm(folder, { recursive: true, force: true }));
    return { db: await openPglite({ folder: join(folder, "pglite") }), env: { TIMELINE_DATA_DIR: folder } };
  },
  PostgreSQL: async (stack) => {
    const { url, stop } = await startPostgres();
    stack.afterServices(stop);
    return { db: openPostgres({ url, poolSize: 2, name: "test" }, silent), env: { DATABASE_URL: url } };
  },
};

async function startOnOlder(stack: Stack, open: (stack: Stack) => Promise<OlderDatabase>) {
  const { db, env } = await open(stack);
  await migrateTo(db, BEFORE_FEDERATION);
  await insertOlderRows(db);
  expect(await emptyTables(db)).toEqual([]);
  await db.close();
  const own = { TIMELINE_USER_SERVICE_ADDR: "", TIMELINE_POST_SERVICE_ADDR: "", ...env };
  const service = await stack.start({ roles: ROLES, env: own });
  const clients = [PostServiceClient, UserServiceClient].map((Client) => {
    const client = new Client(service.grpcAddress, credentials.createInsecure());
    stack.defer(() => client.close());
    return client;
  });
  const reads = openReader(service.grpcAddress);
  stack.defer(() => reads.close());
  return {
    posts: callsOf(clients[0] as PostServiceClient, PostServiceService),
    users: callsOf(clients[1] as UserServiceClient, UserServiceService),
    ...{ reads, url: service.httpUrl },
  };
}

type Upgraded = Awaited<ReturnType<typeof startOnOlder>>;

async function expectUsers({ users }: Upgraded): Promise<void> {
  expect(await users.listProfiles({ prefix: "", ...PAGE })).toMatchObject({
    profiles: [
      { user_id: "ada", display_name: "Ada", created_at: T - 1_000 },
      { user_id: "bob", display_name: "Bob", created_at: T - 5 },
    ],
  });
  expect(await users.getFollowingList({ user_id: "ada", ...PAGE })).toMatchObject({ user_ids: ["bob", EVE] });
  expect(await users.listFollowers({ user_id: EVE, ...PAGE })).toMatchObject({
    follows: [{ user_id: "ada", since: T }],
  });
  // The follow of erin waited in the outbox.
  await becomes(async () => {
    const { follows } = await users.listFollowers({ user_id: "bob", ...PAGE });
    expect(follows.map(({ user_id, since }) => [user_id, since])).toEqual([
      ["dave", T + 7],
      ["erin", T],
      ["ada", T],
    ]);
  });
  await becomes(async () => {
    expect(await users.getFollowCounts({ user_id: "bob" })).toEqual({ following: 0, followers: 3 });
  });
  expect(await users.getFollowCounts({ user_id: "ada" })).toEqual({ following: 2, followers: 0 });
  expect((await users.isFollowing({ follower_id: "ada", following_ids: ["carol", EVE] })).following).toEqual([
    false,
    true,
  ]);
  expect((await users.listBlocks({ user_id: "bob", ...PAGE })).blocks).toMatchObject([{ target_id: "mallory" }]);
  expect((await users.listMutes({ user_id: "ada", ...PAGE })).mutes).toMatchObject([
    { target_id: "noah", reposts_only: true, created_at: T },
  ]);
  expect((await users.getHidden({ user_id: "mallory", ...PAGE })).hidden).toMatchObject([
    { target_id: "bob", blocked: true },
  ]);
  const { changes } = await users.listRelationChanges({ since: T, until: T + 1, ...PAGE });
  expect(changes.map(({ target_id, kind, active }) => [target_id, kind, active])).toEqual([
    ["noah", RelationKind.MUTE, true],
    ["zoe", RelationKind.MUTE, false],
    ["mallory", RelationKind.BLOCK, true],
  ]);
  const follow = { follower_id: "mallory", following_id: "bob" };
  await expect(users.follow(follow)).rejects.toThrow(/FAILED_PRECONDITION.*blocks/);
}

async function expectDrops({ posts }: Upgraded): Promise<void> {
  const get = async (drop_id: string, viewer_id = "") => posts.getDrop({ drop_id, viewer_id });
  const edited = {
    user_id: "bob",
    summary: "News",
    body: "Second",
    revision: 2,
    updated_at: T + 50,
    created_at: T + 1,
  };
  expect((await get(DROPS.edited)).drop).toMatchObject(edited);
  expect((await posts.listRevisions({ drop_id: DROPS.edited, ...PAGE })).revisions).toMatchObject([
    { body: "Second" },
    { revision: 1, body: "First", updated_at: T + 1 },
  ]);
  expect((await get(DROPS.followers, "ada")).drop).toMatchObject({ visibility: Visibility.FOLLOWERS });
  await expect(get(DROPS.followers, "carol")).rejects.toThrow(/NOT_FOUND/);
  await expect(get(DROPS.edited, "mallory")).rejects.toThrow(/NOT_FOUND/);
  expect((await get(DROPS.direct, "ada")).drop).toMatchObject({ recipients: ["ada", EVE], body: "Direct" });
  for (const gone of [DROPS.purged, DROPS.deleted])
    expect((await get(gone)).tombstone).toEqual({ id: gone, former_type: "drop", deleted_at: T + 60 });
  const reposts = await posts.getDrops({ drop_ids: [DROPS.repost] });
  expect(reposts.results[0]?.drop).toMatchObject({ repost_of: DROPS.edited, original: edited });
  expect((await posts.listLikes({ drop_id: DROPS.edited, ...PAGE })).likes.map(({ user_id }) => user_id)).toEqual([
    "erin",
    "ada",
  ]);
  expect((await posts.listUserShares({ user_id: "carol", ...PAGE })).shares).toMatchObject([{ drop_id: DROPS.edited }]);
  const own = await posts.listUserDrops({ user_id: "bob", viewer_id: "bob", replies: true, reposts: true, ...PAGE });
  expect(own.drops.map(({ drop_id }) => drop_id)).toEqual([
    ...[DROPS.waiting, DROPS.direct, DROPS.followers, DROPS.edited],
  ]);
  const again = { user_id: "bob", visibility: Visibility.FOLLOWERS, body: "again", idempotency_key: "k1" };
  expect((await posts.createDrop(again)).drop?.drop_id).toBe(DROPS.followers);
  expect(await posts.getRetention({})).toEqual({ kept_since: T - 1_000 });
  expect((await posts.getDropsByUserId({ user_id: "carol", limit: 10 })).drops).toMatchObject([
    { drop_id: DROPS.repost, repost_of: DROPS.edited, repost_author: "bob" },
  ]);
}

async function expectRemote({ posts }: Upgraded): Promise<void> {
  const get = (uri: string, viewer_id = "") => posts.getRemoteObject({ uri, viewer_id });
  expect((await get(NOTE)).object).toMatchObject({
    ...{ kind: RemoteKind.DROP, actor_uri: EVE, created_at: T + 30, visibility: Visibility.PUBLIC, expired: false },
    document: JSON.stringify({ content: "far", inReplyTo: DROPS.edited }),
  });
  expect((await get(`${NOTE}/direct`, "ada")).object).toMatchObject({ recipients: ["ada"] });
  await expect(get(`${NOTE}/direct`, "carol")).rejects.toThrow(/NOT_FOUND/);
  expect((await get(`${NOTE}/old`)).object).toMatchObject({ expired: true });
  expect((await get(`${NOTE}/gone`)).tombstone).toMatchObject({ former_type: "drop", deleted_at: T });
  expect((await get(EVE)).object).toMatchObject({ kind: RemoteKind.ACTOR, webfinger: "eve@far.example" });
  expect((await posts.resolveWebfinger({ webfinger: "@Eve@FAR.example" })).actor?.uri).toBe(EVE);
  expect((await get("https://far.example/")).object).toMatchObject({ kind: RemoteKind.SERVER, lrdd_template: "" });
  expect((await get("https://far.example/unknown")).tombstone).toMatchObject({ former_type: "" });
  expect((await get(DEAD)).tombstone).toMatchObject({ former_type: "actor" });
  // The maintenance finishes what the older version has left.
  await becomes(async () => expect((await get("https://gone.example/notes/1")).tombstone).toBeDefined());
  const late = { uri: "https://gone.example/notes/2", kind: RemoteKind.DROP, actor_uri: DEAD, document: "{}" };
  await expect(posts.putRemoteObject({ ...late, visibility: Visibility.PUBLIC })).rejects.toThrow(
    /FAILED_PRECONDITION/,
  );
}

async function expectLinks({ posts }: Upgraded): Promise<void> {
  const repliesTo = async (drop_id: string) =>
    (await posts.listReplies({ drop_id, viewer_id: "ada", ...PAGE })).items.map(
      ({ drop, remote }) => drop?.drop_id ?? remote?.uri,
    );
  await becomes(async () => expect(await repliesTo(DROPS.edited)).toEqual([DROPS.reply, NOTE]));
  await becomes(async () => expect(await repliesTo(NOTE)).toEqual([DROPS.remoteReply]));
  expect(await posts.likeDrop({ drop_id: NOTE, user_id: "dave" })).toEqual({ changed: true });
  await becomes(async () => {
    const { counts } = await posts.getCounts({ drop_ids: [DROPS.edited, NOTE] });
    expect(counts).toEqual([
      { drop_id: DROPS.edited, likes: 2, shares: 1, replies: 2 },
      { drop_id: NOTE, likes: 1, shares: 0, replies: 1 },
    ]);
  });
}

async function expectTimelines({ reads, url }: Upgraded): Promise<void> {
  const home = [
    ...[`${NOTE}/old`, `${NOTE}/direct`, NOTE, DROPS.waiting, DROPS.remoteReply, DROPS.reply],
    ...[DROPS.direct, DROPS.followers, DROPS.edited],
  ];
  await becomes(async () => expect(await reads.home("ada")).toMatchObject({ drop_ids: home, degraded: false }));
  await becomes(async () => expect((await reads.local()).drop_ids).toContain(DROPS.waiting));
  const { body } = await call(`${url}/api/v1/timeline/analyses/${ANALYSIS}`, { user: "ada" });
  expect(body).toMatchObject({ did: "bob", status: "completed", results: { version: "1", posts: 3 } });
  const xp = await call(`${url}/api/v1/xp`, { user: "ada" });
  expect(xp.body).toMatchObject({ total: 15, transactions: [{ event_id: ANALYSIS, amount: 15, multiplier: 1.5 }] });
}

for (const [name, open] of Object.entries(DATABASES))
  (name === "PostgreSQL" && postgresPrograms() === undefined ? test.skip : test)(
    `a database of the version before federation is migrated, and every row of it is read right: ${name}`,
    async () => {
      const stack = await startStack({ service: false });
      try {
        const upgraded = await startOnOlder(stack, open);
        await expectUsers(upgraded);
        await expectDrops(upgraded);
        await expectRemote(upgraded);
        await expectLinks(upgraded);
        await expectTimelines(upgraded);
        expect(await stack.streams.count("DLQ")).toBe(0);
      } catch (error) {
        throw stack.explain(error);
      } finally {
        await stack.stop();
      }
    },
    120_000,
  );
