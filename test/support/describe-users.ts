import { afterAll, afterEach, beforeAll, beforeEach, describe } from "@jest/globals";
import type { Db } from "../../src/platform/db/db.js";
import { DATABASES, type DatabaseServer } from "./databases.js";
import { openRedis, type RedisBench } from "./redis.js";
import {
  newUsersDatabase,
  serveUsers,
  type UsersClient,
  type UsersOptions,
  type UsersProcess,
  usersProcess,
} from "./users.js";

/** The fields of each of these are set from the first hook of the tests on. */
export interface DescribedUsers {
  readonly db: Db;
  readonly redis: RedisBench;
  readonly users: UsersProcess;
  readonly client: UsersClient;
}

interface Described extends Partial<UsersOptions> {
  /** Each test gets an empty database, an empty Redis and a new process. */
  readonly emptied?: boolean;
}

/** Describes one process of the users service, and its client, on each database. */
export function describeUsers(
  title: string,
  { emptied = false, ...options }: Described,
  tests: (running: DescribedUsers, database: string) => void,
): void {
  describe.each(DATABASES)(`${title} on $name`, ({ name, start }) => {
    let server: DatabaseServer;
    const running = { db: {}, redis: {}, users: {}, client: {} } as DescribedUsers;
    const { db, redis, users, client } = running;
    const begin = async (): Promise<void> => {
      Object.assign(db, await newUsersDatabase(server));
      Object.assign(users, usersProcess({ db: { ...db }, scripts: redis.scripts, ...options }));
      Object.assign(client, await serveUsers(users));
    };
    beforeAll(async () => {
      const [started, opened] = await Promise.all([start(), openRedis()]);
      server = started;
      Object.assign(redis, opened);
      if (!emptied) await begin();
    });
    if (emptied) {
      beforeEach(async () => {
        await redis.raw.flushall();
        await begin();
      });
      afterEach(() => client.close());
    }
    tests(running, name);
    afterAll(async () => {
      if (!emptied) await client.close();
      await Promise.all([server.stop(), redis.close()]);
    });
  });
}
