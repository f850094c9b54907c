import { plain, tableOf } from "./tables.js";
import { type Stored, storedRun } from "./unit-costs.js";

/** Rows of stored runs that differ in what people do, each with the process beside Redis. */
const CASES = [
  ["a drop to 100 followers", "fanout", "audience 100, single", "worker"],
  ["a drop to 100 followers, if a third are replies", "fanout", "audience 100, replies", "worker"],
  ["a page", "read", "GetHomeTimeline from Redis", "service"],
  ["a page, if a third are reposts", "read", "GetHomeTimeline, reposts, window 40, from Redis", "service"],
  [
    "the same with `TIMELINE_HOME_REPOST_WINDOW=0`",
    "read",
    "GetHomeTimeline, reposts, window 0, from Redis",
    "service",
  ],
] as const;

/** Renders the cost of replies and reposts. Leaves out what no stored run has measured yet. */
export function peopleTable(stored: Stored = storedRun): string {
  const rows = CASES.flatMap(([what, bench, name, process]) => {
    const cpu = stored(bench).rows.find((row) => row.name === name)?.cpu;
    return cpu ? [[what, plain(cpu["redis"] ?? 0), plain(cpu[process] ?? 0)]] : [];
  });
  return tableOf(["CPU of, µs", "Redis", "`fanout` or `api`"], rows);
}
