import { LIMIT_KINDS, type LimitKind } from "../contracts/limits.js";
import { chunked } from "../kernel/concurrency.js";
import { decodeId, encodeId, idFault, RESERVED_DROP_ID, spread } from "../kernel/ids.js";
import type { KeyPattern } from "./declared.js";

/** The key of a declared pattern without tokens. */
const key = <Pattern extends KeyPattern>(pattern: Pattern): Pattern => pattern;

/** Returns what a declared pattern has before its first token. */
const prefix = (pattern: KeyPattern): string => pattern.replace(/<.*$/s, "");

/** Returns the function that makes keys of a declared pattern from the values of its tokens. */
const named = (pattern: KeyPattern) => {
  const [first = "", ...others] = pattern.split(/<[a-z]+>/);
  return (...values: readonly (string | number)[]): string =>
    others.reduce((name, part, index) => `${name}${values[index]}${part}`, first);
};

/** Returns the function that makes keys of a declared pattern from the id of a user or a drop. */
const ofId = (pattern: KeyPattern) => {
  const [before = "", after = ""] = pattern.split(/<[a-z]+>/);
  return (id: string): string => before + encodeId(id) + after;
};

export const LOCAL_KEY = key("timeline:local");
export const GLOBAL_KEY = key("timeline:global");
export const SHARED_PREFIX = "timeline:";
export const SHARED_TOKENS = {
  local: LOCAL_KEY.slice(SHARED_PREFIX.length),
  global: GLOBAL_KEY.slice(SHARED_PREFIX.length),
} as const;

export const TOMBSTONES_KEY = key("timeline:tombstones");

/** The sorted set has the tokens of erased users. */
export const ERASED_KEY = key("timeline:x:erased");

/** The sorted set has the tokens of users by the time they were logged out everywhere. */
export const LOGOUTS_KEY = key("timeline:x:logouts");

/** Each drop is announced when its tombstone is written, by the server that holds the tombstones. */
export const DELETIONS_CHANNEL = "timeline:x:deletions";

/** The score of this member is the floor of a timeline: it is complete from that time on. */
export const FLOOR_MEMBER = RESERVED_DROP_ID;

export const HOME_PREFIX = prefix("timeline:home:<user>");

export const homeKey = ofId("timeline:home:<user>");

export function userOfHomeKey(key: string): string | undefined {
  if (!key.startsWith(HOME_PREFIX)) return undefined;
  const user = decodeId(key.slice(HOME_PREFIX.length));
  return homeKey(user) === key && idFault(user) === undefined ? user : undefined;
}

export const AUTHOR_PREFIX = prefix("timeline:author:<user>");

/** The sorted set has the drops of a pulled author, without those for recipients only. */
export const authorKey = ofId("timeline:author:<user>");

export const authorOfKey = (key: string): string | undefined =>
  key.startsWith(AUTHOR_PREFIX) ? decodeId(key.slice(AUTHOR_PREFIX.length)) : undefined;

/** The hash has author token -> state, of those who are pulled or about to change. */
export const PULLED_KEY = key("timeline:x:pulled");

/** The sorted set has an author's drops of the last hour, by the time they were admitted. */
export const postedKey = ofId("timeline:x:posted:<user>");

export const CROSSING_LEASE_KEY = key("timeline:x:crossing");

/** The braces put a user's set into the slot of their home. */
export const PULLS_PREFIX = prefix("timeline:x:pulls:{timeline:home:<user>}");
export const pullsToken = (user: string): string => `${encodeId(user)}}`;

/** The set has the tokens of the pulled authors whom the user follows. */
export const pullsKey = (user: string): string => PULLS_PREFIX + pullsToken(user);

export const pullsKeyOfHome = (home: string): string => `${PULLS_PREFIX.slice(0, -HOME_PREFIX.length)}${home}}`;

/** The braces put what is about a timeline into its slot. */
const HIDDEN_PREFIX = prefix("timeline:x:hidden:{timeline:home:<user>}");

/** The hash has the tokens of users whose drops the user does not see. */
export const hiddenKey = (user: string): string => HIDDEN_PREFIX + pullsToken(user);

/** The hash has what a fill of {@link hiddenKey} has read until now. */
export const hiddenStagedKey = ofId("timeline:x:hidden-staged:{timeline:home:<user>}");

/** The hash has changes of {@link hiddenKey} that are being applied, and those that a fill must not undo. */
export const hiddenChangesKey = ofId("timeline:x:hidden-changes:{timeline:home:<user>}");

/** The text says when a home is renewed next: changes that others make do so at most once in some seconds. */
export const renewalKey = ofId("timeline:x:renewal:{timeline:home:<user>}");

export const hiddenKeyOfHome = (home: string): string => `${HIDDEN_PREFIX.slice(0, -HOME_PREFIX.length)}${home}}`;

/** The set has the tokens of users who may not see this user's drops: their hashes decide. */
export const hidersKey = ofId("timeline:x:hiders:<user>");

/** The hash has the bylines of a timeline's drops: of local and global all, of an author's those of reposts. */
export const bylinesKey = named("timeline:x:bylines:{<timeline>}");

/**
 * The sorted set has the remote drops of global, with their times, and some that have left global. Remote
 * drops created up to the score of its member `~floor`, ms since the epoch, are left out of global.
 */
export const REMOTE_KEY = key("timeline:x:remote:{timeline:global}");

/** The sorted set has drops that left a timeline lately, by when; the braces put it into the slot of the timeline. */
export const removalNotesKey = named("timeline:x:taken:{<timeline>}");

export function kindOf(key: string): "home" | "local" | "global" | "author" {
  if (key === LOCAL_KEY) return "local";
  if (key === GLOBAL_KEY) return "global";
  return key.startsWith(AUTHOR_PREFIX) ? "author" : "home";
}

/** A new value invalidates the follower lists cached under the old one. */
export const generationKey = ofId("timeline:x:generation:<user>");

const EDGE_PARTS = 1_024;
export const EDGES_PREFIX = prefix("timeline:x:edges:{<number>}").slice(0, -1);
export const UNFOLLOWERS_PREFIX = prefix("timeline:x:unfollowers:{<number>}:<user>").slice(0, -1);
/** The sorted sets have an author's deleted drops, and are in the slot of the author's edges. */
export const DELETED_PREFIX = prefix("timeline:x:deleted:{<number>}:<user>").slice(0, -1);

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

export const rebuildLeaseKey = named("timeline:x:rebuilding:<timeline>");

export const stagedKey = (name: string, mark: number, what: "add" | "remove"): string =>
  `timeline:x:staged:{${name}}:${mark}:${what}`;

export const REFILL_LEASE_KEY = key("timeline:x:refilling");

/** The key holds the server identity record; `part` spreads the records over the nodes of a cluster. */
export const serverIdentityKey = named("timeline:x:continuity:{<number>}");

/**
 * The strings have the place of a Redis Cluster among several, such as `2/3`. Each Cluster has all of them, so that some
 * outlive the loss of a node.
 */
const placeKey = named("timeline:x:place:{<number>}");
export const PLACE_KEYS: readonly string[] = Array.from({ length: 16 }, (_, part) => placeKey(part));

export const REPLAY_LEASE_KEY = key("timeline:x:replaying");

export const AUDIT_LEASE_KEY = key("timeline:x:auditing");

/** The sorted set has requests to reconcile that are not done, by the time they begin at. */
export const UNRECONCILED_KEY = key("timeline:x:unreconciled");

/** The hash says how far the log is filled with what the upstreams list of the time before it. */
export const FILL_KEY = key("timeline:x:fill");

export const fillLeaseKey = named("timeline:x:filling:<number>");

/** Audits have reconciled up to this time, in ms since the epoch. */
export const RECONCILED_KEY = key("timeline:x:reconciled");

/** The hash has the events of the log that wait for a single user, by consumer and sequence. */
export const WAITING_KEY = key("timeline:x:waiting");

export const TRIMMED_KEY = key("timeline:x:trimmed");

export const TRIM_LEASE_KEY = key("timeline:x:trimming");

export const actorKey = ofId("timeline:x:actor:<drop>");

/** The key says that a drop is for its recipients only, in no author's timeline: its deletion does not say so. */
export const directDropKey = ofId("timeline:x:direct:<drop>");

/** The key says that somebody has lately reposted a drop of the author: counts of shares may lack it. */
export const repostedKey = ofId("timeline:x:reposted:<user>");

/** Keeps the creation time of a deleted drop, so that its id still works as a cursor. */
export const deletedDropKey = ofId("timeline:x:created-at:<drop>");

const attempts = named("timeline:x:attempts:<rest>");
export const attemptsKey = (stream: string, seq: number, time: number): string => attempts(`${stream}:${seq}:${time}`);

const progress = named("timeline:x:fanout:<word>:<drop>");
export const fanoutProgressKey = (event: string, drop: string): string => progress(event, encodeId(drop));

export const USERS_PREFIX = prefix("timeline:x:users:<word>:{<user>}");

const users = named("timeline:x:users:<word>:{<user>}");
/** The keys of one user are in one slot of a cluster. */
export const usersKey = (what: string, user: string): string => users(what, encodeId(user));

/** The key holds the analyses that the user asked for within the last hour. */
export const analysesAskedKey = ofId("timeline:x:asked:<user>");

const limits = named("timeline:x:limit:<word>:{<user>}<rest>");
export const LIMIT_PREFIX = prefix("timeline:x:limit:<word>:{<user>}<rest>");

/**
 * The sorted set has what the user did within the time of a limit; `of` tells apart several of one kind. All limits of a
 * user are in one slot of a cluster.
 */
export const limitKey = (kind: LimitKind, user: string, of?: string): string =>
  limits(kind, encodeId(user), of === undefined ? "" : `:${of}`);

export function limitOfKey(key: string): { readonly kind: LimitKind; readonly user: string } | undefined {
  const [, name, token] = /^([a-z-]+):\{([^{}]+)\}/.exec(key.slice(LIMIT_PREFIX.length)) ?? [];
  const kind = LIMIT_KINDS.find((one) => one === name);
  return kind === undefined || token === undefined ? undefined : { kind, user: decodeId(token) };
}

/** The token bucket has the calls to the AT Protocol that all processes together may make now. */
export const SOURCE_TOKENS_KEY = key("timeline:x:source-tokens");

/**
 * Both are in the slot of SOURCE_TOKENS_KEY: users by the tokens they took within the hour, and users who wait for one.
 */
export const SOURCE_TURN_KEYS = ["taken", "waiting"].map((what) =>
  named("timeline:x:source-<word>:{timeline:x:source-tokens}")(what),
) as readonly string[];

/** Rights are tried on this key, which is gone at once. */
export const RIGHTS_KEY = key("timeline:x:rights");

/** The token bucket has the reads over HTTP that the user may make now. */
export const readsKey = ofId("timeline:x:reads:<user>");

const analysis = named("analysis:<user>:<word>:<word>");
/** `day` is YYYY-MM-DD in UTC. */
export const analysisCacheKey = (account: string, type: string, day: string): string =>
  analysis(encodeId(account), type, day);

/**
 * The sorted set has users with a stream open or recently closed, by the time they were last seen: the index of
 * listeners. In a cluster this key is written by gateways of 0.1.0 only, and the others have parts of it.
 */
export const RECENT_KEY = key("sse_recent:users");

/** The sorted set has connections by the time they were last seen. It has the same parts. */
export const CONNECTIONS_SEEN_KEY = key("sse_recent:connections");

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

export const connectionsOfUserKey = ofId("sse_connections:user:<user>");
export const connectionKey = (connectionId: string): string => `sse_connection:${connectionId}`;

/** Bounds how long reads wait behind a script. */
export const KEYS_A_CALL = 500;

/** The ids are encoded, and joined by ",", which they never hold. */
export type PackedKeys = readonly string[];

export function packKeys(tokens: readonly string[]): PackedKeys {
  return chunked(tokens, KEYS_A_CALL).map((part) => part.join(","));
}
