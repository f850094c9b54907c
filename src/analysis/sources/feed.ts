import { isTooFarAhead } from "../../contracts/times.js";
import { fingerprint } from "../../kernel/ids.js";
import { Unreadable } from "./bounded-fetch.http.js";
import { type Post, SKIPPED } from "./source.js";

/** This is a page of app.bsky.feed.getAuthorFeed. */
export interface Page {
  readonly items: readonly unknown[];
  /** The cursor is undefined at the end. */
  readonly cursor: string | undefined;
}

interface Item {
  /** The id is derived from the URI of the post; it is undefined where the item names none. */
  readonly id: string | undefined;
  readonly post: Post | typeof SKIPPED;
}

// One item that breaks the lexicon must not spoil the others: only the fields that measures use are read, each by itself.

/** An AppView may answer with more than it was asked for, but not with more than this. */
const MAX_ITEMS = 1_000;
const MAX_CURSOR_CHARACTERS = 4_096;

/** @throws Unreadable */
export function readPage(text: string): Page {
  const { feed, cursor } = asObject(parsed(text));
  if (!Array.isArray(feed)) throw new Unreadable("the answer has no feed");
  const next = asText(cursor);
  if (next !== undefined && next.length > MAX_CURSOR_CHARACTERS) throw new Unreadable("its cursor is too long");
  return { items: feed.slice(0, MAX_ITEMS), cursor: next };
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new Unreadable("the answer is not JSON");
  }
}

/** Returns undefined for a post of somebody else, and for a pinned copy: the post is in its own place, too. */
export function readItem(item: unknown, account: string, now: number): Item | undefined {
  const { post, reason } = asObject(item);
  const view = asObject(post);
  const { did } = asObject(view["author"]);
  if ((reason !== undefined && reason !== null) || (did !== undefined && did !== account)) return undefined;
  const createdAt = timeOf(asObject(view["record"])["createdAt"], view["indexedAt"], now);
  const uri = asText(view["uri"]);
  const id = uri && fingerprint(uri);
  if (did === undefined || createdAt === undefined) return { id, post: SKIPPED };
  const likes = countOf(view["likeCount"]);
  const shares = countOf(view["repostCount"]);
  return {
    id,
    post: { createdAt, likes, shares, replies: countOf(view["replyCount"]), quotes: countOf(view["quoteCount"]) },
  };
}

/** Every network from which posts are imported is younger. */
const EARLIEST = Date.UTC(2006);

/** AppViews sort posts by this time: a client may write any time. */
function timeOf(createdAt: unknown, indexedAt: unknown, now: number): number | undefined {
  const times = [createdAt, indexedAt]
    .map((text) => (typeof text === "string" ? Date.parse(text) : Number.NaN))
    .filter((time) => time >= EARLIEST && !isTooFarAhead(time, now));
  return times.length === 0 ? undefined : Math.min(...times);
}

const countOf = (count: unknown): number => (Number.isSafeInteger(count) ? Math.max(0, count as number) : 0);

const asText = (value: unknown): string | undefined => (typeof value === "string" && value !== "" ? value : undefined);

const asObject = (value: unknown): Readonly<Record<string, unknown>> =>
  typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};
