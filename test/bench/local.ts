import { connect } from "node:http2";
import { setTimeout as delay } from "node:timers/promises";
import type { Redis } from "ioredis";
import { FLOOR_MEMBER, LOCAL_KEY, TOMBSTONES_KEY } from "../../src/state/keys.js";
import type { Bench, Servers } from "./support/bench.js";
import { type Cpu, cpuInTurns, measured, summarise } from "./support/measure.js";
import { askedPage, LIMIT, openFrames } from "./support/reads-shared.js";
import { check, type Parameters, type Result, type Row } from "./support/result.js";

const PROCESSES = 2;
const READS_A_SECOND = 10_000;
const DROPS_A_SECOND = 20;
const TURN_MS = 1_500;
const TURNS = 7;
const ENTRIES = 1_000;
const ID_CHARS = 36;
/** Of an encoded page, which begins with the newest drop: the tag of the field, the length and the id. */
const ENTRY_BYTES = 2 + ID_CHARS;

const ABOUT = `First pages of ${LIMIT} from local, ${READS_A_SECOND.toLocaleString("en")} a second through ${PROCESSES} processes, while ${DROPS_A_SECOND} drops a second are added. Each page shows
every drop that was added before it was asked for. The peer runs without the cache of pages.`;

type Call = ReturnType<typeof openFrames>;

interface Processes {
  readonly calls: readonly Call[];
  readonly pids: Readonly<Record<string, number>>;
}

export async function run(_parameters: Parameters, bench: Bench): Promise<Result> {
  const servers = await bench.servers();
  const { redis } = servers;
  await redis.zadd(TOMBSTONES_KEY, 0, FLOOR_MEMBER);
  const drops = new Drops(redis);
  await redis.zadd(LOCAL_KEY, 0, FLOOR_MEMBER);
  while (drops.added < ENTRIES) await drops.add();
  const cached = await start(servers, bench);
  const uncached = await start(servers, bench, { TIMELINE_READ_CACHE_BYTES: "0" });
  const times: number[] = [];
  const works = { cached: () => turn(cached, drops, times), uncached: () => turn(uncached, drops) };
  const figures = await cpuInTurns(works, TURNS);
  const row = (process: string, unit = "µs"): Row => ({
    ...{ name: `CPU of ${process}, a page of local`, value: figures.cached[process] as number, unit },
    peer: { name: "without the cache", value: figures.uncached[process] as number },
  });
  const { p50, p99 } = summarise(times);
  return {
    about: ABOUT,
    rows: [
      {
        ...{ name: "pages of local", value: figures.cached["rate"] as number, unit: "/s" },
        peer: { name: "without the cache", value: figures.uncached["rate"] as number },
        target: { atLeast: READS_A_SECOND * 0.99, of: "value" },
      },
      row("redis"),
      row("api"),
      { name: "time of a page, median", value: p50, unit: "ms" },
      { name: "time of a page, 99th percentile", value: p99, unit: "ms" },
    ],
  };
}

class Drops {
  added = 0;

  constructor(private readonly redis: Redis) {}

  async add(): Promise<void> {
    const number = this.added;
    await this.redis.zadd(LOCAL_KEY, number + 1, String(number).padStart(ID_CHARS, "0"));
    this.added = number + 1;
  }
}

async function start(servers: Servers, bench: Bench, env = {}): Promise<Processes> {
  const calls: Call[] = [];
  const pids: Record<string, number> = { redis: servers.redisServer.pid };
  for (let at = 0; at < PROCESSES; at++) {
    const { pid, grpcAddress } = await bench.service(servers, { roles: "api", env });
    const session = connect(`http://${grpcAddress}`);
    bench.defer(() => session.destroy());
    calls.push(openFrames(session, "/avion.TimelineService/GetLocalTimeline"));
    pids[`api ${at}`] = pid;
  }
  return { calls, pids };
}

const { request } = askedPage("", Buffer.alloc(0));

async function read(call: Call, drops: Drops): Promise<number> {
  const known = drops.added;
  const asked = performance.now();
  const page = await call(request);
  const newest = Number(page.toString("latin1", ENTRY_BYTES - ID_CHARS, ENTRY_BYTES));
  check(page.length > LIMIT * ENTRY_BYTES && newest >= known - 1, "each page is full, and has every drop added before");
  return performance.now() - asked;
}

/** Reads and adds at the rates that are asked for, whatever an answer takes; yields CPU a read, and how many came in a second. */
async function turn({ calls, pids }: Processes, drops: Drops, times: number[] = []): Promise<Cpu> {
  const work = async (): Promise<number> => {
    const began = performance.now();
    const under: Promise<unknown>[] = [];
    let [reads, added] = [0, 0];
    for (let elapsed = 0; elapsed < TURN_MS; elapsed = performance.now() - began) {
      while (reads < (elapsed * READS_A_SECOND) / 1_000)
        under.push(read(calls[reads++ % PROCESSES] as Call, drops).then((ms) => times.push(ms)));
      if (added < (elapsed * DROPS_A_SECOND) / 1_000) {
        added++;
        under.push(drops.add());
      }
      await delay(1);
    }
    await Promise.all(under);
    return reads;
  };
  const { cpu, result, seconds } = await measured({ processes: pids, units: 1 }, work);
  const { redis = 0, ...api } = cpu;
  const sum = Object.values(api).reduce((all, one) => all + one, 0);
  return { redis: redis / result, api: sum / result, rate: result / seconds };
}
