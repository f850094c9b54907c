import type { AppBskyFeedDefs, AppBskyFeedGetAuthorFeed, AtpBaseClient } from "@atproto/api";
import { LRUCache } from "lru-cache";
import { inSpan, SpanKind } from "../../delivery/telemetry.js";
import { AppError, codeOf } from "../../kernel/errors.js";
import { HOUR, SECOND } from "../../kernel/time.js";
import { createAsk } from "./ask.http.js";
import { createBoundedFetch } from "./bounded-fetch.js";
import { observeCall } from "./observe.js";
import type { Post, Source } from "./source.js";
import type { TokenBucket } from "./token-bucket.redis.js";
import { reasonOf, resultOf } from "./xrpc-errors.js";

const METHOD = "app.bsky.feed.getAuthorFeed";
/** The most that the lexicon allows. */
const POSTS_A_PAGE = 100;
/** Bounds the calls for an account that mostly shares posts of others. */
const MAX_PAGES = 20;
/** More are refused: they would only wait for the same tokens. */
const MAX_READS = 8;
const TIMEOUT_MS = 5 * SECOND;
/** As long as results may be cached. */
const INTERRUPTED_MS = HOUR;
const MAX_INTERRUPTED = 1_000;

/** The pages of an account read so far. */
interface Read {
  readonly posts: Post[];
  pages: number;
  /** Undefined before the first page. */
  cursor: string | undefined;
}

type Page = AppBskyFeedGetAuthorFeed.OutputSchema;

interface AtprotoOptions {
  /** The origin of an AppView. */
  readonly url: string;
  readonly bucket: TokenBucket;
  /** Of a page. */
  readonly timeoutMs?: number;
}

/**
 * Posts of accounts of the AT Protocol, as everybody sees them. A read that an outage or the lack of a token interrupts
 * goes on from its last page when the account is asked for again: no page takes a second token.
 */
export function createAtprotoSource({ url, bucket, timeoutMs = TIMEOUT_MS }: AtprotoOptions): Source {
  const ask = createAsk(bucket, timeoutMs);
  const load = createLoad(url);
  const interrupted = new LRUCache<string, Read>({ max: MAX_INTERRUPTED, ttl: INTERRUPTED_MS });
  let reads = 0;
  return {
    async *posts(account, { limit, signal }) {
      if (reads >= MAX_READS) throw new AppError("unavailable", `${METHOD}: ${reads} other accounts are being read`);
      reads++;
      const read = interrupted.get(account) ?? { posts: [], pages: 0, cursor: undefined };
      interrupted.delete(account);
      try {
        const client = await load();
        await readOn(read, { account, limit }, (cursor) =>
          ask(account, (within) => fetchPage(client, { account, cursor }, within), signal),
        );
      } catch (error) {
        if (codeOf(error) === "unavailable") interrupted.set(account, read);
        throw error;
      } finally {
        reads--;
      }
      yield* read.posts.slice(0, limit);
    },
  };
}

/** Half a second and 40 MB: a process loads the library when it first needs it. */
function createLoad(url: string): () => Promise<AtpBaseClient> {
  let loaded: Promise<AtpBaseClient> | undefined;
  const load = async () => new (await import("@atproto/api")).AtpBaseClient(createBoundedFetch(url));
  return () => {
    loaded ??= load();
    return loaded;
  };
}

async function readOn(
  read: Read,
  { account, limit }: { readonly account: string; readonly limit: number },
  readPage: (cursor: string | undefined) => Promise<Page>,
): Promise<void> {
  while (read.posts.length < limit && read.pages < MAX_PAGES) {
    const { feed, cursor } = await readPage(read.cursor);
    // Reasons are reposts and pins; a pinned post is in its own place, too.
    const own = feed.filter(({ post, reason }) => reason === undefined && post.author.did === account);
    read.posts.push(...own.map(({ post }) => postOf(post)));
    read.pages++;
    if (!cursor) return;
    if (cursor === read.cursor) throw new AppError("failed", `${METHOD}: its cursor leads to the same page again`);
    read.cursor = cursor;
  }
}

function postOf({ record, indexedAt, ...counts }: AppBskyFeedDefs.PostView): Post {
  const [created, indexed] = [Date.parse(String(record["createdAt"])), Date.parse(indexedAt)];
  return {
    // As AppViews sort them: a client may write any time.
    createdAt: created <= indexed ? created : indexed,
    likes: countOf(counts.likeCount),
    shares: countOf(counts.repostCount),
    replies: countOf(counts.replyCount),
    quotes: countOf(counts.quoteCount),
  };
}

const countOf = (count = 0): number => Math.max(0, count);

async function fetchPage(
  { app }: AtpBaseClient,
  { account, cursor }: { readonly account: string; readonly cursor: string | undefined },
  signal: AbortSignal,
): Promise<Page> {
  const parameters = { actor: account, limit: POSTS_A_PAGE, ...(cursor && { cursor }) };
  const attributes = { "rpc.system": "xrpc", "rpc.method": METHOD };
  const call = () => app.bsky.feed.getAuthorFeed(parameters, { signal });
  const started = performance.now();
  let result = "200";
  try {
    return (await inSpan(METHOD, { kind: SpanKind.CLIENT, attributes }, call)).data;
  } catch (error) {
    result = resultOf(error);
    throw reasonOf(error);
  } finally {
    observeCall(result, performance.now() - started);
  }
}
