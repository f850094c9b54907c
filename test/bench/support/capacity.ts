import { readsOf } from "./population.js";
import { PUBLISHED } from "./published.js";
import type { Load } from "./scene.js";
import { CAP, coresOf, type Strategy } from "./strategies.js";
import type { UnitCosts } from "./unit-costs.js";

const [MINUTE_S, DAY_S] = [60, 86_400];

/** An operator chooses these; the rest is published or measured. */
export const CHOSEN = {
  busy: { value: 0.6, unit: "of a core may be used at peak" },
  redisBytes: {
    value: 25e9,
    unit: "bytes of data a Redis process holds, on a host with twice as much: rewriting the append-only file copies what changes meanwhile",
  },
  masters: {
    value: 500,
    unit: "masters of a Redis Cluster, each with a replica: its specification goes up to 1,000 nodes",
  },
  replicas: { value: 3, unit: "replicas of each NATS stream" },
  natsCores: { value: 8, unit: "cores of a NATS server" },
  streams: { value: 50_000, unit: "streams a gateway opens, as TIMELINE_SSE_MAX_CONNECTIONS" },
} as const;

export const PEAK = PUBLISHED.dropsAtPeak.value / PUBLISHED.drops.value;
/** Share of the users with an open stream, on the average. */
export const LISTENING = (PUBLISHED.daily.value * PUBLISHED.minutes.value * MINUTE_S) / DAY_S;

/** Homes fit into one Redis process, or there is a Cluster. */
export const formOf = (users: number, costs: UnitCosts): "server" | "cluster" =>
  users * CAP * costs.homeEntry.value <= CHOSEN.redisBytes.value ? "server" : "cluster";

/** Requests a second at peak, and streams open then. */
export function requestsOf({ users, push, usual }: Load) {
  const drops = PEAK * (PUBLISHED.drops.value / PUBLISHED.users.value) * users;
  const entries = PEAK * push.pushed;
  return {
    ...{ drops, reads: PEAK * readsOf(users), entries, streams: PEAK * LISTENING * users },
    notifications: entries * PEAK * LISTENING,
    merged: usual.merged.perRead,
  };
}

export function bytesKept(load: Load, costs: UnitCosts) {
  const { users, followings, usual } = load;
  const daily = (PUBLISHED.drops.value / PUBLISHED.users.value) * users * DAY_S;
  return {
    homes: users * CAP * costs.homeEntry.value,
    pulls: users * usual.merged.mean * costs.pullsMember.value,
    dropsAYear: 365 * daily * costs.drop.value,
    follows: users * followings * costs.follow.value,
    log: 7 * daily * costs.dropInLog.value,
    completions: daily * costs.completion.value,
    notify: 10 * MINUTE_S * requestsOf(load).notifications * costs.notification.value,
  };
}

const processes = (cores: number): number => Math.ceil(cores / CHOSEN.busy.value);

/** Masters that Redis needs at peak for the CPU of a strategy. */
export function mastersByCpu(strategy: Strategy, users: number, costs: UnitCosts): number {
  const { entry, page, author } = costs[formOf(users, costs)];
  const unit = { entry: entry.value, page: page.value, author: author.value };
  return processes(PEAK * coresOf(strategy, users, unit).all);
}

/** Processes and servers at peak, with every author pushed. */
export function nodesOf(load: Load, costs: UnitCosts) {
  const { users, push, raised, usual } = load;
  const { drops, reads, entries, streams, notifications } = requestsOf(load);
  const { homes } = bytesKept(load, costs);
  const { workerEntry, apiPage } = costs[formOf(users, costs)];
  const worker =
    drops * costs.workerDrop.value + entries * workerEntry.value + notifications * costs.workerNotification.value;
  const nats = drops * costs.natsDrop.value + notifications * costs.natsNotification.value;
  const natsCores = (CHOSEN.replicas.value * nats) / 1e6 / CHOSEN.busy.value;
  return {
    byMemory: Math.ceil(homes / CHOSEN.redisBytes.value),
    byCpu: mastersByCpu(push, users, costs),
    byCpuRaised: mastersByCpu(raised, users, costs),
    byCpuUsual: mastersByCpu(usual, users, costs),
    workers: processes(worker / 1e6),
    apis: processes((reads * apiPage.value) / 1e6),
    gateways: Math.max(
      Math.ceil(streams / CHOSEN.streams.value),
      processes((notifications * costs.gatewayEvent.value) / 1e6),
    ),
    posts: processes((drops * costs.postsDrop.value) / 1e6),
    databases: Math.ceil(drops / (CHOSEN.busy.value * costs.dropsASecond.value)),
    nats: Math.max(CHOSEN.replicas.value, Math.ceil(natsCores / CHOSEN.natsCores.value)),
  };
}

export interface Limit {
  readonly what: string;
  /** A second, or bytes. */
  readonly limit: number;
  readonly unit: string;
  /** Users at whose peak it is reached. */
  readonly users: number;
}

/** Limits that one more server does not move; the first to be reached comes first. Each user adds what one of `load` adds. */
export function limitsOf(load: Load, costs: UnitCosts): Limit[] {
  const { drops, entries, notifications } = requestsOf(load);
  const { homes } = bytesKept(load, costs);
  const core = 1e6 * CHOSEN.busy.value;
  const cluster = CHOSEN.masters.value * CHOSEN.busy.value;
  const of = (what: string, [limit, unit]: readonly [number, string], needed: number): Limit => ({
    ...{ what, limit, unit },
    users: (load.users * limit) / needed,
  });
  const cpu = (strategy: Strategy): number => {
    const { entry, page, author } = costs.cluster;
    const unit = { entry: entry.value, page: page.value, author: author.value };
    return PEAK * coresOf(strategy, load.users, unit).all;
  };
  const each = ({ value }: { readonly value: number }): number => core / value;
  return [
    of("Index of listeners, one key", [each(costs.listenerLook), "looks/s"], entries),
    of("`NOTIFY`, one leader", [each(costs.natsNotification), "events/s"], notifications),
    of("Redis Cluster, CPU, push", [cluster, "cores"], cpu(load.push)),
    of("Redis Cluster, CPU, 100,000", [cluster, "cores"], cpu(load.usual)),
    of("Redis Cluster, memory", [CHOSEN.masters.value * CHOSEN.redisBytes.value, "B"], homes),
    of("PostgreSQL of `posts`", [CHOSEN.busy.value * costs.dropsASecond.value, "drops/s"], drops),
    of("`timeline:local`, one key", [each(costs.cluster.entry), "drops/s"], drops),
    of("`DROPS`, one leader", [each(costs.natsDrop), "drops/s"], drops),
    of("Bridge: each receives everything", [each(costs.bridgeEvent), "events/s"], drops),
  ].sort((a, b) => a.users - b.users);
}
