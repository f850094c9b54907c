import { rm } from "node:fs/promises";
import { join } from "node:path";
import { afterAll } from "@jest/globals";
import { Redis } from "ioredis";
import { type Broker, startNats, startRedis } from "../../src/sandbox/brokers/index.js";
import { privateNats, privateRedis, temporaryFolder } from "./brokers.js";
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
  /** True: the embedded database is in a folder of the stack. */
  readonly data?: boolean;
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
  const env = { ...options.env, ...(options.data && (await dataFolder(closes))) };
  const serviceOptions = {
    ...{ ...urls, usersAddress, postsAddress, env },
    ...(options.roles === undefined ? {} : { roles: options.roles }),
  };
  const services: Service[] = [];
  const start: Stack["start"] = async (own = {}) => {
    const service = await startService({ ...serviceOptions, ...own, env: { ...env, ...own.env } });
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

async function dataFolder(closes: Array<() => unknown>): Promise<Readonly<Record<string, string>>> {
  const folder = await temporaryFolder("data");
  closes.push(() => rm(folder, { recursive: true, force: true }));
  return { TIMELINE_DATA_DIR: join(folder, "data") };
}

/** A stack that several tests share, as one of them sees it. */
export type SharedStack = Stack & {
  /** Makes a name of the test's own. */
  id(name: string): string;
};

/** Declares a test. */
type Declare<Given> = (name: string, work: (stack: Given) => Promise<void>, timeoutMs?: number) => void;

/** A test with a stack of its own. */
export function testWithStack(name: string, options: StackOptions, work: (stack: Stack) => Promise<void>): void {
  const body = async (): Promise<void> => {
    const stack = await startStack(options);
    try {
      await workOn(stack, work);
    } finally {
      await stack.stop();
    }
  };
  const declare = options.slow ? slowTest : quickTest;
  declare(name, body, options.timeoutMs);
}

/**
 * One stack for all tests that are declared with the function returned; they must use ids of their own. The log counts
 * from the start of the test, and what the test starts or defers ends with it. A test that fails takes its stack with
 * it: the next one starts another.
 */
export function sharedStack(options: StackOptions = {}): Declare<SharedStack> {
  let stack: Stack | undefined;
  let isUsed = false;
  let tests = 0;
  const end = async (): Promise<void> => {
    await stack?.stop();
    stack = undefined;
  };
  afterAll(end);
  return (name, work, timeoutMs = options.timeoutMs) => {
    quickTest(
      name,
      async () => {
        if (isUsed) await end();
        isUsed = true;
        stack ??= await startStack(options);
        const closes: Array<() => unknown> = [];
        try {
          await workOn(await sceneOn(stack, ++tests, closes), work);
        } finally {
          await closeAll(closes);
        }
        isUsed = false;
      },
      timeoutMs,
    );
  };
}

async function workOn<Given extends Stack>(stack: Given, work: (stack: Given) => Promise<void>): Promise<void> {
  await work(stack).catch((error: unknown) => {
    throw stack.explain(error);
  });
}

async function sceneOn(shared: Stack, number: number, closes: Array<() => unknown>): Promise<SharedStack> {
  const start: Stack["start"] = async (options) => {
    const service = await shared.start(options);
    closes.push(() => service.stop());
    return service;
  };
  const own = {
    start,
    streams: await countingFromNow(shared.streams),
    defer: (close: () => unknown) => void closes.push(close),
    id: (name: string) => `${name}-${number}`,
  };
  return Object.assign(Object.create(shared) as Stack, own);
}

async function countingFromNow(streams: Streams): Promise<Streams> {
  // No service may have declared it.
  const info = await streams.manager.streams.info("DROPS").catch(() => undefined);
  const { messages: before, last_seq } = info?.state ?? { messages: 0, last_seq: 0 };
  return {
    ...streams,
    count: async (stream) => (await streams.count(stream)) - (stream === "DROPS" ? before : 0),
    all: async (stream) => (await streams.all(stream)).filter(({ seq }) => stream !== "DROPS" || seq > last_seq),
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
