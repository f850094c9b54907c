import type { EventName } from "../contracts/events.js";
import type { EdgeJob, FanoutJob } from "../contracts/fanout.js";
import type { AuthorWriter } from "../state/big-authors/author-writer.redis.js";
import type { Due, Published, PulledAuthors } from "../state/big-authors/pulled.js";
import type { TimelineWriter } from "../state/entries/writer.redis.js";
import type { Erased } from "../state/erased/erasures.js";
import type { Fences } from "../state/fences/types.js";
import type { RelationWriter } from "../state/hidden/relations.redis.js";
import type { Listeners } from "../state/listeners/listeners.redis.js";
import type { ListenersAmong } from "../state/listeners/listening.redis.js";
import type { Progress } from "../state/messages/progress.redis.js";
import type { Complete, Notify, NotifyHiding, Queue } from "./publish.nats.js";
import type { Sources } from "./sources.grpc.js";

/** Everything that fan-out touches outside of itself. */
export interface FanoutDeps extends Sources {
  readonly writer: TimelineWriter;
  readonly authors: AuthorWriter;
  readonly authorStates: Pulled;
  readonly fences: Fences;
  readonly erased: Erased;
  readonly listeners: Listeners;
  readonly listenersAmong: ListenersAmong;
  readonly relations: RelationWriter;
  readonly notify: Notify;
  readonly notifyHiding: NotifyHiding;
  readonly queue: Queue<FanoutJob>;
  readonly queueEdges: Queue<EdgeJob>;
  readonly progress: Progress;
  readonly complete: Complete;
  /** Is told of each edge that was applied; `admittedAt` is in ms since the epoch. */
  readonly applied: (event: EventName, admittedAt: number) => void;
  readonly maxEntries: number;
  /** Followers of tiered authors who have read their home so lately are in the second tier, ms. */
  readonly recentMs: number;
  /** So many homes of the last tier are written a second. */
  readonly restRate: number;
  /** Resolves once an event of that time (ms since the epoch) would be applied again after a loss of Redis. */
  readonly untilCovered?: ((admittedAt: number, stopping: AbortSignal) => Promise<void>) | undefined;
  /** Writes to homes let those of others go first. */
  readonly yields?: boolean;
}

/** The registry of pulled authors, as far as fan-out uses it. */
export interface Pulled extends PulledAuthors {
  /** Begins to pull, tier or push an author if their followers or drops require it. */
  updateStates(published: readonly Published[]): Promise<void>;
  /** Takes an erased author out, whatever their state. */
  forget(author: string): Promise<void>;
  due(): Promise<Due[]>;
  /** Ends a step: gives the author the next state, unless somebody else has changed it. */
  proceed(of: Due): Promise<void>;
}
