import type { PageLimits } from "../../kernel/paging.js";
import type { PostsConfig } from "../config.js";
import { MAX_SUMMARY_CHARACTERS } from "./request.js";

/** gRPC clients take messages of at most this size by default. */
export const MESSAGE_BYTES = 4 * 1024 * 1024;
/** Maximum size of the tag and the length of a row in a message, bytes. */
export const FIELD_BYTES = 16;
/** Maximum size of the other fields of a drop without a payload, above all its recipients and mentions, bytes. */
const DROP_BYTES = 12 * 1024;
const CHARACTER_BYTES = 4;
const DEFAULT_DROPS = 20;
const MAX_DROPS = 100;

/** A page has as many drops of the longest text, without a payload, as fit a message. */
export function textPages({ maxBodyCharacters }: Pick<PostsConfig, "maxBodyCharacters">): PageLimits {
  const bytes = CHARACTER_BYTES * (maxBodyCharacters + MAX_SUMMARY_CHARACTERS) + DROP_BYTES;
  const max = Math.min(MAX_DROPS, Math.floor(MESSAGE_BYTES / bytes));
  return { default: Math.min(DEFAULT_DROPS, max), max };
}

/** Maximum number of chunks of a list that a call reads. Its page is shorter if they have nothing to show. */
const MAX_READS = 50;

interface Page<Key> {
  readonly after: Key | undefined;
  readonly limit: number;
  pageOf<Item>(items: readonly Item[], keyOf: (item: Item) => Key, stoppedAt?: Key): PageOf<Item>;
}

export interface PageOf<Item> {
  readonly items: Item[];
  readonly next_page_token: string;
}

/** A chunk without `next` is the last one. */
export interface Chunk<Row, Key> {
  readonly rows: readonly Row[];
  readonly next: Key | undefined;
}

interface Filling<Row, Key> {
  readonly read: (after: Key | undefined, limit: number) => Promise<Chunk<Row, Key>>;
  readonly keep: (rows: readonly Row[]) => Promise<readonly Row[]>;
  readonly keyOf: (row: Row) => Key;
  /** The number of rows of each chunk after the first. */
  readonly most: number;
  /** The size of a row in a message, bytes. Unset if a page of the longest rows fits one. */
  readonly bytesOf?: (row: Row) => number;
  /** Maximum size of the rows in a message, bytes; unset: that of a message. */
  readonly room?: number;
}

/** Reads on until a page is full. Rows that the list omits do not count. */
export async function fillPage<Row, Key>(page: Page<Key>, filling: Filling<Row, Key>): Promise<PageOf<Row>> {
  const { read, keep, keyOf, most } = filling;
  const kept: Row[] = [];
  let [after, limit] = [page.after, page.limit];
  for (let reads = 0; reads < MAX_READS; reads++) {
    const { rows, next } = await read(after, limit);
    kept.push(...(await keep(rows)));
    if (kept.length >= page.limit || next === undefined) return fitting(page, page.pageOf(kept, keyOf), filling);
    [after, limit] = [next, most];
  }
  return fitting(page, page.pageOf(kept, keyOf, after), filling);
}

/** Ends a page before the row that exceeds its room, unless it is the first one. */
function fitting<Row, Key>(
  page: Page<Key>,
  whole: PageOf<Row>,
  { keyOf, bytesOf, room = MESSAGE_BYTES }: Filling<Row, Key>,
): PageOf<Row> {
  if (bytesOf === undefined) return whole;
  let bytes = 0;
  const beyond = whole.items.findIndex((row, index) => {
    bytes += bytesOf(row);
    return index > 0 && bytes > room;
  });
  if (beyond < 0) return whole;
  return page.pageOf(whole.items.slice(0, beyond), keyOf, keyOf(whole.items[beyond - 1] as Row));
}

/** A chunk that is shorter than asked for ends the list. */
export function chunkOf<Row, Key>(rows: readonly Row[], limit: number, keyOf: (row: Row) => Key): Chunk<Row, Key> {
  const last = rows.length < limit ? undefined : rows.at(-1);
  return { rows, next: last === undefined ? undefined : keyOf(last) };
}
