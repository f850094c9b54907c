import { compareBytes, dateOfId } from "../kernel/ids.js";
import { ChangeLog, type ChangeWindow } from "./change-log.js";
import { type Page, readSize, readTime } from "./paging.js";
import { SortedList } from "./sorted-list.js";
import { invalid, WorldError } from "./world-error.js";

/** Who sees a drop, in the words of the events. */
export const VISIBILITIES = ["public", "unlisted", "followers", "direct"] as const;
export type DropVisibility = (typeof VISIBILITIES)[number];

/** A drop as the world knows it. */
export interface WorldDrop {
  readonly drop_id: string;
  /** Empty for a remote drop whose actor is not known. */
  readonly user_id: string;
  readonly visibility: DropVisibility;
  readonly recipients: readonly string[];
  readonly created_at: number;
  readonly deleted: boolean;
  readonly changed_at: number;
  /** Came by ActivityPub. */
  readonly remote: boolean;
}

/** Where to read an author's drops from; 0 and "" are the defaults of the wire. */
export interface DropCursor {
  readonly limit?: number;
  readonly max_id?: string;
  readonly before?: number;
}

type MutableDrop = { -readonly [K in keyof WorldDrop]: WorldDrop[K] };
type Position = Pick<WorldDrop, "created_at" | "drop_id">;

const LIMITS = { usual: 20, most: 1_000 };

/** All drops: by id, by author in timeline order, and by time of change. */
export class DropStore {
  readonly #byId = new Map<string, MutableDrop>();
  readonly #live = new Map<string, SortedList<MutableDrop>>();
  // A remote drop listed here would be admitted as one of this server's own
  // and show in the local timeline; its deletion is true everywhere.
  readonly #changes = new ChangeLog<MutableDrop>("drops", (drop) => !drop.remote || drop.deleted);

  get size(): number {
    return this.#byId.size;
  }

  /** Adds a drop; an id that was ever used is refused. */
  add(drop: WorldDrop): WorldDrop {
    if (this.#byId.has(drop.drop_id)) throw new WorldError("conflict", "drop_id", "was used before");
    const own: MutableDrop = { ...drop, recipients: [...drop.recipients] };
    this.#byId.set(own.drop_id, own);
    if (own.user_id !== "") this.#liveOf(own.user_id).add(own);
    this.#changes.record(own, own.changed_at);
    return { ...own };
  }

  /** Deletes a drop; undefined where it is not there (any more). */
  delete(dropId: string, at: number): WorldDrop | undefined {
    const drop = this.#byId.get(dropId);
    if (drop === undefined || drop.deleted) return undefined;
    if (drop.user_id !== "") this.#liveOf(drop.user_id).remove(drop);
    drop.deleted = true;
    drop.changed_at = at;
    this.#changes.record(drop, at);
    return { ...drop };
  }

  /** A drop, deleted or not. */
  get(dropId: string): WorldDrop | undefined {
    const drop = this.#byId.get(dropId);
    return drop === undefined ? undefined : { ...drop };
  }

  /** An author's drops of all visibilities, newest first, without deleted ones. */
  byUser(user: string, cursor: DropCursor = {}): WorldDrop[] {
    const limit = readSize("limit", cursor.limit, LIMITS);
    const below = this.#startOf(cursor);
    const list = this.#live.get(user);
    if (list === undefined) return [];
    const end = below === undefined ? list.size : list.lowerBound((drop) => comparePositions(drop, below));
    return list
      .slice(end - limit, end)
      .reverse()
      .map((drop) => ({ ...drop }));
  }

  /** A page of the drops that changed in a window, deleted ones too. */
  listChanges(window: ChangeWindow): Page<WorldDrop> {
    const { items, next_page_token } = this.#changes.page(window);
    return { items: items.map((drop) => ({ ...drop })), next_page_token };
  }

  /** The position everything returned is older than; undefined: from the newest. */
  #startOf({ max_id = "", before: value }: DropCursor): Position | undefined {
    const before = readTime("before", value);
    // The empty id sorts before every id, so that `before` alone excludes its
    // whole millisecond.
    if (before !== 0) return { created_at: before, drop_id: max_id };
    if (max_id === "") return undefined;
    // Deleted drops keep their position: a reader may hold one as its cursor.
    const created_at = this.#byId.get(max_id)?.created_at ?? dateOfId(max_id);
    if (created_at === undefined) throw invalid("max_id", "is neither a known drop nor dated");
    return { created_at, drop_id: max_id };
  }

  #liveOf(user: string): SortedList<MutableDrop> {
    const list = this.#live.get(user) ?? new SortedList<MutableDrop>(comparePositions);
    this.#live.set(user, list);
    return list;
  }
}

function comparePositions(a: Position, b: Position): number {
  return a.created_at - b.created_at || compareBytes(a.drop_id, b.drop_id);
}
