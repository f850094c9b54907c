import { once } from "node:events";
import { setTimeout as pause } from "node:timers/promises";
import { AppError } from "../../../src/kernel/errors.js";
import { createPublisher } from "../../../src/platform/nats/publish.js";
import type { Addresses, Bench, Servers } from "./bench.js";
import { storeHidden } from "./homes.js";
import { check, type Row } from "./result.js";
import { ask, type Cost, child, costs, receive } from "./sse-driver.js";
import { AUTHORS, type BareRequest } from "./sse-shared.js";

const SECONDS = 10;
/** A drop at this rate finds all viewers idle: none of its frames shares a write with another one. */
const CALM_RATE = 10;
const WARM_DROPS = 20;

/** Sends `count` drops to all viewers, evenly at `rate` drops/s; the first one has the number `begin`. */
type Send = (sending: { readonly begin: number; readonly count: number; readonly rate: number }) => Promise<void>;

interface Measured {
  /** Frames/s. */
  readonly reached: number;
  readonly busy: Cost;
  readonly calm: Cost;
}

interface Load {
  readonly viewers: number;
  /** Drops/s. */
  readonly rate: number;
}

interface Options extends Load {
  readonly env: Readonly<Record<string, string>>;
  /** Servers whose CPU is told beside that of the gateway. */
  readonly pids: Readonly<Record<string, number>>;
}

/** Viewers of local and global, as many of each: drops of authors without followers go from DROPS through one worker to all. */
export async function live(
  servers: Addresses & Pick<Servers, "redis" | "streams">,
  bench: Bench,
  { viewers, rate, env, pids }: Options,
): Promise<Row[]> {
  const load = { viewers, rate };
  await storeHidden(servers.redis, new Map([...Array(viewers).keys()].map((n) => [`u${n}`, []])));
  const gateway = await bench.service(servers, { roles: "gateway", env });
  const worker = await bench.service(servers, { roles: "fanout", env });
  const others = { worker: worker.pid, ...pids };
  const port = Number(new URL(gateway.httpUrl).port);
  const own = await measure({ pid: gateway.pid, port, others }, load, (sending) => post(servers, sending));
  await Promise.all([gateway.stop(), worker.stop()]);
  const server = child("sse-bare.ts");
  const [address] = (await once(server, "message")) as [{ port: number }];
  const bare = await measure({ pid: server.pid as number, ...address, others: {} }, load, async (sending) => {
    const { begin, count: rounds, rate: perSecond } = sending;
    server.send({ begin, rounds, roundMs: 1_000 / perSecond, isShared: true } satisfies BareRequest);
  });
  server.kill();
  return rowsOf(own, bare, load);
}

interface Server {
  readonly pid: number;
  readonly port: number;
  readonly others: Readonly<Record<string, number>>;
}

async function measure({ pid, port, others }: Server, { viewers, rate }: Load, send: Send): Promise<Measured> {
  const client = child("sse-live-client.ts");
  const processes = { server: pid, client: client.pid as number, ...others };
  await ask(client, { open: { port, from: 0, to: viewers } });
  let begin = 0;
  const phase = async (count: number, at: number): Promise<{ reached: number; cost: Cost }> => {
    const costOf = costs(processes);
    const { seconds } = await receive(client, count, () => send({ begin, count, rate: at }));
    begin += count;
    return { reached: (count * viewers) / seconds, cost: costOf(count * viewers) };
  };
  // Unmeasured: code is compiled.
  await phase(WARM_DROPS, CALM_RATE);
  const { cost: calm } = await phase(CALM_RATE * SECONDS, CALM_RATE);
  const { reached, cost: busy } = await phase(rate * SECONDS, rate);
  await ask(client, { close: true });
  client.kill();
  return { reached, calm, busy };
}

/** Those that are due are published together, and nobody waits for what is stored: so the rate is kept. */
async function post({ streams }: Pick<Servers, "streams">, { begin, count, rate }: Parameters<Send>[0]): Promise<void> {
  const { publishAll } = createPublisher(streams.connection);
  const started = performance.now();
  const elapsed = (): number => (performance.now() - started) / 1_000;
  const sent: ReturnType<typeof publishAll>[] = [];
  for (let next = 0; next < count; ) {
    const due = Math.min(count, Math.floor(elapsed() * rate) + 1);
    sent.push(publishAll(Array.from({ length: due - next }, (_, n) => dropOf(begin + next + n))));
    next = due;
    await pause(Math.max(0, 1_000 * (next / rate - elapsed())));
  }
  const stored = (await Promise.all(sent)).flat();
  check(
    stored.every((ack) => !(ack instanceof AppError)),
    "DROPS takes each drop",
  );
}

function dropOf(number: number) {
  const [user_id, created_at] = [`poster${number % AUTHORS}`, Date.now()];
  const drop_id = `${user_id}.${number}.${process.hrtime.bigint() / 1_000n}`;
  const body = Buffer.from(JSON.stringify({ drop_id, user_id, visibility: "public", created_at }));
  return { subject: "drops.created", id: `drop_created:${drop_id}`, body };
}

function rowsOf(own: Measured, bare: Measured, { viewers, rate }: Load): Row[] {
  const shown = `${viewers.toLocaleString("en")} viewers of local and global`;
  const peer = (value: number) => ({ name: "bare server", value });
  const cpuRow = (at: number, mine: Cost, others: Cost): Row => {
    const { server: gateway = 0, ...beside } = mine;
    return {
      ...{ name: `CPU of the gateway a frame, ${shown}, ${at} drops/s`, value: gateway, unit: "µs" },
      ...{ peer: peer(others["server"] ?? 0), target: { atMost: 10, of: "value" }, cpu: { gateway, ...beside } },
    };
  };
  return [
    { name: `frames to ${shown}, ${rate} drops/s`, value: own.reached, unit: "/s", peer: peer(bare.reached) },
    cpuRow(CALM_RATE, own.calm, bare.calm),
    cpuRow(rate, own.busy, bare.busy),
  ];
}
