import { createHmac, timingSafeEqual } from "node:crypto";
import { AppError, invalid } from "./errors.js";
import { wrongUnitOf } from "./time.js";

export interface PageLimits {
  readonly default: number;
  readonly max: number;
}

type PageKey = readonly (string | number)[];

/** Reads 0 as the default size, and cuts larger sizes. @throws AppError `invalid` */
export function readSize(field: string, size: number, limits: PageLimits): number {
  if (!Number.isSafeInteger(size)) throw invalid(field, "must be an integer");
  if (size < 0) throw invalid(field, "must not be negative");
  return size === 0 ? limits.default : Math.min(size, limits.max);
}

/** Reads ms since the epoch; 0 stands for unset. @throws AppError `invalid` */
export function readTime(field: string, time: number): number {
  const unit = wrongUnitOf(time);
  if (unit !== undefined) throw invalid(field, `is a time in ${unit}, and must be ms since the epoch`);
  if (!Number.isSafeInteger(time) || time < 0) throw invalid(field, "must be ms since the epoch, not negative");
  return time;
}

/** A page of a list that is ordered by a key, the newest item first; `before` excludes that key and newer ones. */
export interface KeysetPage {
  readonly limit: number;
  readonly before?: string | undefined;
}

type ListName = readonly [name: string, ...parameters: (string | number)[]];

interface ListRequest {
  readonly page_size: number;
  /** An empty token asks for the first page. */
  readonly page_token: string;
}

export type PageTokens = ReturnType<typeof createPageTokens>;

const SEAL_BYTES = 16;

/** Tokens are sealed with a secret that all processes of the service share, and with the list's name. */
export function createPageTokens(secret: string) {
  const seal = (list: ListName, text: string): Buffer =>
    createHmac("sha256", secret)
      .update(JSON.stringify([list, text]))
      .digest()
      .subarray(0, SEAL_BYTES);
  const write = (list: ListName, key: PageKey): string => {
    const text = JSON.stringify(key);
    return Buffer.concat([seal(list, text), Buffer.from(text)]).toString("base64url");
  };
  const read = (list: ListName, token: string): PageKey | undefined => {
    if (token === "") return undefined;
    const bytes = Buffer.from(token, "base64url");
    const text = bytes.subarray(SEAL_BYTES).toString();
    // Buffer.from skips characters that are not base64url.
    const genuine =
      bytes.length > SEAL_BYTES &&
      bytes.toString("base64url") === token &&
      timingSafeEqual(bytes.subarray(0, SEAL_BYTES), seal(list, text));
    if (!genuine) throw invalid("page_token", "is not a token of this list");
    return JSON.parse(text) as PageKey;
  };
  return {
    /** @throws AppError `invalid` for a token of another list, or a made-up one */
    open: <Key extends PageKey>(list: ListName, { page_size, page_token }: ListRequest, limits: PageLimits) => {
      const size = readSize("page_size", page_size, limits);
      return {
        after: read(list, page_token) as Key | undefined,
        /** One more item than the page has tells whether another page follows. */
        limit: size + 1,
        /** An empty token stands for the end. A search that stopped before the page was full continues at `stoppedAt`. */
        pageOf: <Item>(rows: readonly Item[], keyOf: (item: Item) => Key, stoppedAt?: Key) => {
          const last = rows.length > size ? rows[size - 1] : undefined;
          const next = last === undefined ? stoppedAt : keyOf(last);
          return { items: rows.slice(0, size), next_page_token: next === undefined ? "" : write(list, next) };
        },
      };
    },
  };
}

export interface IdPage {
  readonly ids: readonly string[];
  readonly next: string;
  /** The length is that of the whole list; unset if it is not known. */
  readonly total?: number | undefined;
}

/** Enough for 100 million users in pages of 1,000. */
const MAX_PAGES = 100_000;

/** A service that filters as it reads answers with empty pages. One that never ends does so, too. */
const MAX_EMPTY_PAGES = 1_000;

const isEmpty = (page: object): boolean =>
  !Object.values(page).some((value: unknown) => Array.isArray(value) && value.length > 0);

/**
 * @throws AppError `failed` if a page leads to itself or to an earlier one, too many pages in a row are empty, or the
 *   list does not end in `maxPages`
 */
export async function* readPages<OnePage extends { readonly next: string }>(
  read: (token: string) => Promise<OnePage>,
  maxPages: number = MAX_PAGES,
): AsyncGenerator<OnePage> {
  // Each token is compared with one earlier token, which moves on at doubled distances: a circle of n pages is found
  // within 3n.
  let [token, earlier, renewal, empty] = ["", "", 1, 0];
  for (let count = 0; count < maxPages; count++) {
    const page = await read(token);
    yield page;
    if (page.next === "") return;
    if (page.next === token) throw new AppError("failed", "the page of a list leads to itself");
    if (page.next === earlier) throw new AppError("failed", "the pages of a list lead in a circle");
    empty = isEmpty(page) ? empty + 1 : 0;
    if (empty === MAX_EMPTY_PAGES) throw new AppError("failed", `${empty} pages of a list in a row are empty`);
    if (count === renewal) [earlier, renewal] = [page.next, 2 * renewal];
    token = page.next;
  }
  throw new AppError("failed", `a list does not end within ${maxPages} pages`);
}

/** Takes the first items, until there are `limit` or their JSON would be larger than `maxBytes`. */
export async function firstOf<Item>(
  items: AsyncIterable<Item>,
  limit: number,
  maxBytes = Number.POSITIVE_INFINITY,
): Promise<Item[]> {
  const taken: Item[] = [];
  let bytes = 2;
  for await (const item of items) {
    bytes += Buffer.byteLength(JSON.stringify(item)) + 1;
    if (bytes > maxBytes || taken.push(item) === limit) break;
  }
  return taken;
}
