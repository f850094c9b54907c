import { createHmac, timingSafeEqual } from "node:crypto";
import { AppError, invalid } from "./errors.js";

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

/** A list by its name and the parameters it is read with: each combination is a list of its own. */
export type ListName = readonly [name: string, ...parameters: (string | number)[]];

/** Tokens of lists. */
export interface PageTokens {
  /** Reads a token of this list; undefined for the empty one. @throws AppError `invalid` for any other text */
  read<Key extends PageKey>(list: ListName, token: string): Key | undefined;
  /** Cuts what was read with one more than asked for into a page. */
  page<Item>(list: ListName, items: readonly Item[], size: number, keyOf: (item: Item) => PageKey): Page<Item>;
}

const SEAL_BYTES = 16;

/**
 * Makes the tokens of a service. Each is sealed with a secret that all processes of the service share, so that nobody
 * makes one up, and with its list, so that no other list takes it.
 */
export function createPageTokens(secret: string): PageTokens {
  const seal = (list: ListName, text: string): Buffer =>
    createHmac("sha256", secret)
      .update(JSON.stringify([list, text]))
      .digest()
      .subarray(0, SEAL_BYTES);
  const write = (list: ListName, key: PageKey): string => {
    const text = JSON.stringify(key);
    return Buffer.concat([seal(list, text), Buffer.from(text)]).toString("base64url");
  };
  return {
    read<Key extends PageKey>(list: ListName, token: string): Key | undefined {
      if (token === "") return undefined;
      const bytes = Buffer.from(token, "base64url");
      const text = bytes.subarray(SEAL_BYTES).toString();
      // Buffer.from skips what is not base64url: only the form that was handed out is taken back.
      const genuine =
        bytes.length > SEAL_BYTES &&
        bytes.toString("base64url") === token &&
        timingSafeEqual(bytes.subarray(0, SEAL_BYTES), seal(list, text));
      if (!genuine) throw invalid("page_token", "is not a token of this list");
      return JSON.parse(text) as Key;
    },
    page: (list, items, size, keyOf) => {
      const last = items[size - 1];
      if (items.length <= size || last === undefined) return { items, nextPageToken: "" };
      return { items: items.slice(0, size), nextPageToken: write(list, keyOf(last)) };
    },
  };
}

/** A page of somebody else's list of ids; an empty `next` ends the list. */
export interface IdPage {
  readonly ids: readonly string[];
  readonly next: string;
}

/** Pages of 1,000 users: a hundred million. */
const MAX_PAGES = 100_000;

/**
 * Reads somebody else's list page by page, from its beginning until a page names no next one.
 *
 * @throws AppError `failed` where a page leads to itself, or the list does not end within `maxPages`
 */
export async function* readPages<OnePage extends { readonly next: string }>(
  read: (token: string) => Promise<OnePage>,
  maxPages: number = MAX_PAGES,
): AsyncGenerator<OnePage> {
  let token = "";
  for (let count = 0; count < maxPages; count++) {
    const page = await read(token);
    yield page;
    if (page.next === "") return;
    if (page.next === token) throw new AppError("failed", "the page of a list leads to itself");
    token = page.next;
  }
  throw new AppError("failed", `a list does not end within ${maxPages} pages`);
}
