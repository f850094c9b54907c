import { ChangeLog, type ChangeWindow } from "./change-log.js";
import { ID_PAGES, type Page, type PageRequest, readSize, readToken, writeToken } from "./paging.js";
import { SortedList } from "./sorted-list.js";
import { invalid } from "./world-error.js";

/** The state of a pair that was connected at least once. */
export interface Edge {
  readonly follower_id: string;
  readonly following_id: string;
  /** Monotonic per pair. */
  readonly version: number;
  readonly following: boolean;
  readonly changed_at: number;
}

/** A page of ids with the size of the whole list. */
export interface IdPage extends Page<string> {
  readonly total_count: number;
}

/** A follow or unfollow at a time. */
export interface EdgeChange {
  readonly follower_id: string;
  readonly following_id: string;
  readonly at: number;
}

type MutableEdge = { -readonly [K in keyof Edge]: Edge[K] };

interface Neighbour {
  /** When it was added: a key that never moves, so that pages stay exact. */
  readonly seq: number;
  readonly id: string;
}

type Neighbours = Map<string, SortedList<Neighbour>>;

/** The follow graph: both directions as lists in the order people followed. */
export class FollowGraph {
  readonly #edges = new Map<string, Map<string, MutableEdge>>();
  readonly #followers: Neighbours = new Map();
  readonly #following: Neighbours = new Map();
  readonly #seqOf = new Map<Edge, number>();
  readonly #changes = new ChangeLog<MutableEdge>("follows");
  #seq = 0;

  /** Connects a pair; undefined where it is connected already. */
  follow(change: EdgeChange): Edge | undefined {
    if (change.follower_id === change.following_id) throw invalid("following_id", "must not be the follower");
    const edge = this.#edgeOf(change);
    if (edge.following) return undefined;
    const seq = ++this.#seq;
    this.#seqOf.set(edge, seq);
    listOf(this.#followers, edge.following_id).add({ seq, id: edge.follower_id });
    listOf(this.#following, edge.follower_id).add({ seq, id: edge.following_id });
    return this.#changed(edge, change.at);
  }

  /** Disconnects a pair; undefined where it is not connected. */
  unfollow(change: EdgeChange): Edge | undefined {
    const edge = this.#edges.get(change.follower_id)?.get(change.following_id);
    if (edge === undefined || !edge.following) return undefined;
    const seq = this.#seqOf.get(edge) ?? 0;
    listOf(this.#followers, edge.following_id).remove({ seq, id: edge.follower_id });
    listOf(this.#following, edge.follower_id).remove({ seq, id: edge.following_id });
    return this.#changed(edge, change.at);
  }

  /** The pair as it is; undefined where it was never connected. */
  edge(follower: string, following: string): Edge | undefined {
    const edge = this.#edges.get(follower)?.get(following);
    return edge === undefined ? undefined : { ...edge };
  }

  followerCount(user: string): number {
    return this.#followers.get(user)?.size ?? 0;
  }

  followingCount(user: string): number {
    return this.#following.get(user)?.size ?? 0;
  }

  /** A page of the people who follow a user. */
  followersOf(user: string, request: PageRequest = {}): IdPage {
    return pageOf(this.#followers.get(user), `followers\n${user}`, request);
  }

  /** A page of the people a user follows. */
  followingOf(user: string, request: PageRequest = {}): IdPage {
    return pageOf(this.#following.get(user), `following\n${user}`, request);
  }

  /** A page of the pairs that changed in a window. */
  listChanges(window: ChangeWindow): Page<Edge> {
    const { items, next_page_token } = this.#changes.page(window);
    return { items: items.map((edge) => ({ ...edge })), next_page_token };
  }

  #edgeOf({ follower_id, following_id }: EdgeChange): MutableEdge {
    const mine = this.#edges.get(follower_id) ?? new Map<string, MutableEdge>();
    this.#edges.set(follower_id, mine);
    const edge = mine.get(following_id) ?? { follower_id, following_id, version: 0, following: false, changed_at: 0 };
    mine.set(following_id, edge);
    return edge;
  }

  #changed(edge: MutableEdge, at: number): Edge {
    edge.following = !edge.following;
    edge.changed_at = at;
    // Versions start from the time, so that a world started anew next to
    // brokers that remember the old one does not fall behind its own past.
    edge.version = Math.max(edge.version + 1, at);
    this.#changes.record(edge, at);
    return { ...edge };
  }
}

function listOf(lists: Neighbours, user: string): SortedList<Neighbour> {
  const list = lists.get(user) ?? new SortedList<Neighbour>((a, b) => a.seq - b.seq);
  lists.set(user, list);
  return list;
}

function pageOf(list: SortedList<Neighbour> | undefined, name: string, request: PageRequest): IdPage {
  const size = readSize("page_size", request.page_size, ID_PAGES);
  const [after = 0] = readToken(name, request.page_token) ?? [];
  if (list === undefined) return { items: [], next_page_token: "", total_count: 0 };
  const from = list.lowerBound((neighbour) => (neighbour.seq <= after ? -1 : 1));
  const slice = list.slice(from, from + size);
  const last = slice.at(-1);
  const more = last !== undefined && from + size < list.size;
  return {
    items: slice.map((neighbour) => neighbour.id),
    next_page_token: more ? writeToken(name, [last.seq]) : "",
    total_count: list.size,
  };
}
