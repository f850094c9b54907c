import { credentials, Metadata } from "@grpc/grpc-js";
import { PostServiceClient } from "../../src/gen/avion/posts.js";
import { mapLimited } from "../../src/kernel/concurrency.js";
import { openReader, type Reader } from "../support/reader.js";
import type { Service } from "../support/service.js";
import type { Bench, Servers } from "./support/bench.js";
import { measured, summarise } from "./support/measure.js";
import { check, type Parameters, type Result, type Row } from "./support/result.js";

const LATENCY_MS = 20;
const AT_ONCE = 128;
const DROPS = 20;
const PATIENCE_MS = 300_000;

interface Case {
  readonly readers: number;
  readonly followings: number;
  /** A new process compiles while it reads. */
  readonly process?: "new" | "warm";
}

const CASES: readonly Case[] = [
  { readers: 1, followings: 1_500, process: "new" },
  { readers: 12, followings: 1_500 },
  { readers: 200, followings: 150 },
  { readers: 8, followings: 7_500 },
  { readers: 1, followings: 1_500, process: "warm" },
];

const ABOUT = `Home timelines that are not in Redis, read at once from a service with a heap of 256 MB; each page must be complete. The
upstreams run in the process of the benchmark and answer after ${LATENCY_MS} ms. The ceiling is the same number of calls of a bare
gRPC client, ${AT_ONCE} at once, since a cold read waits for calls only. CPU is that of a call.`;

export async function run({ connections, authors }: Parameters, bench: Bench): Promise<Result> {
  const servers = await bench.servers();
  servers.upstreams.inject({ method: "GetDropsByUserID", delayMs: LATENCY_MS });
  const env = { TIMELINE_READ_DEADLINE_MAX_MS: String(PATIENCE_MS), NODE_OPTIONS: "--max-old-space-size=256" };
  const service = await bench.service(servers, { roles: "api", env });
  const reads = openReader(service.grpcAddress);
  bench.defer(() => reads.close());
  const given = connections ?? authors;
  const cases = given === undefined ? CASES : [{ readers: connections ?? 1, followings: authors ?? 1_500 }];
  const rows: Row[] = [];
  for (const one of cases) rows.push(await coldReads({ servers, service, reads }, one));
  return { about: ABOUT, rows };
}

interface Scene {
  readonly servers: Servers;
  readonly service: Service;
  readonly reads: Reader;
}

async function coldReads(
  { servers: { world, upstreams }, service, reads }: Scene,
  { readers, followings, process }: Case,
): Promise<Row> {
  const name = `${readers}x${followings}${process ?? ""}`;
  const authors = Array.from({ length: followings }, (_, number) => `author-${name}-${number}`);
  for (const user_id of authors)
    for (let age = 0; age < DROPS; age++)
      world.post({ drop_id: `${user_id}-${age}`, user_id, created_at: Date.now() - 1_000 * age });
  const users = Array.from({ length: readers }, (_, number) => `reader-${name}-${number}`);
  for (const user of users) for (const author of authors) world.follow(user, author);
  const bare = await bareCalls(upstreams, authors);
  const calls = upstreams.calls("GetDropsByUserID");
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
  const made = upstreams.calls("GetDropsByUserID") - calls;
  const { p50, max } = summarise(times);
  return {
    name: `${readers} at once, ${followings.toLocaleString("en")} followings each${process ? `, ${process} process` : ""}: the last page`,
    ...{ value: max / 1_000, unit: "s" },
    peer: { name: `${made} bare calls`, value: (bare * made) / 1_000 },
    cpu: { service: (cpu["service"] ?? 0) / made },
    note: `p50 ${(p50 / 1_000).toFixed(2)} s`,
  };
}

/** The mean time a call of a bare gRPC client takes, with as many at once as the service makes, in ms. */
async function bareCalls({ postsAddress }: Servers["upstreams"], authors: readonly string[]): Promise<number> {
  const client = new PostServiceClient(postsAddress, credentials.createInsecure());
  const ask = (user_id: string): Promise<unknown> =>
    new Promise((resolve, reject) => {
      const deadline = Date.now() + PATIENCE_MS;
      const request = { user_id, limit: 10, max_id: "", before: 0 };
      client.getDropsByUserId(request, new Metadata(), { deadline }, (error, answer) =>
        error ? reject(error) : resolve(answer),
      );
    });
  const asked = authors.slice(0, 1_500);
  await mapLimited(asked, AT_ONCE, ask);
  const begun = performance.now();
  await mapLimited(asked, AT_ONCE, ask);
  const took = performance.now() - begun;
  client.close();
  return took / asked.length;
}
