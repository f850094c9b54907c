import { expect } from "@jest/globals";
import { Visibility } from "../../src/gen/avion/posts.js";
import { connectWorld } from "../../src/sandbox/world/world.grpc.js";
import { startCommand } from "../support/command.js";
import { becomes, eventually } from "../support/eventually.js";
import { databaseOf } from "../support/own-database.js";
import { openReader, type Reader } from "../support/reader.js";
import type { Service } from "../support/service.js";
import { openEvents, requestEvents } from "../support/sse.js";
import { type Stack, testWithStack } from "../support/stack.js";
import { created, deleted, followed, related } from "../support/timeline-events.js";
import { tokenOf } from "../support/tokens.js";

/** Keys and subjects cannot hold this id as it is. */
const ERIN = "erin é";
const ROLES = "posts,bridge,fanout,api,gateway,analysis,rewards";
const OWN_POSTS = { TIMELINE_POST_SERVICE_ADDR: "", TIMELINE_RETRY_BASE_MS: "50", TIMELINE_ACK_WAIT_MS: "3500" };

interface Scene {
  readonly stack: Stack;
  readonly service: Service;
  readonly world: ReturnType<typeof connectWorld>;
  readonly reads: Reader;
  readonly env: Readonly<Record<string, string>>;
}

async function openScene(stack: Stack, roles: string, env: Readonly<Record<string, string>>): Promise<Scene> {
  const own = { ...OWN_POSTS, ...(await databaseOf(stack)), ...env };
  const service = await stack.start({ roles, env: own });
  return sceneOf({ stack, service, env: own });
}

function sceneOf(of: Pick<Scene, "stack" | "service" | "env">): Scene {
  const world = connectWorld(of.service.grpcAddress);
  const reads = openReader(of.service.grpcAddress);
  of.stack.defer(() => world.close());
  of.stack.defer(() => reads.close());
  return { ...of, world, reads };
}

async function post({ world: { posts } }: Scene, user_id: string, more: object = {}): Promise<string> {
  const { drop } = await posts.createDrop({ user_id, visibility: Visibility.PUBLIC, body: "Hello", ...more });
  return drop?.drop_id ?? "";
}

const shows = ({ reads }: Scene, user: string, drop_ids: readonly string[]) =>
  becomes(async () => expect(await reads.home(user, { limit: 50 })).toMatchObject({ drop_ids, degraded: false }));

async function http({ service }: Scene, user: string, path: string, body?: object) {
  const headers = { authorization: `Bearer ${await tokenOf(user)}`, "content-type": "application/json" };
  const post = body && { method: "POST", body: JSON.stringify(body) };
  const response = await fetch(`${service.httpUrl}${path}`, { headers, ...post });
  return { status: response.status, json: (await response.json()) as Record<string, unknown> };
}

async function analysed(scene: Scene, user: string, did: string): Promise<string> {
  const { json } = await http(scene, user, "/api/v1/timeline/analyze", { did, type: "flow" });
  const path = String(json["status_url"]);
  await becomes(async () => expect((await http(scene, user, path)).json).toMatchObject({ status: "completed" }));
  await becomes(async () => expect((await http(scene, user, "/api/v1/xp")).json["total"]).toBeGreaterThan(0));
  return path;
}

/** Exits with 0 where the id is left in no place in which it may not be. */
async function expectNothingLeft({ stack, env }: Scene): Promise<void> {
  const run = startCommand(stack, ["erase", "verify", ERIN], env);
  const { code } = await run.exited;
  expect({ code, output: code === 0 ? "" : run.output(), errors: run.errors() }).toMatchObject({ code: 0, output: "" });
}

/** The end of streams, and the answers of HTTP. */
async function expectGone(scene: Scene): Promise<void> {
  const token = await tokenOf(ERIN);
  expect((await requestEvents(scene.service.httpUrl, { token })).status).toBe(410);
  const paths = ["/api/v1/xp", "/api/v1/timeline/analyses", `/api/v1/timeline/analyses/${crypto.randomUUID()}`];
  for (const path of paths) expect((await http(scene, ERIN, path)).status).toBe(410);
  expect((await http(scene, ERIN, "/api/v1/timeline/analyze", { did: "ada", type: "flow" })).status).toBe(410);
  const { drop_ids, degraded } = await scene.reads.home(ERIN).catch(() => ({ drop_ids: [], degraded: false }));
  expect({ drop_ids, degraded }).toEqual({ drop_ids: [], degraded: false });
}

/** What names the user from now on, on the channels. */
async function publishLate({ stack }: Scene): Promise<void> {
  const version = Date.now() + 1_000_000;
  await stack.publish(
    created({ drop_id: "late", user_id: ERIN, visibility: "public", created_at: Date.now() }),
    created({
      drop_id: "late-repost",
      user_id: "bob",
      visibility: "public",
      created_at: Date.now(),
      repost_of: "late",
      repost_author: ERIN,
    }),
    created({
      drop_id: "late-direct",
      user_id: "bob",
      visibility: "direct",
      created_at: Date.now(),
      recipients: [ERIN],
    }),
    followed("ada", ERIN, version),
    followed(ERIN, "ada", version),
    related("user_blocked", ERIN, "ada", { version }),
    related("user_muted", "ada", ERIN, { version }),
    deleted("late-again", ERIN),
  );
}

// Invariants 2 and 5.
testWithStack(
  "an erased user is gone from everywhere, and stays gone",
  { service: false, timeoutMs: 120_000 },
  async (stack) => {
    const scene = await openScene(stack, `users,${ROLES}`, { TIMELINE_USER_SERVICE_ADDR: "" });
    const { users, posts } = scene.world;
    const env = { ...scene.env, TIMELINE_USER_SERVICE_ADDR: scene.service.grpcAddress };
    for (const [follower_id, following_id] of [
      ["ada", ERIN],
      ["ada", "bob"],
      ["bob", ERIN],
      [ERIN, "ada"],
    ] as const)
      await users.follow({ follower_id, following_id });
    await becomes(async () =>
      expect(await users.getFollowCounts({ user_id: ERIN })).toEqual({ following: 1, followers: 2 }),
    );
    await users.setProfile({ user_id: ERIN, display_name: "Erin" });
    await users.mute({ user_id: "cat", target_id: ERIN });
    await users.block({ user_id: ERIN, target_id: "dan" });
    const [adas, bobs] = [await post(scene, "ada"), await post(scene, "bob")];
    const erins = [await post(scene, ERIN), await post(scene, ERIN, { reply_to: adas })];
    await posts.likeDrop({ drop_id: adas, user_id: ERIN });
    const { repost_id: erinsRepost } = await posts.shareDrop({ drop_id: bobs, user_id: ERIN });
    const { repost_id: bobsRepost } = await posts.shareDrop({ drop_id: erins[0] as string, user_id: "bob" });
    const reply = await post(scene, "bob", { reply_to: erins[0] });
    const letter = await post(scene, "ada", { visibility: Visibility.DIRECT, recipients: [ERIN, "bob"] });
    // Each repost covers its original.
    await shows(scene, "ada", [letter, reply, bobsRepost, erinsRepost, erins[1] as string, adas]);
    const counts = () => posts.getCounts({ drop_ids: [adas, bobs] });
    await becomes(async () => expect((await counts()).counts).toMatchObject([{ likes: 1, replies: 1 }, { shares: 1 }]));
    const own = await analysed(scene, ERIN, "ada");
    const about = await analysed(scene, "ada", ERIN);
    const stream = await openEvents(scene.service.httpUrl, ERIN);
    const others = await openEvents(scene.service.httpUrl, "ada");

    const { code } = await startCommand(stack, ["erase", "user", ERIN, "--yes"], env).exited;
    expect(code).toBe(0);
    const erasure = async () => (await users.getErasure({ user_id: ERIN })).erasure;
    await eventually(async () => (await erasure())?.status === "completed", "the erasure is completed");
    await eventually(() => stream.isOver(), "the stream of the user has ended");
    expect((await erasure())?.steps.every(({ done, left }) => done && left === 0)).toBe(true);
    expect((await users.eraseUser({ user_id: ERIN })).erasure).toEqual(await erasure());

    await shows(scene, "ada", [letter, reply, bobs, adas]);
    await shows(
      scene,
      "bob",
      [letter, reply, bobs, adas].filter((id) => id !== letter && id !== adas),
    );
    expect((await scene.reads.local()).drop_ids).toEqual([reply, bobs, adas]);
    expect((await counts()).counts).toMatchObject([{ likes: 0, replies: 0 }, { shares: 0 }]);
    expect(await users.getFollowCounts({ user_id: "ada" })).toEqual({ following: 1, followers: 0 });
    expect((await users.getFollowersList({ user_id: ERIN })).user_ids).toEqual([]);
    await expect(users.getProfile({ user_id: ERIN })).rejects.toThrow(/NOT_FOUND/);
    await expect(users.follow({ follower_id: "ada", following_id: ERIN })).rejects.toThrow(/FAILED_PRECONDITION/);
    await expect(post(scene, ERIN)).rejects.toThrow(/FAILED_PRECONDITION/);
    expect((await posts.getDrop({ drop_id: reply })).drop).toMatchObject({ reply_to: erins[0] });
    expect((await posts.getDrop({ drop_id: erins[0] })).tombstone).toMatchObject({ former_type: "drop" });
    expect((await posts.getDrop({ drop_id: letter })).drop).toMatchObject({ recipients: ["bob"] });
    expect((await http(scene, "ada", about)).status).toBe(404);
    expect((await http(scene, ERIN, own)).status).toBe(410);
    await expectGone(scene);
    await expectNothingLeft({ ...scene, env });

    await publishLate(scene);
    await scene.stack.redis.flushall();
    await publishLate(scene);
    const last = await post(scene, "bob");
    await shows(scene, "ada", [last, letter, reply, bobs, adas]);
    await expectGone(scene);
    await expectNothingLeft({ ...scene, env });
    expect(others.drops().filter((id) => id.startsWith("late"))).toEqual([]);
  },
);

// Invariant 5.
testWithStack(
  "a users service of one's own erases a user by its event",
  { service: false, timeoutMs: 120_000 },
  async (stack) => {
    const scene = await openScene(stack, ROLES, {});
    const { world } = stack;
    for (const [follower, following] of [
      ["ada", ERIN],
      ["ada", "bob"],
      [ERIN, "ada"],
    ] as const)
      await stack.publish(followed(follower, following, world.follow(follower, following)));
    world.addProfile(ERIN);
    const [bobs, erins] = [await post(scene, "bob"), await post(scene, ERIN)];
    const { repost_id: repost } = await scene.world.posts.shareDrop({ drop_id: erins, user_id: "bob" });
    await shows(scene, "ada", [repost, bobs]);
    await analysed(scene, ERIN, "bob");
    const stream = await openEvents(scene.service.httpUrl, ERIN);

    world.unfollow("ada", ERIN);
    world.unfollow(ERIN, "ada");
    await stack.publish({ channel: "user_erased", payload: { user_id: ERIN, version: 1 } });
    await eventually(() => stream.isOver(), "the stream of the user has ended");
    await shows(scene, "ada", [bobs]);
    await becomes(() => expectGone(scene));
    await becomes(() => expectNothingLeft(scene));
    await expect(post(scene, ERIN)).rejects.toThrow(/FAILED_PRECONDITION/);
    await publishLate(scene);
    const last = await post(scene, "bob");
    await shows(scene, "ada", [last, bobs]);
    await expectNothingLeft(scene);
  },
);

// Invariants 1 and 5.
testWithStack(
  "an erasure beside a relay in the midst of a batch: what the relay publishes afterwards changes nothing",
  { service: false, timeoutMs: 120_000 },
  async (stack) => {
    const failpoints = { AVION_TEST_FAILPOINTS: "outbox-claimed=kill@doomed" };
    const first = await openScene(stack, `users,${ROLES}`, { TIMELINE_USER_SERVICE_ADDR: "", ...failpoints });
    await first.world.users.follow({ follower_id: "ada", following_id: ERIN });
    await becomes(async () =>
      expect((await first.world.users.getFollowersList({ user_id: ERIN })).user_ids).toEqual(["ada"]),
    );
    const bobs = await post(first, "bob");
    await post(first, ERIN, { recipients: ["doomed"], visibility: Visibility.DIRECT }).catch(() => undefined);
    await first.service.exited;
    const env = { ...first.env, AVION_TEST_FAILPOINTS: "" };
    const second = sceneOf({ stack, service: await stack.start({ roles: `users,${ROLES}`, env }), env });
    const { users } = second.world;
    await users.eraseUser({ user_id: ERIN });
    const erasure = async () => (await users.getErasure({ user_id: ERIN })).erasure;
    await eventually(async () => (await erasure())?.status === "completed", "the erasure is completed", 60_000);
    await shows(second, "ada", []);
    await shows(second, "bob", [bobs]);
    await expectNothingLeft(second);
  },
);
