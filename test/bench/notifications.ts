import pg from "pg";
import { ACTIVITY_SUBJECT_OF } from "../../src/contracts/activity.js";
import { STREAM } from "../../src/contracts/subjects.js";
import { chunked } from "../../src/kernel/concurrency.js";
import { AppError } from "../../src/kernel/errors.js";
import { encodeId } from "../../src/kernel/ids.js";
import { createPublisher } from "../../src/platform/nats/publish.js";
import { RECENT_KEY } from "../../src/state/keys.js";
import { eventually } from "../support/eventually.js";
import type { Bench, Servers } from "./support/bench.js";
import { between, measured } from "./support/measure.js";
import { check, type Parameters, type Result } from "./support/result.js";

const LIKES = 20_000;
const PEOPLE = 5_000;
const AT_ONCE = 500;
const PATIENCE_MS = 300_000;
const TARGETS = { rate: 2_000 };

const about = (
  people: number,
): string => `Likes from ACTIVITY into PostgreSQL by one worker: of the drops of ${people.toLocaleString("en")} people in turn, who listen to no stream, then of one drop of a star who
does. The peer inserts as many rows with one index, ${AT_ONCE} a statement. PostgreSQL commits without fsync.`;

export async function run({ users: people = PEOPLE, posts: likes = LIKES }: Parameters, bench: Bench): Promise<Result> {
  const servers = await bench.servers();
  const postgres = await bench.postgres({ fsync: false });
  const db = new pg.Pool({ connectionString: postgres.url, max: 2 });
  // The server may end a connection before the pool does.
  db.on("error", () => undefined);
  bench.defer(() => db.end());
  const worker = await bench.service(servers, { roles: "notifications", env: { DATABASE_URL: postgres.url } });
  const processes = { worker: worker.pid, redis: servers.redisServer.pid, nats: servers.natsServer.pid };
  const measure = (drops: number, prefix: string) =>
    measured({ processes, units: likes }, async () => {
      await like(servers, { likes, drops, prefix });
      const counted = `SELECT count(*)::int AS rows FROM notifications WHERE drop_id LIKE '${prefix}%' AND state = 1`;
      const rows = async () => (await db.query<{ rows: number }>(counted)).rows[0]?.rows;
      await eventually(async () => (await rows()) === likes, `${likes} rows`, PATIENCE_MS);
    });
  await measure(people, "warm");
  const [inserts, many] = await between(
    () => bareInserts(db, likes),
    () => measure(people, "many"),
  );
  await servers.redis.zadd(RECENT_KEY, Date.now() + PATIENCE_MS, encodeId("owner-star0"));
  const star = await measure(1, "star");
  const told = await eventsOf(servers, "owner-star0");
  check(told.length <= Math.ceil(star.seconds) + 2, `the star got ${told.length} events in ${star.seconds} s`);
  const peer = { name: "bare inserts", value: inserts };
  return {
    about: about(people),
    rows: [
      {
        ...{ name: "likes of many people's drops", value: likes / many.seconds, unit: "/s", peer, cpu: many.cpu },
        target: { atLeast: TARGETS.rate, of: "value" },
      },
      { name: "likes of a star's drop", value: likes / star.seconds, unit: "/s", peer, cpu: star.cpu },
    ],
  };
}

async function like(
  { streams }: Servers,
  { likes, drops, prefix }: { readonly likes: number; readonly drops: number; readonly prefix: string },
): Promise<void> {
  const { publishAll } = createPublisher(streams.connection);
  const bodies = Array.from({ length: likes }, (_, number) => {
    const drop_id = `${prefix}${number % drops}`;
    return { drop_id, author_id: `owner-${drop_id}`, user_id: `fan${number}`, kind: "like", active: true, version: 1 };
  });
  const subject = ACTIVITY_SUBJECT_OF.drop_reacted;
  for (const part of chunked(bodies, AT_ONCE)) {
    const likesOf = part.map((body) => ({
      subject,
      id: `${body.drop_id}:${body.user_id}`,
      body: JSON.stringify(body),
    }));
    const stored = await publishAll(likesOf);
    check(!stored.some((ack) => ack instanceof AppError), "ACTIVITY takes each like");
  }
}

async function bareInserts(db: pg.Pool, rows: number): Promise<number> {
  await db.query("DROP TABLE IF EXISTS bare");
  await db.query(
    "CREATE TABLE bare (drop_id text, user_id text, actor_id text, PRIMARY KEY (drop_id, user_id, actor_id))",
  );
  const all = Array.from({ length: rows }, (_, n) => ({
    drop_id: `d${n % PEOPLE}`,
    user_id: `o${n % PEOPLE}`,
    actor_id: `f${n}`,
  }));
  const started = performance.now();
  for (const part of chunked(all, AT_ONCE))
    await db.query("INSERT INTO bare SELECT * FROM json_populate_recordset(NULL::bare, $1::json)", [
      JSON.stringify(part),
    ]);
  return (1_000 * rows) / (performance.now() - started);
}

async function eventsOf({ streams }: Servers, user: string): Promise<string[]> {
  const { subjects = {} } = (
    await (
      await streams.connection.jetstreamManager()
    ).streams.info(STREAM.notify, { subjects_filter: `notify.user.${encodeId(user)}` })
  ).state;
  return Object.values(subjects).flatMap((count) => Array.from({ length: count }, () => user));
}
