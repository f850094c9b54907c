import { MOST_NOTIFY_PARTS } from "../../../src/contracts/notify-parts.js";
import { MOST_CLUSTERS } from "../../../src/kernel/urls.js";
import { listenerParts } from "../../../src/state/keys.js";
import { readsOf } from "./population.js";
import { PUBLISHED } from "./published.js";
import { atThreshold, type CANDIDATES, DEFAULT_THRESHOLD, type Load } from "./scene.js";
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
    unit: "masters of a Cluster, each with a replica: the [specification](https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/) of Redis goes up to 1,000 nodes",
  },
  gossip: {
    value: 0.15,
    unit: "of a core for the gossip of 1,000 nodes: [0.12 with 900](https://github.com/redis/redis/issues/13789), growing with the square of the nodes",
  },
  replicas: { value: 3, unit: "replicas of each NATS stream" },
  natsCores: { value: 8, unit: "cores of a NATS server" },
  postgresCores: { value: 32, unit: "cores of a PostgreSQL server" },
  postgresBytes: {
    value: 128 * 2 ** 40,
    unit: "bytes of a PostgreSQL server, as [Aurora](https://docs.aws.amazon.com/AmazonRDS/latest/AuroraUserGuide/limitless-managing.html) has",
  },
  streams: { value: 50_000, unit: "streams a gateway opens, as TIMELINE_SSE_MAX_CONNECTIONS" },
} as const;

export const PEAK = PUBLISHED.dropsAtPeak.value / PUBLISHED.drops.value;
/** Share of the users with an open stream, on the average. */
export const LISTENING = (PUBLISHED.daily.value * PUBLISHED.minutes.value * MINUTE_S) / DAY_S;

/** Homes fit into one Redis process, or there is a Cluster. */
export const formOf = (users: number, costs: UnitCosts): "server" | "cluster" =>
  users * CAP * costs.homeEntry.value <= CHOSEN.redisBytes.value ? "server" : "cluster";

/** Requests a second at peak, and streams open then. */
export function requestsOf(load: Load) {
  const { users, push } = load;
  const drops = PEAK * (PUBLISHED.drops.value / PUBLISHED.users.value) * users;
  const entries = PEAK * push.pushed;
  return {
    ...{ drops, reads: PEAK * readsOf(users), entries, streams: PEAK * LISTENING * users },
    notifications: entries * PEAK * LISTENING,
    merged: atThreshold(load, DEFAULT_THRESHOLD).merged.perRead,
  };
}

export function bytesKept(load: Load, costs: UnitCosts) {
  const { users, followings } = load;
  const daily = (PUBLISHED.drops.value / PUBLISHED.users.value) * users * DAY_S;
  return {
    homes: users * CAP * costs.homeEntry.value,
    pulls: users * atThreshold(load, DEFAULT_THRESHOLD).merged.mean * costs.pullsMember.value,
    dropsAYear: 365 * daily * costs.drop.value,
    follows: users * followings * costs.follow.value,
    log: 7 * daily * costs.dropInLog.value,
    completions: daily * costs.completion.value,
    notify: 10 * MINUTE_S * requestsOf(load).notifications * costs.notification.value,
  };
}

const LISTENER_PARTS = listenerParts(true).length;

const processes = (cores: number): number => Math.ceil(cores / CHOSEN.busy.value);

/** Masters that Redis needs at peak for the CPU of a strategy. */
export function mastersByCpu(strategy: Strategy, users: number, costs: UnitCosts): number {
  const { entry, page, author } = costs[formOf(users, costs)];
  const unit = { entry: entry.value, page: page.value, author: author.value };
  return processes(PEAK * coresOf(strategy, users, unit).all);
}

/** Processes and servers at peak, with every author pushed. */
export function nodesOf(load: Load, costs: UnitCosts) {
  const { users, push } = load;
  const { drops, reads, entries, streams, notifications } = requestsOf(load);
  const { homes, dropsAYear } = bytesKept(load, costs);
  const { workerEntry, apiPage } = costs[formOf(users, costs)];
  const worker =
    drops * costs.workerDrop.value + entries * workerEntry.value + notifications * costs.workerNotification.value;
  const nats = drops * costs.natsDrop.value + notifications * costs.natsNotification.value;
  const natsCores = (CHOSEN.replicas.value * nats) / 1e6 / CHOSEN.busy.value;
  return {
    byMemory: Math.ceil(homes / CHOSEN.redisBytes.value),
    byCpu: mastersByCpu(push, users, costs),
    byCpuPulled: (threshold: (typeof CANDIDATES)[number]): number =>
      mastersByCpu(atThreshold(load, threshold), users, costs),
    workers: processes(worker / 1e6),
    apis: processes((reads * apiPage.value) / 1e6),
    gateways: Math.max(
      Math.ceil(streams / CHOSEN.streams.value),
      processes((notifications * costs.gatewayEvent.value) / 1e6),
    ),
    posts: processes((drops * costs.postsDrop.value) / 1e6),
    databases: Math.max(Math.ceil(drops / dropsOfDatabase(costs)), Math.ceil(dropsAYear / CHOSEN.postgresBytes.value)),
    nats: Math.max(CHOSEN.replicas.value, Math.ceil(natsCores / CHOSEN.natsCores.value)),
  };
}

const dropsOfDatabase = ({ databaseDrop }: UnitCosts): number =>
  (1e6 * CHOSEN.busy.value * CHOSEN.postgresCores.value) / databaseDrop.value;

const CLUSTERS = `Redis, ${MOST_CLUSTERS} Clusters`;
const MOST_MASTERS = MOST_CLUSTERS * CHOSEN.masters.value;

/** Cores that all Clusters have for the service at peak. */
const CLUSTER_CORES = MOST_MASTERS * (CHOSEN.busy.value - CHOSEN.gossip.value);

/** Cores that Redis needs at peak, in a Cluster. */
function clusterCores(strategy: Strategy, users: number, { cluster }: UnitCosts): number {
  const { entry, page, author } = cluster;
  return PEAK * coresOf(strategy, users, { entry: entry.value, page: page.value, author: author.value }).all;
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
  const { homes, dropsAYear, follows } = bytesKept(load, costs);
  const core = 1e6 * CHOSEN.busy.value;
  const of = (what: string, [limit, unit]: readonly [number, string], needed: number): Limit => ({
    ...{ what, limit, unit },
    users: (load.users * limit) / needed,
  });
  const cpu = (strategy: Strategy): number => clusterCores(strategy, load.users, costs);
  const each = ({ value }: { readonly value: number }): number => core / value;
  return [
    of(
      `Index of listeners, all of its ${LISTENER_PARTS} parts`,
      [LISTENER_PARTS * each(costs.listenerLook), "looks/s"],
      entries,
    ),
    of(
      `\`NOTIFY\`, all of its ${MOST_NOTIFY_PARTS} parts`,
      [MOST_NOTIFY_PARTS * each(costs.natsNotification), "events/s"],
      notifications,
    ),
    of(`${CLUSTERS}, CPU, push`, [CLUSTER_CORES, "cores"], cpu(load.push)),
    of(`${CLUSTERS}, CPU, default`, [CLUSTER_CORES, "cores"], cpu(atThreshold(load, DEFAULT_THRESHOLD))),
    of(`${CLUSTERS}, memory`, [MOST_MASTERS * CHOSEN.redisBytes.value, "B"], homes),
    of("PostgreSQL of `posts`, a year of drops", [CHOSEN.postgresBytes.value, "B"], dropsAYear),
    of("PostgreSQL of `users`, follows", [CHOSEN.postgresBytes.value, "B"], follows),
    of("PostgreSQL of `posts`, CPU", [dropsOfDatabase(costs), "drops/s"], drops),
    of("`timeline:local`, one key", [each(costs.cluster.entry), "drops/s"], drops),
    of("`DROPS`, one leader", [each(costs.natsDrop), "drops/s"], drops),
    of("Bridge: each receives everything", [each(costs.bridgeEvent), "events/s"], drops),
  ].sort((a, b) => a.users - b.users);
}

interface Settings {
  readonly what: string;
  readonly strategy: Strategy;
  readonly entries: number;
  /** Share of the users who have a home. */
  readonly homes: number;
}

/** Homes that a drop reaches, as published, which leaves out users who are away for 30 days. */
const asPublished = (push: Strategy, users: number): Strategy => ({
  ...push,
  pushed: (PUBLISHED.drops.value / PUBLISHED.users.value) * users * PUBLISHED.deliveries.value,
});

/** Settings by which fewer masters carry a load. */
export function settingsOf(load: Load, costs: UnitCosts) {
  const { users, push } = load;
  const daily = PUBLISHED.daily.value;
  const half: Strategy = { ...push, pushed: daily * push.pushed };
  const all: readonly Settings[] = [
    { what: "default", strategy: atThreshold(load, DEFAULT_THRESHOLD), entries: CAP, homes: 1 },
    { what: "push", strategy: push, entries: CAP, homes: 1 },
    { what: "push, 400 entries", strategy: push, entries: SMALL_CAP, homes: 1 },
    { what: "push, 400 entries, active, TTL of a day", strategy: half, entries: SMALL_CAP, homes: daily },
    { what: "push, 400 entries, 75 homes a drop", strategy: asPublished(push, users), entries: SMALL_CAP, homes: 1 },
  ];
  return all.map(({ what, strategy, entries, homes }) => {
    const bytes = homes * users * entries * costs.homeEntry.value;
    const cores = clusterCores(strategy, users, costs);
    return {
      ...{ what, bytes, cores },
      byMemory: Math.ceil(bytes / CHOSEN.redisBytes.value),
      byCpu: Math.ceil(cores / (CHOSEN.busy.value - CHOSEN.gossip.value)),
    };
  });
}

const SMALL_CAP = 400;
