import { mkdtempSync, rmSync } from "node:fs";
import { cpus, tmpdir } from "node:os";
import { join } from "node:path";
import { connect } from "nats";
import { Visibility } from "../../src/gen/avion/posts.js";
import { mapLimited } from "../../src/kernel/concurrency.js";
import { silent } from "../../src/kernel/logger.js";
import { createPublishEvent } from "../../src/outbox/publish.nats.js";
import { startRelay } from "../../src/outbox/relay.js";
import { createOutboxStore } from "../../src/outbox/store.sql.js";
import type { Db } from "../../src/platform/db/db.js";
import { migrate } from "../../src/platform/db/migrate.js";
import { openPglite } from "../../src/platform/db/pglite.js";
import { openPostgres } from "../../src/platform/db/postgres.js";
import { createPublish } from "../../src/platform/nats/publish.js";
import { createDropIds } from "../../src/posts/drop-ids.js";
import { createPostsStore } from "../../src/posts/store.sql.js";
import { MIGRATIONS } from "../../src/roles/database.js";
import { createFollowStore } from "../../src/users/follows.sql.js";
import { privateNats } from "../support/brokers.js";
import { postgresPrograms, startPostgres } from "../support/postgres.js";
import { pageThroughFollowers } from "./followers.js";
import { against, check, inWords, type Line, print, summarise, timed } from "./measure.js";

const WRITES = 2_000;
const AT_ONCE = 16;
const PUBLISHED = 2_000;
const PUBLISH_EVERY_MS = 5;
const FOLLOWERS = 1_000_000;
const FOLLOWERS_EMBEDDED = 100_000;

/** What the users and posts services cost: writes, the way of an event into JetStream, a very long list. */
export async function run(): Promise<void> {
  console.log(`${cpus().length} x ${cpus()[0]?.model}, Node ${process.version}`);
  if (postgresPrograms() === undefined) console.log("no PostgreSQL is installed: embedded PGlite only");
  else {
    await onPostgres(true);
    // What the service and the database take, without the disk.
    await onPostgres(false);
  }
  await onPglite();
}

async function onPostgres(fsync: boolean): Promise<void> {
  const server = await startPostgres({ fsync });
  const db = openPostgres({ url: server.url, poolSize: AT_ONCE, name: "bench" }, silent);
  try {
    print(`PostgreSQL ${server.version}, fsync ${fsync ? "on" : "off"}`, await measure(db, FOLLOWERS));
  } finally {
    await db.close();
    await server.stop();
  }
}

async function onPglite(): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "timeline-bench-"));
  const db = await openPglite({ folder: join(folder, "pglite") });
  try {
    print("PGlite, embedded, in a folder", await measure(db, FOLLOWERS_EMBEDDED));
  } finally {
    await db.close();
    rmSync(folder, { recursive: true, force: true });
  }
}

async function measure(db: Db, followers: number): Promise<Line[]> {
  await migrate(db, MIGRATIONS, silent);
  await db.run("CREATE TABLE public.ceiling (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, a text, b bigint)");
  const body = "x".repeat(200);
  const bare = () => db.query("INSERT INTO public.ceiling (a, b) VALUES ($1, $2) RETURNING id", [body, 1]);
  const ceiling = await timed(WRITES, bare);
  const lines: Line[] = [{ what: "Ceiling: one row into a bare table", value: inWords(ceiling) }];
  const publish = publisher(db, body);
  const published = await timed(WRITES, publish);
  await checkDrops(db, WRITES * 1.1);
  lines.push({
    what: "Publish transaction: drop and event",
    value: inWords(published),
    ratio: against(published, ceiling),
  });
  lines.push(await atOnce(`Published by ${AT_ONCE} at once`, publish, bare));
  const store = createFollowStore(db);
  const follow = (n: number) =>
    store.setFollowing({ follower: `f${n}`, following: `a${n % 97}`, wanted: true, most: 10_000 });
  const followed = await timed(WRITES, follow);
  const [row] = await db.query<{ n: number }>("SELECT count(*) AS n FROM users.followings WHERE active");
  check(row?.n === WRITES * 1.1, "every follow is there");
  lines.push({ what: "Follow, its synchronous part", value: inWords(followed), ratio: against(followed, ceiling) });
  lines.push(await lag(db, publish));
  lines.push(...(await pageThroughFollowers(db, followers)));
  return lines;
}

/** Writes drops as the service does, and tells which. */
function publisher(db: Db, body: string): (n: number) => Promise<string> {
  const { drops } = createPostsStore(db);
  const nextId = createDropIds();
  return async (n) => {
    const dropId = nextId(Date.now());
    const userId = `user${n % 100}`;
    const created = {
      owner: userId,
      key: dropId,
      subject: "drops.created",
      messageId: `drop_created:${dropId}`,
      body: JSON.stringify({ drop_id: dropId, user_id: userId, visibility: "public", created_at: Date.now() }),
      traceparent: undefined,
    };
    const drop = { dropId, userId, visibility: Visibility.PUBLIC, recipients: [], replyTo: "", summary: "", body };
    check(await drops.create(drop, { idempotencyKey: "", created, replied: undefined }), "the drop was made");
    return dropId;
  };
}

async function checkDrops(db: Db, count: number): Promise<void> {
  const [row] = await db.query<{ drops: number; events: number }>(
    "SELECT (SELECT count(*) FROM posts.drops) AS drops, (SELECT count(*) FROM public.outbox) AS events",
  );
  check(row?.drops === count && row.events === count, "every drop is there, with its event");
}

async function atOnce(
  what: string,
  work: (n: number) => Promise<unknown>,
  bare: () => Promise<unknown>,
): Promise<Line> {
  const rate = async (one: (n: number) => Promise<unknown>): Promise<number> => {
    const started = performance.now();
    await mapLimited(Array.from({ length: WRITES }), AT_ONCE, (_, n) => one(n));
    return WRITES / ((performance.now() - started) / 1_000);
  };
  const [ceiling, reached] = [await rate(bare), await rate(work)];
  const share = `${((reached / ceiling) * 100).toFixed(0)} % of ${ceiling.toFixed(0)}/s`;
  return { what, value: `${reached.toFixed(0)} drops/s`, ratio: share };
}

/** From the answer of the write to the PubAck, at a steady rate; what was written before is published first. */
async function lag(db: Db, publish: (n: number) => Promise<string>): Promise<Line> {
  const broker = await privateNats();
  const connection = await connect({ servers: broker.url });
  const manager = await connection.jetstreamManager();
  await manager.streams.add({ name: "DROPS", subjects: ["drops.>"] });
  const written = new Map<string, number>();
  const acknowledged = new Map<string, number>();
  const store = createOutboxStore(db, "posts");
  const publishEvent = createPublishEvent(createPublish(connection.jetstream()));
  const relay = startRelay({
    store,
    publish: async (event) => {
      await publishEvent(event);
      acknowledged.set(event.key, performance.now());
    },
    log: silent,
    deadLetter: async (_, { error }) => check(false, String(error)),
    observe: { published: () => undefined, deadLettered: () => undefined, failed: () => undefined },
  });
  const drained = async (): Promise<void> => {
    while ((await store.backlog()).waiting > 0) await new Promise((resolve) => setTimeout(resolve, 20));
  };
  await drained();
  const before = (await manager.streams.info("DROPS")).state.messages;
  for (let n = 0; n < PUBLISHED; n++) {
    const due = performance.now() + PUBLISH_EVERY_MS;
    written.set(await publish(n), due - PUBLISH_EVERY_MS);
    relay.wake();
    await new Promise((resolve) => setTimeout(resolve, Math.max(0, due - performance.now())));
  }
  await drained();
  await relay.close();
  const after = (await manager.streams.info("DROPS")).state.messages;
  const times = [...written].map(([key, at]) => (acknowledged.get(key) ?? Number.NaN) - at);
  check(
    after - before === PUBLISHED && times.filter(Number.isFinite).length === PUBLISHED,
    "every event was published once",
  );
  await connection.close();
  await broker.stop();
  const { p50, p95 } = summarise(times);
  return {
    what: `Outbox to JetStream, from before the write to the PubAck, at ${1_000 / PUBLISH_EVERY_MS} drops/s`,
    value: `${p50.toFixed(2)} ms p50, ${p95.toFixed(2)} ms p95`,
  };
}
