import { encodeId } from "../kernel/ids.js";

/** Names of our streams. */
export const STREAM = {
  drops: "DROPS",
  fanout: "FANOUT",
  completions: "COMPLETIONS",
  notify: "NOTIFY",
  dlq: "DLQ",
  advisories: "ADVISORIES",
} as const;

/** Names of our durable consumers. */
export const CONSUMER = { planner: "planner", graph: "graph", worker: "worker", backstop: "backstop" } as const;

export const COMPLETED_FANOUT = "completed.fanout";

/** Where a chunk job goes. The token tells apart what the job does, for filters and for `nats stream subjects`. */
export const jobSubject = (action: "add" | "remove"): string => `fanout.job.${action}`;

/** Where a user's notifications are stored. */
export const notifySubject = (user: string): string => `notify.user.${encodeId(user)}`;

/** Where they are republished for live delivery. */
export const liveSubject = (user: string): string => `live.user.${encodeId(user)}`;

/** Why a letter is dead. */
export const DLQ_REASONS = ["invalid", "poison", "exhausted", "crashed", "toolarge"] as const;
export type DlqReason = (typeof DLQ_REASONS)[number];

export const dlqSubject = (reason: DlqReason, event: string): string => `dlq.${reason}.${event}`;
