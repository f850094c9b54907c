import { afterAll, beforeAll, test } from "@jest/globals";
import { Redis } from "ioredis";
import { type Broker, startNats, startRedis } from "../../src/sandbox/brokers/index.js";
import { privateNats, privateRedis } from "./brokers.js";
import { openReader, type Reader } from "./reader.js";
import { type Service, type ServiceOptions, startService } from "./service.js";
import { openStreams, type Streams } from "./streams.js";
import { quickTest, slowTest } from "./suite.js";
import { publish, type TimelineEvent } from "./timeline-events.js";
import { startUpstreams, type UpstreamOptions, type Upstreams } from "./upstreams.js";
import { World } from "./world.js";

/** Differences from the usual stack. */
export type StackOptions = UpstreamOptions & {
  readonly env?: Readonly<Record<string, string>>;
  readonly roles?: string;
  /** Where Redis and NATS keep their data; unset: in folders of their own. */
  readonly dirs?: { readonly redis?: string; readonly nats?: string };
  /** True: left to `npm run test:all`. */
  readonly slow?: boolean;
  /** Time the whole test may take. */
  readonly timeoutMs?: number;
  /** False: brokers and upstreams only; the test starts services itself. */
  readonly service?: boolean;
};

/** Brokers, upstream services and the service, all private, and the means to look at them. */
export type Stack = {
  readonly redis: Redis;
  readonly redisServer: Broker;
  readonly natsServer: Broker;
  readonly streams: Streams;
  readonly world: World;
  readonly upstreams: Upstreams;
  /** The first service. */
  readonly service: Service;
  /** Reads from the first service. */
  readonly reads: Reader;
  /** Starts one more service on the same brokers. */
  start(options?: Pick<ServiceOptions, "roles" | "env" | "command">): Promise<Service>;
  /** Addresses for a further service. */
  readonly serviceOptions: ServiceOptions;
  publish(...events: readonly TimelineEvent[]): Promise<void>;
  /** Leaves `close` to be called at the end, last first. */
  defer(close: () => unknown): void;
  /** Leaves `close` to be called once the services have ended: a broker that took the place of another one. */
  afterServices(close: () => unknown): void;
  /** The error with the last lines of every service. */
  explain(error: unknown): unknown;
  stop(): Promise<void>;
};

/** The same on servers that are clusters, too. */
export type Place = Omit<Stack, "redis" | "redisServer" | "natsServer" | "publish">;

/** Starts everything. */
export function startStack(options: StackOptions = {}): Promise<Stack> {
  return closing((closes) => assemble(options, closes));
}

/** Starts everything else on brokers that `open` starts; it leaves what ends them in `closes`. */
export function startPlace(
  open: (closes: Array<() => unknown>) => Promise<Urls>,
  options: StackOptions = {},
): Promise<Place> {
  return closing(async (closes) => assembleOn(await open(closes), options, closes));
}

type Urls = { readonly redisUrl: string; readonly natsUrl: string };

async function closing<Made>(make: (closes: Array<() => unknown>) => Promise<Made>): Promise<Made> {
  const closes: Array<() => unknown> = [];
  try {
    return await make(closes);
  } catch (error) {
    await closeAll(closes);
    throw error;
  }
}

async function closeAll(closes: Array<() => unknown>): Promise<void> {
  for (const close of closes.splice(0).reverse()) await close();
}

async function assemble(options: StackOptions, closes: Array<() => unknown>): Promise<Stack> {
  const { redis: redisDir, nats: natsDir } = options.dirs ?? {};
  const redisServer = await (redisDir === undefined
    ? privateRedis({ appendonly: true })
    : startRedis({ appendonly: true, dir: redisDir }));
  closes.push(() => redisServer.stop());
  const natsServer = await (natsDir === undefined ? privateNats() : startNats({ dir: natsDir }));
  closes.push(() => natsServer.stop());
  const redis = new Redis(redisServer.url, { maxRetriesPerRequest: null });
  redis.on("error", () => undefined);
  closes.push(() => redis.disconnect());
  const place = await assembleOn({ redisUrl: redisServer.url, natsUrl: natsServer.url }, options, closes);
  const own = {
    redis,
    redisServer,
    natsServer,
    publish: (...events: readonly TimelineEvent[]) => publish(redis, ...events),
  };
  // A copy of the fields would call the getters, which throw where there is no service.
  return Object.defineProperties(own, Object.getOwnPropertyDescriptors(place)) as Stack;
}

async function assembleOn(urls: Urls, options: StackOptions, closes: Array<() => unknown>): Promise<Place> {
  const brokers = closes.length;
  const world = new World();
  const upstreams = await startUpstreams(world, options);
  closes.push(() => upstreams.stop());
  const streams = await openStreams(urls.natsUrl);
  closes.push(() => streams.close());
  const { usersAddress, postsAddress } = upstreams;
  const serviceOptions = {
    ...{ ...urls, usersAddress, postsAddress },
    ...(options.roles === undefined ? {} : { roles: options.roles }),
    ...(options.env === undefined ? {} : { env: options.env }),
  };
  const services: Service[] = [];
  const start: Stack["start"] = async (own = {}) => {
    const service = await startService({ ...serviceOptions, ...own, env: { ...options.env, ...own.env } });
    services.push(service);
    closes.push(() => service.stop());
    return service;
  };
  const first = options.service === false ? undefined : await start();
  const reads = first === undefined ? undefined : openReader(first.grpcAddress);
  if (reads !== undefined) closes.push(() => reads.close());
  return {
    ...{ streams, world, upstreams, start, serviceOptions, stop: () => closeAll(closes) },
    get service() {
      return present(first);
    },
    get reads() {
      return present(reads);
    },
    defer: (close) => void closes.push(close),
    afterServices: (close) => void closes.splice(brokers, 0, close),
    explain: (error) => withLogs(error, services),
  };
}

/** A test with a stack of its own. */
export function testWithStack(name: string, options: StackOptions, work: (stack: Stack) => Promise<void>): void {
  const body = async (): Promise<void> => {
    const stack = await startStack(options);
    try {
      await work(stack);
    } catch (error) {
      throw stack.explain(error);
    } finally {
      await stack.stop();
    }
  };
  const declare = options.slow ? slowTest : quickTest;
  declare(name, body, options.timeoutMs);
}

/**
 * One stack for all tests that are declared with the function returned; they must use ids of their own. The log counts
 * from the start of the test. A test that fails takes its stack with it: the next one starts another.
 */
export function sharedStack(
  options: StackOptions = {},
): (name: string, work: (stack: Stack) => Promise<void>, timeoutMs?: number) => void {
  let stack: Stack | undefined;
  let isUsed = false;
  const end = async (): Promise<void> => {
    await stack?.stop();
    stack = undefined;
  };
  beforeAll(async () => {
    stack = await startStack(options);
  });
  afterAll(end);
  return (name, work, timeoutMs = options.timeoutMs) => {
    test(
      name,
      async () => {
        if (isUsed) await end();
        const shared = stack ?? (await startStack(options));
        stack = shared;
        isUsed = true;
        const streams = await countingFromNow(shared.streams);
        await work(Object.create(shared, { streams: { value: streams } })).catch((error: unknown) => {
          throw shared.explain(error);
        });
        isUsed = false;
      },
      timeoutMs,
    );
  };
}

async function countingFromNow(streams: Streams): Promise<Streams> {
  const { state } = await streams.manager.streams.info("DROPS");
  const before = state.messages;
  return {
    ...streams,
    count: async (stream) => (await streams.count(stream)) - (stream === "DROPS" ? before : 0),
    all: async (stream) => (await streams.all(stream)).filter(({ seq }) => stream !== "DROPS" || seq > state.last_seq),
    settled: (events, patienceMs) => streams.settled(before + events, patienceMs),
    settledWith: (atLeast, patienceMs) => streams.settledWith(before + atLeast, patienceMs),
  };
}

function present<T>(value: T | undefined): T {
  if (value === undefined) throw new Error("this stack has not started a service");
  return value;
}

/** Returns the error with the last lines of every service. */
export function withLogs(error: unknown, services: readonly Service[]): unknown {
  if (typeof error !== "object" || error === null || !("message" in error)) return error;
  const logs = services.map((service) => `--- service ${service.pid}, last lines ---\n${service.logs()}`).join("\n");
  const failure = error as Error;
  failure.stack = `${failure.stack ?? failure.message}\n${logs}`;
  return failure;
}
