/** Form in which the content of a key names a user or holds their drops. */
export type Holding =
  | "set"
  | "sorted set"
  | "hash"
  | "ids"
  | "connections"
  | "drops"
  | "bylines"
  | "edges"
  | "follows"
  | "hidden"
  | "unfollowers"
  | "waiting"
  | "actor";

/** One kind of key. The table of keys in README.md is generated from these declarations. */
export interface Declared {
  readonly type: "string" | "set" | "sorted set" | "hash";
  /** Bound or time to live, as README.md shows it. */
  readonly bound: string;
  readonly about: string;
  /** How a key of nobody, or of another user, names users. */
  readonly holds?: Holding;
  /** The user of the key was shown the drops that it holds, or drops of the users that it names. */
  readonly shows?: true;
  /** The reason why an erasure leaves the name of the user in such keys. */
  readonly stays?: string;
}

const TOMBSTONE = "a tombstone, until its age";
const MARKER = "the marker that refuses the id";
const LOG = "7.5 days";
const HOME = "`TIMELINE_KEY_TTL_MS` after the last read";
const ENTRIES = "`TIMELINE_MAX_ENTRIES`";
type More = Pick<Declared, "holds" | "shows" | "stays">;

const kind =
  (type: Declared["type"]) =>
  (bound: string, about: string, more: More = {}): Declared => ({ type, bound, about, ...more });
const [text, set, sortedSet, hash] = [kind("string"), kind("set"), kind("sorted set"), kind("hash")];
const lease = (about: string): Declared => text("10 s", `lease of ${about}`);

/**
 * All keys that the service writes, each declared once. `<user>` and `<drop>` are tokens: an erasure removes these keys
 * with their user or drop. Patterns are tried in this order.
 */
export const DECLARED = {
  "timeline:local": sortedSet(ENTRIES, "newest public drops of this server", { holds: "drops" }),
  "timeline:global": sortedSet(ENTRIES, "newest public drops of all servers", { holds: "drops" }),
  "timeline:home:<user>": sortedSet(`${ENTRIES}; ${HOME}`, "drops of those whom the user follows", {
    holds: "drops",
    shows: true,
  }),
  "timeline:author:<user>": sortedSet(`${ENTRIES}; ${HOME}`, "drops of a big author, without direct ones", {
    holds: "drops",
  }),
  "timeline:list:<list>": sortedSet(`${ENTRIES}; ${HOME}`, "drops of the members of a list", { holds: "drops" }),
  "timeline:tombstones": sortedSet(LOG, "deleted drops by time of deletion", { stays: TOMBSTONE }),
  "timeline:x:erased": sortedSet("one entry an erased user", "erased users", { holds: "sorted set", stays: MARKER }),
  "timeline:x:logouts": sortedSet("400 days", "users by the time they were logged out everywhere", {
    holds: "sorted set",
  }),
  "timeline:x:standings": hash("one entry a user or host", "standings of users and hosts", { holds: "hash" }),
  "timeline:x:standings-order:{timeline:x:standings}": sortedSet(
    "one entry a user or host",
    "users and hosts by their last change",
    { holds: "sorted set" },
  ),
  "timeline:x:veiled:{timeline:x:standings}": sortedSet(
    "20,000 drops a suspended user",
    "drops of suspended users by the end of the suspension",
    { holds: "drops" },
  ),
  "timeline:x:pulled": hash("10,000 authors", "states of big authors", { holds: "hash" }),
  "timeline:x:posted:<user>": sortedSet("1,000 drops; 1 hour", "drops of an author by time of admission"),
  "timeline:x:reposted:<user>": text(
    "1 hour",
    "a drop of the author was reposted or replied to: its counts may lack that",
  ),
  "timeline:x:pulls:{timeline:home:<user>}": set(HOME, "big authors whom the user follows", {
    holds: "set",
    shows: true,
  }),
  "timeline:x:hidden:{timeline:home:<user>}": hash(
    `${HOME}; until a mute ends`,
    "users whose drops the user does not see",
    { holds: "hidden" },
  ),
  "timeline:x:hidden-staged:{timeline:home:<user>}": hash("10 minutes", "what a fill of `hidden` has read so far", {
    holds: "hash",
  }),
  "timeline:x:hidden-changes:{timeline:home:<user>}": hash(
    "10 minutes",
    "changes of `hidden` that a fill must not undo",
    { holds: "hash" },
  ),
  "timeline:x:renewal:{timeline:home:<user>}": text(
    "1.2 s",
    "earliest time at which changes by others renew the home again",
  ),
  "timeline:x:ending:{timeline:home:<user>}": text(
    "`TIMELINE_KEY_TTL_MS` after the end of a mute",
    "a mute of `hidden` ends: the home lacks drops when `hidden` has expired",
  ),
  "timeline:x:hiders:<user>": set("twice a home", "users who may not see drops of this user", { holds: "set" }),
  "timeline:x:follows:{timeline:home:<user>}": hash(
    `100,000 users; ${HOME}`,
    "whom the user follows, and to whom replies are in the home or left out",
    { holds: "follows" },
  ),
  "timeline:x:follows-staged:{<timeline>}:<rest>": hash("1 minute", "what a rebuild will put in place of `follows`", {
    holds: "hash",
  }),
  "timeline:x:bylines:{<timeline>}": hash(
    "twice `TIMELINE_MAX_ENTRIES`; of a home and an author as these",
    "who a drop is by: its author; of a repost the original and its author; of a reply the author of its parent",
    { holds: "bylines" },
  ),
  "timeline:x:standing-bylines:{timeline:home:<user>}": hash(
    "twice a home",
    "whose suspension hides a drop: of a reply the author of its parent; an author whose host the id of the drop does not name",
    { holds: "bylines" },
  ),
  "timeline:x:remote:{timeline:global}": sortedSet("three times `TIMELINE_MAX_ENTRIES`", "remote drops of global", {
    holds: "drops",
  }),
  "timeline:x:taken:{<timeline>}": sortedSet("10 minutes", "drops that left the timeline, by time", { holds: "drops" }),
  "timeline:x:rebuilding:<timeline>": lease("a rebuild"),
  // A rebuild reads the tombstones after it has written the staged entries.
  "timeline:x:staged:{<timeline>}:<rest>": sortedSet("1 minute", "what a rebuild will write"),
  "timeline:x:generation:<user>": text(LOG, "name of the author's current follower list"),
  "timeline:x:edges:{<number>}": hash("1,024 hashes; 7.5 days", "newest version of each follow", { holds: "edges" }),
  "timeline:x:unfollowers:{<number>}:<user>": sortedSet(LOG, "recent unfollowers of an author", {
    holds: "unfollowers",
  }),
  "timeline:x:deleted:{<number>}:<user>": sortedSet(LOG, "deleted drops of an author", { stays: TOMBSTONE }),
  "timeline:x:created-at:<drop>": text("1 day", "creation time of a deleted drop: its id is still a cursor", {
    stays: TOMBSTONE,
  }),
  "timeline:x:actor:<drop>": text(HOME, "author of a remote drop", { holds: "actor" }),
  "timeline:x:direct:<drop>": text(HOME, "the drop is for its recipients only"),
  "timeline:x:fanout:<word>:<drop>": hash("1 day", "chunks of an audience that are written"),
  "timeline:x:publishing": sortedSet("10 minutes", "drops whose publication is under way", { holds: "drops" }),
  "timeline:x:waiting": hash("one entry an event", "events of the log that wait for a single user", {
    holds: "waiting",
  }),
  "timeline:x:users:<word>-count:{<user>}": hash("10 minutes", "length of a cached list"),
  "timeline:x:users:<word>-generation:{<user>}": text("10 minutes", "version of a cached list"),
  "timeline:x:users:<word>:{<user>}": sortedSet("5,000 ids; 10 minutes", "cached followers or followings", {
    holds: "ids",
  }),
  "timeline:x:limit:<word>:{<user>}<rest>": sortedSet(
    "the limit, and its time",
    "calls of a user that count in a limit",
  ),
  "timeline:x:asked:<user>": sortedSet("600 entries; 1 hour", "analyses the user asked for"),
  "timeline:x:reads:<user>": hash("until the bucket is full", "token bucket of reads over HTTP"),
  "timeline:x:source-<word>:{timeline:x:source-tokens}": sortedSet(
    "1 hour",
    "users by tokens taken; users who wait for one",
    { holds: "sorted set" },
  ),
  // Processes of 0.2 write these two.
  "{timeline:x:source-tokens}:taken": sortedSet("1 hour", "as above, by 0.2", { holds: "sorted set" }),
  "{timeline:x:source-tokens}:waiting": sortedSet("1 hour", "as above, by 0.2", { holds: "sorted set" }),
  "timeline:x:source-tokens": hash("1 hour", "token bucket of calls to the AT Protocol"),
  "analysis:<user>:<word>:<word>": text("1 hour", "cached results of an analysis"),
  "sse_recent:users": sortedSet("11 minutes", "listeners by time last seen", { holds: "sorted set" }),
  "sse_recent:users:{<number>}": sortedSet("11 minutes", "the same in a cluster: 128 parts", { holds: "sorted set" }),
  "sse_recent:connections": sortedSet("11 minutes", "connections by time last seen", { holds: "connections" }),
  "sse_recent:connections:{<number>}": sortedSet("11 minutes", "the same in a cluster: 128 parts", {
    holds: "connections",
  }),
  "sse_recent:listing:<user>": text("1 hour", "time since when all notifications are stored"),
  "sse_recent:listing:{<number>}:<user>": text("1 hour", "the same in a cluster"),
  "sse_connections:user:<user>": set("as its connections", "open connections of a user"),
  "sse_connection:<word>.<user>": hash("its lease", "one connection"),
  "timeline:x:attempts:<rest>": hash("1 day", "attempts of a message"),
  "timeline:x:continuity:{<number>}": hash(
    "1; in a cluster 64",
    "which server this is, and how far the log is applied",
  ),
  "timeline:x:place:{<number>}": text("16 in each of several Clusters", "place of the Cluster among several, as `2/3`"),
  "timeline:x:unreconciled": sortedSet("7 days", "requests to reconcile, by begin"),
  "timeline:x:reconciled": text("7 days", "time up to which audits have reconciled"),
  "timeline:x:rights": text("1 s", "rights are tried on it"),
  "timeline:x:fill": hash("7 days", "progress of the first fill"),
  "timeline:x:filling:<number>": lease("a window of the first fill"),
  "timeline:x:trimmed": text("1 day", "the last trimming"),
  "timeline:x:crossing": lease("the work on big authors"),
  "timeline:x:refilling": lease("a refill of tombstones and edges"),
  "timeline:x:replaying": lease("a recovery"),
  "timeline:x:auditing": lease("the audit loop"),
  "timeline:x:trimming": lease("the trimming"),
} satisfies Record<string, Declared>;

export type KeyPattern = keyof typeof DECLARED;
