import { fingerprint } from "../kernel/ids.js";
import { invalid } from "./world-error.js";

/** One page of a list and the token of the next; an empty token: the end. */
export interface Page<T> {
  readonly items: readonly T[];
  readonly next_page_token: string;
}

/** The page asked for; 0 and "" are the defaults of the wire. */
export interface PageRequest {
  readonly page_size?: number;
  readonly page_token?: string;
}

export interface PageLimits {
  readonly usual: number;
  readonly most: number;
}

/** Pages of ids. */
export const ID_PAGES: PageLimits = { usual: 1_000, most: 5_000 };

/** Pages of whole drops with their recipients, which must fit gRPC's 4 MiB. */
export const DROP_PAGES: PageLimits = { usual: 1_000, most: 1_000 };

const NUMBERS = /^\d{1,16}(\.\d{1,16})?$/;

/** Reads a size field: 0 is the usual one, more than the most is the most. */
export function readSize(field: string, value: number | undefined, limits: PageLimits): number {
  const size = value ?? 0;
  if (!Number.isSafeInteger(size)) throw invalid(field, "must be an integer");
  if (size < 0) throw invalid(field, "must not be negative");
  return size === 0 ? limits.usual : Math.min(size, limits.most);
}

/** Reads a time field: ms since the epoch, 0 where it is not set. */
export function readTime(field: string, value: number | undefined): number {
  const time = value ?? 0;
  if (!Number.isSafeInteger(time) || time < 0) throw invalid(field, "must be ms since the epoch, not negative");
  return time;
}

/**
 * Makes the token that goes on after a key of numbers. The token carries a mark
 * of the list it belongs to, so that one list's token is unknown to another.
 */
export function writeToken(list: string, key: readonly number[]): string {
  const text = key.join(".");
  return Buffer.from(`${text}~${mark(list, text)}`, "utf8").toString("base64url");
}

/** Reads a token of this list; undefined for the empty one, an error for any other text. */
export function readToken(list: string, token: string | undefined): number[] | undefined {
  if (token === undefined || token === "") return undefined;
  const [text = "", seal] = Buffer.from(token, "base64url").toString("utf8").split("~");
  const key = text.split(".").map(Number);
  if (!NUMBERS.test(text) || seal !== mark(list, text) || writeToken(list, key) !== token) {
    throw invalid("page_token", "is not a token of this list");
  }
  return key;
}

function mark(list: string, text: string): string {
  return fingerprint(`${list}\n${text}`).slice(0, 8);
}
