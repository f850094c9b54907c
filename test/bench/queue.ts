import { fork } from "node:child_process";
import { once } from "node:events";
import { Queue } from "bullmq";
import type { Redis } from "ioredis";
import { AckPolicy } from "nats";
import { chunked } from "../../src/kernel/concurrency.js";
import { createPublisher } from "../../src/platform/nats/publish.js";
import { HOME_PREFIX } from "../../src/state/keys.js";
import { eventually } from "../support/eventually.js";
import type { Service } from "../support/service.js";
import { World } from "../support/world.js";
import type { Bench, Servers } from "./support/bench.js";
import { countMembers, dropIds, fillKeys } from "./support/homes.js";
import { addStreamLike } from "./support/log.js";
import { between, measured } from "./support/measure.js";
import type { BareQueueOrder, DropJob, PeerKind, QueueAnswer, QueueOrder } from "./support/queue-shared.js";
import { check, type Parameters, type Result, type Row } from "./support/result.js";

const FOLLOWERS = 100;
const POSTS = 6_000;
const ENTRIES = 1_000;
const TRIM_TO = 950;
const CONCURRENCY = 50;
const AT_ONCE = 500;
const QUEUE = "drops";

/** Stream, subject and consumer of the bare loop. */
const BARE = "BARE_LOOP";
const BARE_PREFIX = "bare:home:";
const PATIENCE_MS = 60_000;

const ABOUT = `Drops of ${FOLLOWERS} followers, from the first one enqueued to the last one written and acknowledged: from \`DROPS\` by one worker, and from a BullMQ queue
by one worker of BullMQ. Homes are full (${ENTRIES.toLocaleString("en")} drops, trimmed to ${TRIM_TO}) or new, in one Redis with an append-only file (\`everysec\`). 20 authors have followers
of their own; 400 authors share 2,000. Producers hand over ${AT_ONCE} drops at once; BullMQ handles ${CONCURRENCY} jobs at once.

One peer writes the homes of a job by pipelined commands, the other by one script call. The bound is a bare loop that pulls the drops from
a stream, writes each batch by one script call, and acks. Peers and bound check nothing and notify nobody.`;

interface Case {
  readonly name: string;
  readonly authors: number;
  /** Followers of neighbouring authors begin so many users apart. */
  readonly apart: number;
  /** Drops in each home before. */
  readonly entries: number;
}

const CASES: readonly Case[] = [ENTRIES, 0].flatMap((entries) => {
  const homes = entries === 0 ? "new homes" : "full homes";
  return [
    { name: `${homes}, 20 authors`, authors: 20, apart: FOLLOWERS, entries },
    { name: `${homes}, 400 authors`, authors: 400, apart: 7, entries },
  ];
});
const USERS = 2_000;

interface Drop {
  readonly drop_id: string;
  readonly author: number;
}

/** Resolves once all are written and acknowledged. */
type Write = (drops: readonly Drop[]) => Promise<void>;

export async function run({ posts = POSTS, workers = 1 }: Parameters, bench: Bench): Promise<Result> {
  const rows: Row[] = [];
  for (const one of CASES) rows.push(...(await measureCase(bench, one, { posts, workers })));
  return { about: ABOUT, rows };
}

async function measureCase(
  bench: Bench,
  { name, authors, apart, entries }: Case,
  { posts, workers }: { readonly posts: number; readonly workers: number },
): Promise<Row[]> {
  const world = new World();
  const users = Array.from({ length: USERS }, (_, n) => `user-${n}`);
  const audiences = Array.from({ length: authors }, (_, author) =>
    Array.from({ length: FOLLOWERS }, (__, n) => users[(author * apart + n) % USERS] as string),
  );
  for (const [author, audience] of audiences.entries()) for (const one of audience) world.follow(one, nameOf(author));
  const servers = await bench.servers(world, { appendonly: true });
  const { redis } = servers;
  const dropsOf = createDrops(authors);
  const measure = async ({ write, prefix, processes }: Side) => {
    const keys = users.map((user) => prefix + user);
    const prepare = () => (entries === 0 ? redis.del(...keys) : fillKeys(redis, keys, { entries }));
    await prepare();
    await write(dropsOf(posts));
    await prepare();
    const drops = dropsOf(posts);
    const spent = await measured({ processes, units: posts }, () => write(drops));
    await checkEntries(redis, { prefix, users, audiences, drops, entries });
    return { rate: posts / spent.seconds, cpu: spent.cpu };
  };
  const own = await startOwn(bench, servers, workers);
  const [commands, script] = [
    await startPeer(bench, servers, { by: "commands", workers, audiences }),
    await startPeer(bench, servers, { by: "script", workers, audiences }),
  ];
  const bare = await startBare(bench, servers, audiences);
  let theirs: Readonly<Record<string, number>> = {};
  const [ofScript, [ofCommands, { rate, cpu }, bound]] = await between(
    async () => {
      const { rate: ceiling, cpu: spent } = await measure(script);
      theirs = spent;
      return ceiling;
    },
    async () => [await measure(commands), await measure(own), await measure(bare)],
  );
  for (const side of [own, commands, script, bare]) await side.stop();
  const unit = "drops/s";
  const target = { atLeast: 5 };
  const byScript = { name: "BullMQ, scripts", value: ofScript };
  const byCommands = { name: "BullMQ, commands", value: ofCommands.rate };
  return [
    { name, value: rate, unit, peer: byCommands, target, cpu: { ...cpu, ...ofCommands.cpu } },
    { name: `${name}, against scripts`, value: rate, unit, peer: byScript, target, cpu: theirs },
    { name: `${name}, bound`, value: bound.rate, unit, peer: byScript, cpu: bound.cpu },
  ];
}

const nameOf = (author: number): string => `author-${author}`;

function createDrops(authors: number): (count: number) => Drop[] {
  let made = 1_000_000;
  return (count) => {
    const ids = dropIds(count, made);
    made += count;
    return ids.map((drop_id, n) => ({ drop_id, author: n % authors }));
  };
}

interface Side {
  readonly write: Write;
  /** Of the keys of its home timelines. */
  readonly prefix: string;
  readonly processes: Readonly<Record<string, number>>;
}

type Running = Side & { stop(): Promise<void> };

async function startOwn(bench: Bench, servers: Servers, workers: number): Promise<Running> {
  const services: Service[] = [];
  while (services.length < workers) services.push(await bench.service(servers, { roles: "fanout" }));
  const { publishAll } = createPublisher(servers.streams.connection);
  let written = 0;
  return {
    prefix: HOME_PREFIX,
    processes: {
      ...Object.fromEntries(services.map(({ pid }, n) => [n === 0 ? "worker" : `worker ${n + 1}`, pid])),
      ...{ redis: servers.redisServer.pid, nats: servers.natsServer.pid },
    },
    write: async (drops) => {
      for (const some of chunked(drops, AT_ONCE))
        await publishAll(
          some.map(({ drop_id, author }) => {
            const event = { drop_id, user_id: nameOf(author), visibility: "followers", created_at: Date.now() };
            const body = Buffer.from(JSON.stringify(event));
            return { subject: "drops.created", id: `drop_created:${drop_id}`, body };
          }),
        );
      written += drops.length;
      await servers.streams.settledWith(written, PATIENCE_MS);
    },
    stop: async () => {
      for (const service of services) await service.stop();
    },
  };
}

async function startBare(
  bench: Bench,
  { streams, redisServer, natsServer }: Servers,
  audiences: BareQueueOrder["audiences"],
): Promise<Running> {
  await addStreamLike(streams, "DROPS", { name: BARE, subjects: [BARE] });
  await streams.manager.consumers.add(BARE, {
    durable_name: BARE,
    ack_policy: AckPolicy.Explicit,
    max_ack_pending: -1,
  });
  const trimmed = { prefix: BARE_PREFIX, entries: ENTRIES, trimTo: TRIM_TO };
  const order = { port: redisServer.port, natsUrl: natsServer.url, stream: BARE, audiences, ...trimmed };
  const { child, completed } = await startWorker(bench, "queue-bare", order);
  const { publishAll } = createPublisher(streams.connection);
  let written = 0;
  return {
    prefix: BARE_PREFIX,
    processes: { "bare loop": child.pid as number, redis: redisServer.pid, nats: natsServer.pid },
    write: async (drops) => {
      for (const some of chunked(drops, AT_ONCE))
        await publishAll(
          some.map((drop) => {
            const body = JSON.stringify({ ...drop, created_at: Date.now() });
            return { subject: BARE, id: drop.drop_id, body };
          }),
        );
      written += drops.length;
      await eventually(() => completed() === written || `${completed()} of ${written}`, "all are written", PATIENCE_MS);
    },
    stop: async () => {
      child.kill();
      await once(child, "exit");
    },
  };
}

async function startPeer(
  bench: Bench,
  { redisServer: { port, pid } }: Servers,
  {
    by,
    workers,
    audiences,
  }: { readonly by: PeerKind; readonly workers: number; readonly audiences: readonly (readonly string[])[] },
): Promise<Running> {
  const name = `${QUEUE}-${by}`;
  const prefix = `${by}:home:`;
  const queue = new Queue<DropJob>(name, { connection: { host: "127.0.0.1", port } });
  bench.defer(() => queue.close());
  const trimmed = { prefix, entries: ENTRIES, trimTo: TRIM_TO };
  const order = { port, by, queue: name, concurrency: CONCURRENCY, ...trimmed };
  const processes = await Promise.all(Array.from({ length: workers }, () => startWorker(bench, "queue-bullmq", order)));
  let written = 0;
  return {
    prefix,
    processes: {
      ...Object.fromEntries(
        processes.map(({ child }, n) => [`BullMQ${n === 0 ? "" : ` ${n + 1}`}`, child.pid as number]),
      ),
      "redis for BullMQ": pid,
    },
    write: async (drops) => {
      for (const some of chunked(drops, AT_ONCE))
        await queue.addBulk(
          some.map(({ drop_id, author }) => ({
            name: "drop",
            data: { drop_id, created_at: Date.now(), users: audiences[author] as readonly string[] },
            opts: { removeOnComplete: true },
          })),
        );
      written += drops.length;
      const done = (): number => processes.reduce((sum, { completed }) => sum + completed(), 0);
      await eventually(() => done() === written || `${done()} of ${written}`, "all jobs are completed", PATIENCE_MS);
    },
    stop: async () => {
      for (const { child } of processes) child.kill();
      await queue.close();
    },
  };
}

async function startWorker(bench: Bench, program: string, order: QueueOrder | BareQueueOrder) {
  const child = fork(new URL(`./support/${program}.ts`, import.meta.url), { execArgv: ["--import", "tsx"] });
  bench.defer(() => child.kill());
  let completed = 0;
  child.on("message", (answer: QueueAnswer) => {
    check(!("fault" in answer), "fault" in answer ? answer.fault : "");
    completed = answer.completed;
  });
  child.send(order);
  await once(child, "message");
  return { child, completed: () => completed };
}

/** Each home holds each drop it was sent, and no more than its cap and the floor. */
async function checkEntries(
  redis: Redis,
  {
    prefix,
    users,
    audiences,
    drops,
    entries,
  }: {
    readonly prefix: string;
    readonly users: readonly string[];
    readonly audiences: readonly (readonly string[])[];
    readonly drops: readonly Drop[];
    readonly entries: number;
  },
): Promise<void> {
  for (const [author, audience] of audiences.entries()) {
    const sent = drops.filter((drop) => drop.author === author).map(({ drop_id }) => drop_id);
    const keys = audience.map((user) => prefix + user);
    const held = await countMembers(redis, keys, sent);
    check(held === keys.length * sent.length, `${held} of ${keys.length * sent.length} entries are there`);
  }
  const sizes = await Promise.all(users.map((user) => redis.zcard(prefix + user)));
  check(
    sizes.every((size) => size >= Math.min(TRIM_TO, entries) && size <= ENTRIES + 1),
    `homes hold ${Math.min(...sizes)} to ${Math.max(...sizes)} entries`,
  );
}
