import type { Cluster, Redis } from "ioredis";
import { startUpstreams } from "../../support/upstreams.js";
import type { World } from "../../support/world.js";
import type { Addresses, Bench, Servers } from "./bench.js";
import { type Cpu, cpuSeconds } from "./measure.js";

const TURN_MS = 700;

/** One server and a Redis Cluster do the same work. */
export type Both<T> = Readonly<Record<"server" | "cluster", T>>;

export type Side = Addresses &
  Pick<Servers, "streams"> & {
    readonly redis: Redis | Cluster;
    readonly masters: readonly { readonly pid: number }[];
  };

/** Starts both with a nats-server each; services of both ask the same upstreams. */
export async function openSides(bench: Bench, world: World): Promise<Both<Side>> {
  const upstreams = await startUpstreams(world);
  bench.defer(() => upstreams.stop());
  const { redis, redisServer } = await bench.redis({ appendonly: true });
  const others = async () => ({ ...(await bench.nats()), upstreams, world });
  return {
    server: { redis, redisServer, masters: [redisServer], ...(await others()) },
    cluster: { ...(await bench.redisCluster()), ...(await others()) },
  };
}

export async function onBoth<T>(sides: Both<Side>, work: (side: Side) => Promise<T>): Promise<Both<T>> {
  return { server: await work(sides.server), cluster: await work(sides.cluster) };
}

/** Yields true once this turn has lasted long enough: CPU time is counted in steps of 10 ms. */
export function endOfTurn(): () => boolean {
  const end = performance.now() + TURN_MS;
  return () => performance.now() >= end;
}

/** Yields the CPU time of a process, and of all masters together, for each unit that the work resolves to. */
export async function cpuOfUnit(
  { masters }: Side,
  service: { readonly pid: number },
  work: () => Promise<number>,
): Promise<Cpu> {
  const spent = (): readonly [number, number] => [
    cpuSeconds(service.pid),
    masters.reduce((sum, { pid }) => sum + cpuSeconds(pid), 0),
  ];
  const before = spent();
  const units = await work();
  const after = spent();
  return { service: (1e6 * (after[0] - before[0])) / units, redis: (1e6 * (after[1] - before[1])) / units };
}
