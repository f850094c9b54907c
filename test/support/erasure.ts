import { Cluster, type Redis } from "ioredis";
import { type DropPage, NO_DROPS } from "../../src/contracts/timelines.js";
import { createForgetTimelines } from "../../src/erasure/index.js";
import { encodeId } from "../../src/kernel/ids.js";
import { silent } from "../../src/kernel/logger.js";
import type { Scripts } from "../../src/platform/redis/scripts.js";
import type { Erased, Forget } from "../../src/state/erased/erasures.js";
import { createFences } from "../../src/state/fences/fences.js";
import { createFenceStore } from "../../src/state/fences/store.redis.js";
import type { Fences } from "../../src/state/fences/types.js";
import * as keys from "../../src/state/keys.js";
import type { NatsBench } from "./nats.js";
import { fencedOn } from "./redis.js";
import { stateOn } from "./state.js";

type Client = Redis | Cluster;

/** One way in which Redis names a user: `user` is one that is to be forgotten, `other` stays. */
export interface Trace {
  /** The kind of the key, as the table names it. */
  readonly kind: string;
  readonly leave: (redis: Client, user: string, other: string) => Promise<unknown>;
  /** The user's drop that it names is known as deleted. */
  readonly ofDrop?: true;
}

export const dropOf = (user: string): string => `drop of ${user}`;

const own = (kind: string, key: (user: string) => string, fill: (redis: Client, key: string) => unknown): Trace => ({
  kind,
  leave: async (redis, user) => fill(redis, key(user)),
});

const drops = (redis: Client, key: string) => redis.zadd(key, 1, `drop in ${key}`, 0, "~floor");
const text = (redis: Client, key: string) => redis.set(key, "text");
const hash = (redis: Client, key: string) => redis.hset(key, "field", "value");
const holding = (kind: string, leave: Trace["leave"], more: Pick<Trace, "ofDrop"> = {}): Trace => ({
  kind,
  leave,
  ...more,
});
const withDrop = (kind: string, key: (other: string, drop: string) => string): Trace =>
  holding(kind, (redis, user, other) => redis.zadd(key(other, dropOf(user)), 5, dropOf(user)), { ofDrop: true });
const ofDrop = (kind: string, key: (drop: string) => string): Trace =>
  holding(kind, (redis, user) => redis.set(key(dropOf(user)), "1"), { ofDrop: true });

/** Seconds since the epoch: not long ago, or the sets would look expired. */
const UNFOLLOWED_AT = Math.floor(Date.now() / 1_000) - 60;

const inCluster = (user: string): string => keys.listenerPart(user, true);
const connectionOf = (user: string): string => `x1y2.${encodeId(user)}`;
const byline = (key: string) => async (redis: Client, user: string, other: string) => {
  await redis.hset(key, `by ${user}`, encodeId(user));
  await redis.hset(key, `repost of ${user}`, `${encodeId(other)},${encodeId(user)}`);
  await redis.hset(key, `reply to ${user}`, `${encodeId(other)},,${encodeId(user)}`);
};

const STANDING_BYLINES = "timeline:x:standing-bylines:{timeline:home:<user>}";

/** All traces that must go. */
export const TRACES: readonly Trace[] = [
  own("timeline:home:<user>", keys.homeKey, drops),
  own("timeline:author:<user>", keys.authorKey, drops),
  own("timeline:x:posted:<user>", keys.postedKey, drops),
  own("timeline:x:reposted:<user>", keys.repostedKey, text),
  own("timeline:x:pulls:{timeline:home:<user>}", keys.pullsKey, (redis, key) => redis.sadd(key, "~complete", "x")),
  own("timeline:x:hidden:{timeline:home:<user>}", keys.hiddenKey, hash),
  own("timeline:x:hidden-staged:{timeline:home:<user>}", keys.hiddenStagedKey, hash),
  own("timeline:x:hidden-changes:{timeline:home:<user>}", keys.hiddenChangesKey, hash),
  own("timeline:x:renewal:{timeline:home:<user>}", keys.renewalKey, text),
  own("timeline:x:ending:{timeline:home:<user>}", keys.endingKey, text),
  own("timeline:x:hiders:<user>", keys.hidersKey, (redis, key) => redis.sadd(key, "x")),
  own("timeline:x:follows:{timeline:home:<user>}", (user) => keys.followsKeyOfHome(keys.homeKey(user)), hash),
  own("timeline:x:follows-staged:{<timeline>}:<rest>", (user) => keys.followsStagedKey(keys.homeKey(user), -7), hash),
  own("timeline:x:bylines:{<timeline>}", (user) => keys.bylinesKey(keys.authorKey(user)), hash),
  own("timeline:x:bylines:{<timeline>}", (user) => keys.bylinesKey(keys.homeKey(user)), hash),
  own(STANDING_BYLINES, (user) => keys.standingBylinesKey(keys.homeKey(user)), hash),
  own("timeline:x:taken:{<timeline>}", (user) => keys.removalNotesKey(keys.homeKey(user)), drops),
  own("timeline:x:rebuilding:<timeline>", (user) => keys.rebuildLeaseKey(keys.homeKey(user)), text),
  own("timeline:x:rebuilding:<timeline>", (user) => keys.rebuildLeaseKey(keys.authorKey(user)), text),
  own("timeline:x:staged:{<timeline>}:<rest>", (user) => keys.stagedKey(keys.homeKey(user), -7, "add"), drops),
  own("timeline:x:generation:<user>", keys.generationKey, text),
  own("timeline:x:users:<word>:{<user>}", (user) => keys.usersKey("followers", user), drops),
  own("timeline:x:users:<word>-count:{<user>}", (user) => keys.usersKey("followers-count", user), hash),
  own("timeline:x:users:<word>-generation:{<user>}", (user) => keys.usersKey("following-generation", user), text),
  own("timeline:x:asked:<user>", keys.analysesAskedKey, drops),
  own("timeline:x:reads:<user>", keys.readsKey, hash),
  own("timeline:x:limit:<word>:{<user>}<rest>", (user) => keys.limitKey("follows", user), drops),
  own("timeline:x:limit:<word>:{<user>}<rest>", (user) => keys.limitKey("same-body", user, "a:b"), drops),
  own("analysis:<user>:<word>:<word>", (user) => keys.analysisCacheKey(user, "full", "2026-01-31"), text),
  own("sse_recent:listing:<user>", (user) => keys.listingKey(keys.listenerPart(user, false), user), text),
  own("sse_recent:listing:{<number>}:<user>", (user) => keys.listingKey(inCluster(user), user), text),
  own("sse_connections:user:<user>", keys.connectionsOfUserKey, (redis, key) => redis.sadd(key, "x1y2.q")),
  own("sse_connection:<word>.<user>", (user) => keys.connectionKey(connectionOf(user)), hash),
  withDrop("timeline:home:<user>", keys.homeKey),
  withDrop("timeline:author:<user>", keys.authorKey),
  withDrop("timeline:list:<list>", () => keys.listKey("0198")),
  withDrop("timeline:local", () => keys.LOCAL_KEY),
  withDrop("timeline:global", () => keys.GLOBAL_KEY),
  withDrop("timeline:x:veiled:{timeline:x:standings}", () => keys.VEILED_KEY),
  withDrop("timeline:x:remote:{timeline:global}", () => keys.REMOTE_KEY),
  withDrop("timeline:x:publishing", () => keys.PUBLISHING_KEY),
  withDrop("timeline:x:taken:{<timeline>}", (other) => keys.removalNotesKey(keys.homeKey(other))),
  withDrop("timeline:x:taken:{<timeline>}", () => keys.removalNotesKey(keys.GLOBAL_KEY)),
  ofDrop("timeline:x:actor:<drop>", keys.actorKey),
  ofDrop("timeline:x:direct:<drop>", keys.directDropKey),
  ofDrop("timeline:x:fanout:<word>:<drop>", (drop) => keys.fanoutProgressKey("drop_created", drop)),
  holding("timeline:x:actor:<drop>", (redis, user) => redis.set(keys.actorKey(`remote drop of ${user}`), user)),
  holding("timeline:x:logouts", (redis, user) => redis.zadd(keys.LOGOUTS_KEY, 1, encodeId(user))),
  holding("timeline:x:standings", (redis, user) => redis.hset(keys.STANDINGS_KEY, encodeId(user), "1:limited:0")),
  holding("timeline:x:standings-order:{timeline:x:standings}", (redis, user) =>
    redis.zadd(keys.STANDINGS_ORDER_KEY, 1, encodeId(user)),
  ),
  holding("timeline:x:pulled", (redis, user) => redis.hset(keys.PULLED_KEY, encodeId(user), "pulled:count:1")),
  holding("timeline:x:pulls:{timeline:home:<user>}", (redis, user, other) =>
    redis.sadd(keys.pullsKey(other), encodeId(user)),
  ),
  holding("timeline:x:hidden:{timeline:home:<user>}", (redis, user, other) =>
    redis.hset(keys.hiddenKey(other), encodeId(user), "reposts"),
  ),
  holding("timeline:x:hidden-staged:{timeline:home:<user>}", (redis, user, other) =>
    redis.hset(keys.hiddenStagedKey(other), encodeId(user), "all"),
  ),
  holding("timeline:x:hidden-changes:{timeline:home:<user>}", (redis, user, other) =>
    redis.hset(keys.hiddenChangesKey(other), encodeId(user), "=all"),
  ),
  holding("timeline:x:hiders:<user>", (redis, user, other) => redis.sadd(keys.hidersKey(other), encodeId(user))),
  holding("timeline:x:follows:{timeline:home:<user>}", (redis, user, other) =>
    redis.hset(keys.followsKeyOfHome(keys.homeKey(other)), encodeId(user), "1"),
  ),
  holding("timeline:x:follows:{timeline:home:<user>}", (redis, user, other) =>
    redis.hset(keys.followsKeyOfHome(keys.homeKey(`${other} rebuilt`)), `?reply to ${user}`, encodeId(user)),
  ),
  holding("timeline:x:follows-staged:{<timeline>}:<rest>", (redis, user, other) =>
    redis.hset(keys.followsStagedKey(keys.homeKey(other), -7), encodeId(user), "1"),
  ),
  holding("timeline:x:bylines:{<timeline>}", byline(keys.bylinesKey(keys.LOCAL_KEY))),
  holding("timeline:x:bylines:{<timeline>}", (redis, user, other) =>
    byline(keys.bylinesKey(keys.authorKey(other)))(redis, user, other),
  ),
  holding("timeline:x:bylines:{<timeline>}", (redis, user, other) =>
    byline(keys.bylinesKey(keys.homeKey(other)))(redis, user, other),
  ),
  holding(STANDING_BYLINES, (redis, user, other) =>
    byline(keys.standingBylinesKey(keys.homeKey(other)))(redis, user, other),
  ),
  holding("timeline:x:edges:{<number>}", (redis, user, other) =>
    redis.hset(keys.edgesKey(other), `${encodeId(other)}:${encodeId(user)}`, "3:1:1700000000"),
  ),
  holding("timeline:x:edges:{<number>}", (redis, user, other) =>
    redis.hset(keys.edgesKey(user), `${encodeId(user)}:${encodeId(other)}`, "3:0:1700000000"),
  ),
  holding("timeline:x:unfollowers:{<number>}:<user>", async (redis, user, other) => {
    await redis.hset(keys.edgesKey(other), keys.edgeField(other), `0:0:${UNFOLLOWED_AT}`);
    await redis.zadd(keys.unfollowersKey(other), 7, encodeId(user));
  }),
  holding("timeline:x:unfollowers:{<number>}:<user>", async (redis, user, other) => {
    await redis.hset(keys.edgesKey(user), keys.edgeField(user), `0:0:${UNFOLLOWED_AT}`);
    await redis.zadd(keys.unfollowersKey(user), 7, encodeId(other));
  }),
  holding("timeline:x:waiting", (redis, user) =>
    redis.hset(keys.WAITING_KEY, `planner ${user}`, JSON.stringify({ affected: { kind: "author", user } })),
  ),
  holding(
    "timeline:x:waiting",
    (redis, user) => redis.hset(keys.WAITING_KEY, `graph ${user}`, JSON.stringify({ drop: dropOf(user) })),
    { ofDrop: true },
  ),
  holding("timeline:x:users:<word>:{<user>}", (redis, user, other) =>
    redis.zadd(keys.usersKey("following", other), 0, user),
  ),
  ...keys.SOURCE_TURN_KEYS.map((key) =>
    holding("timeline:x:source-<word>:{timeline:x:source-tokens}", (redis, user) => redis.zadd(key, 2, encodeId(user))),
  ),
  // Processes of 0.2.0 have these.
  ...["taken", "waiting"].map((what) => {
    const key = `{${keys.SOURCE_TOKENS_KEY}}:${what}`;
    return holding(key, (redis, user) => redis.zadd(key, 2, encodeId(user)));
  }),
  holding("sse_recent:users", (redis, user) => redis.zadd(keys.RECENT_KEY, 3, encodeId(user))),
  holding("sse_recent:users:{<number>}", (redis, user) =>
    redis.zadd(keys.recentKey(inCluster(user)), 3, encodeId(user)),
  ),
  holding("sse_recent:connections", (redis, user) => redis.zadd(keys.CONNECTIONS_SEEN_KEY, 3, connectionOf(user))),
  holding("sse_recent:connections:{<number>}", (redis, user) =>
    redis.zadd(keys.connectionsSeenKey(inCluster(user)), 3, connectionOf(user)),
  ),
];

/** The keys that are of nobody. */
export const OF_NOBODY: readonly string[] = [
  ...[keys.CROSSING_LEASE_KEY, keys.REFILL_LEASE_KEY, keys.REPLAY_LEASE_KEY, keys.AUDIT_LEASE_KEY],
  ...[keys.TRIM_LEASE_KEY, keys.RECONCILED_KEY, keys.UNRECONCILED_KEY, keys.TRIMMED_KEY, keys.SOURCE_TOKENS_KEY],
  ...[keys.serverIdentityKey(0), ...keys.PLACE_KEYS, keys.attemptsKey("DROPS", 1, 2)],
];

/** Fences with an empty log. */
export const fencesOn = (scripts: Scripts): Fences =>
  createFences({
    store: createFenceStore(scripts, fencedOn(scripts)),
    readHistory: async function* () {},
    log: silent,
  });

interface Forgetting {
  readonly scripts: Scripts;
  readonly nats: Pick<NatsBench, "connection" | "publish">;
  /** What the posts service goes on listing. */
  readonly listed?: (user: string) => Promise<DropPage>;
  readonly reports?: Erased["reports"];
  readonly readBacklogStart?: () => Promise<number>;
  readonly leavePulled?: (user: string) => Promise<void>;
}

/** Forgets users as a process of fan-out does; what is not given is done already. */
export function forgetOn({ scripts, nats, ...how }: Forgetting): Forget {
  const state = stateOn(scripts, nats);
  const {
    reports = async () => new Map(),
    leavePulled: forget = async () => undefined,
    readBacklogStart = async () => Number.POSITIVE_INFINITY,
  } = how;
  return createForgetTimelines({
    state: { ...state, erased: { ...state.erased, reports }, authorStates: { ...state.authorStates, forget } },
    ...{ nats: nats.connection, publish: nats.publish, readBacklogStart },
    upstreams: { dropsByUser: ({ author }) => how.listed?.(author) ?? Promise.resolve(NO_DROPS) },
  });
}

/** Reads all keys with their contents, in a fixed order. */
export async function snapshot(redis: Client): Promise<Readonly<Record<string, unknown>>> {
  const nodes = redis instanceof Cluster ? redis.nodes("master") : [redis];
  const names = (await Promise.all(nodes.map((node) => node.keys("*")))).flat().sort();
  const entries = names.map(async (key) => [key, await contentOf(redis, key)] as const);
  return Object.fromEntries(await Promise.all(entries));
}

async function contentOf(redis: Client, key: string): Promise<unknown> {
  switch (await redis.type(key)) {
    case "zset":
      return redis.zrange(key, "0", "-1", "WITHSCORES");
    case "set":
      return (await redis.smembers(key)).sort();
    case "hash":
      return Object.entries(await redis.hgetall(key)).sort(([a], [b]) => (a < b ? -1 : 1));
    default:
      return redis.get(key);
  }
}
