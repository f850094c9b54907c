import { afterAll, beforeAll, describe } from "@jest/globals";
import type { PostsDeps } from "../../src/posts/index.js";
import { createFollowedAmong, createRelationsTo } from "../../src/posts/relations.grpc.js";
import { connectUsers } from "../../src/upstreams/upstreams.grpc.js";
import { DATABASES, type DatabaseServer } from "./databases.js";
import { type PostsHarness, startPosts } from "./posts.js";
import { startUpstreams, type Upstreams } from "./upstreams.js";
import { World } from "./world.js";

export interface PostsWithUsers {
  readonly posts: PostsHarness;
  /** The UserService answers from it. */
  readonly world: World;
  readonly upstreams: Upstreams;
  /** Another posts service asks the same UserService with it. */
  readonly asked: Pick<PostsDeps, "followedAmong" | "relationsTo">;
}

/** Describes the posts service on each database, with a UserService. The fields are set from the first test on. */
export function describePostsWithUsers(
  title: string,
  tests: (running: PostsWithUsers, database: string) => void,
): void {
  describe.each(DATABASES)(`${title} on $name`, ({ name, start }) => {
    let server: DatabaseServer;
    let users: ReturnType<typeof connectUsers>;
    const running = {} as PostsWithUsers;
    beforeAll(async () => {
      server = await start();
      const world = new World();
      const upstreams = await startUpstreams(world);
      users = connectUsers(upstreams.usersAddress, {});
      const asked = { followedAmong: createFollowedAmong(users), relationsTo: createRelationsTo(users) };
      Object.assign(running, { world, upstreams, asked, posts: await startPosts(await server.newDatabase(), asked) });
    });
    tests(running, name);
    afterAll(async () => {
      await running.posts.stop();
      users.close();
      await running.upstreams.stop();
      await server.stop();
    });
  });
}
