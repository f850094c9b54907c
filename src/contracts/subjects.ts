import { encodeId } from "../kernel/ids.js";
import { MINUTE } from "../kernel/time.js";

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

export const JOB_SUBJECTS = "fanout.job.>";

/**
 * Where a chunk job goes: what it does, and the minute in which its event was admitted. So the subjects of the work
 * queue say how old its oldest work is, whatever the order of its messages.
 */
export const jobSubject = (action: "add" | "remove", admittedAt: number): string =>
  `fanout.job.${action}.${Math.floor(admittedAt / MINUTE)}`;

/** The earliest time (ms since the epoch) a job under this subject can have been admitted; 0 where it does not say. */
export const admittedSince = (subject: string): number => Number(/\.(\d+)$/.exec(subject)?.[1] ?? 0) * MINUTE;

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

const PLAIN_SUBJECT = /^[^\s.*>]+(\.[^\s.*>]+)*$/;

/** True for a subject of plain tokens: any other would name more than one, or break the protocol. */
export const isPlainSubject = (subject: string): boolean => PLAIN_SUBJECT.test(subject);

/** Why a letter is dead. */
export const DLQ_REASONS = ["invalid", "poison", "exhausted", "crashed", "toolarge"] as const;
export type DlqReason = (typeof DLQ_REASONS)[number];

export const dlqSubject = (reason: DlqReason, event: string): string => `dlq.${reason}.${event}`;

/** Headers of a dead letter. */
export const DLQ_HEADER = {
  reason: "Dlq-Reason",
  error: "Dlq-Error",
  errorCode: "Dlq-Error-Code",
  stream: "Dlq-Stream",
  streamSeq: "Dlq-Stream-Seq",
  consumer: "Dlq-Consumer",
  subject: "Dlq-Subject",
  deliveries: "Dlq-Deliveries",
  firstSeen: "Dlq-First-Seen",
  failedAt: "Dlq-Failed-At",
  msgId: "Dlq-Msg-Id",
  redriveCount: "Dlq-Redrive-Count",
  version: "Dlq-Version",
  /** Size of the whole body in bytes, where the dead letter carries only its beginning. */
  size: "Dlq-Size",
} as const;

/** Marks a message of `DROPS` or `FANOUT` that is history: it is applied, and notifies nobody. */
export const SILENT_HEADER = "Timeline-Silent";
