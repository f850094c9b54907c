import { afterEach, expect, test } from "@jest/globals";
import { Redis } from "ioredis";
import type { Broker } from "../../src/sandbox/brokers/index.js";
import { privateRedis } from "../support/brokers.js";
import { type ClusterScene, openClusterScene } from "../support/cluster-load.js";
import { type NatsCluster, startNatsCluster } from "../support/clusters.js";
import { eventually } from "../support/eventually.js";
import { samplesOf } from "../support/scrape.js";
import { httpStatus, type Service, untilReady } from "../support/service.js";
import { type EventStream, openEvents } from "../support/sse.js";
import { publish } from "../support/timeline-events.js";

const READERS = Array.from({ length: 12 }, (_, number) => `reader-${number}`);
const STREAMS = ["DROPS", "FANOUT", "NOTIFY"];
const closes: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closes.splice(0).reverse()) await close();
});

type Scene = ClusterScene & {
  readonly nats: NatsCluster;
  readonly redis: Redis;
  /** A process without a bridge that knows the other servers only. */
  readonly beyond: Service;
};

/** Three servers, of which the first leads the streams; a service that knows only the first; the test sees the others. */
async function openScene(): Promise<Scene> {
  const nats = await startNatsCluster();
  closes.push(() => nats.stop());
  const redisServer = await privateRedis({ appendonly: true });
  closes.push(() => redisServer.stop());
  const redis = new Redis(redisServer.url);
  closes.push(() => redis.disconnect());
  const [first, ...rest] = nats.servers.map(({ url }) => url);
  const others = rest.join(",");
  const scene = await openClusterScene({
    ...{ redisUrl: redisServer.url, natsUrl: first as string, lookUrl: others, readers: READERS, redis },
    // Pages of five followers: the audience is queued in chunks.
    env: { TIMELINE_NATS_REPLICAS: "3", TIMELINE_ACK_WAIT_MS: "5000", TIMELINE_FANOUT_CHUNK_SIZE: "5" },
    tell: (event) => publish(redis, event),
    defer: (close) => closes.push(close),
  });
  const beyond = await scene.start(others, "fanout,api,gateway");
  for (const stream of STREAMS) await nats.lead(stream, nats.servers[0] as Broker);
  return { ...scene, nats, redis, beyond };
}

/** Cuts the first server off, and waits until the others have leaders of their own. */
async function cutOff({ nats, streams }: Scene): Promise<void> {
  nats.isolate(0);
  const led = async (stream: string): Promise<boolean> => {
    const leader = await nats.leaderOf(stream, streams.manager).catch(() => undefined);
    return leader !== undefined && leader !== nats.servers[0];
  };
  for (const stream of STREAMS) await eventually(() => led(stream), `the others lead ${stream}`, 30_000);
}

async function spentAttempts({ httpUrl }: Service): Promise<object[]> {
  const samples = samplesOf(await (await fetch(`${httpUrl}/metrics`)).text());
  const spent = ["retried", "dead-lettered"];
  return samples.filter(
    ({ name, labels: { outcome = "" }, value }) =>
      name === "timeline_deliveries_total" && spent.includes(outcome) && value > 0,
  );
}

/**
 * What an interruption made too much to replay is told as a reset. So is an end of NOTIFY that the server which was cut
 * off names before it hears that it leads no more.
 */
async function heardAll(stream: EventStream, { history }: ClusterScene): Promise<void> {
  await eventually(
    () => new Set(stream.drops()).size === history.length || stream.events.some(({ event }) => event === "reset"),
    "the stream has heard of everything, or says that it has not",
    30_000,
  );
  expect(stream.drops()).toHaveLength(new Set(stream.drops()).size);
  const positions = stream.events.flatMap(({ event, id = "" }) => (event === "reset" ? [] : [Number.parseInt(id, 10)]));
  expect(positions).toEqual([...positions].sort((one, other) => one - other));
}

/** What a process has said at level warn or error, without what tells one time from another. */
function warnings({ output }: Service): string[] {
  const lines = output()
    .split("\n")
    .filter((line) => /"level":"(warn|error)"/.test(line));
  return lines.map((line) => {
    const { msg, stream, consumer, sample, channel } = JSON.parse(line) as Record<string, string | undefined>;
    return [msg, stream, consumer, sample, channel].filter((part) => part !== undefined).join(" ");
  });
}

// Invariants 1, 8.
test("a server is cut off with a service: its events wait, the other side goes on, and nothing is lost or doubled", async () => {
  const scene = await openScene();
  const { service, beyond, streams, history, load, admit, landed, redis } = scene;
  const heard = await Promise.all([service, beyond].map(({ httpUrl }) => openEvents(httpUrl, "reader-1")));
  await load(20);
  await streams.settledWith(20);
  const before = warnings(service).length;
  await cutOff(scene);
  await load(40);
  await eventually(async () => (await httpStatus(`${service.httpUrl}/readyz`)) === 503, "the service is not ready");
  await untilReady(beyond);
  await admit(30);
  const home = async (): Promise<boolean> => (await redis.zcard("timeline:home:reader-1")) >= 50;
  await eventually(home, "the other side writes what it is given");
  expect(await streams.count("DROPS")).toBe(50);
  const said = warnings(service).slice(before);
  expect(said).toHaveLength(new Set(said).size);

  scene.nats.heal();
  await untilReady(service);
  await load(10);
  await landed();
  expect(history).toHaveLength(100);
  for (const stream of heard) await heardAll(stream, scene);
  expect([await spentAttempts(service), await spentAttempts(beyond)]).toEqual([[], []]);
}, 120_000);
