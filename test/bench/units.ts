import type { Redis } from "ioredis";
import { chunked, grouped } from "../../src/kernel/concurrency.js";
import { encodeId } from "../../src/kernel/ids.js";
import { silent } from "../../src/kernel/logger.js";
import { followClock } from "../../src/platform/redis/clock.js";
import { connectRedis } from "../../src/platform/redis/connect.js";
import { createScripts } from "../../src/platform/redis/scripts.js";
import { createDropIds } from "../../src/posts/drops/ids.js";
import { homeKey, listenerPart, recentKey } from "../../src/state/keys.js";
import { createListenersAmong } from "../../src/state/listeners/listening.redis.js";
import type { Bench } from "./support/bench.js";
import { measured } from "./support/measure.js";
import { check, type Parameters, type Result, type Row } from "./support/result.js";
import { bytesInNats } from "./support/units-nats.js";
import { bytesInPostgres } from "./support/units-postgres.js";

const HOMES = 400;
const ENTRIES = 1_000;
const PULLS = 20_000;
/** Big authors a reader follows. */
const PULLED = 32;
const LISTENERS = 1_000_000;
const LOOKS = 2_000;
const LOOKS_AT_ONCE = 1_000;
/** One of so many followers listens at peak. */
const FOLLOWERS_A_LISTENER = 34;
const newest = Date.now() - 1_000 * ENTRIES;

const ABOUT = `Costs that [capacity.md](../../../docs/capacity.md) uses and no other benchmark measures. Each role is one process.`;

export async function run(_: Parameters, bench: Bench): Promise<Result> {
  const { redis } = await bench.redis();
  const rows: Row[] = [];
  rows.push(await bytesOfEntry(redis));
  await redis.flushall();
  rows.push(await bytesOfPulls(redis));
  await redis.flushall();
  rows.push(await looks(bench));
  rows.push(...(await bytesInPostgres(bench)));
  rows.push(...(await bytesInNats(bench)));
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

/** As fan-out looks: in a Cluster for some users of a part at a time. */
async function looks(bench: Bench): Promise<Row> {
  const { redis, masters, redisServer } = await bench.redisCluster();
  const client = connectRedis(redisServer.url.split(","), silent);
  bench.defer(() => client.disconnect());
  const users = Array.from({ length: LISTENERS }, (_, n) => `listener-${String(n).padStart(8, "0")}`);
  for (const some of chunked(users, 5_000)) {
    const pipelines = [...grouped(some, (user) => recentKey(listenerPart(user, true)))].map(([key, all]) =>
      redis.zadd(key, ...all.flatMap((user) => [Date.now(), user])),
    );
    await Promise.all(pipelines);
  }
  const scripts = createScripts(client);
  const clock = followClock(scripts);
  bench.defer(() => clock.close());
  const among = createListenersAmong(scripts, clock);
  const processes = Object.fromEntries(masters.map(({ pid }, n) => [n, pid]));
  const { cpu } = await measured({ processes, units: LOOKS * LOOKS_AT_ONCE }, async () => {
    for (let n = 0; n < LOOKS; n++) {
      const asked = Array.from(
        { length: LOOKS_AT_ONCE },
        (_, at) =>
          (at % FOLLOWERS_A_LISTENER === 0 ? users[(n * 7_919 + at * 104_729) % LISTENERS] : `away-${at}`) as string,
      );
      check((await among([asked])) !== undefined, "the listeners are found");
    }
  });
  const value = Object.values(cpu).reduce((sum, spent) => sum + spent, 0);
  return { name: "Redis Cluster: a look for a listener among a million", value, unit: "µs" };
}
