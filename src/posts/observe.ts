import { metrics } from "@opentelemetry/api";
import type { PostsChange } from "./deps.js";

const meter = metrics.getMeter("avion-timeline");
const changes = meter.createCounter("timeline_posts_changes", {
  description: "What was done to drops and foreign objects",
});
const counted = meter.createCounter("timeline_posts_reactions_counted", {
  description: "Reactions brought into the counts, those that were there already included",
});
const drift = meter.createCounter("timeline_posts_counts_corrected", {
  description: "Drops whose counts differed from their counted reactions",
});
const overdue = meter.createCounter("timeline_posts_reactions_overdue", {
  description: "Reactions whose event never arrived, found and counted by the calibration",
});
const partitions = meter.createCounter("timeline_posts_partitions", { description: "Months made and dropped" });
const removed = meter.createCounter("timeline_posts_rows_removed", { description: "Rows that were no longer needed" });
const failures = meter.createCounter("timeline_posts_upkeep_failures", {
  description: "Maintenance tasks that failed",
});

export const observePosts = {
  changed(change: PostsChange): void {
    changes.add(1, { change });
  },
  counted(reactions: number): void {
    counted.add(reactions);
  },
  calibrated(found: { readonly corrected: number; readonly overdue: number }): void {
    if (found.corrected > 0) drift.add(found.corrected);
    if (found.overdue > 0) overdue.add(found.overdue);
  },
  months(change: "made" | "dropped", months: number): void {
    if (months > 0) partitions.add(months, { change });
  },
  removed(what: string, rows: number): void {
    if (rows > 0) removed.add(rows, { what });
  },
  maintenanceFailed(task: string): void {
    failures.add(1, { task });
  },
};

export type ObservePosts = typeof observePosts;
