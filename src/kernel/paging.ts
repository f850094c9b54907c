import { invalid } from "./errors.js";
import { fingerprint } from "./ids.js";

/** One page of a list and the token of the next; an empty token: the end. */
export interface Page<Item> {
  readonly items: readonly Item[];
  readonly nextPageToken: string;
}

/** How large pages are. */
export interface PageLimits {
  /** Where the caller names no size. */
  readonly usual: number;
  readonly most: number;
}

/** The position a list goes on after: the values of its key. */
export type PageKey = readonly (string | number)[];

/** Reads a size field: 0 is the usual one, more than the most is the most. @throws AppError `invalid` */
export function readSize(field: string, size: number, limits: PageLimits): number {
  if (!Number.isSafeInteger(size)) throw invalid(field, "must be an integer");
  if (size < 0) throw invalid(field, "must not be negative");
  return size === 0 ? limits.usual : Math.min(size, limits.most);
}

/** Reads a time field, ms since the epoch; 0 where it is not set. @throws AppError `invalid` */
export function readTime(field: string, time: number): number {
  if (!Number.isSafeInteger(time) || time < 0) throw invalid(field, "must be ms since the epoch, not negative");
  return time;
}

/**
 * Makes the token that goes on after a key. It carries a mark of the list it belongs to, so that no other list
 * takes it; an offset cannot be made into one.
 */
export function writeToken(list: string, key: PageKey): string {
  const text = JSON.stringify(key);
  return Buffer.from(`${mark(list, text)}${text}`, "utf8").toString("base64url");
}

/** Reads a token of this list; undefined for the empty one. @throws AppError `invalid` for any other text */
export function readToken<Key extends PageKey>(list: string, token: string): Key | undefined {
  if (token === "") return undefined;
  const text = Buffer.from(token, "base64url").toString("utf8");
  const key = text.slice(MARK_LENGTH);
  if (text.slice(0, MARK_LENGTH) !== mark(list, key)) throw invalid("page_token", "is not a token of this list");
  return JSON.parse(key) as Key;
}

/** Cuts what was read with one more than asked for into a page. */
export function pageOf<Item>(
  list: string,
  items: readonly Item[],
  size: number,
  keyOf: (item: Item) => PageKey,
): Page<Item> {
  const last = items[size - 1];
  if (items.length <= size || last === undefined) return { items, nextPageToken: "" };
  return { items: items.slice(0, size), nextPageToken: writeToken(list, keyOf(last)) };
}

const MARK_LENGTH = 8;

function mark(list: string, text: string): string {
  return fingerprint(`${list}\n${text}`).slice(0, MARK_LENGTH);
}
