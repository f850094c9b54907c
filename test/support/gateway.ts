/** Real brokers, a real server and clients that see every byte, for the tests of event streams. */
import { once } from "node:events";
import { createServer, request as httpRequest, type IncomingMessage, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, afterEach, beforeAll, beforeEach, expect } from "@jest/globals";
import { type JWTPayload, SignJWT } from "jose";
import { headers, type NatsConnection } from "nats";
import { notifyPartOf } from "../../src/contracts/notify-parts.js";
import { liveSubject, notifySubject, STREAM } from "../../src/contracts/subjects.js";
import type { GatewayConfig } from "../../src/gateway/config.js";
import { createEntrance, createGateway, type Gateway, type GatewayLimits, LIMITS } from "../../src/gateway/index.js";
import { encodeId } from "../../src/kernel/ids.js";
import { type Logger, silent } from "../../src/kernel/logger.js";
import { connectNats } from "../../src/platform/nats/connect.js";
import { presentParts } from "../../src/platform/nats/notify-streams.js";
import { createPublisher } from "../../src/platform/nats/publish.js";
import { applyTopology } from "../../src/platform/nats/topology.js";
import type { RedisClient } from "../../src/platform/redis/clusters.js";
import { connectRedis } from "../../src/platform/redis/connect.js";
import { createScripts, type Scripts } from "../../src/platform/redis/scripts.js";
import type { Broker } from "../../src/sandbox/brokers/index.js";
import type { Erased } from "../../src/state/erased/erasures.js";
import type { State } from "../../src/state/index.js";
import { createLogOut } from "../../src/state/listeners/logouts.redis.js";
import { privateNats, privateRedis } from "./brokers.js";
import { eventually } from "./eventually.js";
import { type EventStream, follow } from "./sse.js";
import { stateOn } from "./state.js";

const SECRET = "a secret of thirty-two bytes or a few more";
const CONFIG: GatewayConfig = {
  jwtSecrets: [SECRET],
  jwksUrl: undefined,
  jwtIssuer: undefined,
  jwtAudience: undefined,
  allowUnsafeTokens: false,
  allowedOrigins: [],
  maxConnections: 1_000,
  maxConnectionsPerUser: 20,
};
const FAST = { heartbeatMs: [80, 120], retryMs: [20, 40], renewMs: 50, sweepMs: 50, drainMs: 100 } as const;

let redis: Broker;
export let nats: Broker;
export let client: RedisClient;
let scripts: Scripts;
export let connection: NatsConnection;
export const cleanups: (() => unknown)[] = [];

beforeAll(async () => {
  [redis, nats] = await Promise.all([privateRedis(), privateNats()]);
  client = connectRedis([redis.url], silent);
  scripts = createScripts(client);
  connection = await connectNats({ servers: [nats.url], name: "gateway test" }, silent);
  await applyTopology(await connection.jetstreamManager(), { replicas: 1 }, silent);
});

afterAll(async () => {
  await connection.close();
  client.disconnect();
  await Promise.all([nats.stop(), redis.stop()]);
});

beforeEach(async () => {
  await eventually(async () => (await client.ping().catch(() => "")) === "PONG", "Redis answers");
  await client.flushall();
  const { streams } = await connection.jetstreamManager();
  for (const { part } of await presentParts(connection)) await streams.purge(part.stream);
  await streams.purge(STREAM.shared);
});

afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

export interface Running {
  readonly gateway: Gateway;
  readonly erased: Erased;
  readonly standings: State["standings"];
  readonly logOut: ReturnType<typeof createLogOut>;
  readonly url: string;
  readonly port: number;
  readonly server: Server;
}

interface Overrides {
  readonly scripts?: Scripts;
  readonly nats?: NatsConnection;
  readonly notifyParts?: number;
  readonly readHidden?: Parameters<typeof createGateway>[0]["readHidden"];
  readonly lists?: Parameters<typeof createGateway>[0]["lists"];
  readonly config?: Partial<GatewayConfig>;
  readonly limits?: Partial<GatewayLimits>;
  readonly log?: Logger;
}

export async function start({ config, limits, ...handles }: Overrides = {}): Promise<Running> {
  const usual = { log: silent, ...handles, config: { ...CONFIG, ...config } };
  const all = { ...LIMITS, ...FAST, ...limits };
  const entrance = createEntrance(usual, all);
  const publisher = createPublisher(connection, { notifyParts: handles.notifyParts ?? 1 });
  const state = stateOn(handles.scripts ?? scripts, { connection, ...publisher });
  const { erased, standings } = state;
  const logOut = createLogOut({ scripts, erased, ...publisher });
  const gateway = createGateway({ entrance, state, nats: connection, notifyParts: 1, podName: "pod-1", ...usual }, all);
  const server = createServer((request, response) => void entrance.handle(request, response)).listen(0, "127.0.0.1");
  await once(server, "listening");
  cleanups.push(async () => {
    await gateway.close(0);
    server.closeAllConnections();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  return { gateway, erased, standings, logOut, server, port, url: `http://127.0.0.1:${port}/events/timeline/home` };
}

export function token(sub: string, seconds = 600, more: JWTPayload = {}): Promise<string> {
  const exp = Math.floor(Date.now() / 1_000) + seconds;
  return new SignJWT({ sub, exp, ...more }).setProtectedHeader({ alg: "HS256" }).sign(new TextEncoder().encode(SECRET));
}

export async function send(user: string, drop: string, event = "new_drop", more = {}): Promise<number> {
  const body = JSON.stringify({ event, drop_id: drop, created_at: 1_700_000_000_000, ...more });
  return (await connection.jetstream().publish(notifySubject(user), body)).seq;
}

/** Several at once, in order. */
export async function sendMany(user: string, drops: readonly string[]): Promise<void> {
  await Promise.all(drops.map((drop) => send(user, drop)));
}

/** Publishes what only nats-server may: a live message that looks like one of NOTIFY. */
export function forge(user: string, drop: string, seq: number, parts = 1): void {
  const { stream, subject } = notifyPartOf(user, parts);
  const header = headers();
  for (const [name, value] of [
    ["Nats-Stream", stream],
    ["Nats-Subject", subject(encodeId(user))],
    ["Nats-Sequence", String(seq)],
    ["Nats-Last-Sequence", "0"],
  ] as const)
    header.append(name, value);
  const body = JSON.stringify({ event: "new_drop", drop_id: drop, created_at: 1_700_000_000_000 });
  connection.publish(liveSubject(user), body, { headers: header });
}

/** The connection of the tests, some functions of which are others. */
export function connectionWith(others: Partial<NatsConnection>, of = connection): NatsConnection {
  return new Proxy(of, {
    get: (target, name) => {
      const held: unknown = Reflect.get(name in others ? others : target, name);
      return typeof held === "function" ? held.bind(target) : held;
    },
  });
}

export const names = (prefix: string, count: number): string[] =>
  Array.from({ length: count }, (_, i) => `${prefix}${i}`);

/** A client of the gateway: the stream, its answer, and what tests of the gateway ask of them. */
export class Raw {
  constructor(
    readonly response: IncomingMessage,
    readonly stream: EventStream,
    readonly close: () => void,
  ) {}

  get text(): string {
    return this.stream.raw();
  }

  get lastId(): string {
    return this.stream.lastId();
  }

  get ended(): boolean {
    return this.stream.isOver();
  }

  get events(): EventStream["events"] {
    return this.stream.events;
  }

  /** The sequence in the last id. */
  get lastSeq(): number {
    return Number(this.lastId.split("-")[0]);
  }

  drops(): string[] {
    return this.stream.drops();
  }

  resets(): string[] {
    return this.events.filter(({ event }) => event === "reset").map(({ data }) => String(data.reason));
  }

  blocks(): string[] {
    return this.text.split("\n\n").filter(Boolean);
  }

  async sees(drops: readonly string[]): Promise<void> {
    await eventually(() => this.drops().length >= drops.length, `${drops.length} drops, not ${this.drops().length}`);
    expect(this.drops()).toEqual(drops);
  }

  async goes(): Promise<void> {
    this.close();
    await eventually(() => this.ended, "the client is gone");
  }
}

export async function ask(url: string, headers: Record<string, string>, method = "GET"): Promise<Raw> {
  const request = httpRequest(url, { headers, method, agent: false });
  request.on("error", () => undefined);
  request.end();
  const [response] = (await once(request, "response")) as [IncomingMessage];
  const raw = new Raw(response, follow(response), () => request.destroy());
  cleanups.push(raw.close);
  return raw;
}

export async function listen({ url }: Running, user: string, lastEventId?: string): Promise<Raw> {
  const headers = { authorization: `Bearer ${await token(user)}` };
  const raw = await ask(url, lastEventId === undefined ? headers : { ...headers, "last-event-id": lastEventId });
  expect(raw.response.statusCode).toBe(200);
  await eventually(() => raw.lastId !== "", "the first block");
  return raw;
}

export async function idle({ gateway }: Running): Promise<void> {
  await eventually(() => Object.values(gateway.counts()).every((count) => count === 0), "nothing is held any more");
}
