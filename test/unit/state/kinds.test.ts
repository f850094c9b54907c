import { readFileSync } from "node:fs";
import { expect, test } from "@jest/globals";
import { encodeId } from "../../../src/kernel/ids.js";
import { DECLARED, type Declared } from "../../../src/state/declared.js";
import * as keys from "../../../src/state/keys.js";
import { classify, KINDS } from "../../../src/state/kinds.js";

const USERS = ["ada", "local", "erin é", "=", "a:b{c}.d"];

/** Each export of the contract that is a key, or makes one of a user or drop; the others make none. */
const OF_USERS: Readonly<Record<string, (user: string) => string>> = {
  homeKey: keys.homeKey,
  authorKey: keys.authorKey,
  postedKey: keys.postedKey,
  repostedKey: keys.repostedKey,
  pullsKey: keys.pullsKey,
  pullsKeyOfHome: (user) => keys.pullsKeyOfHome(keys.homeKey(user)),
  hiddenKey: keys.hiddenKey,
  hiddenStagedKey: keys.hiddenStagedKey,
  hiddenChangesKey: keys.hiddenChangesKey,
  renewalKey: keys.renewalKey,
  endingKey: keys.endingKey,
  hiddenKeyOfHome: (user) => keys.hiddenKeyOfHome(keys.homeKey(user)),
  hidersKey: keys.hidersKey,
  followsKeyOfHome: (user) => keys.followsKeyOfHome(keys.homeKey(user)),
  followsStagedKey: (user) => keys.followsStagedKey(keys.homeKey(user), -12),
  bylinesKey: (user) => keys.bylinesKey(keys.authorKey(user)),
  standingBylinesKey: (user) => keys.standingBylinesKey(keys.homeKey(user)),
  removalNotesKey: (user) => keys.removalNotesKey(keys.homeKey(user)),
  generationKey: keys.generationKey,
  unfollowersKey: keys.unfollowersKey,
  deletedKey: keys.deletedKey,
  rebuildLeaseKey: (user) => keys.rebuildLeaseKey(keys.homeKey(user)),
  stagedKey: (user) => keys.stagedKey(keys.homeKey(user), -12, "remove"),
  usersKey: (user) => keys.usersKey("followers-generation", user),
  analysesAskedKey: keys.analysesAskedKey,
  limitKey: (user) => keys.limitKey("same-body", user, "x:{y}"),
  readsKey: keys.readsKey,
  analysisCacheKey: (user) => keys.analysisCacheKey(user, "full", "2026-01-31"),
  listingKey: (user) => keys.listingKey(keys.listenerPart(user, false), user),
  listingKeyInCluster: (user) => keys.listingKey(keys.listenerPart(user, true), user),
  connectionsOfUserKey: keys.connectionsOfUserKey,
  connectionKey: (user) => keys.connectionKey(`k3.${encodeId(user)}`),
};
const OF_DROPS: Readonly<Record<string, (drop: string) => string>> = {
  actorKey: keys.actorKey,
  directDropKey: keys.directDropKey,
  deletedDropKey: keys.deletedDropKey,
  fanoutProgressKey: (drop) => keys.fanoutProgressKey("drop_created", drop),
};
const OF_NOBODY: Readonly<Record<string, readonly string[]>> = {
  listKey: [keys.listKey("0198"), keys.listKey("a:b")],
  LOCAL_KEY: [keys.LOCAL_KEY],
  GLOBAL_KEY: [keys.GLOBAL_KEY],
  TOMBSTONES_KEY: [keys.TOMBSTONES_KEY],
  ERASED_KEY: [keys.ERASED_KEY],
  LOGOUTS_KEY: [keys.LOGOUTS_KEY],
  STANDINGS_KEY: [keys.STANDINGS_KEY],
  STANDINGS_ORDER_KEY: [keys.STANDINGS_ORDER_KEY],
  VEILED_KEY: [keys.VEILED_KEY],
  PULLED_KEY: [keys.PULLED_KEY],
  CROSSING_LEASE_KEY: [keys.CROSSING_LEASE_KEY],
  edgesKey: [keys.edgesKey("ada")],
  REMOTE_KEY: [keys.REMOTE_KEY],
  bylinesKey: [keys.bylinesKey(keys.LOCAL_KEY), keys.bylinesKey(keys.GLOBAL_KEY)],
  removalNotesKey: [keys.removalNotesKey(keys.GLOBAL_KEY)],
  rebuildLeaseKey: [keys.rebuildLeaseKey(keys.LOCAL_KEY)],
  stagedKey: [keys.stagedKey(keys.LOCAL_KEY, -1, "add")],
  REFILL_LEASE_KEY: [keys.REFILL_LEASE_KEY],
  serverIdentityKey: [keys.serverIdentityKey(63)],
  PLACE_KEYS: keys.PLACE_KEYS,
  REPLAY_LEASE_KEY: [keys.REPLAY_LEASE_KEY],
  AUDIT_LEASE_KEY: [keys.AUDIT_LEASE_KEY],
  UNRECONCILED_KEY: [keys.UNRECONCILED_KEY],
  RECONCILED_KEY: [keys.RECONCILED_KEY],
  FILL_KEY: [keys.FILL_KEY],
  fillLeaseKey: [keys.fillLeaseKey(0)],
  PUBLISHING_KEY: [keys.PUBLISHING_KEY],
  WAITING_KEY: [keys.WAITING_KEY],
  TRIMMED_KEY: [keys.TRIMMED_KEY],
  TRIM_LEASE_KEY: [keys.TRIM_LEASE_KEY],
  attemptsKey: [keys.attemptsKey("TIMELINE_EVENTS", 1, 2)],
  SOURCE_TOKENS_KEY: [keys.SOURCE_TOKENS_KEY],
  SOURCE_TURN_KEYS: [...keys.SOURCE_TURN_KEYS, ...["taken", "waiting"].map((of) => `{timeline:x:source-tokens}:${of}`)],
  RIGHTS_KEY: [keys.RIGHTS_KEY],
  RECENT_KEY: [keys.RECENT_KEY],
  CONNECTIONS_SEEN_KEY: [keys.CONNECTIONS_SEEN_KEY],
  recentKey: [keys.recentKey(keys.listenerPart("ada", true))],
  connectionsSeenKey: [keys.connectionsSeenKey(keys.listenerPart("ada", true))],
};
const NO_KEYS = [
  ...[
    "SHARED_PREFIX",
    "SHARED_TOKENS",
    "DELETIONS_CHANNEL",
    "HOME_PREFIX",
    "LIST_PREFIX",
    "userOfHomeKey",
    "readerKey",
    "READERS_PATTERN",
    "readerOfKey",
    "AUTHOR_PREFIX",
  ],
  ...["authorOfKey", "PULLS_PREFIX", "pullsToken", "kindOf", "EDGES_PREFIX", "UNFOLLOWERS_PREFIX", "DELETED_PREFIX"],
  ...["ALL_EDGE_PARTS", "edgePart", "edgeField", "USERS_PREFIX", "LIMIT_PREFIX", "limitOfKey", "packKeys"],
  ...["listenerPart", "listenerParts", "KEYS_A_CALL", "FLOOR_MEMBER", "HIDDEN_STATE", "ACTOR_TOKEN"],
];

test("the table has every key of the contract: a new one is classified here, and in the table", () => {
  const known = new Set([...Object.keys(OF_USERS), ...Object.keys(OF_DROPS), ...Object.keys(OF_NOBODY), ...NO_KEYS]);
  expect(Object.keys(keys).filter((name) => !known.has(name))).toEqual([]);
  expect(NO_KEYS.filter((name) => !(name in keys))).toEqual([]);
});

test("a key is of the user or drop whose token it has", () => {
  for (const id of USERS) {
    for (const [name, key] of Object.entries(OF_USERS))
      expect([name, classify(key(id))?.user]).toEqual([name, encodeId(id)]);
    for (const [name, key] of Object.entries(OF_DROPS))
      expect([name, classify(key(id))?.drop]).toEqual([name, encodeId(id)]);
  }
  for (const key of Object.values(OF_NOBODY).flat())
    expect([key, classify(key)]).toEqual([key, { kind: expect.anything(), user: undefined, drop: undefined }]);
});

test("each kind of the table is that of a key of the contract", () => {
  const all = [
    ...Object.values(OF_USERS).map((key) => key("ada")),
    ...["followers", "followers-count"].map((what) => keys.usersKey(what, "ada")),
    ...Object.values(OF_DROPS).map((key) => key("d1")),
    ...Object.values(OF_NOBODY).flat(),
  ];
  const kinds = new Set(all.map((key) => classify(key)?.kind));
  expect(KINDS.filter((kind) => !kinds.has(kind))).toEqual([]);
  expect(classify("timeline:x:something new")).toBeUndefined();
});

const erasureOf = (pattern: string, { holds, stays }: Declared): string => {
  if (stays !== undefined) return `stays: ${stays}`;
  const own = /<(user|drop|timeline)>/.test(pattern) ? ["the key is removed"] : [];
  return [...own, ...(holds === undefined ? [] : ["entries are removed"])].join("; ");
};

test("the README of the state lists each key as it is declared", () => {
  const rows = Object.entries<Declared>(DECLARED).map(([pattern, declared]) => {
    const { type, bound, about } = declared;
    return `| \`${pattern}\` | ${type} | ${bound} | ${about} | ${erasureOf(pattern, declared)} |`;
  });
  const listed = readFileSync("src/state/README.md", "utf8").matchAll(/^\| `(?:timeline|sse|analysis|\{).*$/gm);
  expect([...listed].map(([row]) => row)).toEqual(rows);
});
