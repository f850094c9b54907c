import { counter } from "../../telemetry/meters.js";

const changes = counter("timeline_posts_changes", "Changes of drops and remote objects");
const counted = counter("timeline_posts_reactions_counted", "Reactions counted, repeated ones included");
const drift = counter("timeline_posts_counts_corrected", "Drops whose counts differed from their counted reactions");
const overdue = counter(
  "timeline_posts_reactions_overdue",
  "Reactions whose event never arrived, counted by the calibration",
);
const partitions = counter("timeline_posts_partitions", "Months created and dropped");
const removed = counter("timeline_posts_rows_removed", "Rows removed by the maintenance");
const fetches = counter("timeline_posts_fetches", "Fetches of remote objects from other servers");
const failures = counter("timeline_posts_maintenance_failures", "Maintenance tasks that failed");

type PostsChange =
  | "created"
  | "edited"
  | `${"" | "remote-"}deleted`
  | "remote-stored"
  | `${"" | "remote-"}${"" | "un"}${"like" | "share"}d`;

export const observePosts = {
  changed: (change: PostsChange): void => changes.add(1, { change }),
  fetched: (outcome: string): void => fetches.add(1, { outcome }),
  counted: (reactions: number): void => counted.add(reactions),
  calibrated: (reactions: { readonly corrected: number; readonly overdue: number }): void => {
    if (reactions.corrected > 0) drift.add(reactions.corrected);
    if (reactions.overdue > 0) overdue.add(reactions.overdue);
  },
  months: (change: "made" | "dropped"): void => partitions.add(1, { change }),
  removed: (what: string, rows: number): void => {
    if (rows > 0) removed.add(rows, { what });
  },
  /** Failures count from 0, so that the first one shows as an increase. */
  maintaining: (tasks: readonly string[]): void => {
    for (const task of tasks) failures.add(0, { task });
  },
  maintenanceFailed: (task: string): void => failures.add(1, { task }),
};
