import type { EventName } from "../contracts/events.js";
import type { EdgeJob, FanoutJob } from "../contracts/fanout.js";
import type { Byline } from "../contracts/timelines.js";
import type {
  AuthorWriter,
  Due,
  Erased,
  Fences,
  Listeners,
  ListenersAmong,
  Progress,
  Published,
  Publishing,
  PulledAuthors,
  RelationWriter,
  Standings,
  TimelineWriter,
  Veiled,
  Viewers,
} from "../state/index.js";
import type { AddressedNotification, Complete, NotifyHiding, NotifyShared, Queue } from "./publish.nats.js";
import type { Sources } from "./sources.grpc.js";

export interface AudienceNotification extends Omit<AddressedNotification, keyof Viewers> {
  /** Users, and readers of lists. */
  readonly users: readonly string[];
  /** True: only users are notified whose home shows the new drop, or has the deleted one. */
  readonly isForHomes?: boolean;
  /** Author of the drop, and of a repost the original author: users who hide one of them are not notified. */
  readonly by?: Byline;
  /** The byline that lists are told. Default: the one that a list has stored. */
  readonly listedBy?: Byline | undefined;
}

/** Users of an audience who were notified. */
export type Told = Pick<AudienceNotification, "users" | "notification" | "trace">;

/**
 * Notifies those of the users who have a stream and are not erased. Resolves after every PubAck, with those who were
 * notified.
 */
export type Notify = (all: readonly AudienceNotification[]) => Promise<Told[]>;

/** Everything outside of fan-out that it reads or writes. */
export interface FanoutDeps extends Sources {
  readonly writer: TimelineWriter;
  /** Makes the next read of a list rebuild its timeline. */
  readonly renewList: (list: string) => Promise<void>;
  readonly authors: AuthorWriter;
  readonly authorStates: Pulled;
  readonly fences: Fences;
  readonly erased: Erased;
  readonly standings: Standings;
  readonly veiled: Veiled;
  readonly listeners: Listeners;
  readonly listenersAmong: ListenersAmong;
  readonly relations: RelationWriter;
  readonly notify: Notify;
  readonly notifyHiding: NotifyHiding;
  readonly notifyShared: NotifyShared;
  readonly queue: Queue<FanoutJob>;
  readonly queueEdges: Queue<EdgeJob>;
  readonly progress: Progress;
  readonly publishing: Publishing;
  readonly complete: Complete;
  /** Callback: called for each edge that was applied. `admittedAt` is in ms since the epoch. */
  readonly applied: (event: EventName, admittedAt: number) => void;
  readonly maxEntries: number;
  /** True: homes leave out replies to those whom their users do not follow, local and global those to others. */
  readonly judgesReplies: boolean;
  /** Followers of tiered authors who have read their home within this time, ms, are in the second tier. */
  readonly recentMs: number;
  /** Maximum number of homes of the last tier that are written a second. */
  readonly restRate: number;
  /** Resolves once an event of this time (ms since the epoch) would be applied again after a loss of Redis. */
  readonly untilCovered?: ((admittedAt: number, stopping: AbortSignal) => Promise<void>) | undefined;
  /** True: writes to homes let other writes go first. */
  readonly yields?: boolean;
}

/** Registry of pulled authors, with the changes that fan-out makes. */
export interface Pulled extends PulledAuthors {
  /** Changes the states of authors whose followers or drops require it. */
  updateStates(published: readonly Published[]): Promise<void>;
  /** Removes an erased author, in any state. */
  forget(author: string): Promise<void>;
  due(): Promise<Due[]>;
  /** Ends a step: gives the author the next state, unless another process has changed it. */
  proceed(due: Due): Promise<void>;
}
