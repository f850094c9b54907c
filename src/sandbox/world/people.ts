import type { Visibility } from "../../gen/avion/posts.js";

/** A user with the sizes of both lists. */
export interface UserSummary {
  readonly user_id: string;
  readonly followers: number;
  readonly following: number;
}

/** A drop as the page and the demo show it. */
export interface SeenDrop {
  readonly drop_id: string;
  readonly author: string;
  /** ms since the epoch; null where it is not known any more. */
  readonly created_at: number | null;
  readonly visibility: string | null;
  readonly body: string;
  readonly deleted: boolean;
}

/** What is said about a drop to be made. */
export interface DropDraft {
  readonly user_id: string;
  readonly visibility: Visibility;
  readonly recipients?: readonly string[];
  readonly body: string;
  /** ms since the epoch; unset: now. */
  readonly created_at?: number;
}

/** A follower and whom they follow. */
export interface Pair {
  readonly follower_id: string;
  readonly following_id: string;
}

/** Everything people do, through the public API of the users and posts services. */
export interface People {
  /** Adds a user, or changes their name. */
  introduce(user: string, name: string): Promise<void>;
  isKnown(user: string): Promise<boolean>;
  /** User ids that begin with a prefix, by their bytes. */
  list(prefix: string, limit: number): Promise<string[]>;
  summary(user: string): Promise<UserSummary>;
  /** The first page of whom a user follows. */
  followingOf(user: string): Promise<string[]>;
  /** Resolves to whether anything changed. */
  follow(pair: Pair): Promise<boolean>;
  unfollow(pair: Pair): Promise<boolean>;
  /** At most 1,000 at once; resolves to how many were new. */
  followMany(pairs: readonly Pair[]): Promise<number>;
  post(draft: DropDraft): Promise<SeenDrop>;
  /** Undefined where there is no such drop (any more). */
  remove(dropId: string): Promise<SeenDrop | undefined>;
  drop(dropId: string): Promise<SeenDrop | undefined>;
  /** In the order asked for; what is not known is shown by its id. */
  drops(dropIds: readonly string[]): Promise<SeenDrop[]>;
}
