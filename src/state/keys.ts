import { LIMIT_KINDS, type LimitKind } from "../contracts/limits.js";
import { listOfReader, listReader } from "../contracts/lists.js";
import { chunked } from "../kernel/concurrency.js";
import { decodeId, encodeId, idFault, RESERVED_DROP_ID, spread } from "../kernel/ids.js";
import type { KeyPattern } from "./declared.js";

/** Returns the key of a declared pattern without tokens. */
const key = <Pattern extends KeyPattern>(pattern: Pattern): Pattern => pattern;

/** Returns the part of a declared pattern before its first token. */
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

/** Sorted set of the tokens of erased users. */
export const ERASED_KEY = key("timeline:x:erased");

/** Sorted set of the tokens of users by the time they were logged out everywhere. */
export const LOGOUTS_KEY = key("timeline:x:logouts");

/** Channel on which the server that holds the tombstones announces each drop when its tombstone is written. */
export const DELETIONS_CHANNEL = "timeline:x:deletions";

/** Member whose score is the floor of a timeline, which is complete from that time on. */
export const FLOOR_MEMBER = RESERVED_DROP_ID;

export const HOME_PREFIX = prefix("timeline:home:<user>");

export const homeKey = ofId("timeline:home:<user>");

export function userOfHomeKey(key: string): string | undefined {
  if (!key.startsWith(HOME_PREFIX)) return undefined;
  const user = decodeId(key.slice(HOME_PREFIX.length));
  return homeKey(user) === key && idFault(user) === undefined ? user : undefined;
}

export const LIST_PREFIX = prefix("timeline:list:<list>");

/** Sorted set of the drops of the members of a list. */
export const listKey = ofId("timeline:list:<list>");

/** Pattern, without its end, of the keys of homes and lists, and few others, as SCAN takes it. */
export const READERS_PATTERN = "timeline:[hl]";

/** Returns the user of the key of a home, or the reader of that of a list. */
export function readerOfKey(key: string): string | undefined {
  if (!key.startsWith(LIST_PREFIX)) return userOfHomeKey(key);
  const reader = listReader(decodeId(key.slice(LIST_PREFIX.length)));
  return listOfReader(reader) === undefined ? undefined : reader;
}

/** Returns the key of the timeline of a user, or of the list whose reader has this name. */
export function readerKey(reader: string): string {
  const list = listOfReader(reader);
  return list === undefined ? homeKey(reader) : listKey(list);
}

export const AUTHOR_PREFIX = prefix("timeline:author:<user>");

/** Sorted set of the drops of a pulled author, without direct ones. */
export const authorKey = ofId("timeline:author:<user>");

export const authorOfKey = (key: string): string | undefined =>
  key.startsWith(AUTHOR_PREFIX) ? decodeId(key.slice(AUTHOR_PREFIX.length)) : undefined;

/** Hash of author token -> state, of authors who are pulled or about to change. */
export const PULLED_KEY = key("timeline:x:pulled");

/** Sorted set of an author's drops of the last hour, by the time they were admitted. */
export const postedKey = ofId("timeline:x:posted:<user>");

/** Hash of subject -> standing of users and hosts, and the subjects by the number of their last change. */
export const STANDINGS_KEY = key("timeline:x:standings");
export const STANDINGS_ORDER_KEY = key("timeline:x:standings-order:{timeline:x:standings}");

/** Sorted set of drops of suspended users by the end of the suspension, ms. It is lost with the standings. */
export const VEILED_KEY = key("timeline:x:veiled:{timeline:x:standings}");

export const CROSSING_LEASE_KEY = key("timeline:x:crossing");

/** Prefix of the sets of pulled authors. The braces put a user's set into the slot of their home. */
export const PULLS_PREFIX = prefix("timeline:x:pulls:{timeline:home:<user>}");
export const pullsToken = (user: string): string => `${encodeId(user)}}`;

/** Set of the tokens of the pulled authors whom the user follows. */
export const pullsKey = (user: string): string => PULLS_PREFIX + pullsToken(user);

export const pullsKeyOfHome = (home: string): string => `${PULLS_PREFIX.slice(0, -HOME_PREFIX.length)}${home}}`;

/** Prefix with braces that put keys about a timeline into its slot. */
const HIDDEN_PREFIX = prefix("timeline:x:hidden:{timeline:home:<user>}");

/** Hash of the tokens of users whose drops the user does not see. */
export const hiddenKey = (user: string): string => HIDDEN_PREFIX + pullsToken(user);

/** Field of {@link hiddenKey}, beside those tokens: "complete", or the name of a fill or a change under way. */
export const HIDDEN_STATE = "~state";

/** Hash of what a fill of {@link hiddenKey} has read so far. */
export const hiddenStagedKey = ofId("timeline:x:hidden-staged:{timeline:home:<user>}");

/** Hash of changes of {@link hiddenKey} that are being applied, and of those that a fill must not undo. */
export const hiddenChangesKey = ofId("timeline:x:hidden-changes:{timeline:home:<user>}");

/** Text with the time of the next renewal of a home: changes of others renew it at most once in some seconds. */
export const renewalKey = ofId("timeline:x:renewal:{timeline:home:<user>}");

/** Text that is there once {@link hiddenKey} has a mute that ends: the home lacks drops when it has expired. */
export const endingKey = ofId("timeline:x:ending:{timeline:home:<user>}");

/** Prefix with braces that put keys about a home into its slot. */
const FOLLOWS_PREFIX = prefix("timeline:x:follows:{timeline:home:<user>}");

/** Copy of whom the user follows, beside the home: a hash of their tokens. See follows.ts. */
export const followsKeyOfHome = (home: string): string => `${FOLLOWS_PREFIX.slice(0, -HOME_PREFIX.length)}${home}}`;

/** Hash that a rebuild puts in the place of {@link followsKeyOfHome} at its end. */
export const followsStagedKey = (home: string, mark: number): string => `timeline:x:follows-staged:{${home}}:${mark}`;

export const hiddenKeyOfHome = (home: string): string => `${HIDDEN_PREFIX.slice(0, -HOME_PREFIX.length)}${home}}`;

/** Set of the tokens of users who may not see this user's drops: their hashes decide. */
export const hidersKey = ofId("timeline:x:hiders:<user>");

/** Hash of bylines: of local, global and lists of all drops, of homes and authors of reposts, of authors of replies to others. */
export const bylinesKey = named("timeline:x:bylines:{<timeline>}");

/** Hash beside a home of what only suspensions judge of its drops, as bylines: see standingBylineOf. */
export const standingBylinesKey = (home: string): string => `timeline:x:standing-bylines:{${home}}`;

/** Pattern, of Lua and JavaScript, that the token of an `http` or `https` URI matches. */
export const ACTOR_TOKEN = "^=aHR0c[DH]";

/**
 * Sorted set of the remote drops of global, with their times, and of some that have left global. Remote drops created
 * up to the score of its member `~floor`, ms since the epoch, are left out of global.
 */
export const REMOTE_KEY = key("timeline:x:remote:{timeline:global}");

/** Sorted set of drops that left a timeline lately, by time. The braces put it into the slot of the timeline. */
export const removalNotesKey = named("timeline:x:taken:{<timeline>}");

export function kindOf(key: string): "home" | "local" | "global" | "author" | "list" {
  if (key === LOCAL_KEY) return "local";
  if (key === GLOBAL_KEY) return "global";
  if (key.startsWith(LIST_PREFIX)) return "list";
  return key.startsWith(AUTHOR_PREFIX) ? "author" : "home";
}

/** Text whose new value invalidates the follower lists cached under the old one. */
export const generationKey = ofId("timeline:x:generation:<user>");

const EDGE_PARTS = 1_024;
export const EDGES_PREFIX = prefix("timeline:x:edges:{<number>}").slice(0, -1);
export const UNFOLLOWERS_PREFIX = prefix("timeline:x:unfollowers:{<number>}:<user>").slice(0, -1);
/** Prefix of the sorted sets of authors' deleted drops, which are in the slot of the author's edges. */
export const DELETED_PREFIX = prefix("timeline:x:deleted:{<number>}:<user>").slice(0, -1);

const partName = (part: number): string => `{${part}}`;

export const ALL_EDGE_PARTS: readonly string[] = Array.from({ length: EDGE_PARTS }, (_, part) => partName(part));

/** Returns the part of an author's edges. All edges to an author are in one slot of a cluster. */
export const edgePart = (author: string): string => partName(spread(author) % EDGE_PARTS);

export const edgesKey = (author: string): string => EDGES_PREFIX + edgePart(author);

/**
 * Returns the begin of a field, after which the follower's token comes. Alone it holds the time of the last unfollow
 * recorded.
 */
export const edgeField = (author: string): string => `${encodeId(author)}:`;

export const unfollowersKey = (author: string): string =>
  `${UNFOLLOWERS_PREFIX}${edgePart(author)}:${encodeId(author)}`;

export const deletedKey = (author: string): string => `${DELETED_PREFIX}${edgePart(author)}:${encodeId(author)}`;

export const rebuildLeaseKey = named("timeline:x:rebuilding:<timeline>");

export const stagedKey = (name: string, mark: number, what: "add" | "remove"): string =>
  `timeline:x:staged:{${name}}:${mark}:${what}`;

export const REFILL_LEASE_KEY = key("timeline:x:refilling");

/** Key of the server identity record. The number spreads the records over the nodes of a cluster. */
export const serverIdentityKey = named("timeline:x:continuity:{<number>}");

/**
 * Text with the place of a Redis Cluster among several, such as `2/3`. Each Cluster has 16 of them, so that some
 * outlive the loss of a node.
 */
const placeKey = named("timeline:x:place:{<number>}");
export const PLACE_KEYS: readonly string[] = Array.from({ length: 16 }, (_, part) => placeKey(part));

export const REPLAY_LEASE_KEY = key("timeline:x:replaying");

export const AUDIT_LEASE_KEY = key("timeline:x:auditing");

/** Sorted set of requests to reconcile that are not done, by the time they begin at. */
export const UNRECONCILED_KEY = key("timeline:x:unreconciled");

/** Hash of the progress of filling the log with the changes that the upstreams list of the time before it. */
export const FILL_KEY = key("timeline:x:fill");

export const fillLeaseKey = named("timeline:x:filling:<number>");

/** Time up to which audits have reconciled, in ms since the epoch. */
export const RECONCILED_KEY = key("timeline:x:reconciled");

/** Hash of the events of the log that wait for a single user, by consumer and sequence. */
export const WAITING_KEY = key("timeline:x:waiting");

/** Sorted set of the drops whose publication is under way, by the time they were admitted. */
export const PUBLISHING_KEY = key("timeline:x:publishing");

export const TRIMMED_KEY = key("timeline:x:trimmed");

export const TRIM_LEASE_KEY = key("timeline:x:trimming");

export const actorKey = ofId("timeline:x:actor:<drop>");

/** Key that exists if a drop is direct: it is in no author's timeline, and its deletion does not say so. */
export const directDropKey = ofId("timeline:x:direct:<drop>");

/** Key that exists if a drop of the author was reposted or replied to lately: its counts may lack that. */
export const repostedKey = ofId("timeline:x:reposted:<user>");

/** Text with the creation time of a deleted drop, so that its id still works as a cursor. */
export const deletedDropKey = ofId("timeline:x:created-at:<drop>");

const attempts = named("timeline:x:attempts:<rest>");
export const attemptsKey = (stream: string, seq: number, time: number): string => attempts(`${stream}:${seq}:${time}`);

const progress = named("timeline:x:fanout:<word>:<drop>");
export const fanoutProgressKey = (event: string, drop: string): string => progress(event, encodeId(drop));

export const USERS_PREFIX = prefix("timeline:x:users:<word>:{<user>}");

const users = named("timeline:x:users:<word>:{<user>}");
/** Returns a key of the users service. The keys of one user are in one slot of a cluster. */
export const usersKey = (what: string, user: string): string => users(what, encodeId(user));

/** Sorted set of the analyses that the user asked for within the last hour. */
export const analysesAskedKey = ofId("timeline:x:asked:<user>");

const limits = named("timeline:x:limit:<word>:{<user>}<rest>");
export const LIMIT_PREFIX = prefix("timeline:x:limit:<word>:{<user>}<rest>");

/**
 * Sorted set of what the user did within the time of a limit; `subject` tells apart several of one kind. All limits of
 * a user are in one slot of a cluster.
 */
export const limitKey = (kind: LimitKind, user: string, subject?: string): string =>
  limits(kind, encodeId(user), subject === undefined ? "" : `:${subject}`);

export function limitOfKey(key: string): { readonly kind: LimitKind; readonly user: string } | undefined {
  const [, name, token] = /^([a-z-]+):\{([^{}]+)\}/.exec(key.slice(LIMIT_PREFIX.length)) ?? [];
  const kind = LIMIT_KINDS.find((candidate) => candidate === name);
  return kind === undefined || token === undefined ? undefined : { kind, user: decodeId(token) };
}

/** Token bucket of the calls to the AT Protocol by all processes together. */
export const SOURCE_TOKENS_KEY = key("timeline:x:source-tokens");

/**
 * Sorted sets in the slot of SOURCE_TOKENS_KEY: users by the tokens they took within the hour, and users who wait for a
 * token.
 */
export const SOURCE_TURN_KEYS = ["taken", "waiting"].map((what) =>
  named("timeline:x:source-<word>:{timeline:x:source-tokens}")(what),
) as readonly string[];

/** Key on which rights are tried; it is removed at once. */
export const RIGHTS_KEY = key("timeline:x:rights");

/** Token bucket of the user's reads over HTTP. */
export const readsKey = ofId("timeline:x:reads:<user>");

const analysis = named("analysis:<user>:<word>:<word>");
/** Returns the key of cached results. `day` is YYYY-MM-DD in UTC. */
export const analysisCacheKey = (account: string, type: string, day: string): string =>
  analysis(encodeId(account), type, day);

/**
 * Sorted set of users with a stream open or recently closed, by the time they were last seen: the index of listeners.
 * In a cluster this key is written by gateways of 0.1.0 only, and its parts by others.
 */
export const RECENT_KEY = key("sse_recent:users");

/** Sorted set of connections by the time they were last seen. It has the same parts. */
export const CONNECTIONS_SEEN_KEY = key("sse_recent:connections");

const LISTENER_PARTS = 128;
const WHOLE = "";

/** Suffixes of the keys of the parts. The keys of a part are in one slot of a cluster. */
const ALL_LISTENER_PARTS: readonly string[] = Array.from({ length: LISTENER_PARTS }, (_, part) => `:${partName(part)}`);

/** Returns the parts. A single server has one: asking one sorted set takes it less time than asking many. */
export const listenerParts = (isCluster: boolean): readonly string[] => (isCluster ? ALL_LISTENER_PARTS : [WHOLE]);

export const listenerPart = (user: string, isCluster: boolean): string =>
  isCluster ? (ALL_LISTENER_PARTS[spread(user) % LISTENER_PARTS] as string) : WHOLE;

export const recentKey = (part: string): string => RECENT_KEY + part;

export const connectionsSeenKey = (part: string): string => CONNECTIONS_SEEN_KEY + part;

/** Returns the key of the time since which all notifications of the user are stored. */
export const listingKey = (part: string, user: string): string => `sse_recent:listing${part}:${encodeId(user)}`;

export const connectionsOfUserKey = ofId("sse_connections:user:<user>");
export const connectionKey = (connectionId: string): string => `sse_connection:${connectionId}`;

/** Maximum number of keys in a call: bounds how long reads wait behind a script. */
export const KEYS_A_CALL = 500;

/** Encoded ids, joined by ",", which they never hold. */
export type PackedKeys = readonly string[];

export function packKeys(tokens: readonly string[]): PackedKeys {
  return chunked(tokens, KEYS_A_CALL).map((part) => part.join(","));
}
