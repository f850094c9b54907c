import { fork } from "node:child_process";
import { once } from "node:events";
import { eventually } from "../support/eventually.js";
import type { Bench, Servers } from "./support/bench.js";
import type { BareOrder } from "./support/bridge-shared.js";
import { addStreamLike, barePublish, bodiesOf } from "./support/log.js";
import { measured } from "./support/measure.js";
import { check, type Parameters, type Result, type Row } from "./support/result.js";

/** Of each program in a round: less than Redis keeps for a subscriber that does not read. */
const POSTS = 50_000;
const ROUNDS = 4;
const PUBLISHED_A_CALL = 500;
const PATIENCE_MS = 60_000;
/** Reads what is measured from the log. */
const CONSUMER = "planner";
const BOUND = "bound: bare loop that checks events";

const ABOUT = `\`drop_created\` events from Redis Pub/Sub to their PubAcks, by one bridge.

- Bare publish: publishes asynchronously, with message ids, into a stream of the same configuration.
- Bare loop: reads the events by the same client, publishes them with a message id, and counts PubAcks.
- Bare loop that checks events: also parses each event, checks it by the schema, and publishes the headers and bytes of the service.`;

export async function run({ posts = POSTS }: Parameters, bench: Bench): Promise<Result> {
  const servers = await bench.servers();
  const service = await bench.service(servers, { roles: "bridge" });
  const created_at = Date.now();
  const log = { channel: "drop_created", stream: "DROPS", pid: service.pid, logs: service.logs };
  const own = createProgram(servers, { ...log, name: "bridge", created_at });
  const startLoop = async (channel: string, isChecked: boolean): Promise<Program> =>
    createProgram(servers, {
      ...(await startBare(bench, servers, { channel, isChecked })),
      name: "bare loop",
      created_at,
    });
  const bound = await startLoop("checked", true);
  const bare = await startLoop("bare_loop", false);
  let ceilingSeconds = 0;
  for (let round = 0; round <= ROUNDS; round++) {
    const isMeasured = round > 0;
    const rate = await barePublish(servers.streams, {
      like: "DROPS",
      count: posts,
      bodyOf: (n) => bodyOf(n, created_at),
    });
    if (isMeasured) ceilingSeconds += posts / rate;
    for (const program of [own, bound, bare]) await program.admit(posts, isMeasured);
  }
  for (const program of [own, bound, bare]) await program.check();
  const peer = { name: "bare publish", value: (ROUNDS * posts) / ceilingSeconds };
  return {
    about: ABOUT,
    rows: [
      { name: "events admitted", ...own.figures(), peer, target: { atLeast: 0.8 } },
      { name: BOUND, ...bound.figures(), peer },
      { name: "bound: bare loop", ...bare.figures(), peer },
      {
        ...{ name: "events admitted: CPU of the bridge", value: own.figures().cpu["bridge"] as number, unit: "µs" },
        peer: { name: BOUND, value: bound.figures().cpu["bare loop"] as number },
      },
    ],
  };
}

const bodyOf = (n: number | string, created_at: number): string =>
  `{"drop_id":"${typeof n === "string" ? n : String(n).padStart(12, "0")}","user_id":"alice","visibility":"followers","created_at":${created_at}}`;

// KEYS: none; ARGV: channel, first number, count, text before and after the number.
const PUBLISH = `for n = tonumber(ARGV[2]), ARGV[2] + ARGV[3] - 1 do
  redis.call('PUBLISH', ARGV[1], ARGV[4] .. string.format('%012d', n) .. ARGV[5])
end`;

interface ProgramOptions {
  readonly name: string;
  readonly channel: string;
  readonly stream: string;
  readonly created_at: number;
  readonly pid: number;
  readonly logs: () => string;
}

interface Program {
  /** Publishes events and waits until the stream holds them. */
  admit(count: number, isMeasured: boolean): Promise<void>;
  figures(): Pick<Row, "value" | "unit"> & { readonly cpu: Readonly<Record<string, number>> };
  check(): Promise<void>;
}

function createProgram(servers: Servers, { name, pid, ...of }: ProgramOptions): Program {
  const { redis, streams, redisServer, natsServer } = servers;
  const [before, after] = bodyOf("|", of.created_at).split("|") as [string, string];
  const processes = { [name]: pid, redis: redisServer.pid, nats: natsServer.pid };
  let [published, units, seconds] = [0, 0, 0];
  const sum: Record<string, number> = {};
  const publish = async (count: number): Promise<void> => {
    for (let done = 0; done < count; done += PUBLISHED_A_CALL) {
      const some = Math.min(PUBLISHED_A_CALL, count - done);
      await redis.eval(PUBLISH, 0, of.channel, published + done, some, before, after);
    }
    published += count;
    const stored = async (): Promise<true | string> => {
      const held = await streams.count(of.stream);
      return held >= published || `${held}; ${of.logs()}`;
    };
    await eventually(stored, `${published} events are in ${of.stream}`, PATIENCE_MS);
  };
  return {
    admit: async (count, isMeasured) => {
      const started = Date.now();
      const { cpu } = await measured({ processes, units: 1 }, () => publish(count));
      if (!isMeasured) return;
      // When the last one was stored, and not when a look at the stream has shown it.
      const { state } = await streams.manager.streams.info(of.stream);
      seconds += (Date.parse(String(state.last_ts)) - started) / 1_000;
      units += count;
      for (const name of Object.keys(cpu)) sum[name] = (sum[name] ?? 0) + (cpu[name] as number);
    },
    figures: () => ({
      ...{ value: units / seconds, unit: "/s" },
      cpu: Object.fromEntries(Object.entries(sum).map(([name, used]) => [name, used / units])),
    }),
    check: () => checkOrder(servers, of.stream, published),
  };
}

async function startBare(
  bench: Bench,
  { redisServer, natsServer, streams }: Servers,
  of: Pick<BareOrder, "channel" | "isChecked">,
): Promise<Pick<ProgramOptions, "channel" | "stream" | "pid" | "logs">> {
  const { channel } = of;
  const stream = channel.toUpperCase();
  await addStreamLike(streams, "DROPS", { name: stream, subjects: [channel] });
  const { config: consumer } = await streams.manager.consumers.info("DROPS", CONSUMER);
  await streams.manager.consumers.add(stream, { ...consumer, filter_subject: channel });
  const child = fork(new URL("./support/bridge-bare.ts", import.meta.url), { execArgv: ["--import", "tsx"] });
  bench.defer(() => child.kill());
  const order: BareOrder = { redisUrl: redisServer.url, natsUrl: natsServer.url, subject: channel, ...of };
  child.send(order);
  await once(child, "message");
  return { channel, stream, pid: child.pid as number, logs: () => "" };
}

async function checkOrder({ streams }: Servers, stream: string, count: number): Promise<void> {
  const ids = (await bodiesOf(streams, stream)).map((body) => (JSON.parse(body) as { drop_id: string }).drop_id);
  check(ids.length === count && new Set(ids).size === count, `every event is in ${stream} once`);
  check(
    ids.every((id, at) => Number(id) === at),
    `${stream} holds the events in the order of their arrival`,
  );
}
