import { once } from "node:events";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { connect } from "nats";
import { startService } from "../support/service.js";
import type { Bench } from "./support/bench.js";
import type { Parameters, Result, Row } from "./support/result.js";
import { ask, type Cost, child, costs, publish, receive, SETTLE } from "./support/sse-driver.js";
import type { BareRequest } from "./support/sse-shared.js";

const SETTLE_MS = 2_000;
/** Opened and measured against, so that memory that does not grow with streams does not count. */
const WARM = 200;
const EVENTS = 100_000;
/** Of the phase in which latency is measured; well below what either server can take. */
const CALM_RATE = 2_000;
const CALM_EVENTS = 10_000;

const ABOUT = `Event streams in one gateway, each event published to \`NOTIFY\` and read by its client once and in order, against a bare
\`http\` server that writes the same frames to the same clients. Latency is measured at ${CALM_RATE.toLocaleString("en")} events/s.`;

export async function run({ connections: streams = 10_000 }: Parameters, bench: Bench): Promise<Result> {
  const { redisServer: redis } = await bench.redis();
  const { natsServer: nats } = await bench.nats();
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
  const server = child("sse-bare.ts");
  const [{ port }] = (await once(server, "message")) as [{ port: number }];
  const bare = await measure({
    ...{ pid: server.pid as number, port, streams, others: {} },
    send: async (begin, rounds, roundMs) => {
      server.send({ rounds, roundMs, begin } satisfies BareRequest);
    },
  });
  server.kill();
  return { about: ABOUT, rows: rowsOf(own, bare) };
}

/** SSE_PROFILE names a folder for profiles of the gateway's CPU. */
function profiling(): string[] {
  const folder = process.env["SSE_PROFILE"];
  return folder === undefined ? [] : ["--cpu-prof", "--cpu-prof-dir", folder];
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
  const calmRounds = Math.ceil(CALM_EVENTS / streams);
  const calm = await receive(client, streams * calmRounds, () => send(3 + rounds, calmRounds, roundMs), true);
  await ask(client, { close: true });
  client.kill();
  return {
    ...{ kilobytes, opening, event, p50: calm.times?.p50 ?? 0, p99: calm.times?.p99 ?? 0 },
    opensPerSecond: (streams - warm) / opened.seconds,
    eventsPerSecond: (streams * rounds) / sent.seconds,
  };
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
    const { server = 0, ...others } = pick(own);
    return { gateway: server, "bare server": pick(bare)["server"] ?? 0, ...others };
  };
  return [
    row("memory a stream", ({ kilobytes }) => kilobytes, { unit: "KB", target: { atMost: 1.5 } }),
    row("streams opened", ({ opensPerSecond }) => opensPerSecond, {
      unit: "/s",
      cpu: beside(({ opening }) => opening),
    }),
    row("events from NOTIFY to the client", ({ eventsPerSecond }) => eventsPerSecond, {
      unit: "/s",
      cpu: beside(({ event }) => event),
    }),
    row("CPU of the server an event", ({ event }) => event["server"] ?? 0, { unit: "µs" }),
    row("publish to client, p50", ({ p50 }) => p50, { unit: "ms" }),
    row("publish to client, p99", ({ p99 }) => p99, { unit: "ms" }),
  ];
}
