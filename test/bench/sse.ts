import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { cpus } from "node:os";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { connect, createInbox, headers, type NatsConnection } from "nats";
import { privateNats, privateRedis } from "../support/brokers.js";
import { startService } from "../support/service.js";
import { check, type Line, print } from "./measure.js";
import { type BareRequest, type ClientAnswer, type ClientRequest, sendRound } from "./sse-shared.js";

const USER_HZ = 100;
const SETTLE_MS = 2_000;
const SETTLE = join(process.cwd(), "test/bench/settle.mjs");
/** Opened and measured against, so that memory that does not grow with streams does not count. */
const WARM = 200;
const EVENTS = 100_000;
/** Of the phase in which latency is measured; well below what either server can take. */
const CALM_RATE = 2_000;
const CALM_ROUNDS = 5;
const TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";

/** Event streams of one gateway, against a bare `http` server that writes the same frames to the same clients. */
export async function run(): Promise<void> {
  const streams = Number(process.argv[3] ?? 2_000);
  console.log(`${cpus().length} x ${cpus()[0]?.model}, Node ${process.version}`);
  const [redis, nats] = await Promise.all([privateRedis(), privateNats()]);
  const gateway = await startService({
    ...{ redisUrl: redis.url, natsUrl: nats.url, roles: "gateway" },
    ...{ usersAddress: "127.0.0.1:1", postsAddress: "127.0.0.1:1" },
    command: ["--expose-gc", ...profiling(), "--import", SETTLE, join(process.cwd(), "dist/main.js"), "serve"],
  });
  const connection = await connect({ servers: nats.url });
  const own = await measure({
    ...{
      pid: gateway.pid,
      port: Number(new URL(gateway.httpUrl).port),
      streams,
      others: { Redis: redis.pid, NATS: nats.pid },
    },
    send: (begin, rounds, roundMs) => publish(connection, { streams, begin, rounds, roundMs }),
  });
  await connection.close();
  await gateway.stop();
  await Promise.all([nats.stop(), redis.stop()]);
  const server = child("sse-bare.ts");
  const [{ port }] = (await once(server, "message")) as [{ port: number }];
  const bare = await measure({
    ...{ pid: server.pid as number, port, streams, others: {} },
    send: async (begin, rounds, roundMs) => {
      server.send({ rounds, roundMs, begin } satisfies BareRequest);
    },
  });
  server.kill();
  report(streams, own, bare);
}

/** SSE_PROFILE names a folder for profiles of the gateway's CPU. */
function profiling(): string[] {
  const folder = process.env["SSE_PROFILE"];
  return folder === undefined ? [] : ["--cpu-prof", "--cpu-prof-dir", folder];
}

function child(file: string): ChildProcess {
  const script = new URL(file, import.meta.url);
  return fork(script, { execArgv: ["--expose-gc", "--import", "tsx", "--import", SETTLE] });
}

interface Server {
  readonly pid: number;
  readonly port: number;
  readonly streams: number;
  /** Processes whose CPU is told beside the server's. */
  readonly others: Readonly<Record<string, number>>;
  /** Sends every user an event, as often as there are rounds. */
  send(begin: number, rounds: number, roundMs: number): Promise<void>;
}

interface Measured {
  readonly kilobytes: number;
  readonly opensPerSecond: number;
  readonly opening: Cost;
  readonly eventsPerSecond: number;
  readonly event: Cost;
  readonly p50: number;
  readonly p99: number;
}

/** CPU in microseconds, by process. */
type Cost = Readonly<Record<string, number>>;

async function measure({ pid, port, streams, others, send }: Server): Promise<Measured> {
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
  const calm = await receive(client, streams * CALM_ROUNDS, () => send(3 + rounds, CALM_ROUNDS, roundMs), true);
  await ask(client, { close: true });
  client.kill();
  return {
    ...{ kilobytes, opening, event, p50: calm.times?.p50 ?? 0, p99: calm.times?.p99 ?? 0 },
    opensPerSecond: (streams - warm) / opened.seconds,
    eventsPerSecond: (streams * rounds) / sent.seconds,
  };
}

type Answer = Extract<ClientAnswer, { readonly seconds: number }>;

async function ask(client: ChildProcess, request: ClientRequest): Promise<Answer> {
  client.send(request);
  return answerOf(client);
}

async function answerOf(client: ChildProcess): Promise<Answer> {
  for (;;) {
    const [answer] = (await once(client, "message")) as [ClientAnswer];
    if ("fault" in answer) throw new Error(answer.fault);
    if ("seconds" in answer) return answer;
  }
}

async function receive(
  client: ChildProcess,
  events: number,
  send: () => Promise<void>,
  latency = false,
): Promise<Answer> {
  client.send({ events, latency } satisfies ClientRequest);
  await once(client, "message");
  const [answer] = await Promise.all([answerOf(client), send()]);
  return answer;
}

/** As fan-out does, each round awaited before the next. */
async function publish(
  connection: NatsConnection,
  { streams, begin, rounds, roundMs }: { streams: number; begin: number; rounds: number; roundMs: number },
): Promise<void> {
  const inbox = createInbox();
  let acked = 0;
  let roundDone: (() => void) | undefined;
  const subscription = connection.subscribe(inbox, {
    callback: (_, message) => {
      check(message.string().includes('"seq"'), `NOTIFY refuses: ${message.string()}`);
      if (++acked % streams === 0) roundDone?.();
    },
  });
  for (let round = begin; round < begin + rounds; round++) {
    const done = new Promise<void>((resolve) => {
      roundDone = resolve;
    });
    await sendRound(streams, roundMs, (n) => {
      const drop = `u${n}.${round}.${process.hrtime.bigint() / 1_000n}`;
      const head = headers();
      head.set("Nats-Msg-Id", `new_drop:${drop}:u${n}`);
      head.set("traceparent", TRACEPARENT);
      const body = Buffer.from(JSON.stringify({ event: "new_drop", drop_id: drop, created_at: Date.now() }));
      connection.publish(`notify.user.u${n}`, body, { reply: inbox, headers: head });
    });
    await done;
  }
  subscription.unsubscribe();
}

/** Resident memory in bytes, after garbage was collected. */
async function settled(pid: number): Promise<number> {
  process.kill(pid, "SIGUSR2");
  await pause(SETTLE_MS);
  const [, kilobytes] = /^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, "utf8")) ?? [];
  return Number(kilobytes) * 1_024;
}

function costs(processes: Readonly<Record<string, number>>): (units: number) => Cost {
  const before = Object.entries(processes).map(([name, pid]) => [name, pid, cpuSeconds(pid)] as const);
  return (units) =>
    Object.fromEntries(before.map(([name, pid, used]) => [name, (1e6 * (cpuSeconds(pid) - used)) / units]));
}

/** User and system time so far. */
function cpuSeconds(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1]?.split(" ") ?? [];
  return (Number(fields[11]) + Number(fields[12])) / USER_HZ;
}

const inMicroseconds = (cost: Cost): string =>
  Object.entries(cost)
    .map(([name, value]) => `${name} ${value.toFixed(0)}`)
    .join(", ");

function report(streams: number, own: Measured, bare: Measured): void {
  const line = (what: string, pick: (measured: Measured) => number, unit: string, digits = 0): Line => ({
    what,
    value: `${pick(own).toFixed(digits)} ${unit}`,
    ratio: `${(pick(own) / pick(bare)).toFixed(2)} x the bare server's ${pick(bare).toFixed(digits)} ${unit}`,
  });
  print(`${streams.toLocaleString("en")} event streams in one gateway`, [
    line("Memory a stream", ({ kilobytes }) => kilobytes, "KB", 1),
    line("Streams opened", ({ opensPerSecond }) => opensPerSecond, "/s"),
    { what: "CPU to open one, µs", value: inMicroseconds(own.opening), ratio: inMicroseconds(bare.opening) },
    line("Events from NOTIFY to the client", ({ eventsPerSecond }) => eventsPerSecond, "/s"),
    { what: "CPU an event, µs", value: inMicroseconds(own.event), ratio: inMicroseconds(bare.event) },
    line("Publish to client, p50", ({ p50 }) => p50, "ms", 2),
    line("Publish to client, p99", ({ p99 }) => p99, "ms", 2),
  ]);
}
