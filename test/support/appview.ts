import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { type AppBskyFeedDefs, lexicons } from "@atproto/api";

const METHOD = "app.bsky.feed.getAuthorFeed";
const CID = "bafyreidfayvfuwqa7qlnopdjiqrxzs6blmoeu4rujcjtnci5beludirz2a";

/** A post of an account, or what else stands in its feed. Times are ms since the epoch. */
export interface FeedPost {
  readonly createdAt: number;
  /** When the AppView saw it; otherwise `createdAt`. */
  readonly indexedAt?: number;
  readonly likes?: number;
  readonly shares?: number;
  readonly replies?: number;
  readonly quotes?: number;
  /** Shared, from somebody else; or the post that the account has pinned. */
  readonly reason?: "repost" | "pin";
}

/** Makes calls about an account fail; without `did` all calls. */
export interface AppViewFault {
  readonly did?: string;
  /**
   * An HTTP status; `hang`: no answer; `stalled`: half an answer; `truncated`: the connection ends within the answer;
   * `oversized`: 6 MiB of JSON;
   * `malformed`: JSON without a feed; `html`; `loop`: each page leads to itself.
   */
  readonly kind: number | "hang" | "stalled" | "reset" | "truncated" | "oversized" | "malformed" | "html" | "loop";
  readonly headers?: Readonly<Record<string, string>>;
  /** Of a status. */
  readonly body?: { readonly error: string; readonly message: string };
  /** Changes the pages of a feed as no lexicon allows; `kind` is not looked at. */
  readonly change?: (page: { feed: Loose[]; cursor?: unknown }, asked: { readonly cursor?: string }) => unknown;
}

/** An item of a feed that a fault changes. */
export type Loose = ReturnType<typeof JSON.parse>;

/** An AppView: every request and every answer is checked against the official lexicons. */
export interface AppView {
  readonly url: string;
  /** Adds to an account, and makes it known. */
  post(did: string, ...posts: readonly FeedPost[]): void;
  suspend(did: string): void;
  /** Calls so far. */
  calls(did?: string): number;
  /** Calls without an answer yet. */
  held(): number;
  inject(fault: AppViewFault): () => void;
  stop(): Promise<void>;
}

export async function startAppView(port = 0): Promise<AppView> {
  const feeds = new Map<string, AppBskyFeedDefs.FeedViewPost[]>();
  const suspended = new Set<string>();
  const faults = new Set<AppViewFault>();
  const calls: string[] = [];
  let held = 0;

  const answer = (request: IncomingMessage, response: ServerResponse): void => {
    const url = new URL(request.url ?? "/", "http://appview.test");
    if (url.pathname !== `/xrpc/${METHOD}`)
      return refuse(response, 501, "MethodNotImplemented", "Method Not Implemented");
    const asked = Object.fromEntries(url.searchParams);
    const parameters = { ...asked, ...(asked["limit"] && { limit: Number(asked["limit"]) }) };
    const { actor, limit, cursor } = lexicons.assertValidXrpcParams(METHOD, parameters) as {
      actor: string;
      limit: number;
      cursor?: string;
    };
    calls.push(actor);
    held++;
    response.once("close", () => held--);
    const fault = [...faults].find(({ did = actor }) => did === actor);
    if (fault && fault.kind !== "loop" && !fault.change) return fail(response, fault);
    if (suspended.has(actor)) return refuse(response, 400, "AccountTakedown", "Account has been suspended");
    const feed = feeds.get(actor);
    if (!feed) return refuse(response, 400, "InvalidRequest", "Profile not found");
    const after = cursor === undefined ? 0 : feed.findIndex((item) => cursorOf(item) === cursor) + 1;
    const page = feed.slice(after, after + limit);
    const last = page.at(-1);
    const next = fault?.kind === "loop" ? "the same" : last && after + limit < feed.length ? cursorOf(last) : undefined;
    const body = { feed: page, ...(next && { cursor: next }) };
    lexicons.assertValidXrpcOutput(METHOD, body);
    send(response, 200, fault?.change ? fault.change(structuredClone(body), { ...(cursor && { cursor }) }) : body);
  };

  const server = createServer((request, response) => {
    try {
      answer(request, response);
    } catch (error) {
      refuse(response, 400, "InvalidRequest", (error as Error).message);
    }
  });
  await new Promise<void>((resolve) => server.listen(port, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    post(did, ...posts) {
      const before = feeds.get(did) ?? [];
      const added = posts.map((one, index) => itemOf(did, one, before.length + index));
      feeds.set(did, [...before, ...added].sort(newestFirst));
    },
    suspend: (did) => void suspended.add(did),
    calls: (did) => calls.filter((one) => did === undefined || one === did).length,
    held: () => held,
    inject(fault) {
      faults.add(fault);
      return () => void faults.delete(fault);
    },
    stop: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

function itemOf(did: string, post: FeedPost, number: number): AppBskyFeedDefs.FeedViewPost {
  const iso = (at: number): string => new Date(at).toISOString();
  const { createdAt, indexedAt = createdAt, likes, shares, replies, quotes, reason } = post;
  const person = { did, handle: "account.test" };
  const author = reason === "repost" ? { did: "did:plc:somebodyelse", handle: "other.test" } : person;
  const record = { $type: "app.bsky.feed.post", text: `post ${number}`, createdAt: iso(createdAt) };
  lexicons.assertValidRecord("app.bsky.feed.post", record);
  return {
    post: {
      uri: `at://${author.did}/app.bsky.feed.post/${keyOf(number)}`,
      cid: CID,
      author,
      record,
      indexedAt: iso(indexedAt),
      ...(likes !== undefined && { likeCount: likes }),
      ...(shares !== undefined && { repostCount: shares }),
      ...(replies !== undefined && { replyCount: replies }),
      ...(quotes !== undefined && { quoteCount: quotes }),
    },
    ...(reason === "repost" && {
      reason: { $type: "app.bsky.feed.defs#reasonRepost" as const, by: person, indexedAt: iso(indexedAt) },
    }),
    ...(reason === "pin" && { reason: { $type: "app.bsky.feed.defs#reasonPin" as const } }),
  };
}

/** A TID has no 0, 1, 8 and 9. */
const keyOf = (number: number): string =>
  String(number)
    .padStart(13, "0")
    .replaceAll(/\d/g, (digit) => "abcdefghij"[Number(digit)] as string);

const isPinned = ({ reason }: AppBskyFeedDefs.FeedViewPost): boolean =>
  reason?.$type === "app.bsky.feed.defs#reasonPin";
const timeOf = ({ post }: AppBskyFeedDefs.FeedViewPost): number =>
  Math.min(Date.parse(String(post.record["createdAt"])), Date.parse(post.indexedAt));

/** A pinned post is first. */
const newestFirst = (a: AppBskyFeedDefs.FeedViewPost, b: AppBskyFeedDefs.FeedViewPost): number =>
  Number(isPinned(b)) - Number(isPinned(a)) || timeOf(b) - timeOf(a);

const cursorOf = (item: AppBskyFeedDefs.FeedViewPost): string => `${timeOf(item)}::${item.post.uri}`;

function send(response: ServerResponse, status: number, body: unknown, headers = {}): void {
  response.writeHead(status, { "content-type": "application/json; charset=utf-8", ...headers });
  response.end(JSON.stringify(body));
}

const refuse = (response: ServerResponse, status: number, error: string, message: string): void =>
  send(response, status, { error, message });

const ERRORS: Readonly<Record<number, string>> = {
  429: "RateLimitExceeded",
  500: "InternalServerError",
  502: "UpstreamFailure",
  503: "NotEnoughResources",
};

const MIB = 1_024 * 1_024;

function fail(response: ServerResponse, { kind, headers = {}, body: told }: AppViewFault): void {
  if (typeof kind === "number")
    return send(response, kind, told ?? { error: ERRORS[kind] ?? "Error", message: "injected by a test" }, headers);
  const body = JSON.stringify({ feed: [] });
  switch (kind) {
    case "reset":
      return void response.socket?.destroy();
    case "stalled":
    case "truncated":
      response.writeHead(200, { "content-type": "application/json", "content-length": body.length + 10 });
      response.write(body);
      return kind === "stalled" ? undefined : void setImmediate(() => response.socket?.destroy());
    case "oversized":
      return send(response, 200, { feed: [], cursor: "x".repeat(6 * MIB) });
    case "malformed":
      return send(response, 200, { feed: "none" });
    case "html":
      response.writeHead(200, { "content-type": "text/html" });
      return void response.end("<html>maintenance</html>");
    default:
    // `hang`: nothing.
  }
}
