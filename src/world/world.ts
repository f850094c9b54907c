import { v7 } from "uuid";
import { dateOfId, FLOOR_MEMBER, idFault } from "../kernel/ids.js";
import type { ChangeWindow } from "./change-log.js";
import { type DropCursor, DropStore, type DropVisibility, type WorldDrop } from "./drops.js";
import { type Edge, FollowGraph, type IdPage } from "./graph.js";
import type { Page, PageRequest } from "./paging.js";
import { invalid } from "./world-error.js";

/** At most this many recipients a drop, so that a page of drops fits a message. */
export const MAX_RECIPIENTS = 20;

/** What is said about a drop to be added; the rest follows from it. */
export interface DropDraft {
  readonly user_id: string;
  readonly visibility?: DropVisibility | undefined;
  readonly recipients?: readonly string[] | undefined;
  readonly drop_id?: string | undefined;
  readonly created_at?: number | undefined;
  readonly changed_at?: number | undefined;
  readonly remote?: boolean | undefined;
}

/** A user with the sizes of both lists. */
export interface UserSummary {
  readonly user_id: string;
  readonly followers: number;
  readonly following: number;
}

/** What the two upstream services read; a durable store can stand in for it. */
export interface WorldReads {
  followersOf(user: string, request?: PageRequest): IdPage;
  followingOf(user: string, request?: PageRequest): IdPage;
  listFollowChanges(window: ChangeWindow): Page<Edge>;
  dropsByUser(user: string, cursor?: DropCursor): WorldDrop[];
  listDrops(window: ChangeWindow): Page<WorldDrop>;
}

/** The seeded world in memory: users, edges and drops. */
export class World implements WorldReads {
  readonly #users = new Set<string>();
  readonly #graph = new FollowGraph();
  readonly #drops = new DropStore();
  readonly #now: () => number;
  readonly #nextDropId: (now: number) => string;

  constructor(options: { readonly now?: () => number } = {}) {
    this.#now = options.now ?? Date.now;
    this.#nextDropId = createDropIds();
  }

  get size(): { readonly users: number; readonly drops: number } {
    return { users: this.#users.size, drops: this.#drops.size };
  }

  now(): number {
    return this.#now();
  }

  /** Adds a user; one who is there already stays. */
  addUser(user: string, field = "user_id"): void {
    const fault = idFault(user);
    if (fault !== undefined) throw invalid(field, fault);
    this.#users.add(user);
  }

  hasUser(user: string): boolean {
    return this.#users.has(user);
  }

  /** Users whose id starts with a prefix, in the order they came. */
  listUsers({ prefix = "", limit = 500 } = {}): UserSummary[] {
    const found: UserSummary[] = [];
    for (const user_id of this.#users) {
      if (found.length >= limit) break;
      if (user_id.startsWith(prefix)) found.push(this.summary(user_id));
    }
    return found;
  }

  summary(user_id: string): UserSummary {
    return {
      user_id,
      followers: this.#graph.followerCount(user_id),
      following: this.#graph.followingCount(user_id),
    };
  }

  /** Connects a pair, both users coming into being; undefined: it was connected. */
  follow(follower_id: string, following_id: string, at = this.#now()): Edge | undefined {
    this.addUser(follower_id, "follower_id");
    this.addUser(following_id, "following_id");
    return this.#graph.follow({ follower_id, following_id, at });
  }

  /** Disconnects a pair; undefined: it was not connected. */
  unfollow(follower_id: string, following_id: string, at = this.#now()): Edge | undefined {
    return this.#graph.unfollow({ follower_id, following_id, at });
  }

  edge(follower: string, following: string): Edge | undefined {
    return this.#graph.edge(follower, following);
  }

  /** Adds a drop, its author coming into being; an id used before is refused. */
  addDrop(draft: DropDraft): WorldDrop {
    const now = this.#now();
    const drop_id =
      draft.drop_id ?? (draft.created_at === undefined ? this.#nextDropId(now) : v7({ msecs: draft.created_at }));
    const created_at = draft.created_at ?? dateOfId(drop_id) ?? now;
    const drop: WorldDrop = {
      drop_id,
      user_id: draft.user_id,
      visibility: draft.visibility ?? "public",
      recipients: draft.recipients ?? [],
      created_at,
      deleted: false,
      changed_at: draft.changed_at ?? now,
      remote: draft.remote ?? false,
    };
    checkDrop(drop);
    const added = this.#drops.add(drop);
    if (drop.user_id !== "") this.addUser(drop.user_id);
    return added;
  }

  /** Deletes a drop; undefined: it is not there (any more). */
  deleteDrop(dropId: string, at = this.#now()): WorldDrop | undefined {
    return this.#drops.delete(dropId, at);
  }

  /** A drop, deleted or not. */
  drop(dropId: string): WorldDrop | undefined {
    return this.#drops.get(dropId);
  }

  followersOf(user: string, request: PageRequest = {}): IdPage {
    return this.#graph.followersOf(user, request);
  }

  followingOf(user: string, request: PageRequest = {}): IdPage {
    return this.#graph.followingOf(user, request);
  }

  listFollowChanges(window: ChangeWindow): Page<Edge> {
    return this.#graph.listChanges(window);
  }

  dropsByUser(user: string, cursor: DropCursor = {}): WorldDrop[] {
    return this.#drops.byUser(user, cursor);
  }

  listDrops(window: ChangeWindow): Page<WorldDrop> {
    return this.#drops.listChanges(window);
  }
}

function checkDrop(drop: WorldDrop): void {
  const ids = [["drop_id", drop.drop_id], ...drop.recipients.map((id) => ["recipients", id] as const)] as [
    string,
    string,
  ][];
  if (drop.user_id !== "" || !drop.remote) ids.push(["user_id", drop.user_id]);
  for (const [field, id] of ids) {
    const fault = idFault(id);
    if (fault !== undefined) throw invalid(field, fault);
  }
  if (drop.drop_id === FLOOR_MEMBER) throw invalid("drop_id", "is the name of the floor");
  if (!Number.isSafeInteger(drop.created_at) || drop.created_at < 0)
    throw invalid("created_at", "must be ms since the epoch");
  if (drop.recipients.length > MAX_RECIPIENTS) throw invalid("recipients", `must be at most ${MAX_RECIPIENTS}`);
  if (drop.recipients.length > 0 && drop.visibility !== "direct") throw invalid("recipients", "are for direct drops");
}

/**
 * Ids in the order of their making, within a millisecond and when the clock
 * steps back too, so that a burst shows in the order it was posted.
 */
function createDropIds(): (now: number) => string {
  let msecs = 0;
  let seq = 0;
  return (now) => {
    seq = now > msecs ? 0 : seq + 1;
    msecs = Math.max(now, msecs);
    return v7({ msecs, seq });
  };
}
