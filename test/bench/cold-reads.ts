import { readFileSync } from "node:fs";
import { cpus } from "node:os";
import { mapLimited } from "../../src/kernel/concurrency.js";
import { openUpstreamChannels } from "../../src/platform/grpc/upstreams.js";
import { privateNats, privateRedis } from "../support/brokers.js";
import { openReader, type Reader } from "../support/reader.js";
import { type Service, startService } from "../support/service.js";
import { startUpstreams, type Upstreams } from "../support/upstreams.js";
import { World } from "../support/world.js";
import { check, type Line, print } from "./measure.js";

const LATENCY_MS = 20;
const AT_ONCE = 128;
const DROPS = 20;
const PATIENCE_MS = 300_000;
const USER_HZ = 100;

/** Cold home timelines read at once, against the bare upstream calls they are made of. */
export async function run(): Promise<void> {
  console.log(`${cpus().length} x ${cpus()[0]?.model}, Node ${process.version}`);
  const redis = await privateRedis();
  const nats = await privateNats();
  const world = new World();
  const upstreams = await startUpstreams(world);
  upstreams.inject({ method: "GetDropsByUserID", delayMs: LATENCY_MS });
  const service = await startService({
    ...{ redisUrl: redis.url, natsUrl: nats.url, roles: "api" },
    ...{ usersAddress: upstreams.usersAddress, postsAddress: upstreams.postsAddress },
    env: { TIMELINE_READ_DEADLINE_MAX_MS: String(PATIENCE_MS), NODE_OPTIONS: "--max-old-space-size=256" },
  });
  const reads = openReader(service.grpcAddress);
  const scene = { world, upstreams, service, reads };
  const lines: Line[] = [];
  for (const [readers, followings] of [
    [1, 1_500],
    [12, 1_500],
    [200, 150],
    [8, 7_500],
  ] as const)
    lines.push(await coldReads(scene, readers, followings));
  print(`Cold home timelines, upstream latency ${LATENCY_MS} ms, heap of the service 256 MB`, lines);
  reads.close();
  await service.stop();
  await upstreams.stop();
  await nats.stop();
  await redis.stop();
}

interface Scene {
  readonly world: World;
  readonly upstreams: Upstreams;
  readonly service: Service;
  readonly reads: Reader;
}

async function coldReads(scene: Scene, readers: number, followings: number): Promise<Line> {
  const { world, reads, service, upstreams } = scene;
  const name = `${readers}x${followings}`;
  const authors = Array.from({ length: followings }, (_, number) => `author-${name}-${number}`);
  for (const user_id of authors)
    for (let age = 0; age < DROPS; age++)
      world.post({ drop_id: `${user_id}-${age}`, user_id, created_at: Date.now() - 1_000 * age });
  const users = Array.from({ length: readers }, (_, number) => `reader-${name}-${number}`);
  for (const user of users) for (const author of authors) world.follow(user, author);
  const bare = await bareCalls(upstreams, authors);
  const [cpu, calls] = [cpuSeconds(service.pid), upstreams.calls("GetDropsByUserID")];
  const begun = performance.now();
  const times = await Promise.all(
    users.map(async (user) => {
      const page = await reads.home(user, { limit: 20 }, PATIENCE_MS);
      check(!page.degraded && page.drop_ids.length === 20, "every page is whole");
      return performance.now() - begun;
    }),
  );
  times.sort((a, b) => a - b);
  const made = upstreams.calls("GetDropsByUserID") - calls;
  const used = cpuSeconds(service.pid) - cpu;
  const [p50, p99, last] = [0.5, 0.99, 1].map((share) => times[Math.ceil(times.length * share) - 1] ?? 0) as [
    number,
    number,
    number,
  ];
  return {
    what: `${readers} at once, ${followings.toLocaleString("en")} followings each`,
    value: `p50 ${inSeconds(p50)}, p99 ${inSeconds(p99)}, last ${inSeconds(last)}; ${made} calls, ${((1e6 * used) / made).toFixed(0)} µs of CPU each`,
    ratio: `${(last / (bare * made)).toFixed(1)} x the bare calls' ${inSeconds(bare * made)}, ${AT_ONCE} at once`,
  };
}

const inSeconds = (ms: number): string => `${(ms / 1_000).toFixed(2)} s`;

/** The mean time a bare call takes, with as many at once as the service makes, in ms. */
async function bareCalls({ usersAddress, postsAddress }: Upstreams, authors: readonly string[]): Promise<number> {
  const channels = openUpstreamChannels({ userServiceAddr: usersAddress, postServiceAddr: postsAddress, tls: {} });
  const client = channels.upstreams();
  const asked = authors.slice(0, 1_500);
  const begun = performance.now();
  await mapLimited(asked, AT_ONCE, (user_id) => client.dropsByUser({ user_id, limit: 10, max_id: "", before: 0 }));
  const took = performance.now() - begun;
  channels.close();
  return took / asked.length;
}

/** User and system time of a process so far, in seconds. */
function cpuSeconds(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1]?.split(" ") ?? [];
  return (Number(fields[11]) + Number(fields[12])) / USER_HZ;
}
