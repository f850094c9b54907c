import { afterAll, beforeAll, expect, test } from "@jest/globals";
import { RemoteKind, Visibility } from "../../src/gen/avion/posts.js";
import { MINUTE } from "../../src/kernel/time.js";
import { type GrpcServer, serveGrpc } from "../../src/platform/grpc/serve.js";
import { createFollowedAmong } from "../../src/posts/relations.grpc.js";
import { connectUsers } from "../../src/upstreams/upstreams.grpc.js";
import { DATABASES, type DatabaseServer } from "../support/databases.js";
import { type PostsHarness, post, refusal, startPosts } from "../support/posts.js";
import { openRedis, type RedisBench } from "../support/redis.js";
import { startUpstreams } from "../support/upstreams.js";
import { newUsersDatabase, type UsersProcess, usersProcess } from "../support/users.js";
import { World } from "../support/world.js";

let database: DatabaseServer;
let redis: RedisBench;
let users: UsersProcess;
let usersServer: GrpcServer;
let followings: ReturnType<typeof connectUsers>;
let posts: PostsHarness;

beforeAll(async () => {
  [database, redis] = await Promise.all([(DATABASES.at(-1) as (typeof DATABASES)[number]).start(), openRedis()]);
  users = usersProcess({ db: await newUsersDatabase(database), scripts: redis.scripts });
  usersServer = await serveGrpc("127.0.0.1:0", [users.service], {});
  followings = connectUsers(`127.0.0.1:${usersServer.port}`, {});
  posts = await startPosts(await database.newDatabase(), { followedAmong: createFollowedAmong(followings) });
});
afterAll(async () => {
  await posts.stop();
  followings.close();
  await usersServer.close(1_000);
  await Promise.all([database.stop(), redis.close()]);
});

test("of drops for followers a viewer sees those of an author they follow, and no remote one without an actor", async () => {
  await users.follow({ follower_id: "fay", following_id: "ada" });
  const uri = "https://far.example/notes/1";
  const put = { uri, kind: RemoteKind.DROP, document: "{}", visibility: Visibility.FOLLOWERS };
  await posts.call.putRemoteObject(put);
  const viewer_id = "fay";
  expect(await refusal(posts.call.getRemoteObject({ uri, viewer_id }))).toMatch(/^NOT_FOUND/);
  expect(await refusal(posts.call.listReplies({ drop_id: uri, viewer_id }))).toMatch(/^NOT_FOUND/);
  const drop_id = await post(posts, { visibility: Visibility.FOLLOWERS });
  expect((await posts.call.getDrop({ drop_id, viewer_id })).drop?.drop_id).toBe(drop_id);
});

test("a UserService without IsFollowing is asked for its lists, and again for IsFollowing after a minute", async () => {
  await users.follow({ follower_id: "gus", following_id: "ada" });
  const upstreams = await startUpstreams(new World());
  const external = connectUsers(upstreams.usersAddress, {});
  const asked: string[] = [];
  let now = Date.now();
  let isOld = true;
  const replaced: typeof followings = {
    ...followings,
    isFollowing: (follower, people) => {
      asked.push("IsFollowing");
      return (isOld ? external : followings).isFollowing(follower, people);
    },
    following: (page) => {
      asked.push("GetFollowingList");
      return followings.following(page);
    },
  };
  const followedAmong = createFollowedAmong(replaced, () => now);
  const among = async () => [...(await followedAmong("gus", ["ada", "bob"]))];
  try {
    expect([await among(), await among()]).toEqual([["ada"], ["ada"]]);
    expect(asked).toEqual(["IsFollowing", "GetFollowingList", "GetFollowingList"]);
    isOld = false;
    now += MINUTE;
    expect(await among()).toEqual(["ada"]);
    expect(asked.slice(3)).toEqual(["IsFollowing"]);
  } finally {
    external.close();
    await upstreams.stop();
  }
});
