import { readdirSync, readFileSync } from "node:fs";
import { Visibility } from "../../../src/gen/avion/posts.js";
import { mapLimited } from "../../../src/kernel/concurrency.js";
import { silent } from "../../../src/kernel/logger.js";
import { createOutboxStore } from "../../../src/outbox/store.sql.js";
import type { Db } from "../../../src/platform/db/db.js";
import { migrate } from "../../../src/platform/db/migrate.js";
import { openPostgres } from "../../../src/platform/db/postgres.js";
import { createDropIds } from "../../../src/posts/drops/ids.js";
import { createPostsStore } from "../../../src/posts/store.sql.js";
import { MIGRATIONS } from "../../../src/roles/database.js";
import type { Bench } from "./bench.js";
import { cpuSeconds } from "./measure.js";
import type { Row } from "./result.js";

const DROPS = 20_000;
const FOLLOWS = 200_000;
const AT_ONCE = 64;
/** As a relay claims them. */
const CLAIMED = 500;
const LEASE_MS = 10_000;
const BODY = 200;

const SIZE = `SELECT sum(pg_total_relation_size(c.oid))::bigint AS bytes FROM pg_class c
  JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relkind IN ('r', 'm')`;

/** Tables with their indexes and nothing deleted; an event leaves the outbox, and is not counted. */
export async function bytesInPostgres(bench: Bench): Promise<Row[]> {
  const server = await bench.postgres({ fsync: false });
  const db = openPostgres({ url: server.url, poolSize: AT_ONCE, name: "bench" }, silent);
  try {
    await migrate(db, MIGRATIONS, silent);
    const grown = async (schema: string, work: () => Promise<unknown>): Promise<number> => {
      const sized = async () => (await db.query<{ bytes: number }>(SIZE, [schema]))[0]?.bytes ?? 0;
      const before = await sized();
      await work();
      return (await sized()) - before;
    };
    const { drops } = createPostsStore(db);
    const nextId = createDropIds();
    const create = async (n: number): Promise<void> => {
      const [drop_id, user_id] = [nextId(Date.now()), nextId(n)];
      const event = { owner: user_id, key: drop_id, subject: "drops.created", messageId: drop_id, body: "{}" };
      const drop = { drop_id, user_id, reply_to: "", summary: "", body: "x".repeat(BODY) };
      await drops.create({
        ...{ drop: { ...drop, visibility: Visibility.PUBLIC, recipients: [] }, idempotencyKey: "", replied: undefined },
        created: { ...event, traceparent: undefined },
      });
    };
    const writeAll = () => mapLimited([...Array(DROPS).keys()], AT_ONCE, create);
    const ofDrops = await grown("posts", writeAll);
    await pruneAll(db);
    const spent = await cpuSecondsOf(db, async () => {
      await writeAll();
      await pruneAll(db);
    });
    const ofFollows = await grown("users", () => db.run(FOLLOW));
    return [
      {
        name: "PostgreSQL: CPU of a drop and its event, until the event is pruned",
        ...{ value: (1e6 * spent) / DROPS, unit: "µs" },
      },
      { name: `PostgreSQL: a drop of ${BODY} characters`, value: ofDrops / DROPS, unit: "B" },
      { name: "PostgreSQL: a follow, in both lists", value: ofFollows / FOLLOWS, unit: "B" },
    ];
  } finally {
    await db.close();
  }
}

/** Claims all events, marks them as published, and prunes them. */
async function pruneAll(db: Db): Promise<void> {
  const store = createOutboxStore(db, "posts");
  for (let claimed = [{ id: 0 }]; claimed.length > 0; ) {
    claimed = await store.claim(CLAIMED, LEASE_MS);
    await store.markPublished(claimed.map(({ id }) => id));
  }
  for (let pruned = CLAIMED; pruned === CLAIMED; ) pruned = await store.prune(0, CLAIMED);
}

/** It is undefined where the process has ended. */
function parentOf(pid: number): number | undefined {
  try {
    return Number(/^PPid:\s*(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]);
  } catch {
    return undefined;
  }
}

/** CPU time of the server with all of its processes: the sessions of the pool stay. */
async function cpuSecondsOf(db: Db, work: () => Promise<unknown>): Promise<number> {
  const [session] = await db.query<{ pid: number }>("SELECT pg_backend_pid() AS pid");
  const server = parentOf(session?.pid as number);
  const all = (): number =>
    readdirSync("/proc")
      .filter((name) => /^\d+$/.test(name))
      .map(Number)
      .filter((pid) => pid === server || parentOf(pid) === server)
      .reduce((sum, pid) => sum + cpuSeconds(pid), 0);
  const before = all();
  await work();
  return all() - before;
}

/** 2,000 users follow 100 each; ids as long as a UUID, in no order. */
const FOLLOW = `
  INSERT INTO users.followings (follower_id, following_id, version, active, changed_at)
  SELECT md5(n::text) || 'aaaa', md5((n * 31 + m)::text) || 'bbbb', 1, true, n
  FROM generate_series(1, 2000) AS n, generate_series(1, 100) AS m;
  INSERT INTO users.followers (following_id, follower_id, version, active, delta, changed_at)
  SELECT following_id, follower_id, 1, true, 1, changed_at FROM users.followings;`;
