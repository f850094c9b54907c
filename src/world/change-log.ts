import {
  DROP_PAGES,
  ID_PAGES,
  type Page,
  type PageRequest,
  readSize,
  readTime,
  readToken,
  writeToken,
} from "./paging.js";
import { SortedList } from "./sorted-list.js";

/** A window of wall-clock time, [since, until); until 0 is open-ended. */
export interface ChangeWindow extends PageRequest {
  readonly since?: number;
  readonly until?: number;
}

interface Change<T> {
  readonly at: number;
  readonly seq: number;
  readonly what: T;
}

/**
 * What changed, by the time of its last change: a thing that changes again
 * moves to its new place. Ties are told apart by the order of arrival, so that
 * a page ends at an exact position whatever else changes meanwhile.
 */
export class ChangeLog<T extends object> {
  readonly #entries = new SortedList<Change<T>>((a, b) => a.at - b.at || a.seq - b.seq);
  readonly #placeOf = new Map<T, Change<T>>();
  #seq = 0;

  constructor(
    private readonly name: "drops" | "follows",
    private readonly listed: (what: T) => boolean = () => true,
  ) {}

  /** Puts a thing at its new place in time. */
  record(what: T, at: number): void {
    const before = this.#placeOf.get(what);
    if (before !== undefined) this.#entries.remove(before);
    const entry = { at, seq: ++this.#seq, what };
    this.#placeOf.set(what, entry);
    this.#entries.add(entry);
  }

  /** A page of what changed in the window, oldest change first. */
  page(window: ChangeWindow): Page<T> {
    const since = readTime("since", window.since);
    const until = readTime("until", window.until) || Number.POSITIVE_INFINITY;
    const size = readSize("page_size", window.page_size, this.name === "drops" ? DROP_PAGES : ID_PAGES);
    const [at = 0, seq = 0] = readToken(this.name, window.page_token) ?? [];
    const start = at < since ? { at: since, seq: 0 } : { at, seq };
    const from = this.#entries.lowerBound((entry) => entry.at - start.at || (entry.seq <= start.seq ? -1 : 1));
    const to = this.#entries.lowerBound((entry) => (entry.at < until ? -1 : 1));
    const slice = this.#entries.slice(from, Math.min(to, from + size));
    const last = slice.at(-1);
    const more = last !== undefined && from + size < to;
    return {
      items: slice.map((entry) => entry.what).filter(this.listed),
      next_page_token: more ? writeToken(this.name, [last.at, last.seq]) : "",
    };
  }
}
