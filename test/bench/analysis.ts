import { fork } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { v7 } from "uuid";
import { measure } from "../../src/analysis/measures.js";
import type { Post } from "../../src/analysis/sources/source.js";
import { type AnalysisRequest, MEASURES } from "../../src/contracts/analysis.js";
import { ANALYSIS_REQUESTED } from "../../src/contracts/subjects.js";
import { MINUTE } from "../../src/kernel/time.js";
import { startAppView } from "../support/appview.js";
import { eventually } from "../support/eventually.js";
import { tokenOf } from "../support/tokens.js";
import { World } from "../support/world.js";
import type { Bench, Servers } from "./support/bench.js";
import { between, measured, type Summary, summarise } from "./support/measure.js";
import { check, type Parameters, type Result, type Row } from "./support/result.js";

const ACCOUNTS = 200;
const POSTS = 500;
const CACHED = 2_000;
const REQUESTS = 3_000;
/** Fewer than a user of the highest tier may ask for in an hour. */
const REQUESTS_A_USER = 500;
const HANGING = 100;
/** Users who ask for analyses in turn: those of one user wait for each other to change the list of the user. */
const USERS = 200;
const PATIENCE_MS = 300_000;

const ABOUT = `Analyses of accounts with ${POSTS} posts by one worker; the peer is a bare loop over the measures. Then requests over HTTP while the
worker is busy and the AT Protocol does not answer; the peer is a bare express route that parses them. PostgreSQL commits without fsync.`;

export async function run({ authors = ACCOUNTS, posts = REQUESTS, connections = 32 }: Parameters, bench: Bench) {
  const servers = await bench.servers(worldOf(authors));
  const [{ url: database }, view] = [await bench.postgres({ fsync: false }), await startAppView()];
  bench.defer(() => view.stop());
  const env = { DATABASE_URL: database, TIMELINE_ATPROTO_URL: view.url };
  const worker = await bench.service(servers, { roles: "analysis", env });
  const processes = { worker: worker.pid, redis: servers.redisServer.pid, nats: servers.natsServer.pid };
  const analyse = async (accounts: readonly string[]) =>
    measured({ processes, units: accounts.length }, () => completed(servers, accounts));

  await analyse(Array.from({ length: 20 }, (_, n) => `warm${n}`));
  const before = residentMb(worker.pid);
  const accounts = Array.from({ length: authors }, (_, n) => accountOf(n));
  const [loops, fromPosts] = await between(bareLoop, () => analyse(accounts));
  const grown = residentMb(worker.pid) - before;
  const cached = await analyse(Array.from({ length: CACHED }, () => accountOf(0)));
  const loop = { name: "bare loop over the measures", value: loops };
  const rows: Row[] = [
    { name: "from the posts service", value: authors / fromPosts.seconds, unit: "/s", peer: loop, cpu: fromPosts.cpu },
    { name: "from a warm cache", value: CACHED / cached.seconds, unit: "/s", cpu: cached.cpu },
    { name: `memory of the worker after ${authors} accounts`, value: grown, unit: "MB more" },
  ];

  view.inject({ kind: "hang" });
  await publish(
    servers,
    Array.from({ length: HANGING }, (_, n) => `did:web:hangs${n}.example`),
  );
  const gateway = await bench.service(servers, { roles: "gateway", env: { DATABASE_URL: database } });
  rows.push(...(await overHttp(bench, gateway.httpUrl, { requests: posts, connections })));
  return { about: ABOUT, rows } satisfies Result;
}

const accountOf = (n: number): string => `account${n}`;

function postsOf(): Post[] {
  return Array.from({ length: POSTS }, (_, n) => ({
    createdAt: Date.now() - n * 37 * MINUTE,
    ...{ likes: n % 17, shares: n % 5, replies: n % 3, quotes: 0 },
  }));
}

function worldOf(authors: number): World {
  const world = new World();
  for (let author = 0; author < authors; author++) {
    const drops = postsOf().map(({ createdAt, ...counts }, n) => ({
      ...{ drop_id: `${accountOf(author)}-${n}`, user_id: accountOf(author), created_at: createdAt, counts },
    }));
    world.post(...drops);
  }
  return world;
}

async function bareLoop(): Promise<number> {
  const rounds = 500;
  const posts = postsOf();
  const started = performance.now();
  for (let round = 0; round < rounds; round++)
    await measure(
      (async function* () {
        yield* posts;
      })(),
      { measures: MEASURES, now: Date.now() },
    );
  return (1_000 * rounds) / (performance.now() - started);
}

async function publish({ streams }: Servers, accounts: readonly string[]): Promise<void> {
  const jetstream = streams.connection.jetstream();
  const send = (did: string, number: number) => {
    const [analysis_id, user_id] = [v7(), `user${number % USERS}`];
    const about = { user_id, did, type: "full", tier: "ORBIT", requested_at: new Date().toISOString() } as const;
    const request: AnalysisRequest = { analysis_id, ...about };
    return jetstream.publish(ANALYSIS_REQUESTED, JSON.stringify(request), { msgID: analysis_id });
  };
  await Promise.all(accounts.map(send));
}

/** Resolves when all are completed. */
async function completed(servers: Servers, accounts: readonly string[]): Promise<void> {
  const told = async () => (await servers.streams.manager.streams.info("TIMELINE_EVENTS")).state.last_seq;
  const before = await told();
  await publish(servers, accounts);
  const wanted = before + accounts.length;
  await eventually(async () => (await told()) >= wanted || `${await told()}`, `${wanted} are completed`, PATIENCE_MS);
  check((await told()) === wanted, "each analysis is completed once, and none has failed");
}

/** VmRSS, as Linux counts it. */
function residentMb(pid: number): number {
  return Number(/VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]) / 1_024;
}

interface Load {
  readonly requests: number;
  readonly connections: number;
}

async function overHttp(bench: Bench, url: string, load: Load): Promise<Row[]> {
  const bare = fork(new URL("support/analysis-bare.ts", import.meta.url), { execArgv: ["--import", "tsx"] });
  bench.defer(() => bare.kill());
  const [port] = (await once(bare, "message")) as [number];
  await drive(url, { ...load, requests: load.requests / 10 }, "warm");
  const peers: { rate: number; times: Summary }[] = [];
  const own = await between(
    async () => {
      const peer = await drive(`http://127.0.0.1:${port}`, load, "bare");
      peers.push(peer);
      return peer.rate;
    },
    () => drive(url, load, "user"),
  );
  const [rate, { rate: accepted, times }] = own;
  const p95 = (peers[0]?.times.p95 ?? 0) / 2 + (peers[1]?.times.p95 ?? 0) / 2;
  const name = "bare express route";
  return [
    { name: "accepted", value: accepted, unit: "/s", peer: { name, value: rate } },
    { name: "accepted, p95", value: times.p95, unit: "ms", peer: { name, value: p95 } },
  ];
}

async function drive(url: string, { requests, connections }: Load, users: string) {
  const tokens = await Promise.all(
    Array.from({ length: Math.ceil(requests / REQUESTS_A_USER) }, (_, n) =>
      tokenOf(`${users}${n}`, { claims: { tier: "ORBIT" } }),
    ),
  );
  const times: number[] = [];
  let next = 0;
  const ask = async (): Promise<void> => {
    for (let n = next++; n < requests; n = next++) {
      const started = performance.now();
      const response = await fetch(`${url}/api/v1/timeline/analyze`, {
        method: "POST",
        headers: {
          "content-type": "application/json",
          authorization: `Bearer ${tokens[n % tokens.length]}`,
        },
        body: JSON.stringify({ did: accountOf(n % ACCOUNTS), type: "full" }),
      });
      await response.text();
      times.push(performance.now() - started);
      check(response.status === 202, `a request is answered with 202, not ${response.status}`);
    }
  };
  const started = performance.now();
  await Promise.all(Array.from({ length: connections }, ask));
  return { rate: (1_000 * requests) / (performance.now() - started), times: summarise(times) };
}
