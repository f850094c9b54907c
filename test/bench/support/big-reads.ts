import { connect } from "node:http2";
import type { Cluster, Redis } from "ioredis";
import { GetTimelineRequest, GetTimelineResponse } from "../../../src/gen/avion/timeline.js";
import { encodeId } from "../../../src/kernel/ids.js";
import { authorKey, FLOOR_MEMBER, homeKey, PULLED_KEY } from "../../../src/state/keys.js";
import type { Service } from "../../support/service.js";
import type { Bench, Servers } from "./bench.js";
import { authorEntries, bigAuthors, type Entry, FOLLOWED, homeEntries, READERS_EACH, readerOf } from "./big-world.js";
import { measured } from "./measure.js";
import { LIMIT, openFrames } from "./reads-shared.js";
import { check, type Row } from "./result.js";

const READS = 4_000;
const AT_ONCE = 32;
const HOUR_MS = 3_600_000;

export type Read = (user: string, limit?: number) => Promise<GetTimelineResponse>;

export function openReads(bench: Bench, { grpcAddress }: Service): Read {
  const session = connect(`http://${grpcAddress}`);
  bench.defer(() => session.destroy());
  const call = openFrames(session, "/avion.TimelineService/GetHomeTimeline");
  return async (user_id, limit = LIMIT) =>
    GetTimelineResponse.decode(
      await call(GetTimelineRequest.encode(GetTimelineRequest.create({ user_id, limit })).finish()),
    );
}

/** First pages of readers of 0, 20 and 200 pulled authors; each answer is compared. */
export async function readCosts({ redis, redisServer }: Servers, api: Service, read: Read): Promise<Row[]> {
  const newest = Date.now() - HOUR_MS;
  await fillReaders(redis, newest);
  const rows: Row[] = [];
  for (const followed of FOLLOWED) {
    const expected = pageOf(followed, newest)
      .map(({ drop }) => drop)
      .join();
    const many = async (count: number): Promise<void> => {
      let next = 0;
      const lane = async (): Promise<void> => {
        for (let n = next++; n < count; n = next++) {
          const { drop_ids, degraded } = await read(readerOf(followed, n));
          check(!degraded && drop_ids.join() === expected, `the page of ${readerOf(followed, n)} is the merged one`);
        }
      };
      await Promise.all(Array.from({ length: AT_ONCE }, lane));
    };
    // The sets of pulled authors are filled, code is compiled.
    await many(READS / 2);
    const processes = { api: api.pid, redis: redisServer.pid };
    const { cpu } = await measured({ processes, units: READS }, () => many(READS));
    const name = `a page of a follower of ${followed} pulled authors`;
    const first = rows[0];
    const value = Object.values(cpu).reduce((sum, used) => sum + used, 0);
    const peer = first && { name: "nobody pulled", value: first.value };
    rows.push({ name, value, unit: "µs", cpu, peer });
  }
  return rows;
}

/** Stores the homes of the readers, and the timelines of the pulled authors. */
export async function fillReaders(
  redis: Redis | Cluster,
  newest: number,
  some: readonly number[] = FOLLOWED,
): Promise<void> {
  const zadd = (key: string, entries: readonly Entry[]): Promise<unknown> =>
    redis.zadd(key, 0, FLOOR_MEMBER, ...entries.flatMap(({ score, drop }) => [score, drop]));
  for (const followed of some)
    for (let n = 0; n < READERS_EACH; n++) await zadd(homeKey(readerOf(followed, n)), homeEntries(newest));
  const now = Date.now();
  for (const [n, author] of bigAuthors().entries()) {
    await zadd(authorKey(author), authorEntries(n, newest));
    await redis.hset(PULLED_KEY, encodeId(author), `pulled:hand:${now}`);
  }
  await redis.hset(PULLED_KEY, "~version", now);
}

/** The first page of a reader of so many pulled authors. */
export function pageOf(followed: number, newest: number, limit = LIMIT): Entry[] {
  const authors = bigAuthors(followed).flatMap((_, n) => authorEntries(n, newest));
  const all = [...homeEntries(newest), ...authors].sort((a, b) => b.score - a.score || (a.drop < b.drop ? 1 : -1));
  return all.slice(0, limit);
}
