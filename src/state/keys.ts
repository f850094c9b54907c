import { LIMIT_KINDS, type LimitKind } from "../contracts/limits.js";
import { chunked } from "../kernel/concurrency.js";
import { decodeId, encodeId, idFault, spread } from "../kernel/ids.js";

export const LOCAL_KEY = "timeline:local";
export const GLOBAL_KEY = "timeline:global";
export const SHARED_PREFIX = "timeline:";
export const SHARED_TOKENS = {
  local: LOCAL_KEY.slice(SHARED_PREFIX.length),
  global: GLOBAL_KEY.slice(SHARED_PREFIX.length),
} as const;

export const TOMBSTONES_KEY = "timeline:tombstones";

/** The sorted set has the tokens of erased users. */
export const ERASED_KEY = "timeline:x:erased";

/** The sorted set has the tokens of users by the time they were logged out everywhere. */
export const LOGOUTS_KEY = "timeline:x:logouts";

/** Each drop is announced when its tombstone is written, by the server that holds the tombstones. */
export const DELETIONS_CHANNEL = "timeline:x:deletions";

export const HOME_PREFIX = "timeline:home:";

export const homeKey = (user: string): string => HOME_PREFIX + encodeId(user);

export function userOfHomeKey(key: string): string | undefined {
  if (!key.startsWith(HOME_PREFIX)) return undefined;
  const user = decodeId(key.slice(HOME_PREFIX.length));
  return homeKey(user) === key && idFault(user) === undefined ? user : undefined;
}

export const AUTHOR_PREFIX = "timeline:author:";

/** The sorted set has the drops of a pulled author, without those for recipients only. */
export const authorKey = (author: string): string => AUTHOR_PREFIX + encodeId(author);

export const authorOfKey = (key: string): string | undefined =>
  key.startsWith(AUTHOR_PREFIX) ? decodeId(key.slice(AUTHOR_PREFIX.length)) : undefined;

/** The hash has author token -> state, of those who are pulled or about to change. */
export const PULLED_KEY = "timeline:x:pulled";

/** The sorted set has an author's drops of the last hour, by the time they were admitted. */
export const postedKey = (author: string): string => `timeline:x:posted:${encodeId(author)}`;

export const CROSSING_LEASE_KEY = "timeline:x:crossing";

/** The braces put a user's set into the slot of their home. */
export const PULLS_PREFIX = `timeline:x:pulls:{${HOME_PREFIX}`;
export const pullsToken = (user: string): string => `${encodeId(user)}}`;

/** The set has the tokens of the pulled authors whom the user follows. */
export const pullsKey = (user: string): string => PULLS_PREFIX + pullsToken(user);

export const pullsKeyOfHome = (home: string): string => `${PULLS_PREFIX.slice(0, -HOME_PREFIX.length)}${home}}`;

/** The braces put what is about a timeline into its slot. */
const HIDDEN_PREFIX = `timeline:x:hidden:{${HOME_PREFIX}`;

/** The hash has the tokens of users whose drops the user does not see. */
export const hiddenKey = (user: string): string => HIDDEN_PREFIX + pullsToken(user);

/** The hash has what a fill of {@link hiddenKey} has read until now. */
export const hiddenStagedKey = (user: string): string => `timeline:x:hidden-staged:{${homeKey(user)}}`;

/** The hash has changes of {@link hiddenKey} that are being applied, and those that a fill must not undo. */
export const hiddenChangesKey = (user: string): string => `timeline:x:hidden-changes:{${homeKey(user)}}`;

/** The text says when a home is renewed next: changes that others make do so at most once in some seconds. */
export const renewalKey = (user: string): string => `timeline:x:renewal:{${homeKey(user)}}`;

export const hiddenKeyOfHome = (home: string): string => `${HIDDEN_PREFIX.slice(0, -HOME_PREFIX.length)}${home}}`;

/** The set has the tokens of users who may not see this user's drops: their hashes decide. */
export const hidersKey = (user: string): string => `timeline:x:hiders:${encodeId(user)}`;

/** The hash has the bylines of a timeline's drops: of local and global all, of an author's those of reposts. */
export const bylinesKey = (timeline: string): string => `timeline:x:bylines:{${timeline}}`;

/**
 * The sorted set has the remote drops of global, with their times, and some that have left global. Remote
 * drops created up to the score of its member `~floor`, ms since the epoch, are left out of global.
 */
export const REMOTE_KEY = `timeline:x:remote:{${GLOBAL_KEY}}`;

/** The sorted set has drops that left a timeline lately, by when; the braces put it into the slot of the timeline. */
export const removalNotesKey = (timeline: string): string => `timeline:x:taken:{${timeline}}`;

export function kindOf(key: string): "home" | "local" | "global" | "author" {
  if (key === LOCAL_KEY) return "local";
  if (key === GLOBAL_KEY) return "global";
  return key.startsWith(AUTHOR_PREFIX) ? "author" : "home";
}

/** A new value invalidates the follower lists cached under the old one. */
export const generationKey = (author: string): string => `timeline:x:generation:${encodeId(author)}`;

const EDGE_PARTS = 1_024;
export const EDGES_PREFIX = "timeline:x:edges:";
export const UNFOLLOWERS_PREFIX = "timeline:x:unfollowers:";
/** The sorted sets have an author's deleted drops, and are in the slot of the author's edges. */
export const DELETED_PREFIX = "timeline:x:deleted:";

const partName = (part: number): string => `{${part}}`;

export const ALL_EDGE_PARTS: readonly string[] = Array.from({ length: EDGE_PARTS }, (_, part) => partName(part));

/** All edges to an author are in one slot of a cluster. */
export const edgePart = (author: string): string => partName(spread(author) % EDGE_PARTS);

export const edgesKey = (author: string): string => EDGES_PREFIX + edgePart(author);

/** The follower's token comes next; without one the field holds the time of the last unfollow recorded. */
export const edgeField = (author: string): string => `${encodeId(author)}:`;

export const unfollowersKey = (author: string): string =>
  `${UNFOLLOWERS_PREFIX}${edgePart(author)}:${encodeId(author)}`;

export const deletedKey = (author: string): string => `${DELETED_PREFIX}${edgePart(author)}:${encodeId(author)}`;

export const rebuildLeaseKey = (name: string): string => `timeline:x:rebuilding:${name}`;

export const stagedKey = (name: string, mark: number, what: "add" | "remove"): string =>
  `timeline:x:staged:{${name}}:${mark}:${what}`;

export const REFILL_LEASE_KEY = "timeline:x:refilling";

/** The key holds the server identity record; `part` spreads the records over the nodes of a cluster. */
export const serverIdentityKey = (part: number): string => `timeline:x:continuity:{${part}}`;

/**
 * The strings have the place of a Redis Cluster among several, such as `2/3`. Each Cluster has all of them, so that some
 * outlive the loss of a node.
 */
export const PLACE_KEYS: readonly string[] = Array.from({ length: 16 }, (_, part) => `timeline:x:place:{${part}}`);

export const REPLAY_LEASE_KEY = "timeline:x:replaying";

export const AUDIT_LEASE_KEY = "timeline:x:auditing";

/** The sorted set has requests to reconcile that are not done, by the time they begin at. */
export const UNRECONCILED_KEY = "timeline:x:unreconciled";

/** The hash says how far the log is filled with what the upstreams list of the time before it. */
export const FILL_KEY = "timeline:x:fill";

export const fillLeaseKey = (window: number): string => `timeline:x:filling:${window}`;

/** Audits have reconciled up to this time, in ms since the epoch. */
export const RECONCILED_KEY = "timeline:x:reconciled";

/** The hash has the events of the log that wait for a single user, by consumer and sequence. */
export const WAITING_KEY = "timeline:x:waiting";

export const TRIMMED_KEY = "timeline:x:trimmed";

export const TRIM_LEASE_KEY = "timeline:x:trimming";

export const actorKey = (drop: string): string => `timeline:x:actor:${encodeId(drop)}`;

/** The key says that a drop is for its recipients only, in no author's timeline: its deletion does not say so. */
export const directDropKey = (drop: string): string => `timeline:x:direct:${encodeId(drop)}`;

/** The key says that somebody has lately reposted a drop of the author: counts of shares may lack it. */
export const repostedKey = (author: string): string => `timeline:x:reposted:${encodeId(author)}`;

/** Keeps the creation time of a deleted drop, so that its id still works as a cursor. */
export const deletedDropKey = (drop: string): string => `timeline:x:created-at:${encodeId(drop)}`;

export const attemptsKey = (stream: string, seq: number, time: number): string =>
  `timeline:x:attempts:${stream}:${seq}:${time}`;

export const fanoutProgressKey = (event: string, drop: string): string =>
  `timeline:x:fanout:${event}:${encodeId(drop)}`;

export const USERS_PREFIX = "timeline:x:users:";

/** The keys of one user are in one slot of a cluster. */
export const usersKey = (what: string, user: string): string => `${USERS_PREFIX}${what}:{${encodeId(user)}}`;

/** The key holds the analyses that the user asked for within the last hour. */
export const analysesAskedKey = (user: string): string => `timeline:x:asked:${encodeId(user)}`;

export const LIMIT_PREFIX = "timeline:x:limit:";

/**
 * The sorted set has what the user did within the time of a limit; `of` tells apart several of one kind. All limits of a
 * user are in one slot of a cluster.
 */
export const limitKey = (kind: LimitKind, user: string, of?: string): string =>
  `${LIMIT_PREFIX}${kind}:{${encodeId(user)}}${of === undefined ? "" : `:${of}`}`;

export function limitOfKey(key: string): { readonly kind: LimitKind; readonly user: string } | undefined {
  const [, name, token] = /^([a-z-]+):\{([^{}]+)\}/.exec(key.slice(LIMIT_PREFIX.length)) ?? [];
  const kind = LIMIT_KINDS.find((one) => one === name);
  return kind === undefined || token === undefined ? undefined : { kind, user: decodeId(token) };
}

/** The token bucket has the calls to the AT Protocol that all processes together may make now. */
export const SOURCE_TOKENS_KEY = "timeline:x:source-tokens";

/**
 * Both are in the slot of SOURCE_TOKENS_KEY: users by the tokens they took within the hour, and users who wait for one.
 */
export const SOURCE_TURN_KEYS = ["taken", "waiting"].map(
  (what) => `timeline:x:source-${what}:{${SOURCE_TOKENS_KEY}}`,
) as readonly string[];

/** Rights are tried on this key, which is gone at once. */
export const RIGHTS_KEY = "timeline:x:rights";

/** The token bucket has the reads over HTTP that the user may make now. */
export const readsKey = (user: string): string => `timeline:x:reads:${encodeId(user)}`;

/** `day` is YYYY-MM-DD in UTC. */
export const analysisCacheKey = (account: string, type: string, day: string): string =>
  `analysis:${encodeId(account)}:${type}:${day}`;

/**
 * The sorted set has users with a stream open or recently closed, by the time they were last seen: the index of
 * listeners. In a cluster this key is written by gateways of 0.1.0 only, and the others have parts of it.
 */
export const RECENT_KEY = "sse_recent:users";

/** The sorted set has connections by the time they were last seen. It has the same parts. */
export const CONNECTIONS_SEEN_KEY = "sse_recent:connections";

const LISTENER_PARTS = 128;
const WHOLE = "";

/** A part is a suffix of its keys, which are in one slot of a cluster. */
const ALL_LISTENER_PARTS: readonly string[] = Array.from({ length: LISTENER_PARTS }, (_, part) => `:${partName(part)}`);

/** A single server has one part: asking one sorted set takes it less time than asking many. */
export const listenerParts = (isCluster: boolean): readonly string[] => (isCluster ? ALL_LISTENER_PARTS : [WHOLE]);

export const listenerPart = (user: string, isCluster: boolean): string =>
  isCluster ? (ALL_LISTENER_PARTS[spread(user) % LISTENER_PARTS] as string) : WHOLE;

export const recentKey = (part: string): string => RECENT_KEY + part;

export const connectionsSeenKey = (part: string): string => CONNECTIONS_SEEN_KEY + part;

/** The key names the time for which all notifications of the user are stored. */
export const listingKey = (part: string, user: string): string => `sse_recent:listing${part}:${encodeId(user)}`;

export const connectionsOfUserKey = (user: string): string => `sse_connections:user:${encodeId(user)}`;
export const connectionKey = (connectionId: string): string => `sse_connection:${connectionId}`;

/** Bounds how long reads wait behind a script. */
export const KEYS_A_CALL = 500;

/** The ids are encoded, and joined by ",", which they never hold. */
export type PackedKeys = readonly string[];

export function packKeys(tokens: readonly string[]): PackedKeys {
  return chunked(tokens, KEYS_A_CALL).map((part) => part.join(","));
}
