import { sharedNow } from "../kernel/time.js";
import { counter, gauge, histogram } from "../telemetry/meters.js";

const follows = counter(
  "timeline_users_follows",
  "Follows and unfollows that changed an edge, requests, and changed members of lists",
);
const relations = counter("timeline_users_relations", "Changes of blocks and mutes; mutes that ended by themselves");
const applied = counter("timeline_users_edges", "Edges applied to the follower lists");
const batches = histogram(
  "timeline_users_edge_batch",
  "Edges applied in one statement",
  [1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_000],
);
const listed = histogram(
  "timeline_users_edge_lag_seconds",
  "From the answer to a follow or unfollow until the follower list contains it",
  [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 3, 5, 15, 60, 300],
);
const reads = counter(
  "timeline_users_reads",
  "Reads of lists by source: cache, database, or uncached while Redis is unavailable",
);
const superseded = counter("timeline_users_overtaken_fills", "Results not cached because they had changed meanwhile");
const failures = counter("timeline_users_cache_failures", "Failures of the cache");
const redirected = counter("timeline_users_hot_edges", "Edges moved to the hot lane");
const pruned = counter("timeline_users_pruned", "Inactive edges, blocks and mutes removed");
const drift = counter("timeline_users_count_drift", "Differences between counts and their rows that were corrected");
const erasures = counter("timeline_users_erasures", "Erasures of users that were requested, and that are completed");
const oldestErasure = gauge("timeline_users_erasure_oldest_seconds", "Age of the oldest erasure that is not completed");

export const observeUsers = {
  followed: (change: "follow" | "unfollow" | "request" | "withdrawal" | "listed" | "unlisted", count: number): void =>
    follows.add(count, { change }),
  related: (change: "block" | "unblock" | "mute" | "unmute" | "mute-ended", count: number): void =>
    relations.add(count, { change }),
  applied: (lane: string, edges: number, changed: number): void => {
    applied.add(changed, { lane, outcome: "changed" });
    applied.add(edges - changed, { lane, outcome: "older" });
    batches.record(edges, { lane });
  },
  listed: (lane: string, acceptedAt: number): void =>
    listed.record(Math.max(0, sharedNow() - acceptedAt) / 1_000, { lane }),
  read: (what: string, from: "cache" | "database" | "uncached"): void => reads.add(1, { what, from }),
  superseded: (what: string): void => superseded.add(1, { what }),
  cacheFailed: (what: string): void => failures.add(1, { what }),
  redirected: (count: number): void => redirected.add(count),
  pruned: (table: string, rows: number): void => pruned.add(rows, { table }),
  erased: (state: "requested" | "completed"): void => erasures.add(1, { state }),
  erasing: (oldestMs: number): void => oldestErasure.record(oldestMs / 1_000),
  drifted: (list: string, by: number): void => drift.add(Math.abs(by), { list }),
};
