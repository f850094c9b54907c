import { createHmac, timingSafeEqual } from "node:crypto";
import { AppError, invalid } from "./errors.js";

/** An empty token: the end. */
export interface Page<Item> {
  readonly items: readonly Item[];
  readonly nextPageToken: string;
}

export interface PageLimits {
  readonly usual: number;
  readonly most: number;
}

export type PageKey = readonly (string | number)[];

/** 0: the usual size; larger sizes are cut. @throws AppError `invalid` */
export function readSize(field: string, size: number, limits: PageLimits): number {
  if (!Number.isSafeInteger(size)) throw invalid(field, "must be an integer");
  if (size < 0) throw invalid(field, "must not be negative");
  return size === 0 ? limits.usual : Math.min(size, limits.most);
}

/** ms since the epoch; 0: unset. @throws AppError `invalid` */
export function readTime(field: string, time: number): number {
  if (!Number.isSafeInteger(time) || time < 0) throw invalid(field, "must be ms since the epoch, not negative");
  return time;
}

export type ListName = readonly [name: string, ...parameters: (string | number)[]];

export interface PageTokens {
  /** Undefined for the empty token. @throws AppError `invalid` for a token of another list, or a made-up one */
  read<Key extends PageKey>(list: ListName, token: string): Key | undefined;
  page<Item>(list: ListName, items: readonly Item[], size: number, keyOf: (item: Item) => PageKey): Page<Item>;
}

const SEAL_BYTES = 16;

/** Tokens are sealed with a secret that all processes of the service share, and with the list's name. */
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
      // Buffer.from skips characters that are not base64url.
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

export interface IdPage {
  readonly ids: readonly string[];
  readonly next: string;
}

/** With pages of 1,000 users: a hundred million. */
const MAX_PAGES = 100_000;

/** @throws AppError `failed` where a page leads to itself, or the list does not end within `maxPages` */
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
