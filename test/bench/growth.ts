import { connect as connectHttp2 } from "node:http2";
import type { Redis } from "ioredis";
import { connectionsOfUserKey, homeKey, RECENT_KEY } from "../../src/contracts/keys.js";
import { GetTimelineRequest, GetTimelineResponse } from "../../src/gen/avion/timeline.js";
import { chunked } from "../../src/kernel/concurrency.js";
import { createPublisher } from "../../src/platform/nats/publish.js";
import type { Service } from "../support/service.js";
import { World } from "../support/world.js";
import type { Bench, Servers } from "./support/bench.js";
import { checkHomes, dropIds, fillHomes } from "./support/homes.js";
import { openFrames } from "./support/reads-shared.js";
import { check, type Parameters, type Result, type Row } from "./support/result.js";
import { ask, type Cost, child, costs, publish, receive } from "./support/sse-driver.js";

const SIZES = [1_000, 10_000, 100_000];
const AUDIENCE = 100;
/** Of a timeline; small, so that 100,000 of them fit into memory. */
const ENTRIES = 50;
/** Fewer: trimming goes down to 95 %. */
const PAGE = 40;
/** One of so many users has listened lately: fan-out publishes a notification for them. */
const LISTENING = 10;
const STREAMS = 500;
const AUTHORS = 20;
const DROPS = 1_000;
const READS = 10_000;
const READS_AT_ONCE = 64;
/** With those of all sizes fewer than `NOTIFY` keeps of a user: removing the oldest costs more. */
const EVENT_ROUNDS = 24;
const PATIENCE_MS = 120_000;

const ABOUT = `What an operation costs when there are 1, 10 and 100 times as many users, by one process a role: a drop for ${AUDIENCE}
followers anywhere among them, a first page of ${PAGE} from any home, an event for one of ${STREAMS} open streams. Each user has a full
home of ${ENTRIES} drops and a notification in \`NOTIFY\`; one in ${LISTENING} has listened lately. CPU of all servers together; the
ratio is that to the cost with ${SIZES[0]?.toLocaleString("en")} users.`;

/** None of those with an open stream. */
const userOf = (n: number): string => `home-${n}`;

export async function run(
  { followers = AUDIENCE, posts = DROPS, connections = STREAMS }: Parameters,
  bench: Bench,
): Promise<Result> {
  const world = new World();
  const servers = await bench.servers(world);
  const env = { TIMELINE_MAX_ENTRIES: String(ENTRIES) };
  const [worker, api, gateway] = (await Promise.all(
    ["fanout", "api", "gateway"].map((roles) => bench.service(servers, { roles, env })),
  )) as [Service, Service, Service];
  const stored = { redis: servers.redisServer.pid, nats: servers.natsServer.pid };
  const measures = {
    "fan-out of a drop": createFanout({ servers, world, followers, posts }, { worker: worker.pid, ...stored }),
    "a first page": createReads(bench, api.grpcAddress, { api: api.pid, redis: stored.redis }),
    "an event of a stream": await createEvents(
      { bench, servers, gateway, connections },
      { gateway: gateway.pid, ...stored },
    ),
  };
  const rows: Row[] = [];
  const first = new Map<string, number>();
  let held = 0;
  for (const users of SIZES) {
    await addUsers(servers, held, users);
    held = users;
    for (const [name, measure] of Object.entries(measures)) {
      await measure(users, true);
      const cpu = await measure(users, false);
      const value = Object.values(cpu).reduce((sum, used) => sum + used, 0);
      const peer = first.get(name);
      if (peer === undefined) first.set(name, value);
      rows.push({
        ...{ name: `${users.toLocaleString("en")} users: ${name}`, value, unit: "µs", cpu },
        ...(peer === undefined ? {} : { peer: { name: "the fewest users", value: peer } }),
      });
    }
  }
  return { about: ABOUT, rows };
}

/** Fills homes and `NOTIFY`, and lists those who listen. */
async function addUsers({ redis, streams }: Servers, from: number, to: number): Promise<void> {
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

/** Unmeasured first, so that code is compiled and caches are filled. */
type Measure = (users: number, warm: boolean) => Promise<Cost>;
type Processes = Readonly<Record<string, number>>;

interface Publishing {
  readonly servers: Servers;
  readonly world: World;
  readonly followers: number;
  readonly posts: number;
}

function createFanout({ servers, world, followers, posts }: Publishing, processes: Processes): Measure {
  const { publishAll } = createPublisher(servers.streams.connection);
  let published = 0;
  return async (users, warm) => {
    const authorOf = (number: number): string => `author-${users}-${number % AUTHORS}`;
    const stride = Math.max(1, Math.floor(users / AUTHORS / followers));
    const audiences = Array.from({ length: AUTHORS }, (_, author) =>
      Array.from({ length: followers }, (__, n) => userOf(((author * followers + n) * stride) % users)),
    );
    if (warm)
      for (const [author, some] of audiences.entries()) for (const one of some) world.follow(one, authorOf(author));
    const drops = dropIds(posts, 1_000_000 + published);
    // A millisecond each: of drops of one millisecond a full home holds some only.
    const started = Date.now();
    const spent = costs(processes);
    for (const some of chunked([...drops.entries()], 500)) {
      await publishAll(
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
    }
    published += posts;
    await servers.streams.settledWith(published, PATIENCE_MS);
    const cpu = spent(posts);
    const last = drops.filter((_, number) => number % AUTHORS === 0).slice(-10);
    await checkHomes(servers.redis, audiences[0] as string[], last);
    return cpu;
  };
}

function createReads(bench: Bench, address: string, processes: Processes): Measure {
  const session = connectHttp2(`http://${address}`);
  bench.defer(() => session.destroy());
  const call = openFrames(session, "/avion.TimelineService/GetHomeTimeline");
  return async (users, warm) => {
    const count = warm ? READS / 2 : READS;
    const spent = costs(processes);
    let next = 0;
    const lane = async (): Promise<void> => {
      for (let n = next++; n < count; n = next++) {
        const user_id = userOf((n * 7_919) % users);
        const request = GetTimelineRequest.create({ user_id, limit: PAGE });
        const answer = GetTimelineResponse.decode(await call(GetTimelineRequest.encode(request).finish()));
        check(
          answer.drop_ids.length === PAGE && !answer.degraded,
          `the page of ${user_id} has ${answer.drop_ids.length} drops, degraded: ${answer.degraded}`,
        );
      }
    };
    await Promise.all(Array.from({ length: READS_AT_ONCE }, lane));
    return spent(count);
  };
}

interface Listening {
  readonly bench: Bench;
  readonly servers: Servers;
  readonly gateway: Service;
  readonly connections: number;
}

async function createEvents(
  { bench, servers, gateway, connections }: Listening,
  processes: Processes,
): Promise<Measure> {
  const client = child("sse-client.ts");
  bench.defer(() => client.kill());
  await ask(client, { open: { port: Number(new URL(gateway.httpUrl).port), from: 0, to: connections } });
  let rounds = 0;
  return async (_, warm) => {
    const more = warm ? EVENT_ROUNDS / 4 : EVENT_ROUNDS;
    const spent = costs(processes);
    await receive(client, connections * more, () =>
      publish(servers.streams.connection, { streams: connections, begin: rounds, rounds: more, roundMs: 0 }),
    );
    rounds += more;
    return spent(connections * more);
  };
}
