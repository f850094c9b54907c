import { encodeId } from "../kernel/ids.js";

/** Names of our streams. */
export const STREAM = {
  drops: "DROPS",
  fanout: "FANOUT",
  completions: "COMPLETIONS",
  notify: "NOTIFY",
  dlq: "DLQ",
  advisories: "ADVISORIES",
  edges: "EDGES",
  engagement: "ENGAGEMENT",
} as const;

/** Names of our durable consumers. */
export const CONSUMER = {
  planner: "planner",
  graph: "graph",
  worker: "worker",
  backstop: "backstop",
  edges: "edges",
  hotEdges: "edges-hot",
  counter: "counter",
  publications: "publications",
} as const;

/** How follows are told apart: a user whom very many follow at once does not keep the others waiting. */
export type EdgeLane = "calm" | "hot";

/** Where a changed follow goes, by the followed user. */
export const edgeSubject = (lane: EdgeLane, followed: string): string => `edges.${lane}.${encodeId(followed)}`;

/** Where a changed like, share or reply goes, to be counted. */
export const ENGAGEMENT_CHANGED = "engagement.changed";

export const COMPLETED_FANOUT = "completed.fanout";

/** Where a chunk job goes. The token tells apart what the job does, for filters and for `nats stream subjects`. */
export const jobSubject = (action: "add" | "remove"): string => `fanout.job.${action}`;

/** Where a user's notifications are stored. */
export const notifySubject = (user: string): string => `notify.user.${encodeId(user)}`;

/** Where they are republished for live delivery. */
export const liveSubject = (user: string): string => `live.user.${encodeId(user)}`;

/** The streams whose messages are done once, and what a dead letter calls their messages. */
export const WORK_EVENTS = {
  [STREAM.fanout]: "fanout_job",
  [STREAM.edges]: "edge_changed",
  [STREAM.engagement]: "engagement_changed",
} as const;

/** What a dead letter calls a message of a work queue; undefined for other streams. */
export const workEventOf = (stream: string): string | undefined => (WORK_EVENTS as Record<string, string>)[stream];

/** Why a letter is dead. */
export const DLQ_REASONS = ["invalid", "poison", "exhausted", "crashed", "toolarge"] as const;
export type DlqReason = (typeof DLQ_REASONS)[number];

export const dlqSubject = (reason: DlqReason, event: string): string => `dlq.${reason}.${event}`;
