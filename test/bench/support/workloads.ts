import { connect } from "node:http2";
import type { Redis } from "ioredis";
import { GetTimelineRequest, GetTimelineResponse } from "../../../src/gen/avion/timeline.js";
import { chunked } from "../../../src/kernel/concurrency.js";
import { createPublisher } from "../../../src/platform/nats/publish.js";
import { connectionsOfUserKey, homeKey, RECENT_KEY } from "../../../src/state/keys.js";
import type { Service } from "../../support/service.js";
import type { World } from "../../support/world.js";
import type { Bench, Servers } from "./bench.js";
import { checkHomes, dropIds, fillHomes } from "./homes.js";
import { measured } from "./measure.js";
import { openFrames } from "./reads-shared.js";
import { check } from "./result.js";
import { ask, child, publish, receive } from "./sse-driver.js";

/** Of a timeline; small, so that 100,000 of them fit into memory. */
export const ENTRIES = 50;
/** Fewer: trimming goes down to 95 %. */
export const PAGE = 40;
/** One of so many users has listened lately: fan-out publishes a notification for them. */
export const LISTENING = 10;
const AUTHORS = 20;
/** Between one user and the next that is asked for. Has no divisor in common with a size, so that any audience has as many listeners. */
const APART = 7_919;
const READS = 10_000;
const READS_AT_ONCE = 64;
/** With those of all sizes fewer than `NOTIFY` keeps of a user: removing the oldest costs more. */
const EVENT_ROUNDS = 24;
const PATIENCE_MS = 120_000;

/** None of those with an open stream. */
const userOf = (n: number): string => `home-${n}`;

/** Fills homes and `NOTIFY`, and lists those who listen. */
export async function addUsers({ redis, streams }: Servers, from: number, to: number): Promise<void> {
  const users = Array.from({ length: to - from }, (_, n) => userOf(from + n));
  await fillHomes(redis, users, { entries: ENTRIES });
  for (const some of chunked(users, 1_000)) {
    const pipeline = redis.pipeline();
    // A time to live would tell when each was read last.
    for (const user of some) pipeline.persist(homeKey(user));
    await pipeline.exec();
  }
  await listening(
    redis,
    users.filter((_, n) => n % LISTENING === 0),
  );
  const { publishAll } = createPublisher(streams.connection);
  const body = Buffer.from(JSON.stringify({ event: "drop_deleted", drop_id: "d" }));
  for (const some of chunked(users, 1_000))
    await publishAll(some.map((user) => ({ subject: `notify.user.${user}`, id: `begin:${user}`, body })));
}

async function listening(redis: Redis, users: readonly string[]): Promise<void> {
  for (const some of chunked(users, 1_000)) {
    const pipeline = redis.pipeline().zadd(RECENT_KEY, ...some.flatMap((user) => [Date.now(), user]));
    for (const user of some) pipeline.sadd(connectionsOfUserKey(user), `elsewhere.${user}`);
    await pipeline.exec();
  }
}

interface Measured {
  readonly seconds: number;
  /** µs a unit of work, by process. */
  readonly cpu: Readonly<Record<string, number>>;
  readonly units: number;
}

/** Warms up first: code is compiled, and caches are filled. */
export type Measure = (users: number, warm: boolean) => Promise<Measured>;
type Processes = Readonly<Record<string, number>>;

interface Publishing {
  readonly servers: Servers;
  readonly world: World;
  readonly followers: number;
  readonly posts: number;
}

/** The drops of some authors, for followers anywhere among the users. */
export function createFanout({ servers, world, followers, posts }: Publishing, processes: Processes): Measure {
  const { publishAll } = createPublisher(servers.streams.connection);
  return async (users, warm) => {
    const before = await servers.streams.count("DROPS");
    const authorOf = (number: number): string => `author-${users}-${number % AUTHORS}`;
    const audiences = Array.from({ length: AUTHORS }, (_, author) =>
      Array.from({ length: followers }, (__, n) => userOf(((author * followers + n) * APART) % users)),
    );
    if (warm)
      for (const [author, some] of audiences.entries()) for (const one of some) world.follow(one, authorOf(author));
    const drops = dropIds(posts, 1_000_000 + before);
    // A millisecond each: of drops of one millisecond a full home holds some only.
    const started = Date.now();
    const publishSome = (some: readonly [number, string][]) =>
      publishAll(
        some.map(([number, id]) => ({
          ...{ subject: "drops.created", id: `drop_created:${id}` },
          body: Buffer.from(
            JSON.stringify({
              drop_id: id,
              user_id: authorOf(number),
              visibility: "followers",
              created_at: started + number,
            }),
          ),
        })),
      );
    const spent = await measured({ processes, units: posts }, async () => {
      for (const some of chunked([...drops.entries()], 500)) await publishSome(some);
      await servers.streams.settledWith(before + posts, PATIENCE_MS);
    });
    const last = drops.filter((_, number) => number % AUTHORS === 0).slice(-10);
    await checkHomes(servers.redis, audiences[0] as string[], last);
    return { ...spent, units: posts };
  };
}

/** First pages of all homes, from several processes in turn. */
export function createReads(bench: Bench, apis: readonly Service[], processes: Processes): Measure {
  const calls = apis.map(({ grpcAddress }) => {
    const session = connect(`http://${grpcAddress}`);
    bench.defer(() => session.destroy());
    return openFrames(session, "/avion.TimelineService/GetHomeTimeline");
  });
  return async (users, warm) => {
    const count = warm ? READS / 2 : READS;
    let next = 0;
    const lane = async (): Promise<void> => {
      for (let n = next++; n < count; n = next++) {
        const user_id = userOf((n * APART) % users);
        const request = GetTimelineRequest.create({ user_id, limit: PAGE });
        const call = calls[n % calls.length] as (typeof calls)[number];
        const answer = GetTimelineResponse.decode(await call(GetTimelineRequest.encode(request).finish()));
        check(
          answer.drop_ids.length === PAGE && !answer.degraded,
          `the page of ${user_id} has ${answer.drop_ids.length} drops, degraded: ${answer.degraded}`,
        );
      }
    };
    const work = () => Promise.all(Array.from({ length: READS_AT_ONCE }, lane));
    return { ...(await measured({ processes, units: count }, work)), units: count };
  };
}

interface Listening {
  readonly bench: Bench;
  readonly servers: Servers;
  readonly gateways: readonly Service[];
  readonly connections: number;
}

/** Events of as many streams, spread over several processes. */
export async function createEvents(
  { bench, servers, gateways, connections }: Listening,
  processes: Processes,
): Promise<Measure> {
  const client = child("sse-client.ts");
  bench.defer(() => client.kill());
  const share = connections / gateways.length;
  for (const [n, { httpUrl }] of gateways.entries())
    await ask(client, { open: { port: Number(new URL(httpUrl).port), from: n * share, to: (n + 1) * share } });
  let rounds = 0;
  return async (_, warm) => {
    const more = warm ? EVENT_ROUNDS / 4 : EVENT_ROUNDS;
    const units = connections * more;
    const sending = { streams: connections, begin: rounds, rounds: more, roundMs: 0 };
    rounds += more;
    const spent = await measured({ processes, units }, () =>
      receive(client, units, () => publish(servers.streams.connection, sending)),
    );
    return { ...spent, units };
  };
}
