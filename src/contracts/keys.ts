import { chunked } from "../kernel/concurrency.js";
import { decodeId, encodeId, idFault, spread } from "../kernel/ids.js";

/** Redis keys, as the design fixes them. User ids go in encoded. */
export const LOCAL_KEY = "timeline:local";
export const GLOBAL_KEY = "timeline:global";
/** What the keys of the shared timelines begin with, and what is left of each: the packed write scripts build keys so. */
export const SHARED_PREFIX = "timeline:";
export const SHARED_TOKENS = {
  local: LOCAL_KEY.slice(SHARED_PREFIX.length),
  global: GLOBAL_KEY.slice(SHARED_PREFIX.length),
} as const;

export const TOMBSTONES_KEY = "timeline:tombstones";

/** Every home timeline's key is this and the encoded user id; the packed write script builds keys from it. */
export const HOME_PREFIX = "timeline:home:";

export const homeKey = (user: string): string => HOME_PREFIX + encodeId(user);

/** Whose home timeline a key is; undefined where it is no key of ours. Reverses {@link homeKey}. */
export function userOfHomeKey(key: string): string | undefined {
  if (!key.startsWith(HOME_PREFIX)) return undefined;
  const user = decodeId(key.slice(HOME_PREFIX.length));
  return homeKey(user) === key && idFault(user) === undefined ? user : undefined;
}

/** Which kind of timeline a key is. */
export const kindOf = (key: string): "home" | "local" | "global" =>
  key === LOCAL_KEY ? "local" : key === GLOBAL_KEY ? "global" : "home";

/** Names the follower list of an author that is in force; a new value invalidates what was cached under the old one. */
export const generationKey = (author: string): string => `timeline:x:generation:${encodeId(author)}`;

/** The newest versions of follow edges are spread over so many hashes; each has a `~floor` of its own. */
const EDGE_PARTS = 1_024;
export const EDGES_PREFIX = "timeline:x:edges:";
export const UNFOLLOWERS_PREFIX = "timeline:x:leavers:";

const partName = (part: number): string => `{${part}}`;

/** The rest of the key of each part. */
export const ALL_EDGE_PARTS: readonly string[] = Array.from({ length: EDGE_PARTS }, (_, part) => partName(part));

/** The part that holds the edges to an author, all of them in one slot of a cluster. */
export const edgePart = (author: string): string => partName(spread(author) % EDGE_PARTS);

export const edgesKey = (author: string): string => EDGES_PREFIX + edgePart(author);

/** Where a part holds an edge: this and the encoded follower. By itself: when somebody was last noted as having left. */
export const edgeField = (author: string): string => `${encodeId(author)}:`;

/** Sorted set of who has left an author lately, by when that was noted. */
export const unfollowersKey = (author: string): string =>
  `${UNFOLLOWERS_PREFIX}${edgePart(author)}:${encodeId(author)}`;

/** Held by the process that rebuilds a timeline. `name` is the timeline's own key. */
export const rebuildLeaseKey = (name: string): string => `timeline:x:rebuilding:${name}`;

/** Where a rebuild of a timeline puts a large snapshot aside, in the slot of the timeline's own key `name`. */
export const stagedKey = (name: string, mark: number, what: "add" | "remove"): string =>
  `timeline:x:staged:{${name}}:${mark}:${what}`;

/** Held by the process that refills the tombstones from the log. */
export const REFILL_LEASE_KEY = "timeline:x:refilling";

/** Notes which server held the data, and how far it went; `part` spreads the notes over the nodes of a cluster. */
export const continuityKey = (part: number): string => `timeline:x:continuity:{${part}}`;

/** Held by the process that applies again what a Redis has lost. */
export const REPLAY_LEASE_KEY = "timeline:x:replaying";

/** Held by the process that audits timelines now and then. */
export const AUDIT_LEASE_KEY = "timeline:x:auditing";

/** Down to when all timelines were trimmed last; gone after a day, so that they are once more. */
export const TRIMMED_KEY = "timeline:x:trimmed";

/** Held by the process that trims timelines. */
export const TRIM_LEASE_KEY = "timeline:x:trimming";

/** The author of a remote drop, since its deletion does not name one. */
export const actorKey = (drop: string): string => `timeline:x:actor:${encodeId(drop)}`;

/** When a deleted drop had been created, so that its id still works as a cursor. */
export const buriedKey = (drop: string): string => `timeline:x:buried:${encodeId(drop)}`;

/** How often the handling of a message was begun. */
export const attemptsKey = (stream: string, seq: number, time: number): string =>
  `timeline:x:attempts:${stream}:${seq}:${time}`;

/** Which chunks of a drop's fan-out were planned and are done. */
export const fanoutProgressKey = (event: string, drop: string): string =>
  `timeline:x:fanout:${event}:${encodeId(drop)}`;

/**
 * What the users service remembers about a user: a list, its length, a profile. The keys of one user are in one slot of
 * a cluster.
 */
export const usersKey = (what: string, user: string): string => `timeline:x:users:${what}:{${encodeId(user)}}`;

/** Sorted set of users with a stream open or recently closed, by when they were last seen. */
export const RECENT_KEY = "sse_recent:users";

/** Sorted set of connection ids, by when their pod last renewed them: what dead pods left is found here. */
export const CONNECTIONS_SEEN_KEY = "sse_recent:connections";

export const connectionsOfUserKey = (user: string): string => `sse_connections:user:${encodeId(user)}`;
export const connectionKey = (connectionId: string): string => `sse_connection:${connectionId}`;

/** At most this many keys a call of a script, so that reads do not wait behind it. */
const KEYS_A_CALL = 500;

/** Many keys with one prefix, cut into calls: the rest of each key, joined by ",". */
export type PackedKeys = readonly string[];

/** Packs encoded ids (which never hold a comma) for the scripts that write to many keys. */
export function packKeys(tokens: readonly string[]): PackedKeys {
  return chunked(tokens, KEYS_A_CALL).map((part) => part.join(","));
}
