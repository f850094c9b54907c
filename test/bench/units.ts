import type { Redis } from "ioredis";
import { homeKey, RECENT_KEY } from "../../src/contracts/keys.js";
import { chunked } from "../../src/kernel/concurrency.js";
import { encodeId } from "../../src/kernel/ids.js";
import { createDropIds } from "../../src/posts/ids.js";
import type { Bench } from "./support/bench.js";
import { measured } from "./support/measure.js";
import type { Parameters, Result, Row } from "./support/result.js";
import { ofTheCluster } from "./support/units-cluster.js";
import { bytesInPostgres } from "./support/units-postgres.js";

const HOMES = 400;
const ENTRIES = 1_000;
const PULLS = 20_000;
/** Big authors a reader follows. */
const PULLED = 32;
const LISTENERS = 1_000_000;
const LOOKS = 2_000;
const LOOKS_A_CALL = 1_000;
const newest = Date.now() - 1_000 * ENTRIES;

const ABOUT = `Costs that [capacity.md](../capacity.md) uses and no other benchmark measures. The Redis Cluster has three masters; each home is a call of its own and
gets one drop at a time. Each role is one process.`;

export async function run({ followers, posts }: Parameters, bench: Bench): Promise<Result> {
  const { redis, redisServer } = await bench.redis();
  const rows: Row[] = [];
  rows.push(await bytesOfEntry(redis));
  await redis.flushall();
  rows.push(await bytesOfPulls(redis));
  await redis.flushall();
  rows.push(await looks(redis, redisServer.pid));
  rows.push(...(await bytesInPostgres(bench)));
  rows.push(...(await ofTheCluster(bench, { followers, posts })));
  return { about: ABOUT, rows };
}

async function grown(redis: Redis, work: () => Promise<void>): Promise<number> {
  const used = async (): Promise<number> => Number(/used_memory:(\d+)/.exec(await redis.info("memory"))?.[1]);
  const before = await used();
  await work();
  return (await used()) - before;
}

async function bytesOfEntry(redis: Redis): Promise<Row> {
  const idOf = createDropIds();
  const bytes = await grown(redis, async () => {
    for (let home = 0; home < HOMES; home++) {
      const drops = Array.from({ length: ENTRIES }, (_, n) => [newest + 1_000 * n, idOf(newest + 1_000 * n)]);
      await redis.zadd(homeKey(`user-${home}`), 0, "~floor", ...drops.flat());
    }
  });
  return { name: "Redis: an entry of a home of 1,000", value: bytes / (HOMES * ENTRIES), unit: "B" };
}

async function bytesOfPulls(redis: Redis): Promise<Row> {
  const idOf = createDropIds();
  const authors = Array.from({ length: 10 * PULLED }, () => encodeId(idOf(newest)));
  const bytes = await grown(redis, async () => {
    for (const some of chunked([...Array(PULLS).keys()], 500)) {
      const pipeline = redis.pipeline();
      for (const user of some) {
        const members = Array.from({ length: PULLED }, (_, n) => authors[(user + 7 * n) % authors.length] as string);
        pipeline.sadd(`timeline:x:pulls:{${homeKey(`user-${user}`)}}`, "~complete", ...members);
      }
      await pipeline.exec();
    }
  });
  return { name: `Redis: an author in a reader's pulls of ${PULLED}`, value: bytes / (PULLS * PULLED), unit: "B" };
}

async function looks(redis: Redis, pid: number): Promise<Row> {
  const users = Array.from({ length: LISTENERS }, (_, n) => `listener-${String(n).padStart(8, "0")}`);
  for (const some of chunked(users, 5_000)) await redis.zadd(RECENT_KEY, ...some.flatMap((user) => [Date.now(), user]));
  const units = LOOKS * LOOKS_A_CALL;
  const { cpu } = await measured({ processes: { redis: pid }, units }, async () => {
    for (let n = 0; n < LOOKS; n++) {
      const asked = Array.from(
        { length: LOOKS_A_CALL },
        (_, at) => users[(n * 7_919 + at * 104_729) % LISTENERS] as string,
      );
      await redis.zmscore(RECENT_KEY, ...asked);
    }
  });
  return { name: "Redis: a look for a listener among a million", value: cpu["redis"] as number, unit: "µs" };
}
