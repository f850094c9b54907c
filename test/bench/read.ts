import { fork } from "node:child_process";
import { once } from "node:events";
import { type ClientHttp2Session, connect } from "node:http2";
import type { Redis } from "ioredis";
import { bylineText } from "../../src/contracts/timelines.js";
import { bylinesKey, FLOOR_MEMBER, GLOBAL_KEY, homeKey, LOCAL_KEY, TOMBSTONES_KEY } from "../../src/state/keys.js";
import { REPOST_WINDOW } from "../support/reposts-once.js";
import { MAIN } from "../support/service.js";
import type { Bench } from "./support/bench.js";
import { cpuSeconds, summarise } from "./support/measure.js";
import {
  askedPage,
  type Drive,
  drivePages,
  isOfReposts,
  LIMIT,
  openFrames,
  READ_KINDS,
  READERS,
  READY_LOCAL_KEY,
  type ReadKind,
  type RepostKind,
  repostsOf,
  responseOf,
  timelineOf,
  userOf,
} from "./support/reads-shared.js";
import type { Parameters, Result, Row } from "./support/result.js";
import { SETTLE } from "./support/sse-driver.js";

/** Of each server. */
const PROCESSES = 3;
const ROUNDS = 4;
const ROUND_MS = 700;
/** Unmeasured, of each process: compiled code. */
const WARM_CALLS = 5_000;
/** Unmeasured, too, while garbage is collected. */
const SETTLING_MS = 500;
const DELETED = 1_000;
const TARGETS = { Home: 0.62, Local: 0.9, Global: 0.9 };
const CPU_TARGET = 1.6;

const ABOUT = `First pages of ${LIMIT} from timelines of 1,000 drops, of ${READERS} homes in turn. Pages of homes are cached; "from Redis": without the cache. The peer
is a bare gRPC server that answers the same bytes. The bound also checks the request, asks Redis once for all calls of a turn of the event
loop, keeps the deadline, and counts and times the call. Each server runs in ${PROCESSES} processes; figures are those of the median, after a full
garbage collection. Ids are as long as a UUID. A third of the entries of homes with reposts are reposts, three of each drop: with a window of ${REPOST_WINDOW} places a page shows one of them and
names all who reposted, with one of 0 all.`;

export async function run(
  { connections: inFlight = 64, workers = PROCESSES, turns = ROUNDS }: Parameters,
  bench: Bench,
): Promise<Result> {
  const servers = await bench.servers();
  await fill(servers.redis);
  const redis = servers.redisServer.pid;
  const serverOf = (service: number, address: string): Server => {
    const session = connect(`http://${address}`);
    bench.defer(() => session.destroy());
    return { session, processes: { service, redis }, sum: empty() };
  };
  const startOwn = async (env: Readonly<Record<string, string>> = {}): Promise<Server> => {
    const command = ["--expose-gc", "--import", SETTLE, MAIN, "serve"];
    const { pid, grpcAddress } = await bench.service(servers, { roles: "api", env, command });
    return serverOf(pid, grpcAddress);
  };
  const startPeer = async (...args: readonly string[]): Promise<Server> => {
    const execArgv = ["--expose-gc", "--import", SETTLE, "--import", "tsx"];
    const bare = fork(new URL("support/reads-bare.ts", import.meta.url), args, { execArgv });
    bench.defer(() => bare.kill());
    const [port] = (await once(bare, "message")) as [number];
    return serverOf(bare.pid as number, `127.0.0.1:${port}`);
  };
  const peer = await several(workers, () => startPeer());
  const bound = await several(workers, () => startPeer(servers.redisServer.url));
  const own = await several(workers, () => startOwn());
  const uncached = await several(workers, () => startOwn(UNCACHED));
  const rows: Row[] = [];
  for (const kind of READ_KINDS) {
    const isHeld = kind === "Home";
    const others = { Home: [uncached], Local: [bound], Global: [] }[kind];
    await measure(kind, [peer, own, ...others], { inFlight, turns });
    const bare = medianOf(peer);
    const targets = { rate: TARGETS[kind], ...(isHeld && { cpu: CPU_TARGET }) };
    rows.push(...rowsOf(`Get${kind}Timeline`, { own: medianOf(own), peer: bare, targets }));
    if (isHeld)
      rows.push(...rowsOf(`Get${kind}Timeline from Redis`, { own: medianOf(uncached), peer: bare, targets: {} }));
    if (kind === "Local")
      rows.push(...rowsOf("GetLocalTimeline, bound", { own: medianOf(bound), peer: bare, targets: {} }));
  }
  rows.push(...(await repostRows("Once", { peer, own, uncached }, { inFlight, turns })));
  const all = {
    own: await several(workers, () => startOwn(ALL_REPOSTS)),
    uncached: await several(workers, () => startOwn({ ...UNCACHED, ...ALL_REPOSTS })),
  };
  rows.push(...(await repostRows("All", { peer, ...all }, { inFlight, turns })));
  rows.push(await itemlessRow(peer, { inFlight, turns }));
  return { about: ABOUT, rows };
}

const UNCACHED = { TIMELINE_READ_CACHE_BYTES: "0" };
const ALL_REPOSTS = { TIMELINE_HOME_REPOST_WINDOW: "0" };

type Group = "peer" | "own" | "uncached";

/** Homes with reposts, of which pages show each drop once or all reposts, from the cache and from Redis. */
async function repostRows(
  kind: "Once" | "All",
  { peer, own, uncached }: Readonly<Record<Group, readonly Server[]>>,
  how: How,
): Promise<Row[]> {
  await measure(kind, [peer, own, uncached], how);
  const name = `GetHomeTimeline, reposts, window ${kind === "Once" ? REPOST_WINDOW : 0}`;
  const bare = { peer: medianOf(peer), targets: {} };
  return [
    ...rowsOf(name, { own: medianOf(own), ...bare }),
    ...rowsOf(`${name}, from Redis`, { own: medianOf(uncached), ...bare }),
  ];
}

/** Measures the cost of items in a server that does nothing else. */
async function itemlessRow(peer: readonly Server[], how: How): Promise<Row> {
  await measure("Once", [peer], how);
  const { rate } = medianOf(peer);
  await measure("Itemless", [peer], how);
  const name = `bare server, reposts, window ${REPOST_WINDOW}, without items`;
  return { name, value: medianOf(peer).rate, unit: "/s", peer: { name: "bare server", value: rate } };
}

async function several(count: number, start: () => Promise<Server>): Promise<Server[]> {
  const started: Server[] = [];
  while (started.length < count) started.push(await start());
  return started;
}

interface How {
  readonly inFlight: number;
  readonly turns: number;
}

async function measure(
  kind: ReadKind | RepostKind,
  servers: readonly (readonly Server[])[],
  { inFlight, turns }: How,
): Promise<void> {
  for (const server of servers.flat()) {
    server.sum = empty();
    await drive(kind, server, { inFlight, until: (calls) => calls >= WARM_CALLS });
    process.kill(server.processes.service, "SIGUSR2");
    const end = performance.now() + SETTLING_MS;
    await drive(kind, server, { inFlight, until: () => performance.now() >= end });
  }
  for (let round = 0; round < turns; round++)
    for (const at of servers[0]?.keys() ?? [])
      for (const server of servers.map((group) => group[at] as Server))
        add(server.sum, await timed(kind, server, inFlight));
}

async function fill(redis: Redis): Promise<void> {
  const homes = Array.from({ length: READERS }, (_, reader) => homeKey(userOf(reader)));
  for (const [index, key] of [LOCAL_KEY, GLOBAL_KEY, ...homes].entries())
    await redis.zadd(key, 0, FLOOR_MEMBER, ...timelineOf(index - 2).flatMap(({ score, drop }) => [score, drop]));
  for (const kind of ["Once", "All"] as const)
    for (let reader = 0; reader < READERS; reader++) await fillReposts(redis, homeKey(userOf(reader, kind)), reader);
  await redis.set(READY_LOCAL_KEY, responseOf("Local", 0));
  const deleted = Array.from({ length: DELETED }, (_, number) => [Date.now(), `deleted-${number}`]);
  await redis.zadd(TOMBSTONES_KEY, 0, FLOOR_MEMBER, ...deleted.flat());
}

async function fillReposts(redis: Redis, key: string, reader: number): Promise<void> {
  const entries = repostsOf(reader);
  await redis.zadd(key, 0, FLOOR_MEMBER, ...entries.flatMap(({ score, drop }) => [score, drop]));
  const signed = entries.flatMap(({ drop, by }) => (by ? [[drop, bylineText(by)] as const] : []));
  await redis.hset(bylinesKey(key), new Map(signed));
}

interface Server {
  readonly session: ClientHttp2Session;
  readonly processes: { readonly service: number; readonly redis: number };
  sum: Round;
}

type Round = Record<"calls" | "seconds" | "service" | "redis", number>;

const empty = (): Round => ({ calls: 0, seconds: 0, service: 0, redis: 0 });

function add(sum: Round, round: Round): void {
  for (const name of Object.keys(sum) as (keyof Round)[]) sum[name] += round[name];
}

async function timed(kind: ReadKind | RepostKind, server: Server, inFlight: number): Promise<Round> {
  const { service, redis } = server.processes;
  const before = [cpuSeconds(service), cpuSeconds(redis)] as const;
  const started = performance.now();
  const end = started + ROUND_MS;
  const calls = await drive(kind, server, { inFlight, until: () => performance.now() >= end });
  const seconds = (performance.now() - started) / 1_000;
  return { calls, seconds, service: cpuSeconds(service) - before[0], redis: cpuSeconds(redis) - before[1] };
}

function drive(kind: ReadKind | RepostKind, { session }: Server, how: Drive): Promise<number> {
  const call = openFrames(session, `/avion.TimelineService/Get${isOfReposts(kind) ? "Home" : kind}Timeline`);
  return drivePages(call, pagesOf(kind), how);
}

const made = new Map<ReadKind | RepostKind, ReturnType<typeof askedPage>[]>();

function pagesOf(kind: ReadKind | RepostKind): ReturnType<typeof askedPage>[] {
  const known = made.get(kind);
  if (known) return known;
  const pages = Array.from({ length: READERS }, (_, reader) =>
    askedPage(userOf(reader, kind), responseOf(kind, reader)),
  );
  made.set(kind, pages);
  return pages;
}

type Figures = Record<"rate" | "service" | "redis", number>;

function medianOf(servers: readonly Server[]): Figures {
  const median = (of: (sum: Round) => number): number => summarise(servers.map(({ sum }) => of(sum))).p50;
  return {
    rate: median(({ calls, seconds }) => calls / seconds),
    service: median(({ calls, service }) => (1e6 * service) / calls),
    redis: median(({ calls, redis }) => (1e6 * redis) / calls),
  };
}

interface Compared {
  readonly own: Figures;
  readonly peer: Figures;
  readonly targets: { readonly rate?: number; readonly cpu?: number };
}

function rowsOf(name: string, { own, peer, targets }: Compared): Row[] {
  const cpu = { service: own.service, redis: own.redis };
  return [
    {
      ...{ name, value: own.rate, unit: "/s", cpu, peer: { name: "bare server", value: peer.rate } },
      ...(targets.rate && { target: { atLeast: targets.rate } }),
    },
    {
      ...{ name: `${name}: CPU of the service`, value: own.service, unit: "µs" },
      peer: { name: "bare server", value: peer.service },
      ...(targets.cpu && { target: { atMost: targets.cpu } }),
    },
  ];
}
