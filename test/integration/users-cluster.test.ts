import { afterAll, beforeAll, expect, test } from "@jest/globals";
import { silent } from "../../src/kernel/logger.js";
import type { Db } from "../../src/platform/db/db.js";
import type { RedisClient } from "../../src/platform/redis/clusters.js";
import { connectRedis } from "../../src/platform/redis/connect.js";
import { createScripts } from "../../src/platform/redis/scripts.js";
import { type RedisCluster, startRedisCluster } from "../support/clusters.js";
import { DATABASES, type DatabaseServer } from "../support/databases.js";
import { eventually } from "../support/eventually.js";
import { createGate, newUsersDatabase, serveUsers, settle, usersProcess } from "../support/users.js";

let server: DatabaseServer;
let cluster: RedisCluster;
let redis: RedisClient;
let db: Db;

beforeAll(async () => {
  const start = DATABASES.at(-1)?.start as () => Promise<DatabaseServer>;
  [server, cluster] = await Promise.all([start(), startRedisCluster({ replicas: false })]);
  redis = connectRedis(cluster.urls.split(","), silent);
  await eventually(() => redis.status === "ready", "the cluster is connected");
  db = await newUsersDatabase(server);
});
afterAll(async () => {
  redis.disconnect();
  await Promise.all([server.stop(), cluster.stop()]);
});

test("in a Redis Cluster lists are cached, and dropped when they change, in any slots", async () => {
  const gate = createGate();
  const users = usersProcess({
    db,
    scripts: createScripts(redis),
    wrap: (store) => ({
      ids: (...asked) => gate.through(store.ids(...asked)),
      count: (...asked) => gate.through(store.count(...asked)),
    }),
  });
  const client = await serveUsers(users);
  const names = Array.from({ length: 12 }, (_, n) => (n % 2 === 0 ? `plain${n}` : `{odd} ${n}}`));
  const followers = async (user_id: string) => (await client.getFollowersList({ user_id })).user_ids;
  for (const user_id of names) expect(await followers(user_id)).toEqual([]);
  for (const [n, follower_id] of names.entries())
    await client.follow({ follower_id, following_id: names[(n + 1) % names.length] as string });
  await settle(db, users);
  for (const [n, user_id] of names.entries()) expect(await followers(user_id)).toEqual([names.at(n - 1)]);
  for (const user_id of names) await followers(user_id);
  expect(gate.queries).toBe(2 * names.length);
  for (const user_id of names) {
    await client.setProfile({ user_id, display_name: "first" });
    await client.getProfile({ user_id });
    await client.setProfile({ user_id, display_name: "second" });
    expect((await client.getProfile({ user_id })).profile?.display_name).toBe("second");
  }
  await client.close();
});
