import { afterAll, beforeAll, beforeEach, describe, expect, test } from "@jest/globals";
import { RemoteKind } from "../../src/gen/avion/posts.js";
import { AppError } from "../../src/kernel/errors.js";
import { createSetApproval } from "../../src/posts/relations.grpc.js";
import { connectUsers } from "../../src/upstreams/upstreams.grpc.js";
import { DATABASES, type DatabaseServer } from "../support/databases.js";
import { type PostsHarness, refusal, startPosts } from "../support/posts.js";
import { openRedis, type RedisBench } from "../support/redis.js";
import { startUpstreams } from "../support/upstreams.js";
import { newUsersDatabase, serveUsers, usersProcess } from "../support/users.js";
import { World } from "../support/world.js";

const EVE = "https://far.example/users/eve";

describe.each(DATABASES)("actors who approve followers, on $name", ({ start }) => {
  let server: DatabaseServer;
  let posts: PostsHarness;
  let told: [user: string, approves: boolean][] = [];
  let isAway = false;

  beforeAll(async () => {
    server = await start();
  });
  beforeEach(async () => {
    await posts?.stop();
    [told, isAway] = [[], false];
    const setApproval = async (user: string, approves: boolean) => {
      if (isAway) throw new AppError("unavailable", "SetApproval: UNAVAILABLE");
      told.push([user, approves]);
    };
    posts = await startPosts(await server.emptyDatabase(), { setApproval });
  });
  afterAll(async () => {
    await posts.stop();
    await server.stop();
  });

  const put = (approves: unknown, fields: object = {}, name = "manuallyApprovesFollowers") => {
    const document = JSON.stringify({ type: "Person", [name]: approves, ...fields });
    return posts.call.putRemoteObject({ uri: EVE, kind: RemoteKind.ACTOR, document });
  };

  test("a document says whether its actor approves followers, and a document without it says no", async () => {
    await put(false);
    await put(undefined);
    expect(told).toEqual([]);
    await put(true);
    await put(true);
    await put(undefined);
    await put(undefined);
    expect(told).toEqual([
      [EVE, true],
      [EVE, true],
      [EVE, false],
    ]);
    told = [];
    await put([true], {}, "https://www.w3.org/ns/activitystreams#manuallyApprovesFollowers");
    await put("true", {}, "as:manuallyApprovesFollowers");
    expect(told).toEqual([
      [EVE, true],
      [EVE, false],
    ]);
  });

  test("an older document changes nothing", async () => {
    await put(true, { updated: "2026-01-02T00:00:00Z" });
    told = [];
    await put(false, { updated: "2026-01-01T00:00:00Z" });
    expect(told.at(-1)).toEqual([EVE, true]);
  });

  test("while the users service is away nothing is stored: the call is repeated", async () => {
    isAway = true;
    expect(await refusal(put(true))).toMatch(/^UNAVAILABLE/);
    await expect(posts.call.getRemoteObject({ uri: EVE })).rejects.toThrow(/NOT_FOUND/);
    // The service does not ask about users who never approved followers.
    await put(false);
    isAway = false;
    await put(true);
    expect(told).toEqual([[EVE, true]]);
  });

  test("a deleted actor is not asked about", async () => {
    await put(true);
    await posts.call.deleteRemoteObject({ uri: EVE, kind: RemoteKind.ACTOR });
    told = [];
    expect(await refusal(put(true))).toMatch(/^FAILED_PRECONDITION/);
    expect(told).toEqual([]);
  });

  test("a drop says nothing about its actor", async () => {
    const document = JSON.stringify({ type: "Note", manuallyApprovesFollowers: true });
    await posts.call.putRemoteObject({ uri: "https://far.example/1", kind: RemoteKind.DROP, actor_uri: EVE, document });
    expect(told).toEqual([]);
  });
});

describe("the approval of an actor in the users service", () => {
  let server: DatabaseServer;
  let redis: RedisBench;
  beforeAll(async () => {
    const start = DATABASES[0]?.start as () => Promise<DatabaseServer>;
    [server, redis] = await Promise.all([start(), openRedis()]);
  });
  afterAll(() => Promise.all([server.stop(), redis.close()]));

  test("makes a follow a request", async () => {
    const process = usersProcess({ db: await newUsersDatabase(server), scripts: redis.scripts });
    const client = await serveUsers(process);
    const users = connectUsers(client.address, {});
    await createSetApproval(users)(EVE, true);
    expect(await client.follow({ follower_id: "ada", following_id: EVE })).toMatchObject({ pending: true });
    users.close();
    await client.close();
  });

  test("is left out where a users service has no such method", async () => {
    const upstreams = await startUpstreams(new World());
    const users = connectUsers(upstreams.usersAddress, {});
    await createSetApproval(users)(EVE, true);
    await createSetApproval(undefined)(EVE, true);
    users.close();
    await upstreams.stop();
  });
});
