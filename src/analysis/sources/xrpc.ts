import { isTooFarAhead } from "../../contracts/times.js";
import { oneLine } from "../../kernel/errors.js";
import { fingerprint } from "../../kernel/ids.js";
import { TooManyRequests, Unreachable, Unreadable } from "./bounded-fetch.http.js";
import { AccountGone, type Post, SKIPPED } from "./source.js";

export interface Page {
  readonly items: readonly unknown[];
  readonly cursor: string | undefined;
}

interface Item {
  /** Derived from the URI of the post; undefined if the item has none. */
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

// AppViews name these cases themselves, pass on what the server of an account says, or only describe them.
const GONE = [
  {
    code: "account_suspended",
    name: /^(Account|Actor|Did|Profile|Repo|User)(Takedown|Taken[dD]own|Suspended|Deactivated)$/,
    message: /^(account|repo|profile) (has been|is|was) (suspended|taken ?down|deactivated)/i,
  },
  {
    code: "account_unknown",
    name: /^(Account|Actor|Did|Profile|Repo|User)NotFound$/,
    message: /^((account|repo|profile|actor) not found|could not (find|resolve) |unable to resolve )/i,
  },
] as const;
/** Error names that alone say nothing about the account: other faults of a request have them, too. */
const DESCRIBED = /^(InvalidRequest|NotFound)$/;

/** Statuses that refuse the caller or the way of asking, whatever the account: authorization, time, order. */
const OF_CALLER: ReadonlySet<number> = new Set([401, 403, 407, 408, 425]);

/** The body is JSON {"error", "message"}, or anything. AccountGone stands for an account that is gone. */
export function sourceError(status: number, body: string): Error {
  const { name, message } = textsOf(body);
  const isOfRequest = status >= 400 && status < 500;
  const gone =
    isOfRequest && GONE.find((known) => known.name.test(name) || (DESCRIBED.test(name) && known.message.test(message)));
  if (gone) return new AccountGone(gone.code, oneLine(message));
  return new (isOfRequest && !OF_CALLER.has(status) ? Unreadable : Error)(
    oneLine(`HTTP ${status} ${name}: ${message}`),
  );
}

function textsOf(body: string): { readonly name: string; readonly message: string } {
  try {
    const { error, message } = asObject(JSON.parse(body));
    return { name: asText(error) ?? "", message: asText(message) ?? "" };
  } catch {
    return { name: "", message: "" };
  }
}

/** The label says why there is no HTTP status. */
export function resultOf(error: unknown): string {
  if (error instanceof TooManyRequests) return "429";
  if (error instanceof Unreachable) return "unreachable";
  return (error as Error).name === "TimeoutError" ? "timeout" : "broken";
}

const asText = (value: unknown): string | undefined => (typeof value === "string" && value !== "" ? value : undefined);

const asObject = (value: unknown): Readonly<Record<string, unknown>> =>
  typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};
