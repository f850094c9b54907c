import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
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
import { createPublisher } from "../../src/platform/nats/publish.js";
import { createDropIds } from "../../src/posts/drops/ids.js";
import { createPostsStore } from "../../src/posts/store.sql.js";
import { MIGRATIONS } from "../../src/roles/database.js";
import { createEdgeStore } from "../../src/users/edges.sql.js";
import { postgresPrograms } from "../support/postgres.js";
import type { Bench } from "./support/bench.js";
import { pageThroughFollowers } from "./support/followers.js";
import { between, inTurns, summarise } from "./support/measure.js";
import { check, type Parameters, type Result, type Row } from "./support/result.js";
import { createBareWrites } from "./support/upstream-bare.js";

const WRITES = 2_000;
const AT_ONCE = 16;
const PUBLISH_EVERY_MS = 5;
const FOLLOWERS = 1_000_000;
const FOLLOWERS_EMBEDDED = 100_000;

const ABOUT = `The statement of the users or posts service that writes a follow or a drop with its event, the time from before that write to the PubAck, and
the read of a long follower list. The ceiling is a bare row: one row into a bare table, with the same durability, by as many writers. The
bound is one statement that inserts the same rows with their indexes, without locks, lookups and results.`;

export async function run({ posts = WRITES, followers }: Parameters, bench: Bench): Promise<Result> {
  const rows: Row[] = [];
  const of = { writes: posts, bench };
  if (postgresPrograms() !== undefined) {
    rows.push(...(await onPostgres({ ...of, followers: followers ?? FOLLOWERS, fsync: true })));
    // The service and the database, without the disk.
    rows.push(...(await onPostgres({ ...of, followers: followers ?? FOLLOWERS, fsync: false })));
  }
  rows.push(...(await onPglite({ ...of, followers: followers ?? FOLLOWERS_EMBEDDED })));
  return { about: ABOUT, rows };
}

interface Size {
  readonly writes: number;
  readonly followers: number;
  readonly bench: Bench;
}

async function onPostgres({ fsync, ...size }: Size & { readonly fsync: boolean }): Promise<Row[]> {
  const server = await size.bench.postgres({ fsync });
  const db = openPostgres({ url: server.url, poolSize: AT_ONCE, name: "bench" }, silent);
  try {
    return named(`PostgreSQL, fsync ${fsync ? "on" : "off"}`, await measure(db, size));
  } finally {
    await db.close();
    await server.stop();
  }
}

async function onPglite(size: Size): Promise<Row[]> {
  const folder = mkdtempSync(join(tmpdir(), "timeline-bench-"));
  const db = await openPglite({ folder: join(folder, "pglite") });
  try {
    return named("PGlite", await measure(db, size)).map(({ target: _, ...row }) => row);
  } finally {
    await db.close();
    rmSync(folder, { recursive: true, force: true });
  }
}

const named = (database: string, rows: readonly Row[]): Row[] =>
  rows.map((row) => ({ ...row, name: `${database}: ${row.name}` }));

async function measure(db: Db, { writes, followers, bench }: Size): Promise<Row[]> {
  await migrate(db, MIGRATIONS, silent);
  await db.run("CREATE TABLE public.ceiling (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, a text, b bigint)");
  const body = "x".repeat(200);
  const bare = () => db.query("INSERT INTO public.ceiling (a, b) VALUES ($1, $2) RETURNING id", [body, 1]);
  const publish = publisher(db, body);
  const bound = createBareWrites(db, body);
  const peer = "bare row";
  const target = { atMost: 1.1 };
  // Makes the partition.
  await publish(0);
  const { means: drops, each } = await inTurns(writes, { bare, publish, bound: bound.drop });
  await checkDrops(db, 1 + 2 * each);
  const rows: Row[] = [
    { name: "drop and event, mean", value: drops.publish, unit: "ms", peer: { name: peer, value: drops.bare }, target },
    {
      name: "bound of a drop and its event",
      value: drops.bound,
      unit: "ms",
      peer: { name: peer, value: drops.bare },
    },
  ];
  rows.push(await atOnce({ name: "drops and events", writes, one: publish, bare }));
  const store = createEdgeStore(db);
  let edges = 0;
  const follow = () =>
    store.setFollowing({ follower_id: `f${++edges}`, following_id: `a${edges % 97}`, wanted: true, most: 10_000 });
  const { means: follows } = await inTurns(writes, { bare, follow, bound: bound.follow });
  const bareRow = { name: peer, value: follows.bare };
  rows.push({ name: "follow and event, mean", value: follows.follow, unit: "ms", peer: bareRow, target });
  rows.push({ name: "bound of a follow and its event", value: follows.bound, unit: "ms", peer: bareRow });
  rows.push(await atOnce({ name: "follows and events", writes, one: follow, bare }));
  const [row] = await db.query<{ n: number }>("SELECT count(*) AS n FROM users.followings WHERE active");
  check(row?.n === edges + each, "every follow is there");
  rows.push(await lag({ db, publish, bench, count: writes }));
  rows.push(await pageThroughFollowers(db, followers));
  return rows;
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
    const written = { drop_id: dropId, user_id: userId, reply_to: "", summary: "", body };
    const drop = { ...written, visibility: Visibility.PUBLIC, recipients: [] };
    check(await drops.create({ drop, idempotencyKey: "", created, replied: undefined }), "the drop was made");
    return dropId;
  };
}

async function checkDrops(db: Db, count: number): Promise<void> {
  const [row] = await db.query<{ drops: number; events: number }>(
    "SELECT (SELECT count(*) FROM posts.drops) AS drops, (SELECT count(*) FROM public.outbox) AS events",
  );
  check(row?.drops === count && row.events === count, "every drop is there, with its event");
}

async function atOnce({
  name,
  writes,
  one,
  bare,
}: {
  readonly name: string;
  readonly writes: number;
  readonly one: (n: number) => Promise<unknown>;
  readonly bare: () => Promise<unknown>;
}): Promise<Row> {
  const rate = async (work: (n: number) => Promise<unknown>): Promise<number> => {
    const started = performance.now();
    await mapLimited(Array.from({ length: writes }), AT_ONCE, (_, n) => work(n));
    return writes / ((performance.now() - started) / 1_000);
  };
  const [ceiling, reached] = await between(
    () => rate(bare),
    () => rate(one),
  );
  const peer = { name: "bare row", value: ceiling };
  return { name: `${name}, ${AT_ONCE} at once`, value: reached, unit: "/s", peer, target: { atLeast: 0.9 } };
}

interface Lag {
  readonly db: Db;
  readonly publish: (n: number) => Promise<string>;
  readonly bench: Bench;
  readonly count: number;
}

/** From the answer of the write to the PubAck, at a steady rate; what was written before is published first. */
async function lag({ db, publish, bench, count }: Lag): Promise<Row> {
  const { natsServer, streams } = await bench.nats();
  const connection = await connect({ servers: natsServer.url });
  await streams.manager.streams.add({ name: "DROPS", subjects: ["drops.>"] });
  const written = new Map<string, number>();
  const acknowledged = new Map<string, number>();
  const store = createOutboxStore(db, "posts");
  const publishEvent = createPublishEvent(createPublisher(connection).publish);
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
  const before = (await streams.manager.streams.info("DROPS")).state.messages;
  for (let n = 0; n < count; n++) {
    const due = performance.now() + PUBLISH_EVERY_MS;
    written.set(await publish(n), due - PUBLISH_EVERY_MS);
    relay.wake();
    await new Promise((resolve) => setTimeout(resolve, Math.max(0, due - performance.now())));
  }
  await drained();
  await relay.close();
  const after = (await streams.manager.streams.info("DROPS")).state.messages;
  const times = [...written].map(([key, at]) => (acknowledged.get(key) ?? Number.NaN) - at);
  check(after - before === count && times.filter(Number.isFinite).length === count, "every event was published once");
  await connection.close();
  const { p50, p95 } = summarise(times);
  return {
    name: `write to PubAck at ${1_000 / PUBLISH_EVERY_MS} drops/s, p50`,
    ...{ value: p50, unit: "ms", note: `p95 ${p95.toFixed(2)} ms` },
  };
}
