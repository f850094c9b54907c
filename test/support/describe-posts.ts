import { afterAll, beforeAll, describe } from "@jest/globals";
import type { Db } from "../../src/platform/db/db.js";
import { DATABASES, type DatabaseServer } from "./databases.js";
import { type PostsHarness, startPosts } from "./posts.js";

type Database = { readonly name: string; newDatabase(): Promise<Db> };

/** Describes the posts service on each database. The fields of `posts` are set from the first test on. */
export function describePosts(title: string, tests: (posts: PostsHarness, database: Database) => void): void {
  describe.each(DATABASES)(`${title} on $name`, ({ name, start }) => {
    let server: DatabaseServer;
    const posts = {} as PostsHarness;
    beforeAll(async () => {
      server = await start();
      Object.assign(posts, await startPosts(await server.newDatabase()));
    });
    tests(posts, { name, newDatabase: () => server.newDatabase() });
    afterAll(async () => {
      await posts.stop();
      await server.stop();
    });
  });
}
