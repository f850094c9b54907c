import type { Redis } from "ioredis";
import { eventually } from "../support/eventually.js";
import type { Bench } from "./support/bench.js";
import { barePublish, bodiesOf } from "./support/log.js";
import { between, measured } from "./support/measure.js";
import { check, type Parameters, type Result } from "./support/result.js";

const POSTS = 30_000;
const PUBLISHED_A_CALL = 500;
const PATIENCE_MS = 60_000;

const ABOUT = `Redis Pub/Sub to PubAck: \`drop_created\` events that one bridge admits to the log. They are published by a script inside
Redis. The ceiling is a bare asynchronous publish into a stream of the same configuration, with message ids, under one
inbox, its PubAcks counted.`;

// KEYS: none; ARGV: first number, count, text before and after the number.
const PUBLISH = `for n = tonumber(ARGV[1]), ARGV[1] + ARGV[2] - 1 do
  redis.call('PUBLISH', 'drop_created', ARGV[3] .. string.format('%012d', n) .. ARGV[4])
end`;

export async function run({ posts = POSTS }: Parameters, bench: Bench): Promise<Result> {
  const servers = await bench.servers();
  const { redis, redisServer, natsServer, streams } = servers;
  const service = await bench.service(servers, { roles: "bridge" });
  const [before, after] = ['{"drop_id":"', `","user_id":"alice","visibility":"followers","created_at":${Date.now()}}`];
  const bodyOf = (n: number): string => before + String(n).padStart(12, "0") + after;
  let published = 0;
  const through = async (count: number): Promise<void> => {
    await publish(redis, { from: published, count, before, after });
    published += count;
    const admitted = async (): Promise<true | string> => {
      const held = await streams.count("DROPS");
      return held >= published || `${held}; ${service.logs()}`;
    };
    await eventually(admitted, `${published} events are admitted`, PATIENCE_MS);
  };
  // The first events make the process compile what it runs.
  await through(posts);
  const processes = { bridge: service.pid, redis: redisServer.pid, nats: natsServer.pid };
  const [ceiling, { seconds, cpu }] = await between(
    () => barePublish(streams, { like: "DROPS", count: posts, bodyOf }),
    () => measured({ processes, units: posts }, () => through(posts)),
  );
  const ids = (await bodiesOf(streams, "DROPS")).map((body) => (JSON.parse(body) as { drop_id: string }).drop_id);
  check(ids.length === published && new Set(ids).size === published, "every event is in the log once");
  check(
    ids.every((id, at) => Number(id) === at),
    "the log holds the events in the order of their arrival",
  );
  const peer = { name: "bare publish", value: ceiling };
  const target = { atLeast: 0.8 };
  return { about: ABOUT, rows: [{ name: "events admitted", value: posts / seconds, unit: "/s", peer, target, cpu }] };
}

async function publish(
  redis: Redis,
  { from, count, before, after }: { from: number; count: number; before: string; after: string },
): Promise<void> {
  for (let done = 0; done < count; done += PUBLISHED_A_CALL)
    await redis.eval(PUBLISH, 0, from + done, Math.min(PUBLISHED_A_CALL, count - done), before, after);
}
