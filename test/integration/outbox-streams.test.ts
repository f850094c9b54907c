import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "@jest/globals";
import type { StreamConfig } from "nats";
import type { OutboxSource } from "../../src/contracts/outbox.js";
import { STREAM } from "../../src/contracts/subjects.js";
import { silent } from "../../src/kernel/logger.js";
import { createPublishEvent } from "../../src/outbox/publish.nats.js";
import { type Relay, startRelay } from "../../src/outbox/relay.js";
import { createOutboxStore } from "../../src/outbox/store.sql.js";
import type { Db } from "../../src/platform/db/db.js";
import { createEdgeStore } from "../../src/users/edges.sql.js";
import { DATABASES, type DatabaseServer } from "../support/databases.js";
import { eventually } from "../support/eventually.js";
import { type NatsBench, openNats } from "../support/nats.js";
import { post, startPosts } from "../support/posts.js";
import { openRedis, type RedisBench } from "../support/redis.js";
import { newUsersDatabase, usersProcess } from "../support/users.js";

let database: DatabaseServer;
let redis: RedisBench;
let nats: NatsBench;
const relays: Relay[] = [];
let failed: Record<string, number> = {};

beforeAll(async () => {
  const start = (DATABASES.at(-1) as (typeof DATABASES)[number]).start;
  [database, redis, nats] = await Promise.all([start(), openRedis(), openNats()]);
});
beforeEach(async () => {
  failed = {};
  await nats.manager.streams.purge(STREAM.drops);
});
afterEach(() => Promise.all(relays.splice(0).map((relay) => relay.close())));
afterAll(() => Promise.all([database.stop(), redis.close(), nats.close()]));

const relay = (db: Db, ...sources: OutboxSource[]): void => {
  for (const source of sources)
    relays.push(
      startRelay({
        store: createOutboxStore(db, source),
        publish: createPublishEvent(nats.publish),
        deadLetter: async (_, { error }) => Promise.reject(error),
        log: silent,
        observe: {
          published: () => undefined,
          deadLettered: () => undefined,
          failed: () => {
            failed[source] = (failed[source] ?? 0) + 1;
          },
        },
      }),
    );
};

const resize = async (stream: string, max_bytes: number): Promise<void> => {
  const { config } = await nats.manager.streams.info(stream);
  await nats.manager.streams.update(stream, { ...config, max_bytes } as StreamConfig);
};

const stored = async (stream: string): Promise<number> => (await nats.manager.streams.info(stream)).state.messages;

// Invariant 1.
test("while ENGAGEMENT takes nothing, the outbox of drops goes on undisturbed", async () => {
  const posts = await startPosts(await database.newDatabase());
  const liked = await post(posts);
  await posts.call.likeDrop({ drop_id: liked, user_id: "bob" });
  await post(posts, { reply_to: liked });
  await resize(STREAM.engagement, 1);
  relay(posts.db, "posts", "reactions");
  await eventually(() => (failed["reactions"] ?? 0) >= 3, "the reactions cannot be published");
  await eventually(async () => (await stored(STREAM.drops)) === 2, "both drops are published");
  expect([failed["posts"], await stored(STREAM.engagement)]).toEqual([undefined, 0]);
  await resize(STREAM.engagement, -1);
  await eventually(async () => (await stored(STREAM.engagement)) === 2, "the like and the reply are published");
  await posts.stop();
});

// Invariant 1.
test("while ACTIVITY is gone, likes are counted and drops published; once it is back, people are told of each like", async () => {
  const posts = await startPosts(await database.newDatabase());
  const liked = await post(posts);
  const { config } = await nats.manager.streams.info(STREAM.activity);
  await nats.manager.streams.purge(STREAM.engagement);
  await nats.manager.streams.delete(STREAM.activity);
  for (const user_id of ["bob", "cid"]) await posts.call.likeDrop({ drop_id: liked, user_id });
  relay(posts.db, "posts", "reactions", "activity");
  await eventually(() => (failed["activity"] ?? 0) >= 3, "the likes cannot be told");
  await eventually(async () => (await stored(STREAM.engagement)) === 2, "the likes are counted");
  await eventually(async () => (await stored(STREAM.drops)) === 1, "the drop is published");
  expect([failed["posts"], failed["reactions"]]).toEqual([undefined, undefined]);
  await nats.manager.streams.add(config);
  await eventually(async () => (await stored(STREAM.activity)) === 2, "both likes are told");
  await posts.stop();
});

// Invariant 1.
test("while EDGES takes nothing, the outbox of graph events goes on undisturbed", async () => {
  const db = await newUsersDatabase(database);
  const users = usersProcess({ db, scripts: redis.scripts });
  await users.follow({ follower_id: "ada", following_id: "bob" });
  const version = 1;
  await createEdgeStore(db).apply([{ follower_id: "cid", following_id: "bob", version, following: true }]);
  await resize(STREAM.edges, 1);
  relay(db, "users", "edges");
  await eventually(() => (failed["edges"] ?? 0) >= 3, "the follow cannot be published");
  await eventually(async () => (await stored(STREAM.drops)) === 1, "the event of the applied edge is published");
  expect([failed["users"], await stored(STREAM.edges)]).toEqual([undefined, 0]);
  await resize(STREAM.edges, -1);
  await eventually(async () => (await stored(STREAM.edges)) === 1, "the follow is published");
});
