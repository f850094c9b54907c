import { fork } from "node:child_process";
import { once } from "node:events";
import { type ClientHttp2Session, connect } from "node:http2";
import type { Redis } from "ioredis";
import { GLOBAL_KEY, homeKey, LOCAL_KEY, TOMBSTONES_KEY } from "../../src/contracts/keys.js";
import { GetTimelineRequest } from "../../src/gen/avion/timeline.js";
import { FLOOR_MEMBER } from "../../src/kernel/ids.js";
import type { Bench } from "./support/bench.js";
import { cpuSeconds } from "./support/measure.js";
import {
  LIMIT,
  openFrames,
  READ_KINDS,
  READERS,
  type ReadKind,
  responseOf,
  timelineOf,
  userOf,
} from "./support/reads-shared.js";
import { check, type Parameters, type Result, type Row } from "./support/result.js";

const ROUNDS = 4;
const ROUND_MS = 2_000;
/** Unmeasured, of each server: compiled code. */
const WARM_CALLS = 5_000;
const DELETED = 1_000;
const TARGETS = { Home: 0.62, Local: 0.9, Global: 0.9 };
const CPU_TARGET = 1.6;

const ABOUT = `First pages of ${LIMIT} from warm timelines of 1,000 drops (ids as long as a UUID), homes of ${READERS} users in turn, against a bare
gRPC server that answers the same bytes. Pages are read again and again, so that the service holds those of homes; in the rows "from Redis" it may
hold none. Rounds of all servers alternate; each answer is compared byte for byte.`;

export async function run({ connections: inFlight = 64 }: Parameters, bench: Bench): Promise<Result> {
  const servers = await bench.servers();
  await fill(servers.redis);
  const service = await bench.service(servers, { roles: "api" });
  const holdsNone = await bench.service(servers, { roles: "api", env: { TIMELINE_READ_CACHE_BYTES: "0" } });
  const bare = fork(new URL("support/reads-bare.ts", import.meta.url), { execArgv: ["--import", "tsx"] });
  bench.defer(() => bare.kill());
  const [port] = (await once(bare, "message")) as [number];
  const open = (address: string): ClientHttp2Session => {
    const session = connect(`http://${address}`);
    bench.defer(() => session.destroy());
    return session;
  };
  const redis = servers.redisServer.pid;
  const own = { session: open(service.grpcAddress), processes: { service: service.pid, redis } };
  const uncached = { session: open(holdsNone.grpcAddress), processes: { service: holdsNone.pid, redis } };
  const peer = { session: open(`127.0.0.1:${port}`), processes: { service: bare.pid as number, redis } };
  const rows: Row[] = [];
  for (const kind of READ_KINDS) {
    const sums = { own: empty(), uncached: empty(), peer: empty() };
    const isHeld = kind === "Home";
    for (const server of isHeld ? [peer, own, uncached] : [peer, own])
      await drive(kind, server, { inFlight, until: (calls) => calls >= WARM_CALLS });
    for (let round = 0; round < ROUNDS; round++) {
      add(sums.peer, await timed(kind, peer, inFlight));
      add(sums.own, await timed(kind, own, inFlight));
      if (isHeld) add(sums.uncached, await timed(kind, uncached, inFlight));
    }
    const targets = { rate: TARGETS[kind], ...(isHeld && { cpu: CPU_TARGET }) };
    rows.push(...rowsOf(`Get${kind}Timeline`, { own: sums.own, peer: sums.peer, targets }));
    if (isHeld)
      rows.push(...rowsOf(`Get${kind}Timeline from Redis`, { own: sums.uncached, peer: sums.peer, targets: {} }));
  }
  return { about: ABOUT, rows };
}

async function fill(redis: Redis): Promise<void> {
  const homes = Array.from({ length: READERS }, (_, reader) => homeKey(userOf(reader)));
  for (const [index, key] of [LOCAL_KEY, GLOBAL_KEY, ...homes].entries())
    await redis.zadd(key, 0, FLOOR_MEMBER, ...timelineOf(index - 2).flatMap(({ score, drop }) => [score, drop]));
  const deleted = Array.from({ length: DELETED }, (_, number) => [Date.now(), `deleted-${number}`]);
  await redis.zadd(TOMBSTONES_KEY, 0, FLOOR_MEMBER, ...deleted.flat());
}

interface Server {
  readonly session: ClientHttp2Session;
  readonly processes: { readonly service: number; readonly redis: number };
}

type Round = Record<"calls" | "seconds" | "service" | "redis", number>;

const empty = (): Round => ({ calls: 0, seconds: 0, service: 0, redis: 0 });

function add(sum: Round, round: Round): void {
  for (const name of Object.keys(sum) as (keyof Round)[]) sum[name] += round[name];
}

async function timed(kind: ReadKind, server: Server, inFlight: number): Promise<Round> {
  const { service, redis } = server.processes;
  const before = [cpuSeconds(service), cpuSeconds(redis)] as const;
  const started = performance.now();
  const end = started + ROUND_MS;
  const calls = await drive(kind, server, { inFlight, until: () => performance.now() >= end });
  const seconds = (performance.now() - started) / 1_000;
  return { calls, seconds, service: cpuSeconds(service) - before[0], redis: cpuSeconds(redis) - before[1] };
}

async function drive(
  kind: ReadKind,
  { session }: Server,
  { inFlight, until }: { readonly inFlight: number; readonly until: (calls: number) => boolean },
): Promise<number> {
  const call = openFrames(session, `/avion.TimelineService/Get${kind}Timeline`);
  const pages = Array.from({ length: READERS }, (_, reader) => ({
    request: GetTimelineRequest.encode(GetTimelineRequest.create({ user_id: userOf(reader), limit: LIMIT })).finish(),
    expected: responseOf(kind, reader),
  }));
  let calls = 0;
  const lane = async (): Promise<void> => {
    while (!until(calls)) {
      const { request, expected } = pages[calls++ % READERS] as (typeof pages)[number];
      check(expected.equals(await call(request)), "each page is the expected one");
    }
  };
  await Promise.all(Array.from({ length: inFlight }, lane));
  return calls;
}

interface Compared {
  readonly own: Round;
  readonly peer: Round;
  readonly targets: { readonly rate?: number; readonly cpu?: number };
}

function rowsOf(name: string, { own, peer, targets }: Compared): Row[] {
  const rate = ({ calls, seconds }: Round): number => calls / seconds;
  const each = ({ calls }: Round, cpu: number): number => (1e6 * cpu) / calls;
  const cpu = { service: each(own, own.service), redis: each(own, own.redis) };
  return [
    {
      ...{ name, value: rate(own), unit: "/s", cpu, peer: { name: "bare server", value: rate(peer) } },
      ...(targets.rate && { target: { atLeast: targets.rate } }),
    },
    {
      ...{ name: `${name}: CPU of the service`, value: cpu.service, unit: "µs" },
      peer: { name: "bare server", value: each(peer, peer.service) },
      ...(targets.cpu && { target: { atMost: targets.cpu } }),
    },
  ];
}
