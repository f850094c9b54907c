import { fork } from "node:child_process";
import { once } from "node:events";
import { eventually } from "../support/eventually.js";
import type { Bench, Servers } from "./support/bench.js";
import type { BareOrder } from "./support/bridge-shared.js";
import { barePublish, bodiesOf } from "./support/log.js";
import { between, measured } from "./support/measure.js";
import { check, type Parameters, type Result } from "./support/result.js";

const POSTS = 30_000;
const PUBLISHED_A_CALL = 500;
const PATIENCE_MS = 60_000;

const ABOUT = `Redis Pub/Sub to PubAck: \`drop_created\` events that one bridge admits to the log. They are published by a script inside
Redis. The ceiling is a bare asynchronous publish into a stream of the same configuration, with message ids, under one
inbox, its PubAcks counted. The bare loop is a process that reads the same events from another channel by the same client, publishes their bytes
into a stream of the same configuration, with message ids, and counts PubAcks: it parses nothing, keeps nothing to try again, and continues no trace.`;

/** Channel and subject of the bare loop, and its stream. */
const BARE = "bare_loop";
const BARE_LOOP = "BARE_LOOP";

// KEYS: none; ARGV: channel, first number, count, text before and after the number.
const PUBLISH = `for n = tonumber(ARGV[2]), ARGV[2] + ARGV[3] - 1 do
  redis.call('PUBLISH', ARGV[1], ARGV[4] .. string.format('%012d', n) .. ARGV[5])
end`;

export async function run({ posts = POSTS }: Parameters, bench: Bench): Promise<Result> {
  const servers = await bench.servers();
  const { redisServer, natsServer, streams } = servers;
  const service = await bench.service(servers, { roles: "bridge" });
  const bare = await startBare(bench, servers);
  const created_at = Date.now();
  const admit = createFeed(servers, { channel: "drop_created", stream: "DROPS", created_at, logs: service.logs });
  const publish = createFeed(servers, { channel: BARE, stream: BARE_LOOP, created_at, logs: () => "" });
  // The first events make the processes compile what they run.
  await admit(posts);
  await publish(posts);
  const processes = { bridge: service.pid, redis: redisServer.pid, nats: natsServer.pid };
  const bareProcesses = { "bare loop": bare, redis: redisServer.pid, nats: natsServer.pid };
  const [ceiling, [own, bound]] = await between(
    () => barePublish(streams, { like: "DROPS", count: posts, bodyOf: (n) => bodyOf(n, created_at) }),
    async () => [
      await measured({ processes, units: posts }, () => admit(posts)),
      await measured({ processes: bareProcesses, units: posts }, () => publish(posts)),
    ],
  );
  await checkOrder(servers, "DROPS", 2 * posts);
  await checkOrder(servers, BARE_LOOP, 2 * posts);
  const peer = { name: "bare publish", value: ceiling };
  const target = { atLeast: 0.8 };
  const rowOf = (name: string, { seconds, cpu }: typeof own) => ({
    name,
    value: posts / seconds,
    unit: "/s",
    peer,
    cpu,
  });
  return { about: ABOUT, rows: [{ ...rowOf("events admitted", own), target }, rowOf("bound: bare loop", bound)] };
}

const bodyOf = (n: number | string, created_at: number): string =>
  `{"drop_id":"${typeof n === "string" ? n : String(n).padStart(12, "0")}","user_id":"alice","visibility":"followers","created_at":${created_at}}`;

/** Publishes events and waits until the stream holds them. */
function createFeed(
  { redis, streams }: Servers,
  of: { readonly channel: string; readonly stream: string; readonly created_at: number; readonly logs: () => string },
): (count: number) => Promise<void> {
  const [before, after] = bodyOf("|", of.created_at).split("|") as [string, string];
  let published = 0;
  return async (count) => {
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
}

/** Starts the bare loop; yields its process id. */
async function startBare(bench: Bench, { redisServer, natsServer, streams }: Servers): Promise<number> {
  const { config } = await streams.manager.streams.info("DROPS");
  await streams.manager.streams.add({ ...config, name: BARE_LOOP, subjects: [BARE] });
  const child = fork(new URL("./support/bridge-bare.ts", import.meta.url), { execArgv: ["--import", "tsx"] });
  bench.defer(() => child.kill());
  const order: BareOrder = { redisUrl: redisServer.url, natsUrl: natsServer.url, channel: BARE, subject: BARE };
  child.send(order);
  await once(child, "message");
  return child.pid as number;
}

async function checkOrder({ streams }: Servers, stream: string, count: number): Promise<void> {
  const ids = (await bodiesOf(streams, stream)).map((body) => (JSON.parse(body) as { drop_id: string }).drop_id);
  check(ids.length === count && new Set(ids).size === count, `every event is in ${stream} once`);
  check(
    ids.every((id, at) => Number(id) === at),
    `${stream} holds the events in the order of their arrival`,
  );
}
