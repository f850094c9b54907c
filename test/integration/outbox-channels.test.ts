import { afterAll, beforeAll, expect, test } from "@jest/globals";
import { silent } from "../../src/kernel/logger.js";
import { OUTBOX_MIGRATIONS } from "../../src/outbox/index.js";
import { alsoOnChannels } from "../../src/outbox/publish.nats.js";
import { createOutboxStore } from "../../src/outbox/store.sql.js";
import type { Db } from "../../src/platform/db/db.js";
import { migrate } from "../../src/platform/db/migrate.js";
import { DATABASES, type DatabaseServer } from "../support/databases.js";
import { eventually } from "../support/eventually.js";
import { openRedis, type RedisBench } from "../support/redis.js";

let database: DatabaseServer;
let redis: RedisBench;
let db: Db;

beforeAll(async () => {
  [database, redis] = await Promise.all([(DATABASES.at(-1) as (typeof DATABASES)[number]).start(), openRedis()]);
  db = await database.newDatabase();
  await migrate(db, [OUTBOX_MIGRATIONS], silent);
});
afterAll(() => Promise.all([database.stop(), redis.close()]));

test("a channel with the prefix gets the event as it was written, with its traceparent where there is one", async () => {
  const heard: [channel: string, payload: string][] = [];
  redis.raw.on("message", (channel, payload) => heard.push([channel, payload]));
  await redis.raw.subscribe("staging:drop_created", "staging:user_followed", "staging:drop_reacted", "drop_created");
  await db.query(
    `INSERT INTO public.outbox (source, key, subject, message_id, body, traceparent) VALUES
      ('posts', 'a', 'drops.created', '1', '{"drop_id": "a"}', NULL),
      ('posts', 'b', 'graph.followed', '2', '{"version": 1}', '00-1-2-01'),
      ('posts', 'c', 'engagement.liked', '3', '{}', NULL),
      ('posts', 'd', 'activity.reacted', '4', '{"version": 2}', NULL)`,
  );
  const publish = alsoOnChannels(async () => undefined, redis.client, "staging:");
  for (const event of await createOutboxStore(db, "posts").claim(10, 1_000)) await publish(event);
  await eventually(() => heard.length === 3, "each channel gets its event");
  expect(new Map(heard)).toEqual(
    new Map([
      ["staging:drop_created", '{"drop_id": "a"}'],
      ["staging:user_followed", '{"version":1,"traceparent":"00-1-2-01"}'],
      ["staging:drop_reacted", '{"version": 2}'],
    ]),
  );
});
