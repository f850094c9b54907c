import { fork } from "node:child_process";
import { once } from "node:events";
import { firstPageOf } from "../../src/reads/collect.js";
import { limited } from "../support/limits.js";
import { openReader, type Reader } from "../support/reader.js";
import type { Service } from "../support/service.js";
import type { Bench, Servers } from "./support/bench.js";
import { measured, summarise } from "./support/measure.js";
import type { BareCalls, BareTook } from "./support/rebuild-shared.js";
import { check, type Parameters, type Result, type Row } from "./support/result.js";

const AT_ONCE = 128;
const DROPS = 20;
/** Of one reader, and of two. Those of many take long, and differ less. */
const ROUNDS = [9, 3] as const;
const PATIENCE_MS = 300_000;
/** Of all processes: V8 collects a small heap more often. */
const HEAP = "--max-old-space-size=256";

interface Case {
  readonly readers: number;
  readonly followings: number;
  readonly latencyMs: number;
  /** Service, bare client and bound compile while they are measured. */
  readonly fresh?: boolean;
}

/** In this order: the process is new only once. */
const CASES: readonly Case[] = [
  { readers: 1, followings: 1_500, latencyMs: 20, fresh: true },
  { readers: 64, followings: 200, latencyMs: 20 },
  { readers: 64, followings: 200, latencyMs: 0 },
  ...[20, 0].flatMap((latencyMs) => [200, 1_500].map((followings) => ({ readers: 1, followings, latencyMs }))),
  { readers: 64, followings: 1_500, latencyMs: 20 },
  { readers: 2, followings: 7_500, latencyMs: 20 },
];

const ABOUT = `Homes that are not in Redis, read at once, until the last page. The ceiling is as many calls of a bare gRPC client, ${AT_ONCE} at once. The
bound is such a client that also asks whom the readers follow, times each call, writes the newest drops to Redis, looks up tombstones and
reads the page. All have a heap of 256 MB. Of one reader the time is the median of ${ROUNDS[0]} turns, of two that of ${ROUNDS[1]}. Milliseconds are the latency of
the upstream. CPU is that of a call.`;

export async function run({ connections, authors }: Parameters, bench: Bench): Promise<Result> {
  const servers = await bench.servers();
  const env = { ...limited({ reads: { deadlineMaxMs: PATIENCE_MS } }), NODE_OPTIONS: HEAP };
  const service = await bench.service(servers, { roles: "api", env });
  const reads = openReader(service.grpcAddress);
  bench.defer(() => reads.close());
  const own = { readers: connections ?? 1, followings: authors ?? 1_500, latencyMs: 20 };
  const cases = (connections ?? authors) === undefined ? CASES : [own];
  const { postsAddress, usersAddress } = servers.upstreams;
  const bare = await startBare(bench, [postsAddress]);
  const bound = await startBare(bench, [postsAddress, usersAddress, servers.redisServer.url]);
  const rows: Row[] = [];
  for (const one of cases) rows.push(...(await coldReads({ servers, service, reads, bare, bound }, one)));
  return { about: ABOUT, rows };
}

interface Scene {
  readonly servers: Servers;
  readonly service: Service;
  readonly reads: Reader;
  readonly bare: Bare;
  readonly bound: Bare;
}

interface Bare {
  readonly pid: number;
  /** How long so many calls take, in ms. */
  call(wanted: Pick<BareCalls, "authors" | "readers" | "calls">): Promise<number>;
}

async function coldReads(scene: Scene, of: Case): Promise<Row[]> {
  const { world, upstreams } = scene.servers;
  const { readers, followings, latencyMs, fresh = false } = of;
  const name = `${readers}x${followings}x${latencyMs}${fresh}`;
  const authors = Array.from({ length: followings }, (_, number) => `author-${name}-${number}`);
  for (const [number, user_id] of authors.entries())
    for (let age = 0; age < DROPS; age++)
      world.post({ drop_id: `${user_id}-${age}`, user_id, created_at: Date.now() - 1_000 * age - (number % 1_000) });
  const heal = latencyMs === 0 ? () => undefined : upstreams.inject({ method: "GetDropsByUserID", delayMs: latencyMs });
  const turns: Turn[] = [];
  while (turns.length < (fresh ? 1 : (ROUNDS[readers - 1] ?? 1)))
    turns.push(await takeTurn(scene, { authors, readers, name: `${name}-${turns.length}` }));
  heal();
  const kind = `${latencyMs} ms${fresh ? ", new processes" : ""}`;
  const about = `${readers} x ${followings.toLocaleString("en")} followings, ${kind}`;
  const median = (of: (turn: Turn) => number): number => summarise(turns.map(of)).p50;
  const peer = { name: "bare calls", value: median(({ bare }) => bare) / 1_000 };
  const cpu = (name: string) => ({ [name]: summarise(turns.map((turn) => turn.cpu[name] as number)).mean });
  return [
    {
      name: about,
      ...{ value: median(({ last }) => last) / 1_000, unit: "s", target: { atMost: 1.3 }, peer },
      cpu: { ...cpu("service"), ...cpu("bare client") },
      note: `p50 ${(median(({ p50 }) => p50) / 1_000).toFixed(2)} s`,
    },
    { name: `${about}, bound`, value: median(({ bound }) => bound) / 1_000, unit: "s", peer, cpu: cpu("bound") },
  ];
}

/** Times in ms; CPU of a call. */
interface Turn {
  readonly last: number;
  readonly p50: number;
  readonly bare: number;
  readonly bound: number;
  readonly calls: number;
  readonly cpu: Readonly<Record<string, number>>;
}

async function takeTurn(
  { servers: { world, upstreams }, service, reads, bare, bound }: Scene,
  { authors, readers, name }: { readonly authors: readonly string[]; readonly readers: number; readonly name: string },
): Promise<Turn> {
  const users = Array.from({ length: readers }, (_, number) => `reader-${name}-${number}`);
  for (const user of users) for (const author of authors) world.follow(user, author);
  const before = upstreams.calls("GetDropsByUserID");
  const { result: times, cpu } = await measured({ processes: { service: service.pid }, units: 1 }, async () => {
    const begun = performance.now();
    return Promise.all(
      users.map(async (user) => {
        const page = await reads.home(user, { limit: 20 }, PATIENCE_MS);
        check(!page.degraded && page.drop_ids.length === 20, "every page is whole");
        return performance.now() - begun;
      }),
    );
  });
  const calls = upstreams.calls("GetDropsByUserID") - before;
  const { p50, max } = summarise(times);
  const bareCalls = await measured({ processes: { "bare client": bare.pid }, units: calls }, () =>
    bare.call({ authors, readers: users, calls }),
  );
  const boundCalls = await measured({ processes: { bound: bound.pid }, units: calls }, () =>
    bound.call({ authors, readers: users, calls }),
  );
  const used = { service: (cpu["service"] as number) / calls, ...bareCalls.cpu, ...boundCalls.cpu };
  return { last: max, p50, bare: bareCalls.result, bound: boundCalls.result, calls, cpu: used };
}

async function startBare(bench: Bench, parameters: readonly string[]): Promise<Bare> {
  const child = fork(new URL("./support/rebuild-bare.ts", import.meta.url), parameters, {
    execArgv: ["--import", "tsx", HEAP],
  });
  bench.defer(() => child.kill());
  const ended = once(child, "exit").then(() => Promise.reject(new Error("the bare client has ended")));
  ended.catch(() => undefined);
  await Promise.race([once(child, "message"), ended]);
  return {
    pid: child.pid as number,
    call: async (wanted) => {
      const limit = firstPageOf(wanted.authors.length);
      child.send({ ...wanted, limit, atOnce: AT_ONCE } satisfies BareCalls);
      const [took] = (await Promise.race([once(child, "message"), ended])) as [BareTook];
      return took;
    },
  };
}
