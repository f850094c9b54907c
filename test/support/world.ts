import { type Counts, type Drop, Visibility } from "../../src/gen/avion/posts.js";
import {
  type FollowChange,
  type Profile,
  type Relation,
  type RelationChange,
  RelationKind,
} from "../../src/gen/avion/users.js";
import type { VisibilityName } from "./timeline-events.js";
import { WorldStandings } from "./world-standings.js";

/** A drop as a test states it. */
export type WorldDrop = {
  readonly drop_id: string;
  readonly user_id: string;
  readonly created_at: number;
  readonly visibility?: VisibilityName;
  readonly recipients?: readonly string[];
  /** Came by ActivityPub: its author's list shows it, ListDrops, which is about this server's, does not. */
  readonly remote?: boolean;
  readonly repost_of?: string;
  readonly repost_author?: string;
  readonly reply_to?: string;
  readonly reply_to_author?: string;
  /** Zeros where there are none. */
  readonly counts?: { readonly likes?: number; readonly shares?: number; readonly replies?: number };
};

type Stored = { readonly drop: Drop; readonly remote: boolean; readonly changedAt: number };

const VISIBILITIES: Record<VisibilityName, Visibility> = {
  public: Visibility.PUBLIC,
  unlisted: Visibility.UNLISTED,
  followers: Visibility.FOLLOWERS,
  direct: Visibility.DIRECT,
};

/** Of a drop that is no reply and mentions nobody. */
export const NAMES_NOBODY = { reply_to: "", reply_to_author: "", mentions: [] as string[] };

const NO_COUNTS = { likes: 0, shares: 0, replies: 0 };

/** Compares strings by their UTF-8 bytes, the order of Redis and of the contract. */
export function compareBytes(left: string, right: string): number {
  return Buffer.compare(Buffer.from(left), Buffer.from(right));
}

/** Newest first; within a millisecond by bytes of the id, descending. */
export function newestFirst(
  left: { readonly created_at: number; readonly drop_id: string },
  right: { readonly created_at: number; readonly drop_id: string },
): number {
  return right.created_at - left.created_at || compareBytes(right.drop_id, left.drop_id);
}

const isInForce = ({ active, expires_at }: Pick<RelationChange, "active" | "expires_at">): boolean =>
  active && (expires_at === 0 || expires_at > Date.now());

/** Follow graph and drops in memory: what the two upstream services tell the timeline service. */
export class World {
  /** True: homes leave out replies to those whom their users do not follow, local those to others. */
  judgesReplies = false;
  readonly #drops = new Map<string, Stored>();
  readonly #byAuthor = new Map<string, Map<string, Stored>>();
  /** Ids of the reposts of a drop, deleted or not. */
  readonly #reposts = new Map<string, Set<string>>();
  /** The same of replies. */
  readonly #replies = new Map<string, Set<string>>();
  readonly #sortedDrops = new Map<string, Drop[]>();
  readonly #following = new Map<string, Set<string>>();
  readonly #followers = new Map<string, Set<string>>();
  readonly #sortedFollowers = new Map<string, string[]>();
  readonly #edges = new Map<string, FollowChange>();
  readonly #counts = new Map<string, Counts>();
  readonly #profiles = new Map<string, Profile>();
  readonly #relations = new Map<string, RelationChange>();
  readonly standings = new WorldStandings();

  /** Gives a user a profile, in which everything that is not stated is empty. */
  addProfile(user: string, fields: Partial<Profile> = {}): void {
    const empty = {
      display_name: "",
      bio: "",
      avatar_url: "",
      updated_at: 0,
      created_at: 0,
      approves_followers: false,
    };
    this.#profiles.set(user, { user_id: user, ...empty, ...fields });
  }

  profileOf(user: string): Profile | undefined {
    return this.#profiles.get(user);
  }

  /** Makes `follower` follow `following`; returns the version of the edge. */
  follow(follower: string, following: string, version?: number): number {
    return this.#changeEdge(follower, following, true, version);
  }

  /** The opposite of {@link follow}. */
  unfollow(follower: string, following: string, version?: number): number {
    return this.#changeEdge(follower, following, false, version);
  }

  /** True while the edge stands. */
  follows(follower: string, following: string): boolean {
    return this.#following.get(follower)?.has(following) ?? false;
  }

  /** Whom a user follows, by bytes of the id. */
  followingOf(user: string): string[] {
    return [...(this.#following.get(user) ?? [])].sort(compareBytes);
  }

  /** Followers of a user, by bytes of the id. */
  followersOf(user: string): string[] {
    const known = this.#sortedFollowers.get(user);
    if (known !== undefined) return known;
    const sorted = [...(this.#followers.get(user) ?? [])].sort(compareBytes);
    this.#sortedFollowers.set(user, sorted);
    return sorted;
  }

  /** A block ends both follows. */
  block(user: string, target: string): void {
    for (const [one, other] of [[user, target] as const, [target, user] as const])
      if (this.follows(one, other)) this.unfollow(one, other);
    this.#relate({ user_id: user, target_id: target, kind: RelationKind.BLOCK, active: true });
  }

  unblock(user: string, target: string): void {
    this.#relate({ user_id: user, target_id: target, kind: RelationKind.BLOCK, active: false });
  }

  /** `expires_at` is in ms since the epoch; 0: never. No change tells of the end. Returns the version of the relation. */
  mute(user: string, target: string, reposts_only = false, expires_at = 0): number {
    return this.#relate({
      user_id: user,
      target_id: target,
      kind: RelationKind.MUTE,
      active: true,
      reposts_only,
      expires_at,
    });
  }

  unmute(user: string, target: string): number {
    return this.#relate({ user_id: user, target_id: target, kind: RelationKind.MUTE, active: false });
  }

  /** Whose drops a user does not see. */
  hiddenFrom(user: string): Map<string, "all" | "reposts"> {
    const hidden = new Map<string, "all" | "reposts">();
    for (const relation of this.#relations.values()) {
      const { user_id, target_id, kind, reposts_only } = relation;
      if (!isInForce(relation)) continue;
      const other = user_id === user ? target_id : target_id === user && kind === RelationKind.BLOCK ? user_id : "";
      if (other !== "" && hidden.get(other) !== "all") hidden.set(other, reposts_only ? "reposts" : "all");
    }
    return hidden;
  }

  /** Relations changed in [since, until). */
  changedRelations(since: number, until: number): RelationChange[] {
    return [...this.#relations.values()].filter(({ changed_at }) => within(changed_at, since, until));
  }

  relation(user: string, target: string): Relation {
    const [blocking, blocked_by] = [this.#isActive("BLOCK", user, target), this.#isActive("BLOCK", target, user)];
    return {
      target_id: target,
      following: this.follows(user, target),
      followed_by: this.follows(target, user),
      ...{ blocking, blocked_by },
      muting: this.#isActive("MUTE", user, target),
      mute_reposts_only: this.#relations.get(relationKey(RelationKind.MUTE, user, target))?.reposts_only ?? false,
      mute_expires_at: this.muteEnd(user, target),
      requested: false,
    };
  }

  muteEnd(user: string, target: string): number {
    return this.#relations.get(relationKey(RelationKind.MUTE, user, target))?.expires_at ?? 0;
  }

  #isActive(kind: keyof typeof RelationKind, user: string, target: string): boolean {
    const relation = this.#relations.get(relationKey(RelationKind[kind] as RelationKind, user, target));
    return relation !== undefined && isInForce(relation);
  }

  #relate(change: Pick<RelationChange, "user_id" | "target_id" | "kind" | "active"> & Partial<RelationChange>): number {
    const key = relationKey(change.kind, change.user_id, change.target_id);
    const version = (this.#relations.get(key)?.version ?? 0) + 1;
    this.#relations.set(key, { reposts_only: false, expires_at: 0, changed_at: Date.now(), version, ...change });
    return version;
  }

  /** Dates the last change of all follows and drops so far. The first fill reads what changed within a week. */
  dateAll(changedAt: number): void {
    this.dateFollows(changedAt);
    for (const stored of this.#drops.values()) this.#store({ ...stored, changedAt });
  }

  /** Says of all follows so far that they changed then: reconciliation admits those that no event told of. */
  dateFollows(changed_at: number): void {
    for (const [key, edge] of this.#edges) this.#edges.set(key, { ...edge, changed_at });
  }

  /** Takes a copy; the returned function puts it in place, as a restore of the database does. */
  backup(): () => void {
    const drops = new Map(this.#drops);
    const edges = new Map(this.#edges);
    return () => {
      for (const own of [this.#drops, this.#byAuthor, this.#reposts, this.#replies, this.#sortedDrops, this.#edges])
        own.clear();
      for (const lists of [this.#following, this.#followers, this.#sortedFollowers]) lists.clear();
      for (const stored of drops.values()) this.#store(stored);
      for (const [key, edge] of edges) {
        this.#edges.set(key, edge);
        change(this.#following, edge.follower_id, edge.following_id, edge.following);
        change(this.#followers, edge.following_id, edge.follower_id, edge.following);
      }
    };
  }

  /** Adds drops. */
  post(...drops: readonly WorldDrop[]): void {
    for (const { remote = false, visibility = "public", recipients = [], counts, ...rest } of drops) {
      if (counts) this.#counts.set(rest.drop_id, { ...NO_COUNTS, ...counts, drop_id: rest.drop_id });
      const drop = {
        ...{ repost_of: "", repost_author: "", ...NAMES_NOBODY, ...rest },
        ...{ visibility: VISIBILITIES[visibility], deleted: false, recipients: [...recipients] },
      };
      this.#store({ drop, remote, changedAt: Date.now() });
    }
  }

  /** Marks drops as deleted. */
  remove(...dropIds: readonly string[]): void {
    for (const id of dropIds) {
      const stored = this.#drops.get(id);
      if (stored === undefined) throw new Error(`no such drop: ${id}`);
      this.#store({ ...stored, drop: { ...stored.drop, deleted: true }, changedAt: Date.now() });
    }
  }

  /** Dates a drop's last change, in ms since the epoch. */
  touch(dropId: string, changedAt: number): void {
    const stored = this.#drops.get(dropId);
    if (stored === undefined) throw new Error(`no such drop: ${dropId}`);
    this.#store({ ...stored, changedAt });
  }

  countsOf(dropId: string): Counts {
    const counts = this.#counts.get(dropId) ?? { ...NO_COUNTS, drop_id: dropId };
    return {
      ...counts,
      shares: Math.max(counts.shares, this.#reposts.get(dropId)?.size ?? 0),
      replies: Math.max(counts.replies, this.#replies.get(dropId)?.size ?? 0),
    };
  }

  /** A drop, deleted or not. */
  find(dropId: string): Drop | undefined {
    return this.#drops.get(dropId)?.drop;
  }

  /** An author's drops that are not deleted, newest first. */
  dropsOf(author: string): Drop[] {
    const known = this.#sortedDrops.get(author);
    if (known !== undefined) return known;
    const all = [...(this.#byAuthor.get(author)?.values() ?? [])].map(({ drop }) => drop);
    const sorted = all.filter((drop) => !drop.deleted).sort(newestFirst);
    this.#sortedDrops.set(author, sorted);
    return sorted;
  }

  /** This server's drops changed in [since, until), oldest change first. */
  changedDrops(since: number, until: number): Array<{ readonly drop: Drop; readonly changedAt: number }> {
    const inside = [...this.#drops.values()].filter(
      ({ remote, changedAt }) => !remote && within(changedAt, since, until),
    );
    return inside.sort((a, b) => a.changedAt - b.changedAt || compareBytes(a.drop.drop_id, b.drop.drop_id));
  }

  /** Edges changed in [since, until), oldest change first. */
  changedEdges(since: number, until: number): FollowChange[] {
    const inside = [...this.#edges.values()].filter(({ changed_at }) => within(changed_at, since, until));
    return inside.sort((a, b) => a.changed_at - b.changed_at || compareBytes(edgeKey(a), edgeKey(b)));
  }

  /** Drops that `user`'s home must show, newest first: own ones, and those of the followed that this user may see. */
  homeOf(user: string): Drop[] {
    const authors = [user, ...this.followingOf(user)];
    const visible = authors.flatMap((author) => this.dropsOf(author).filter((drop) => maySee(user, drop)));
    const isForUser = (drop: Drop): boolean => {
      const parent = parentAuthor(drop);
      return [undefined, user].includes(parent) || drop.user_id === user || this.follows(user, parent ?? "");
    };
    return this.#shownTo(user, this.judgesReplies ? visible.filter(isForUser) : visible);
  }

  /** Drops that local must show to a user, newest first; without a user those that it holds. */
  localOf(user?: string): Drop[] {
    const own = [...this.#drops.values()]
      .filter(({ drop, remote }) => !remote && !drop.deleted)
      .map(({ drop }) => drop);
    const shared = own.filter(
      (drop) =>
        drop.visibility === Visibility.PUBLIC &&
        drop.repost_of === "" &&
        !(this.judgesReplies && parentAuthor(drop) !== undefined),
    );
    const isListed = ({ user_id }: Drop): boolean => user_id === user || this.standings.of(user_id) !== "limited";
    return user === undefined ? shared.sort(newestFirst) : this.#shownTo(user, shared.filter(isListed));
  }

  #shownTo(user: string, drops: readonly Drop[]): Drop[] {
    const hidden = this.hiddenFrom(user);
    const isHidden = (drop: Drop): boolean => {
      const { user_id, repost_of, repost_author } = drop;
      const named = [user_id, repost_author, parentAuthor(drop) ?? ""];
      if (named.some((other) => this.standings.of(other) === "suspended")) return true;
      if (user_id === user) return false;
      if (hidden.get(parentAuthor(drop) ?? "") === "all") return true;
      const isRepost = repost_of !== "";
      return (
        hidden.get(user_id) === "all" ||
        (isRepost && (hidden.get(user_id) === "reposts" || hidden.get(repost_author) === "all"))
      );
    };
    return drops.filter((drop) => !isHidden(drop)).sort(newestFirst);
  }

  #store(stored: Stored): void {
    const { drop_id, user_id, repost_of, reply_to } = stored.drop;
    this.#drops.set(drop_id, stored);
    if (repost_of !== "") change(this.#reposts, repost_of, drop_id, true);
    if (reply_to !== "") change(this.#replies, reply_to, drop_id, true);
    const own = this.#byAuthor.get(user_id) ?? new Map<string, Stored>();
    this.#byAuthor.set(user_id, own.set(drop_id, stored));
    this.#sortedDrops.delete(user_id);
  }

  #changeEdge(follower_id: string, following_id: string, following: boolean, wanted?: number): number {
    const key = edgeKey({ follower_id, following_id });
    const version = wanted ?? (this.#edges.get(key)?.version ?? 0) + 1;
    this.#edges.set(key, { follower_id, following_id, version, following, changed_at: Date.now() });
    change(this.#following, follower_id, following_id, following);
    change(this.#followers, following_id, follower_id, following);
    this.#sortedFollowers.delete(following_id);
    return version;
  }
}

/** The author of the parent of a reply to somebody else. */
const parentAuthor = ({ user_id, visibility, repost_of, reply_to_author }: Drop): string | undefined =>
  visibility === Visibility.DIRECT || repost_of !== "" || ["", user_id].includes(reply_to_author)
    ? undefined
    : reply_to_author;

export function maySee(user: string, drop: Drop): boolean {
  return drop.visibility !== Visibility.DIRECT || drop.user_id === user || drop.recipients.includes(user);
}

function within(time: number, since: number, until: number): boolean {
  return time >= since && (until === 0 || time < until);
}

/** One text for a pair of users. */
export function edgeKey(edge: { readonly follower_id: string; readonly following_id: string }): string {
  return JSON.stringify([edge.follower_id, edge.following_id]);
}

const relationKey = (kind: RelationKind, user: string, target: string): string => JSON.stringify([kind, user, target]);

function change(lists: Map<string, Set<string>>, owner: string, item: string, present: boolean): void {
  const list = lists.get(owner) ?? new Set<string>();
  if (present) list.add(item);
  else list.delete(item);
  lists.set(owner, list);
}

/** The ids after one, of all in the order of their bytes, and the last of them where more follow: "" is before and after all. */
export function pageAfter(sorted: readonly string[], id: string, size: number): { page: string[]; last: string } {
  let [from, to] = [0, id === "" ? 0 : sorted.length];
  while (from < to) {
    const middle = (from + to) >>> 1;
    if (compareBytes(sorted[middle] as string, id) <= 0) from = middle + 1;
    else to = middle;
  }
  const page = sorted.slice(from, from + size);
  return { page, last: sorted.length > from + page.length ? (page.at(-1) ?? "") : "" };
}
