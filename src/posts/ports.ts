import type { RemoteKind, Visibility } from "../gen/avion/posts.js";
import type { Month } from "./months.js";

/** An event, written together with what it is about and published afterwards. */
export interface EventDraft {
  /** Whose events take turns with those of others. */
  readonly owner: string;
  /** What it is about; events of one key are published in their order. */
  readonly key: string;
  readonly subject: string;
  /** `Nats-Msg-Id`; of a reaction without the version, which its row knows. */
  readonly messageId: string;
  /** JSON */
  readonly body: string;
  readonly traceparent: string | undefined;
}

/** A drop to be stored. */
export interface NewDrop {
  /** Its time of creation is in it. */
  readonly dropId: string;
  readonly userId: string;
  readonly visibility: Visibility;
  readonly recipients: readonly string[];
  /** Empty: none. */
  readonly replyTo: string;
  readonly summary: string;
  readonly body: string;
}

/** A drop as it is stored; of a deleted one the texts and recipients are empty. */
export interface StoredDrop extends NewDrop {
  readonly revision: number;
  /** Of this revision, ms since the epoch. */
  readonly updatedAt: number;
  /** In ms since the epoch. */
  readonly deletedAt: number | null;
}

/** A drop as a timeline needs it. */
export type ListedDrop = Pick<NewDrop, "dropId" | "userId" | "visibility" | "recipients"> & {
  readonly createdAt: number;
};

/** A drop in the order of changes. */
export type ChangedDrop = ListedDrop & { readonly changedAt: number; readonly deleted: boolean };

/** A place in the order (created_at, drop_id); the id may be any text. */
export interface Position {
  readonly createdAt: number;
  readonly id: string;
}

/** Drops and their versions. */
export interface DropStore {
  /**
   * Stores a drop with its events, all or nothing.
   *
   * @returns false where nothing was: the key has made a drop before, or what is replied to is not there
   */
  create(drop: NewDrop, more: CreateOptions): Promise<boolean>;
  /** The drop a user's key has made within a day. */
  dropOfKey(userId: string, key: string): Promise<string | undefined>;
  /** Stores a new version; undefined where author, revision or deletion do not allow it. */
  edit(edit: Edit): Promise<StoredDrop | undefined>;
  /** Leaves a tombstone, with the events; undefined where it is none of this author's that lives. */
  remove(removal: Removal): Promise<StoredDrop | undefined>;
  /** Those of the drops that are there, deleted ones too, in any order. */
  byIds(ids: readonly string[]): Promise<StoredDrop[]>;
  /** Versions below a revision, newest first; none of a deleted drop. */
  revisions(dropId: string, below: number, limit: number): Promise<StoredDrop[]>;
  /**
   * Live replies after a drop id, oldest first: those that are public or unlisted, and of a viewer also what is for
   * followers of whomever, and what is theirs otherwise.
   */
  replies(of: { replyTo: string; after: string; viewer: string }, limit: number): Promise<StoredDrop[]>;
  /** An author's live drops below a position, newest first. */
  byAuthor(userId: string, below: Position | undefined, limit: number): Promise<ListedDrop[]>;
  /** Drops that changed in a window after a key, oldest change first; of foreign ones only deletions. */
  changes(window: ChangeWindow, limit: number): Promise<ChangedDrop[]>;
}

export interface CreateOptions {
  /** Empty: none. */
  readonly idempotencyKey: string;
  readonly created: EventDraft;
  /** Of a reply to a drop of this server. */
  readonly replied: EventDraft | undefined;
}

export interface Edit {
  readonly dropId: string;
  readonly userId: string;
  readonly summary: string;
  readonly body: string;
  /** 0: any. */
  readonly expectedRevision: number;
}

export interface Removal {
  readonly dropId: string;
  readonly userId: string;
  readonly deleted: EventDraft;
  /** Where it replies to a drop of this server, which then has a reply less. */
  readonly withdrawn: { readonly parentId: string; readonly event: EventDraft } | undefined;
}

/** [since, until) in ms since the epoch, after the key. */
export interface ChangeWindow {
  readonly since: number;
  readonly until: number;
  readonly after: readonly [changedAt: number, dropId: string];
}

export const REACTION_KINDS = ["like", "share", "reply"] as const;
export type ReactionKind = (typeof REACTION_KINDS)[number];

/** Names one reaction. */
export interface ReactionKey {
  readonly dropId: string;
  readonly kind: ReactionKind;
  /** A user; the replying drop where it is a reply. */
  readonly actorId: string;
}

/** How often a drop is liked, shared and replied to. */
export interface DropCounts {
  readonly dropId: string;
  readonly likes: number;
  readonly shares: number;
  readonly replies: number;
}

/** Reactions to drops. */
export interface ReactionStore {
  /** Sets or takes back a reaction, with its event where that changes anything. */
  react(reaction: ReactionKey, active: boolean, event: EventDraft): Promise<{ found: boolean; changed: boolean }>;
  /** Counts of those of the drops that live and have any, in any order. */
  counts(ids: readonly string[]): Promise<DropCounts[]>;
}

/** Brings reactions into the counts; each as it is now, so that again changes nothing. */
export type CountReactions = (reactions: readonly ReactionKey[]) => Promise<void>;

/** What a calibration found. */
export interface Calibration {
  /** Drops whose counts were wrong. */
  readonly corrected: number;
  /** Reactions whose event had not arrived after an hour, counted now. */
  readonly overdue: number;
}

/** Compares counts with counted reactions. */
export interface CalibrationStore {
  /** The next drops after an id that have counts or reactions, with roughly how many reactions each has. */
  span(after: string, limit: number): Promise<{ readonly dropId: string; readonly reactions: number }[]>;
  /** Compares the counts of some drops, and corrects them. */
  calibrate(ids: readonly string[]): Promise<Calibration>;
}

/** A foreign object to be stored. */
export interface NewRemoteObject {
  readonly uri: string;
  readonly kind: RemoteKind;
  readonly actorUri: string;
  /** In ms since the epoch; 0 where it is no drop. */
  readonly createdAt: number;
  /** Unspecified where it is no drop. */
  readonly visibility: Visibility;
  readonly recipients: readonly string[];
  readonly document: string;
  readonly publicKey: string;
  readonly webfinger: string;
}

export interface StoredRemoteObject extends NewRemoteObject {
  readonly fetchedAt: number;
  readonly expiresAt: number;
  readonly expired: boolean;
  readonly deletedAt: number | null;
}

/** Foreign objects. */
export interface RemoteStore {
  /**
   * Stores an object, and the event of a drop that is new.
   *
   * @returns undefined where what is stored does not allow it: deleted, of another kind, of another actor
   */
  put(
    object: NewRemoteObject,
    lifetimeMs: number,
    received: EventDraft | undefined,
  ): Promise<(StoredRemoteObject & { readonly created: boolean }) | undefined>;
  get(uri: string): Promise<StoredRemoteObject | undefined>;
  /** Leaves a tombstone, and the event where it was a drop; what is dead already stays as it is. */
  remove(uri: string, deleted: EventDraft): Promise<StoredRemoteObject>;
  /** The actor last fetched of this address. */
  byWebfinger(webfinger: string): Promise<StoredRemoteObject | undefined>;
  /** An actor's live drops below a position, newest first. */
  byActor(actorUri: string, below: Position | undefined, limit: number): Promise<ListedDrop[]>;
}

/** The partitions of all tables. */
export interface PartitionStore {
  /** Makes what is missing of a month; returns whether anything was. */
  make(month: Month): Promise<boolean>;
  /** The months that have partitions. */
  months(): Promise<Month[]>;
  drop(month: Month): Promise<void>;
}

/** Down to when drops are kept; times in ms since the epoch, 0: from the start. */
export interface RetentionStore {
  keptSince(): Promise<number>;
  /** Raises it to a time, unless it is that or later; returns what it is now. */
  raise(time: number): Promise<number>;
}

/** Removes what is no longer needed, at most so many rows at once; returns how many. */
export interface CleanupStore {
  /** Keys that have run out. */
  pruneKeys(limit: number): Promise<number>;
  /** Of foreign objects that are no drops. */
  pruneRemoteObjects(expiredForMs: number, limit: number): Promise<number>;
  /** Those created before a time, in ms since the epoch; of the deleted ones those deleted before it, too. */
  pruneRemoteDrops(before: number, limit: number): Promise<number>;
  /** Of deleted drops: reactions and versions, then counts. */
  purgeTombstones(limit: number): Promise<number>;
}

/** Sees to it that one process does the upkeep at a time. */
export interface UpkeepLease {
  /** Takes or prolongs it; false while another one has it. */
  hold(holder: string, leaseMs: number): Promise<boolean>;
  release(holder: string): Promise<void>;
  /** How far the calibration has come. */
  walkedTo(): Promise<string>;
  walkTo(dropId: string): Promise<void>;
}

/** Everything the posts service stores. */
export interface PostsStore {
  readonly drops: DropStore;
  readonly reactions: ReactionStore;
  readonly remote: RemoteStore;
  readonly count: CountReactions;
  readonly calibration: CalibrationStore;
  readonly partitions: PartitionStore;
  readonly retention: RetentionStore;
  readonly cleanup: CleanupStore;
  readonly lease: UpkeepLease;
}
