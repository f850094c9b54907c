import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { notifyParts } from "../../src/contracts/notify-parts.js";
import { createPublisher } from "../../src/platform/nats/publish.js";
import type { NatsCluster } from "../support/clusters.js";
import { World } from "../support/world.js";
import type { Bench, Servers } from "./support/bench.js";
import { storeHidden } from "./support/homes.js";
import type { Parameters, Result, Row } from "./support/result.js";
import { ask, type Cost, child, costs, publish, receive, SETTLE } from "./support/sse-driver.js";
import { live } from "./support/sse-live.js";
import { AUTHORS, authorOf, type BareRequest } from "./support/sse-shared.js";

const SETTLE_MS = 2_000;
/** Opened before the others and not measured: code is compiled, and memory that does not grow with streams is taken. */
const WARM = 1_000;
const EVENTS = 100_000;
/** Of the phase in which latency is measured; well below what either server can take. */
const CALM_RATE = 2_000;
const CALM_EVENTS = 10_000;

const ABOUT = `Event streams of one gateway. Each client reads each event of \`NOTIFY\` once and in order. The peer is a bare \`http\` server that writes the same
frames to the same clients. Latency is measured at ${CALM_RATE.toLocaleString("en")} events/s. Events from \`DROPS\` are drops of ${AUTHORS} authors whose followers all listen, through one worker.
Frames of local and global are those of public drops, which come at once and in the same order to each viewer. The bare server writes each frame at once; frames that the
gateway owes a viewer share a write.`;

export async function run(
  { connections: streams = 10_000, parts = 1, users: viewers = 5_000, posts: rate = 200 }: Parameters,
  bench: Bench,
): Promise<Result> {
  const world = new World();
  for (let n = 0; n < streams; n++) world.follow(`u${n}`, authorOf(n));
  const single = await bench.servers(world);
  // A listener about whom this is not known in time is told to read the timeline again.
  await storeHidden(single.redis, new Map([...Array(streams).keys()].map((n) => [`u${n}`, []])));
  const clustered = parts > 1 ? await bench.natsCluster() : undefined;
  const servers = { ...single, ...clustered };
  const natsServers = clustered?.cluster.servers ?? [single.natsServer];
  const natsPids = Object.fromEntries(natsServers.map(({ pid }, at) => [at === 0 ? "NATS" : `NATS ${at + 1}`, pid]));
  const pids = { Redis: servers.redisServer.pid, ...natsPids };
  const env = { TIMELINE_NOTIFY_PARTS: String(parts), ...(clustered && { TIMELINE_NATS_REPLICAS: "3" }) };
  const { connection } = servers.streams;
  const gateway = await bench.service(servers, {
    roles: "gateway",
    env: { TIMELINE_LOG_LEVEL: "info", ...env },
    command: ["--expose-gc", "--import", SETTLE, join(process.cwd(), "dist/main.js"), "serve"],
  });
  const worker = await bench.service(servers, { roles: "fanout", env });
  const leaders = clustered && (await leadersOf(clustered.cluster, parts));
  const own = await measure({
    ...{
      pid: gateway.pid,
      port: Number(new URL(gateway.httpUrl).port),
      streams,
      others: { ...pids, worker: worker.pid },
    },
    send: (begin, rounds, roundMs) => publish(connection, { streams, parts, begin, rounds, roundMs }),
    post: (begin, rounds) => post(servers, { begin, rounds }),
  });
  await Promise.all([gateway.stop(), worker.stop()]);
  const server = child("sse-bare.ts");
  const [{ port }] = (await once(server, "message")) as [{ port: number }];
  const bare = await measure({
    ...{ pid: server.pid as number, port, streams, others: {} },
    send: async (begin, rounds, roundMs) => {
      server.send({ rounds, roundMs, begin } satisfies BareRequest);
    },
  });
  server.kill();
  const shared = await live(servers, bench, { viewers, rate, env, pids });
  return { about: ABOUT, rows: [...rowsOf(own, bare), ...shared, ...(leaders ?? [])] };
}

/** Counts the parts of NOTIFY that each server leads. */
async function leadersOf(cluster: NatsCluster, parts: number): Promise<Row[]> {
  const leaders = await Promise.all(notifyParts(parts).map(({ stream }) => cluster.leaderOf(stream)));
  return cluster.servers.map((server, at) => ({
    ...{ name: `parts of NOTIFY that server ${at + 1} leads`, unit: "" },
    value: leaders.filter((leader) => leader === server).length,
  }));
}

/** A drop of each author a round; a round begins when all followers have the one before. */
async function post(
  { streams }: Pick<Servers, "streams">,
  { begin, rounds }: { readonly begin: number; readonly rounds: number },
): Promise<void> {
  const { publishAll } = createPublisher(streams.connection);
  const before = (await streams.count("DROPS")) - begin * AUTHORS;
  for (let round = begin; round < begin + rounds; round++) {
    const drops = Array.from({ length: AUTHORS }, (_, n) => {
      const [user_id, created_at] = [authorOf(n), Date.now()];
      const drop_id = `${user_id}.${round}.${process.hrtime.bigint() / 1_000n}`;
      const body = Buffer.from(JSON.stringify({ drop_id, user_id, visibility: "followers", created_at }));
      return { subject: "drops.created", id: `drop_created:${drop_id}`, body };
    });
    await publishAll(drops);
    await streams.settledWith(before + (round + 1) * AUTHORS);
  }
}

interface Server {
  readonly pid: number;
  readonly port: number;
  readonly streams: number;
  /** Processes whose CPU is told beside the server's. */
  readonly others: Readonly<Record<string, number>>;
  /** Sends every user an event, as often as there are rounds. */
  send(begin: number, rounds: number, roundMs: number): Promise<void>;
  /** The same by drops that a worker fans out. */
  readonly post?: (begin: number, rounds: number) => Promise<void>;
}

interface Measured {
  readonly kilobytes: number;
  readonly opensPerSecond: number;
  readonly opening: Cost;
  readonly eventsPerSecond: number;
  readonly event: Cost;
  readonly p50: number;
  readonly p99: number;
  readonly posted: { readonly perSecond: number; readonly cost: Cost } | undefined;
}

async function measure({ pid, port, streams, others, send, post: sendDrops }: Server): Promise<Measured> {
  const client = child("sse-client.ts");
  const processes = { server: pid, client: client.pid as number, ...others };
  const warm = Math.min(WARM, streams / 2);
  await ask(client, { open: { port, from: 0, to: warm } });
  const before = await settled(pid);
  const openCost = costs(processes);
  const opened = await ask(client, { open: { port, from: warm, to: streams } });
  const opening = openCost(streams - warm);
  const kilobytes = ((await settled(pid)) - before) / 1_024 / (streams - warm);
  const rounds = Math.ceil(EVENTS / streams);
  // Unmeasured: compiled code, and the buffers of all streams.
  await receive(client, streams * 3, () => send(0, 3, 0));
  const eventCost = costs(processes);
  const sent = await receive(client, streams * rounds, () => send(3, rounds, 0));
  const event = eventCost(streams * rounds);
  const roundMs = (1_000 * streams) / CALM_RATE;
  const calmRounds = Math.ceil(CALM_EVENTS / streams);
  const calm = await receive(client, streams * calmRounds, () => send(3 + rounds, calmRounds, roundMs), true);
  const begin = 3 + rounds + calmRounds;
  const posted = sendDrops && (await measurePosts({ client, streams, processes, begin, sendDrops }));
  await ask(client, { close: true });
  client.kill();
  return {
    ...{ posted, kilobytes, opening, event, p50: calm.times?.p50 ?? 0, p99: calm.times?.p99 ?? 0 },
    opensPerSecond: (streams - warm) / opened.seconds,
    eventsPerSecond: (streams * rounds) / sent.seconds,
  };
}

interface Posting {
  readonly client: ChildProcess;
  readonly streams: number;
  readonly processes: Readonly<Record<string, number>>;
  readonly begin: number;
  readonly sendDrops: NonNullable<Server["post"]>;
}

async function measurePosts({ client, streams, processes, begin, sendDrops }: Posting): Promise<Measured["posted"]> {
  const rounds = Math.ceil(EVENTS / streams);
  // Unmeasured: code is compiled, and the lists of followers are read.
  await receive(client, streams * 3, () => sendDrops(begin, 3));
  const posting = costs(processes);
  const { seconds } = await receive(client, streams * rounds, () => sendDrops(begin + 3, rounds));
  return { perSecond: (streams * rounds) / seconds, cost: posting(streams * rounds) };
}

/** Resident memory in bytes, after garbage was collected. */
async function settled(pid: number): Promise<number> {
  process.kill(pid, "SIGUSR2");
  await pause(SETTLE_MS);
  const [, kilobytes] = /^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, "utf8")) ?? [];
  return Number(kilobytes) * 1_024;
}

function rowsOf(own: Measured, bare: Measured): Row[] {
  const row = (
    name: string,
    pick: (measured: Measured) => number,
    more: Pick<Row, "unit" | "target" | "cpu">,
  ): Row => ({ name, value: pick(own), peer: { name: "bare server", value: pick(bare) }, ...more });
  const beside = (pick: (measured: Measured) => Cost): Cost => {
    const { server = 0, worker: _, ...others } = pick(own);
    return { gateway: server, "bare server": pick(bare)["server"] ?? 0, ...others };
  };
  const { server = 0, worker = 0, ...others } = own.posted?.cost ?? {};
  return [
    row("memory a stream", ({ kilobytes }) => kilobytes, { unit: "KB", target: { atMost: 1.5 } }),
    row("streams opened", ({ opensPerSecond }) => opensPerSecond, {
      ...{ unit: "/s", target: { atLeast: 2_000, of: "value" } },
      cpu: beside(({ opening }) => opening),
    }),
    row("events from NOTIFY to the client", ({ eventsPerSecond }) => eventsPerSecond, {
      ...{ unit: "/s", target: { atLeast: 20_000, of: "value" } },
      cpu: beside(({ event }) => event),
    }),
    row("CPU of the gateway an event", ({ event }) => event["server"] ?? 0, {
      ...{ unit: "µs", target: { atMost: 20, of: "value" } },
    }),
    row("publish to client, p50", ({ p50 }) => p50, { unit: "ms" }),
    row("publish to client, p99", ({ p99 }) => p99, { unit: "ms" }),
    {
      ...{ name: "events from DROPS to the client", value: own.posted?.perSecond ?? 0, unit: "/s" },
      cpu: { worker, gateway: server, ...others },
    },
    {
      ...{ name: "CPU of the worker an event", value: worker, unit: "µs" },
      target: { atMost: 20, of: "value" },
    },
  ];
}
