import type { EventName } from "../contracts/events.js";
import type { FanoutJob } from "../contracts/jobs.js";
import type { FanoutCompleted, Notification } from "../contracts/notifications.js";
import type { Drop } from "../gen/avion/posts.js";
import type { IdPage } from "../kernel/paging.js";
import type { Audience } from "./audience.js";

/** A drop as a timeline holds it. */
export interface Entry {
  readonly drop: string;
  /** When it was created, in ms since the epoch. */
  readonly score: number;
}

/** Writes to the sorted sets; every method resolves only after each reply was a success. */
export interface TimelineWriter {
  addHome(audience: Audience, entries: readonly Entry[]): Promise<void>;
  removeHome(audience: Audience, drops: readonly string[]): Promise<void>;
  /** In whose home timelines a drop is. */
  holdersAmong(users: readonly string[], drop: string): Promise<string[]>;
  addShared(timelines: readonly ("local" | "global")[], entry: Entry): Promise<void>;
  removeShared(drop: string): Promise<void>;
  /** Makes a rebuild under way start over; returns the floor that stands, if any. */
  interruptRebuild(user: string): Promise<number | undefined>;
  /** All drops of a home timeline, and the time of the oldest, in ms since the epoch. */
  membersOf(user: string): Promise<{ drops: string[]; oldest: number }>;
  /** Remembers when a drop that is about to go was created, so that its id still works as a cursor. */
  rememberCreation(drop: string, author: string | undefined): Promise<void>;
  rememberActor(drop: string, actor: string): Promise<void>;
  actorOf(drop: string): Promise<string | undefined>;
}

/** Tells those of the users who are listening, and whom `among` leaves of them; resolves after every PubAck. */
export type Notify = (
  users: readonly string[],
  notification: Notification,
  among?: (listening: readonly string[]) => Promise<readonly string[]>,
) => Promise<void>;

/** Puts chunk jobs on the work queue; resolves after every PubAck. */
export type QueueJobs = (jobs: readonly FanoutJob[]) => Promise<void>;

/** How large a fan-out was. */
export interface FanoutSize {
  readonly recipients: number;
  readonly chunks: number;
}

/** The books of a fan-out of many chunks. Both return its size once all of it is done. */
export interface Progress {
  planned(change: FanoutName, chunks: readonly string[], recipients: number): Promise<FanoutSize | undefined>;
  done(change: FanoutName, chunk: string): Promise<FanoutSize | undefined>;
}

/** What tells one fan-out from another. */
export type FanoutName = Pick<FanoutJob, "event" | "drop_id">;

/** Says that a fan-out has landed; resolves after the PubAck. */
export type Complete = (completed: FanoutCompleted) => Promise<void>;

/** Told that an edge is in the follower's home; `admittedAt` in ms since the epoch. */
export type EdgeApplied = (event: EventName, admittedAt: number) => void;

/** An author's drops, newest first, older than what is given. */
export type ReadAuthorDrops = (
  author: string,
  below: { before: number; drop: string } | undefined,
) => Promise<readonly Drop[]>;

/** Whom a user follows, one page. */
export type ReadFollowing = (user: string, token: string) => Promise<IdPage>;

/** Resolves once an event of that time (ms since the epoch) would be applied again after a loss of Redis. */
export type UntilCovered = (admittedAt: number, stopping: AbortSignal) => Promise<void>;
