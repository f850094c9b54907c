import { encodeId } from "../kernel/ids.js";
import { MINUTE } from "../kernel/time.js";
import { ACTIVITY_NAMES } from "./activity.js";
import { EVENT_NAMES } from "./events.js";
import type { FanoutJob } from "./fanout.js";

export const STREAM = {
  drops: "DROPS",
  fanout: "FANOUT",
  completions: "COMPLETIONS",
  checks: "CHECKS",
  notify: "NOTIFY",
  /** Changes of local and global, and whose relations changed: event streams of the two send and resume from it. */
  shared: "SHARED",
  dlq: "DLQ",
  advisories: "ADVISORIES",
  edges: "EDGES",
  engagement: "ENGAGEMENT",
  activity: "ACTIVITY",
  timeline: "TIMELINE",
  timelineEvents: "TIMELINE_EVENTS",
  gamification: "GAMIFICATION",
  /** The key-value bucket ANALYSES: the facts known about requested analyses. */
  analyses: "KV_ANALYSES",
  /** The key-value bucket ERASED: the erased users, and which roles have forgotten them. */
  erased: "KV_ERASED",
  /** The key-value bucket POSITIONS: the drops up to which users have read their timelines. */
  positions: "KV_POSITIONS",
} as const;

export const CONSUMER = {
  planner: "planner",
  graph: "graph",
  worker: "worker",
  rest: "rest",
  backstop: "backstop",
  edges: "edges",
  hotEdges: "edges-hot",
  hotGraph: "graph-hot",
  hotNotifications: "notifications-hot",
  counter: "counter",
  publications: "publications",
  analysis: "analysis",
  rewards: "rewards",
  notifications: "notifications",
  activities: "activities",
} as const;

export const ANALYSIS_REQUESTED = "events.timeline.requested";
export const ANALYSIS_COMPLETED = "events.timeline.completed";
export const ANALYSIS_FAILED = "events.timeline.failed";
export const XP_EARNED = "events.xp.earned";

export type BucketName = "ANALYSES" | "ERASED" | "POSITIONS";

export const streamOfBucket = (bucket: BucketName): string => `KV_${bucket}`;
export const bucketPrefix = (bucket: BucketName): string => `$KV.${bucket}.`;

/** Parts of the service that forget an erased user, each with its own consumer of the log. */
export const ERASURE_PARTS = ["posts", "timelines", "analyses", "rewards", "notifications"] as const;
export type ErasurePart = (typeof ERASURE_PARTS)[number];

export const erasureConsumer = (part: ErasurePart): string => `erased-${part}`;

/** A user whom very many follow at once does not keep the others waiting. */
type EdgeLane = "calm" | "hot";

export const edgeSubject = (lane: EdgeLane, followed: string): string => `edges.${lane}.${encodeId(followed)}`;

export const ENGAGEMENT_CHANGED = "engagement.changed";

export const COMPLETED_FANOUT = "completed.fanout";

export const PUBLICATION_CHECK = "checks.publication";

/** Jobs in the stream FANOUT have these subjects. */
export const JOB_SUBJECTS = "fanout.>";

/**
 * The minute of admission in the subject tells the age of the oldest job, whatever the order of the queue. The last tier
 * has a consumer of its own, and filters of a work queue must not overlap.
 */
export const jobSubject = ({ action, tier, admitted_at }: Pick<FanoutJob, "action" | "tier" | "admitted_at">): string =>
  `fanout.${tier === "rest" ? "rest" : `job.${tier ?? action}`}.${Math.floor(admitted_at / MINUTE)}`;

const EDGE_JOBS = "fanout.edges.";

export const edgeJobSubject = (admittedAt: number): string => EDGE_JOBS + Math.floor(admittedAt / MINUTE);

export const isEdgeJob = (subject: string): boolean => subject.startsWith(EDGE_JOBS);

const NOTIFICATION_JOBS = "fanout.notifications.";

export const notificationJobSubject = (admittedAt: number): string =>
  NOTIFICATION_JOBS + Math.floor(admittedAt / MINUTE);

export const isNotificationJob = (subject: string): boolean => subject.startsWith(NOTIFICATION_JOBS);

/** Returns ms since the epoch, or 0 if the subject has no minute of admission. */
export const admittedSince = (subject: string): number => Number(/\.(\d+)$/.exec(subject)?.[1] ?? 0) * MINUTE;

export const notifySubject = (user: string): string => `notify.user.${encodeId(user)}`;

export const liveSubject = (user: string): string => `live.user.${encodeId(user)}`;

export const SHARED_CHANGED = "shared.changed";

/** nats-server republishes the messages of SHARED here. */
export const LIVE_SHARED = "live.shared.changed";

export const WORK_EVENTS = {
  [STREAM.fanout]: "fanout_job",
  [STREAM.edges]: "edge_changed",
  [STREAM.engagement]: "engagement_changed",
  [STREAM.timeline]: "analysis_requested",
} as const;

/** A dead letter of TIMELINE_EVENTS has this event in its subject. */
export const TIMELINE_COMPLETED = "timeline_completed";

type WorkEvent = (typeof WORK_EVENTS)[keyof typeof WORK_EVENTS];

export const workEventOf = (stream: string): WorkEvent | undefined =>
  (WORK_EVENTS as Record<string, WorkEvent>)[stream];

const PLAIN_SUBJECT = /^[^\s.*>]+(\.[^\s.*>]+)*$/;

/** Returns false for wildcards, and for characters that break the protocol. */
export const isPlainSubject = (subject: string): boolean => PLAIN_SUBJECT.test(subject);

export const DLQ_REASONS = ["invalid", "poison", "exhausted", "crashed", "toolarge"] as const;
export type DlqReason = (typeof DLQ_REASONS)[number];

/** A dead letter is about one of these, which is the last part of its subject. */
export const DLQ_EVENTS = [
  ...EVENT_NAMES,
  ...ACTIVITY_NAMES,
  ...Object.values(WORK_EVENTS),
  TIMELINE_COMPLETED,
  "fanout_completed",
  "outbox_event",
  "advisory",
  "unknown",
] as const;
export type DlqEvent = (typeof DLQ_EVENTS)[number];

export const dlqSubject = (reason: DlqReason, event: DlqEvent): string => `dlq.${reason}.${event}`;

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
  /** Size of the whole body, in bytes, if the dead letter carries only its beginning. */
  size: "Dlq-Size",
} as const;

/** The message is applied and notifies nobody: it is history. */
export const SILENT_HEADER = "Timeline-Silent";
