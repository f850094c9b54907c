import { v7 } from "uuid";
import { messageId } from "../../src/contracts/events.js";
import type { Db } from "../../src/platform/db/db.js";
import { monthOf } from "../../src/posts/drops/ids.js";
import { createPartitionStore } from "../../src/posts/drops/partitions.sql.js";
import { insert, type Newest } from "./older-schema.js";

/** The schema of the last version without answers for remote objects and without erasures. */
export const BEFORE_FEDERATION: Newest = { outbox: 2, users: 7, posts: 7, analysis: 2, rewards: 1 };

/** An hour ago, ms since the epoch. */
export const T = Date.now() - 3_600_000;

const idAt = (ms: number): string => v7({ msecs: T + ms });

export const EVE = "https://far.example/users/eve";
export const DEAD = "https://gone.example/users/dan";
export const NOTE = "https://far.example/notes/1";

export const DROPS = {
  edited: idAt(1),
  followers: idAt(2),
  direct: idAt(3),
  reply: idAt(4),
  remoteReply: idAt(5),
  purged: idAt(6),
  deleted: idAt(7),
  repost: idAt(8),
  waiting: idAt(9),
} as const;

export const ANALYSIS = idAt(20);

/** Rows of every table, as the version with the schema {@link BEFORE_FEDERATION} writes them. */
export async function insertOlderRows(db: Db): Promise<void> {
  await createPartitionStore(db).make(monthOf(T));
  await insertUsers(db);
  await insertDrops(db);
  await insertRemoteObjects(db);
  await insertOutbox(db);
  await insertAnalyses(db);
}

async function insertUsers(db: Db): Promise<void> {
  const profile = { bio: "", avatar_url: "" };
  await insert(db, "users.profiles", [
    { user_id: "ada", display_name: "Ada", ...profile, updated_at: T, created_at: T - 1_000 },
    // An even older version stored no such time.
    { user_id: "bob", display_name: "Bob", ...profile, updated_at: T - 5 },
  ]);
  const edge = { version: T, active: true, changed_at: T };
  await insert(db, "users.followings", [
    { follower_id: "ada", following_id: "bob", ...edge },
    { follower_id: "ada", following_id: EVE, ...edge },
    { follower_id: "ada", following_id: "carol", ...edge, version: T + 1, active: false },
    { follower_id: "dave", following_id: "bob", ...edge },
    { follower_id: "erin", following_id: "bob", ...edge },
    { follower_id: "bob", following_id: "mallory", ...edge, active: false, blocking: true },
    { follower_id: "mallory", following_id: "bob", ...edge, active: false, blocked_by: true },
  ]);
  await insert(db, "users.following_counts", [
    { user_id: "ada", following: 2 },
    { user_id: "dave", following: 1 },
    { user_id: "erin", following: 1 },
  ]);
  // The follow of erin waits in the outbox.
  await insert(db, "users.followers", [
    { following_id: "bob", follower_id: "ada", ...edge, delta: 1, since: T },
    { following_id: "bob", follower_id: "dave", ...edge, delta: 1, changed_at: T + 7 },
    { following_id: EVE, follower_id: "ada", ...edge, delta: 1, since: T },
    { following_id: "carol", follower_id: "ada", ...edge, version: T + 1, active: false, delta: -1 },
  ]);
  await insert(db, "users.follower_counts", [
    { user_id: "bob", followers: 2, delta: 1, revision: 2 },
    { user_id: EVE, followers: 1, delta: 1, revision: 1 },
    { user_id: "carol", followers: 0, delta: -1, revision: 2 },
  ]);
  const relation = { version: T, active: true, expires_at: 0, reposts_only: false, created_at: T, changed_at: T };
  await insert(db, "users.relations", [
    { user_id: "bob", target_id: "mallory", kind: 1, ...relation },
    { user_id: "ada", target_id: "noah", kind: 2, ...relation, reposts_only: true },
    { user_id: "ada", target_id: "zoe", kind: 2, ...relation, active: false },
  ]);
}

async function insertDrops(db: Db): Promise<void> {
  const drop = (drop_id: string, user_id: string, body: string) => ({
    ...{ drop_id, user_id, body, visibility: 1, recipients: [], summary: "", updated_at: T, changed_at: T },
  });
  await insert(db, "posts.drops", [
    { ...drop(DROPS.edited, "bob", "Second"), summary: "News", revision: 2, updated_at: T + 50 },
    { ...drop(DROPS.followers, "bob", "For followers"), visibility: 3 },
    { ...drop(DROPS.direct, "bob", "Direct"), visibility: 4, recipients: ["ada", EVE] },
    { ...drop(DROPS.reply, "ada", "A reply"), reply_to: DROPS.edited },
    { ...drop(DROPS.remoteReply, "ada", "To a remote drop"), reply_to: NOTE },
    { ...drop(DROPS.purged, "bob", ""), deleted_at: T + 60, purged: true },
    { ...drop(DROPS.deleted, "bob", ""), deleted_at: T + 60 },
    { ...drop(DROPS.repost, "carol", ""), repost_of: DROPS.edited, repost_author: "bob" },
    drop(DROPS.waiting, "bob", "Not published yet"),
  ]);
  await insert(db, "posts.revisions", [
    { drop_id: DROPS.edited, revision: 1, summary: "", body: "First", updated_at: T + 1 },
  ]);
  const reaction = { active: true, version: 1, counted: true, delta: 1, changed_at: T + 10 };
  await insert(db, "posts.reactions", [
    { drop_id: DROPS.edited, kind: "like", actor_id: "ada", ...reaction },
    { drop_id: DROPS.edited, kind: "like", actor_id: "dave", ...reaction, active: false, counted: false, delta: -1 },
    // This like waits in the outbox.
    { drop_id: DROPS.edited, kind: "like", actor_id: "erin", ...reaction, counted: false, delta: 0 },
    { drop_id: DROPS.edited, kind: "share", actor_id: "carol", ...reaction, repost_id: DROPS.repost },
    { drop_id: DROPS.edited, kind: "reply", actor_id: DROPS.reply, ...reaction },
    { drop_id: DROPS.deleted, kind: "like", actor_id: "ada", ...reaction },
  ]);
  await insert(db, "posts.counts", [
    { drop_id: DROPS.edited, likes: 1, shares: 1, replies: 1 },
    { drop_id: DROPS.deleted, likes: 1, shares: 0, replies: 0 },
  ]);
  await insert(db, "posts.idempotency", [
    { user_id: "bob", key: "k1", drop_id: DROPS.followers, created_at: Date.now() },
  ]);
  await db.query("UPDATE posts.retention SET kept_since = $1", [T - 1_000]);
  await insert(db, "posts.upkeep", [{ task: "upkeep", holder: "an older process", held_until: 0 }]);
}

async function insertRemoteObjects(db: Db): Promise<void> {
  const fetched = { fetched_at: T, expires_at: Date.now() + 86_400_000 };
  const drop = { kind: 1, actor_uri: EVE, created_at: T + 30, visibility: 1, ...fetched };
  const gone = { ...fetched, expires_at: T, deleted_at: T };
  await insert(db, "posts.remote_objects", [
    { uri: NOTE, ...drop, document: JSON.stringify({ content: "far", inReplyTo: DROPS.edited }) },
    { uri: `${NOTE}/direct`, ...drop, visibility: 4, recipients: ["ada"], document: '{"content":"direct"}' },
    { uri: `${NOTE}/old`, ...drop, document: '{"content":"old"}', expires_at: T + 1 },
    { uri: `${NOTE}/gone`, ...drop, ...gone },
    {
      ...{ uri: EVE, kind: 2, document: '{"type":"Person"}', public_key: "-----BEGIN PUBLIC KEY-----\n" },
      // That version stores an address as it came.
      ...{ webfinger: "eve@far.example", ...fetched },
    },
    { uri: "https://far.example/", kind: 3, document: '{"name":"far"}', ...fetched },
    { uri: DEAD, kind: 2, ...gone },
    // A process of that version stored it after its actor was deleted.
    { ...drop, uri: "https://gone.example/notes/1", actor_uri: DEAD, document: '{"content":"late"}' },
    { uri: "https://far.example/unknown", kind: 0, ...gone, drops_removed: true },
  ]);
}

async function insertOutbox(db: Db): Promise<void> {
  const created = (drop_id: string) => {
    const payload = { drop_id, user_id: "bob", created_at: T + 9, visibility: "public" } as const;
    return {
      ...{ source: "posts", owner: "bob", key: drop_id, subject: "drops.created", body: JSON.stringify(payload) },
      message_id: messageId({ name: "drop_created", payload }),
    };
  };
  const edge = { follower_id: "erin", following_id: "bob", version: T, following: true, changed_at: T };
  const like = { drop_id: DROPS.edited, kind: "like", actor_id: "erin" };
  const block = { user_id: "bob", target_id: "mallory", version: T } as const;
  const source = { owner: "bob" };
  const of = (key: string) => ({ ...source, key });
  await insert(db, "public.outbox", [
    { ...created(DROPS.edited), published_at: T },
    created(DROPS.waiting),
    {
      ...{ source: "edges", ...of("erin:bob"), subject: "edges.calm.bob", body: JSON.stringify(edge) },
      message_id: `edge:erin:bob:${T}`,
    },
    {
      ...{ source: "reactions", ...of(`${DROPS.edited}:like:erin`), subject: "engagement.changed" },
      ...{ body: JSON.stringify(like), message_id: `engagement:${DROPS.edited}:like:erin:1` },
    },
    {
      ...{ source: "users", ...of("bob:mallory"), subject: "graph.blocked", body: JSON.stringify(block) },
      message_id: messageId({ name: "user_blocked", payload: { ...block, expires_at: 0, reposts_only: false } }),
    },
  ]);
}

async function insertAnalyses(db: Db): Promise<void> {
  await insert(db, "public.timeline_analyses", [
    {
      ...{ analysis_id: ANALYSIS, user_id: "ada", did: "bob", type: "flow", tier: "LIFT", cached: false },
      ...{ requested_at: T + 20, started_at: T + 21, completed_at: T + 22, request_seq: 1 },
      results: { version: "1", posts: 3, flow: { rhythm: 1 } },
    },
  ]);
  await insert(db, "public.xp_totals", [{ user_id: "ada", position: 1, total: 15 }]);
  await insert(db, "public.xp_transactions", [
    {
      ...{ event_id: ANALYSIS, user_id: "ada", amount: 15, multiplier: 1.5, reason: "timeline_analysis" },
      ...{ earned_at: T + 23, event_seq: 1, position: 1, total: 15 },
    },
  ]);
}
