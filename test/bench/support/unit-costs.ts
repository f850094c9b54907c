import { readFileSync } from "node:fs";
import type { Report } from "./report.js";
import type { Row } from "./result.js";

/** µs of CPU and bytes, each with the benchmark that measured it. */
export interface Unit {
  readonly value: number;
  readonly unit: "µs" | "B" | "/s" | "KB";
  readonly by: string;
}

/** Reads a stored run. */
export type Stored = (bench: string) => Pick<Report, "rows">;

export const storedRun: Stored = (bench) =>
  JSON.parse(readFileSync(`test/bench/results/${bench}.json`, "utf8")) as Report;

export type UnitCosts = ReturnType<typeof readUnitCosts>;

/** Users in a home of the fan-out benchmark's two audiences, with the author. */
const [SMALL, LARGE] = [101, 1_001];
/** Pulled authors of a reader of the benchmark `big`. */
const SOME = 20;

/** Everything the simulation and docs/capacity.md count with, from the stored runs. */
export function readUnitCosts(stored: Stored = storedRun) {
  const row = (bench: string, name: string): Row => {
    const found = stored(bench).rows.find((one) => one.name === name);
    if (found === undefined) throw new Error(`test/bench/results/${bench}.json has no row "${name}"`);
    return found;
  };
  const value = (bench: string, name: string, unit: Unit["unit"]): Unit => ({
    ...{ value: row(bench, name).value, unit, by: `\`${bench}\`` },
  });
  const cpu = (bench: string, name: string, process: string): Unit => {
    const used = row(bench, name).cpu?.[process];
    if (used === undefined) throw new Error(`test/bench/results/${bench}.json has no CPU of ${process} in "${name}"`);
    return { value: used, unit: "µs", by: `\`${bench}\`` };
  };
  /** A drop costs so much, and each of its entries; from two audiences. */
  const line = (process: string): { readonly drop: Unit; readonly entry: Unit } => {
    const [small, large] = ["audience 100, single", "audience 1000, single"].map((name) =>
      cpu("fanout", name, process),
    );
    const entry = ((large as Unit).value - (small as Unit).value) / (LARGE - SMALL);
    const by = "`fanout`";
    return {
      drop: { value: Math.max(0, (small as Unit).value - SMALL * entry), unit: "µs", by },
      entry: { value: entry, unit: "µs", by },
    };
  };
  const redis = line("redis");
  const [ofNone, ofSome] = [0, SOME].map((count) =>
    cpu("big", `a page of a follower of ${count} pulled authors`, "redis"),
  ) as [Unit, Unit];
  return {
    server: {
      entry: redis.entry,
      page: cpu("read", "GetHomeTimeline from Redis", "redis"),
      author: {
        value: (ofSome.value - ofNone.value) / SOME,
        unit: "µs",
        by: "`big`",
      },
      workerEntry: line("worker").entry,
      apiPage: cpu("read", "GetHomeTimeline from Redis", "service"),
    },
    cluster: {
      entry: value("cluster", "an entry, 1,000 followers: CPU of Redis", "µs"),
      page: value("cluster", "a page: CPU of Redis", "µs"),
      author: value("cluster", "one more author in a page: CPU of Redis", "µs"),
      workerEntry: value("cluster", "an entry, 1,000 followers: CPU of the worker", "µs"),
      apiPage: value("cluster", "a page: CPU of `api`", "µs"),
    },
    workerDrop: line("worker").drop,
    natsDrop: line("nats").drop,
    homeEntry: value("units", "Redis: an entry of a home of 1,000", "B"),
    pullsMember: value("units", "Redis: an author in a reader's pulls of 32", "B"),
    listenerLook: value("units", "Redis Cluster: a look for a listener among a million", "µs"),
    workerNotification: value("sse", "CPU of the worker an event", "µs"),
    natsNotification: cpu("sse", "events from NOTIFY to the client", "NATS"),
    gatewayEvent: value("sse", "CPU of the gateway an event", "µs"),
    gatewayStream: value("sse", "memory a stream", "KB"),
    bridgeEvent: cpu("bridge", "events admitted", "bridge"),
    postsDrop: cpu("landing", "50 x 5,000 followers, mean", "posts"),
    databaseDrop: value("units", "PostgreSQL: CPU of a drop and its event, until the event is pruned", "µs"),
    drop: value("units", "PostgreSQL: a drop of 200 characters", "B"),
    follow: value("units", "PostgreSQL: a follow, in both lists", "B"),
    dropInLog: value("units", "NATS: a drop in DROPS", "B"),
    completion: value("units", "NATS: a completion in COMPLETIONS", "B"),
    notification: value("units", "NATS: a notification in NOTIFY", "B"),
  } as const;
}
