import { createCache, textsBytes } from "../../contracts/caches.js";
import { AppError, codeOf } from "../../kernel/errors.js";
import { HOUR, SECOND, sharedNow } from "../../kernel/time.js";
import type { TokenBucket } from "../../state/index.js";
import { inSpan, SpanKind } from "../../telemetry/spans.js";
import { observeCall } from "../observe.js";
import { createShares } from "../shares.js";
import { createBoundedFetch } from "./bounded-fetch.http.js";
import { createCallSource } from "./call-source.http.js";
import { type Post, SKIPPED, type Source } from "./source.js";
import { type Page, readItem, readPage, resultOf, sourceError } from "./xrpc.js";

const METHOD = "app.bsky.feed.getAuthorFeed";
/** The lexicon allows no more. */
const POSTS_A_PAGE = 100;
/** Bounds the calls for an account that mostly shares posts of others. */
const MAX_PAGES = 20;
/** A page may be empty because the AppView filters it: the next one need not be. */
const MAX_EMPTY_PAGES = 3;
/** More reads are refused: they would only wait for the same tokens. Users share them. */
const MAX_READS = 8;
const TIMEOUT_MS = 5 * SECOND;
/** An interrupted read is kept as long as results may be cached. */
const INTERRUPTED_MS = HOUR;
/** Memory of a post with its id, and of a read beside its posts and cursors, bytes. */
const POST_BYTES = 400;
const READ_BYTES = 1_000;

interface Read {
  readonly posts: Post[];
  skipped: number;
  pages: number;
  /** Number of pages in a row without posts, up to the last one. */
  emptyPages: number;
  /** Pages may overlap. */
  readonly ids: Set<string>;
  readonly cursors: string[];
}

const readBytes = ({ ids, posts, cursors }: Read): number =>
  READ_BYTES + POST_BYTES * Math.max(ids.size, posts.length) + textsBytes(cursors);

const nothingRead = (): Read => ({ posts: [], skipped: 0, pages: 0, emptyPages: 0, ids: new Set(), cursors: [] });

interface AtprotoOptions {
  readonly url: string;
  readonly bucket: TokenBucket;
  /** The timeout is that of a page. */
  readonly timeoutMs?: number;
}

/** A read that an outage or the lack of a token interrupts goes on from its last page: no page takes a second token. */
export function createAtprotoSource({ url, bucket, timeoutMs = TIMEOUT_MS }: AtprotoOptions): Source {
  const callSource = createCallSource(bucket, timeoutMs);
  const fetchBounded = createBoundedFetch(url);
  const interrupted = createCache<Read>("interruptedReads", { sizeOf: readBytes, ttl: INTERRUPTED_MS });
  const reads = createShares(MAX_READS);
  return {
    async *posts(account, { user, limit, signal }) {
      const end = reads.take(user);
      if (!end) throw new AppError("unavailable", `${METHOD}: ${reads.taken} other accounts are being read`);
      const read = interrupted.get(account) ?? nothingRead();
      interrupted.delete(account);
      try {
        await readOn(read, { account, limit }, (cursor) =>
          callSource({ account, user }, (within) => fetchPage(fetchBounded, { account, cursor }, within), signal),
        );
      } catch (error) {
        if (codeOf(error) === "unavailable") interrupted.set(account, read);
        throw error;
      } finally {
        end();
      }
      yield* read.posts.slice(0, limit);
      for (let count = 0; count < read.skipped; count++) yield SKIPPED;
    },
  };
}

async function readOn(
  read: Read,
  { account, limit }: { readonly account: string; readonly limit: number },
  pageAt: (cursor: string | undefined) => Promise<Page>,
): Promise<void> {
  while (read.posts.length < limit && read.pages < MAX_PAGES && read.emptyPages < MAX_EMPTY_PAGES) {
    const { items, cursor } = await pageAt(read.cursors.at(-1));
    read.pages++;
    read.emptyPages = items.length === 0 ? read.emptyPages + 1 : 0;
    const now = sharedNow();
    for (const json of items) {
      const item = readItem(json, account, now);
      if (item === undefined || read.ids.has(item.id ?? "")) continue;
      if (item.id !== undefined) read.ids.add(item.id);
      if (item.post === SKIPPED) read.skipped++;
      else read.posts.push(item.post);
    }
    if (cursor === undefined) return;
    if (read.cursors.includes(cursor))
      throw new AppError("failed", `${METHOD}: its cursor leads to a page that was read`);
    read.cursors.push(cursor);
  }
}

async function fetchPage(
  fetchBounded: ReturnType<typeof createBoundedFetch>,
  { account, cursor }: { readonly account: string; readonly cursor: string | undefined },
  signal: AbortSignal,
): Promise<Page> {
  const query = new URLSearchParams({ actor: account, limit: String(POSTS_A_PAGE), ...(cursor && { cursor }) });
  const attributes = { "rpc.system": "xrpc", "rpc.method": METHOD };
  let result = "200";
  const call = async (): Promise<string> => {
    const response = await fetchBounded(`/xrpc/${METHOD}?${query.toString()}`, { signal });
    const text = await response.text();
    if (response.ok) return text;
    result = String(response.status);
    throw sourceError(response.status, text);
  };
  const started = performance.now();
  try {
    return readPage(await inSpan(METHOD, { kind: SpanKind.CLIENT, attributes }, call));
  } catch (error) {
    if (result === "200") result = resultOf(error);
    throw error;
  } finally {
    observeCall(result, performance.now() - started);
  }
}
