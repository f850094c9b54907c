/** Both lists of a user. */
export type ListName = "following" | "followers";

/** A follower and whom they follow. */
export interface Pair {
  readonly follower: string;
  readonly following: string;
}

/** A pair as a change has left it. */
export interface Edge extends Pair {
  /** Monotonic per pair. */
  readonly version: number;
  readonly active: boolean;
}

/** An edge with when both lists showed it, ms since the epoch by the database's clock. */
export interface DatedEdge extends Edge {
  readonly changedAt: number;
}

/** An edge with when its follower was answered, ms since the epoch by the database's clock, where it says so. */
export interface AcceptedEdge extends Edge {
  readonly acceptedAt: number | undefined;
}

/** An edge on its way into the follower list, with the trace it belongs to. */
export interface TracedEdge extends Edge {
  readonly traceparent?: string | undefined;
}

/** An event of the outbox before it is published. */
export interface OutboxEvent {
  readonly id: number;
  /** What it is about; events of one key are published in the order they were written. */
  readonly key: string;
  readonly subject: string;
  readonly messageId: string;
  /** JSON */
  readonly body: string;
  readonly traceparent?: string | undefined;
  /** When it was written, ms since the epoch by the database's clock. */
  readonly createdAt: number;
}

/** How a user is followed or not any more. */
export interface WantedEdge extends Pair {
  readonly wanted: boolean;
  /** How many a user may follow. */
  readonly most: number;
  readonly traceparent?: string | undefined;
}

/** Writes whom users follow, each change together with its event. */
export interface FollowStore {
  /** @throws AppError `exhausted` where more than `most` would be followed */
  setFollowing(edge: WantedEdge): Promise<{ readonly changed: boolean; readonly version: number }>;
  /**
   * Connects all pairs, or none.
   *
   * @returns how many were not connected before, or the user who would follow more than `most`
   */
  followMany(
    pairs: readonly Pair[],
    limits: { readonly most: number; readonly traceparent?: string | undefined },
  ): Promise<{ readonly changed: number } | { readonly over: string }>;
}

/** Applies edges to the follower lists; the newest version of a pair wins. Resolves to how many changed something. */
export type ApplyEdges = (edges: readonly TracedEdge[]) => Promise<number>;

/** How many there are, and at which revision that was counted; 0 where none is kept. */
export interface Count {
  readonly total: number;
  readonly revision: number;
}

/** Reads both lists. */
export interface ListStore {
  /** Ids after `after` ("": from the start) by their bytes, at most `limit`. */
  ids(list: ListName, user: string, after: string, limit: number): Promise<string[]>;
  count(list: ListName, user: string): Promise<Count>;
}

/** What else is asked about edges. */
export interface EdgeStore {
  /** Which of `others` a user follows. */
  followed(user: string, others: readonly string[]): Promise<ReadonlySet<string>>;
  /** Edges both lists show, changed in [since, until), after a position, by (changed_at, following, follower). */
  changes(
    window: { readonly since: number; readonly until: number | undefined },
    after: readonly [changedAt: number, following: string, follower: string] | undefined,
    limit: number,
  ): Promise<DatedEdge[]>;
}

/** Follower lists as they are now, for what is remembered of them elsewhere. */
export interface FollowersNow {
  readonly count: Count;
  /** Whether each of the followers asked about is one. */
  readonly follows: ReadonlyMap<string, boolean>;
}

/** Reads how pairs stand now, by the followed user, with how many follow that one. */
export type ReadFollowersNow = (pairs: readonly Pair[]) => Promise<ReadonlyMap<string, FollowersNow>>;

/** What a user says of themselves. */
export interface Profile {
  readonly userId: string;
  readonly displayName: string;
  readonly bio: string;
  readonly avatarUrl: string;
  /** ms since the epoch, by the database's clock. */
  readonly updatedAt: number;
}

export type ProfileDraft = Omit<Profile, "updatedAt">;

export interface ProfileStore {
  get(user: string): Promise<Profile | undefined>;
  set(profile: ProfileDraft): Promise<Profile>;
  /** Profiles whose user ids begin with a prefix, after `after`, by the bytes of their ids. */
  list(prefix: string, after: string, limit: number): Promise<Profile[]>;
}

/** What is remembered of a list. */
export interface RememberedList {
  /** Changes with every change of the list: what was read before may be stored only while it stands. */
  readonly generation: string;
  /** The ids asked for; undefined where the list is not remembered. */
  readonly ids: readonly string[] | undefined;
  /** How many the whole list holds; undefined where that is not known. */
  readonly total: number | undefined;
}

/** Remembers lists for all processes. Everything rejects with an AppError while the memory is away. */
export interface ListCache {
  /** `limit` 0 asks for the total only. */
  read(list: ListName, user: string, after: string, limit: number): Promise<RememberedList>;
  /** The generation that stands; undefined where none does. */
  generation(list: ListName, user: string): Promise<string | undefined>;
  /** Stores the whole list. Resolves to false where the generation has passed, and nothing was stored. */
  fill(list: ListName, user: string, generation: string, ids: readonly string[]): Promise<boolean>;
  /** Stores how many there are, of a list too long to be remembered. */
  fillCount(list: ListName, user: string, generation: string, count: Count): Promise<boolean>;
  /** Forgets a list that has changed. */
  drop(list: ListName, user: string): Promise<void>;
  /** Follows changes in place, of what is remembered; forgets it where it changed otherwise since `generation`. */
  change(list: ListName, user: string, generation: string, now: FollowersNow): Promise<void>;
}

/** Remembers profiles, and that somebody has none. */
export interface ProfileCache {
  /** `profile` undefined: not remembered; "missing": there is none. */
  read(user: string): Promise<{ readonly generation: string; readonly profile: Profile | "missing" | undefined }>;
  fill(user: string, generation: string, profile: Profile | "missing"): Promise<boolean>;
  drop(user: string): Promise<void>;
}

/** A list's page with the size of the whole. */
export interface IdPage {
  readonly ids: readonly string[];
  readonly total: number;
}

/** What is counted for operators. */
export interface ObserveUsers {
  followed(change: "follow" | "unfollow", count: number): void;
  applied(lane: string, edges: number, changed: number): void;
  /** An edge is in the follower list. */
  listed(lane: string, acceptedAt: number): void;
  read(what: string, from: "process" | "cache" | "database" | "uncached"): void;
  /** A fill came too late, and was left. */
  overtaken(what: string): void;
  /** The cache failed; what it was asked for went on without it. */
  cacheFailed(what: string): void;
  redirected(count: number): void;
  pruned(table: string, rows: number): void;
  drifted(list: ListName, by: number): void;
}

/** A count that did not agree with the rows it counts. */
export interface Drift {
  readonly list: ListName;
  readonly user: string;
  readonly counted: number;
  readonly rows: number;
}

/** What is done to the tables now and then, by one process at a time: what another one does just now is left to it. */
export interface UpkeepStore {
  /** Removes at most `limit` inactive edges that changed longer ago than `keptMs`; resolves to how many. */
  prune(list: ListName, keptMs: number, limit: number): Promise<number>;
  /** Compares the counts of a sample of users with their rows, and puts right those that differ. */
  calibrate(list: ListName, sample: number): Promise<Drift[]>;
}
