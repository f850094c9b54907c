import { setTimeout as delay } from "node:timers/promises";
import slotOf from "cluster-key-slot";
import { Redis } from "ioredis";
import type { Broker } from "../../src/sandbox/brokers/index.js";
import { TOMBSTONES_KEY } from "../../src/state/keys.js";
import { BusyWorld } from "./busy-world.js";
import {
  moveSlot,
  type NatsCluster,
  ownerAtFirst,
  type RedisCluster,
  startNatsCluster,
  startRedisCluster,
} from "./clusters.js";
import { eventually } from "./eventually.js";
import { type Postgres, startPostgres } from "./postgres.js";
import { below, oneOf, type Random } from "./random.js";
import { openReader, type Reader } from "./reader.js";
import { freePorts, type Service, startService } from "./service.js";
import { type EventStream, openEvents, type WireEvent } from "./sse.js";
import { withLogs } from "./stack.js";
import { openStreams, type Streams } from "./streams.js";
import { homeKey } from "./timeline-keys.js";

/** The whole service, each role in processes of its own, on servers that may fail one by one. */
export interface Rehearsal {
  readonly world: BusyWorld;
  /** One for each process that serves pages. */
  readonly readers: readonly Reader[];
  /** Where streams of events are served. */
  readonly gateways: readonly string[];
  readonly streams: Streams;
  /** Each process, by its roles and a number. */
  readonly processes: ReadonlyMap<string, Service>;
  /** Processes that have ended. */
  readonly ended: readonly number[];
  /** The error with the last lines of every process. */
  explain(error: unknown): unknown;
  readonly servers: Servers;
}

interface Servers {
  readonly redis: RedisCluster;
  readonly nats: NatsCluster;
  readonly postgres: Postgres;
}

/**
 * Audits would mend what is to be found, and are off. In a container Node takes half of the memory for its heap: 256 of the
 * 512 MiB that the chart gives most roles.
 */
const ENV = {
  NODE_OPTIONS: "--max-old-space-size=256",
  TIMELINE_NATS_REPLICAS: "3",
  TIMELINE_ACK_WAIT_MS: "5000",
  TIMELINE_RETRY_BASE_MS: "50",
  TIMELINE_AUDIT_INTERVAL_MS: "0",
};

/** `defer` leaves a function to be called in the end, last first. */
export async function openRehearsal(
  people: readonly string[],
  random: Random,
  defer: (close: () => unknown) => void,
): Promise<Rehearsal> {
  const redis = await startRedisCluster({ replicas: true });
  defer(() => redis.stop());
  const nats = await startNatsCluster();
  defer(() => nats.stop());
  const postgres = await startPostgres();
  defer(() => postgres.stop());
  const [port] = await freePorts();
  const address = `127.0.0.1:${port}`;
  const processes = new Map<string, Service>();
  const ended: number[] = [];
  const start = async (roles: string, own: Readonly<Record<string, string>> = {}): Promise<Service> => {
    const service = await startService({
      ...{ redisUrl: redis.urls, natsUrl: nats.urls, usersAddress: address, postsAddress: address, roles },
      env: { ...ENV, DATABASE_URL: postgres.url, ...own },
    });
    processes.set(`${roles} ${processes.size}`, service);
    void service.exited.then(() => ended.push(service.pid));
    defer(() => service.stop());
    return service;
  };
  await start("users,posts", { TIMELINE_GRPC_ADDR: address });
  for (const roles of ["fanout", "fanout", "bridge"]) await start(roles);
  const apis = [await start("api"), await start("api")];
  const gateways = [await start("gateway"), await start("gateway")];
  const world = new BusyWorld(address, people, random);
  defer(() => world.close());
  const readers = apis.map(({ grpcAddress }) => openReader(grpcAddress));
  defer(() => readers.map((reader) => reader.close()));
  const streams = await openStreams(nats.urls);
  defer(() => streams.close());
  return {
    ...{ world, readers, streams, processes, ended, servers: { redis, nats, postgres } },
    gateways: gateways.map(({ httpUrl }) => httpUrl),
    explain: (error) => withLogs(error, [...processes.values()]),
  };
}

/** Moves slots to and fro until it is stopped. */
class SlotMoves {
  moved = 0;
  #isOver = false;
  readonly #over: Promise<void>;

  /** `owners` has the place of each slot's master, and is kept up to date. */
  constructor(
    private readonly cluster: RedisCluster,
    private readonly owners: Map<number, number>,
    private readonly random: Random,
  ) {
    this.#over = this.#run();
    this.#over.catch(() => undefined);
  }

  async stop(): Promise<number> {
    this.#isOver = true;
    await this.#over;
    return this.moved;
  }

  async #run(): Promise<void> {
    const { masters } = this.cluster;
    while (!this.#isOver) {
      const [slot, from] = oneOf(this.random, [...this.owners]);
      const to = (from + 1 + below(this.random, 2)) % masters.length;
      this.moved += await moveSlot(this.cluster, slot, masters[from] as Broker, masters[to] as Broker);
      this.owners.set(slot, to);
      await delay(50);
    }
  }
}

/** Each step of a fault lasts so long. */
const STEP_MS = 6_000;

/** Faults of single servers; slots of these homes and of the tombstones move meanwhile, except at a failover of Redis. */
export function faultsOf({ redis, nats, postgres }: Servers, homes: readonly string[], random: Random) {
  const slots = [TOMBSTONES_KEY, ...homes.map(homeKey)].map((key) => slotOf(key));
  const owners = new Map(slots.map((slot) => [slot, ownerAtFirst(slot)]));
  let cluster = redis;
  let moved = 0;
  const moving = (work: () => Promise<void>) => async (): Promise<void> => {
    const moves = new SlotMoves(cluster, owners, random);
    await work();
    moved += await moves.stop();
  };
  return {
    moved: (): number => moved,
    onlyMoves: moving(() => delay(STEP_MS)),
    nats: moving(async () => {
      const leader = (await nats.leaderOf("DROPS")) ?? (nats.servers[0] as Broker);
      leader.kill("SIGKILL");
      await leader.exited;
      await delay(STEP_MS);
      await nats.restart(leader);
      await delay(STEP_MS);
    }),
    postgres: moving(async () => {
      await postgres.kill();
      await delay(STEP_MS / 2);
      await postgres.start();
      await delay(STEP_MS);
    }),
    redis: async (): Promise<void> => {
      cluster = { ...redis, masters: await failOver(redis, below(random, 3)) };
    },
  };
}

/** Kills a master, and starts it again once its replica is the master, whose replica it becomes. */
async function failOver(redis: RedisCluster, victim: number): Promise<readonly Broker[]> {
  const [master, replica] = [redis.masters[victim] as Broker, redis.replicas[victim] as Broker];
  const nodes = [...redis.masters, ...redis.replicas];
  // A replica that does not know yet who got a slot of its master claims the slot once it takes over.
  await eventually(async () => new Set(await Promise.all(nodes.map(ownersAt))).size === 1, "all nodes know the owners");
  const link = new Redis(replica.url);
  master.kill("SIGKILL");
  await master.exited;
  await eventually(async () => (await link.role())[0] === "master", "the replica has taken over", 60_000);
  await delay(STEP_MS / 2);
  await redis.restart(master);
  await eventually(async () => /slave0:.*state=online/.test(await link.info("replication")), "it is a replica", 60_000);
  link.disconnect();
  return redis.masters.with(victim, replica);
}

/** Returns the ranges of slots and the ports of their masters, as a node knows them. */
async function ownersAt(node: Broker): Promise<string> {
  const link = new Redis(node.url);
  const ranges = (await link.call("CLUSTER", "SLOTS")) as [number, number, [string, number]][];
  link.disconnect();
  return ranges
    .map(([from, to, [, port]]) => `${from}-${to} ${port}`)
    .sort()
    .join();
}

/** A client that opens its stream again, at the next gateway, whenever it ends. */
export class Listener {
  readonly #streams: EventStream[] = [];
  #lastId = "";
  #isOver = false;
  readonly #over: Promise<void>;

  constructor(
    private readonly gateways: readonly string[],
    readonly user: string,
  ) {
    this.#over = this.#run();
  }

  get isOpen(): boolean {
    return this.#streams.at(-1)?.isOver() === false;
  }

  get events(): WireEvent[] {
    return this.#streams.flatMap(({ events }) => [...events]);
  }

  async close(): Promise<void> {
    this.#isOver = true;
    for (const stream of this.#streams) stream.close();
    await this.#over;
  }

  async #run(): Promise<void> {
    for (let turn = this.user.length; !this.#isOver; turn++) {
      const url = this.gateways[turn % this.gateways.length] as string;
      const stream = await openEvents(url, this.user, this.#lastId || undefined).catch(() => undefined);
      if (stream) {
        this.#streams.push(stream);
        if (this.#isOver) stream.close();
        await stream.ended;
        this.#lastId = stream.lastId() || this.#lastId;
      }
      if (!this.#isOver) await delay(200);
    }
  }
}
