import { afterAll, beforeAll, beforeEach, describe } from "@jest/globals";
import type { Db } from "../../src/platform/db/db.js";
import { DATABASES, type DatabaseServer } from "./databases.js";
import { type PostsHarness, startPosts } from "./posts.js";

type Database = { readonly name: string; newDatabase(): Promise<Db> };

/**
 * Describes the posts service on each database. The fields of `posts` are set from the first test on. `emptied`: each
 * test gets an empty database.
 */
export function describePosts(
  title: string,
  { emptied = false }: { readonly emptied?: boolean },
  tests: (posts: PostsHarness, database: Database) => void,
): void {
  describe.each(DATABASES)(`${title} on $name`, ({ name, start }) => {
    let server: DatabaseServer;
    let running: PostsHarness | undefined;
    const posts = {} as PostsHarness;
    const restart = async (): Promise<void> => {
      await running?.stop();
      running = await startPosts(await server.emptyDatabase());
      Object.assign(posts, running);
    };
    beforeAll(async () => {
      server = await start();
      if (!emptied) await restart();
    });
    if (emptied) beforeEach(restart);
    tests(posts, { name, newDatabase: () => server.newDatabase() });
    afterAll(async () => {
      await running?.stop();
      await server.stop();
    });
  });
}
