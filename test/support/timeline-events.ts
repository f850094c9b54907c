import type { Redis } from "ioredis";

/** Visibilities of a drop, as events spell them. */
export type VisibilityName = "public" | "unlisted" | "followers" | "direct";

type DropCreated = {
  readonly drop_id: string;
  readonly user_id: string;
  readonly visibility: VisibilityName;
  readonly created_at: number | string;
  readonly recipients?: readonly string[];
  readonly repost_of?: string;
  readonly repost_author?: string;
  readonly reply_to?: string;
  readonly reply_to_author?: string;
};
type DropDeleted = { readonly drop_id: string; readonly user_id?: string };
type DropEdited = {
  readonly drop_id: string;
  readonly user_id: string;
  readonly revision: number;
  readonly updated_at: number;
};
type RemoteDrop = {
  readonly drop_id: string;
  readonly created_at: number | string;
  readonly user_id?: string;
  readonly visibility?: VisibilityName;
  readonly recipients?: readonly string[];
  readonly reply_to?: string;
  readonly reply_to_author?: string;
};
type EdgeChange = { readonly follower_id: string; readonly following_id: string; readonly version: number };

type RelationChange = {
  readonly user_id: string;
  readonly target_id: string;
  readonly version: number;
  readonly reposts_only?: boolean;
  readonly expires_at?: number;
};
type StandingChange = {
  readonly user_id?: string;
  readonly host?: string;
  readonly standing: string;
  readonly until?: number;
  readonly version: number;
};
type RelationChannel = "user_blocked" | "user_unblocked" | "user_muted" | "user_unmuted";

/** One message of a Redis channel the service listens to. */
export type TimelineEvent =
  | { readonly channel: "drop_created"; readonly payload: DropCreated }
  | { readonly channel: "drop_deleted"; readonly payload: DropDeleted }
  | { readonly channel: "drop_edited"; readonly payload: DropEdited }
  | { readonly channel: "ap_drop_received"; readonly payload: RemoteDrop }
  | { readonly channel: "user_followed" | "user_unfollowed"; readonly payload: EdgeChange }
  | { readonly channel: RelationChannel; readonly payload: RelationChange }
  | { readonly channel: "user_erased"; readonly payload: { readonly user_id: string; readonly version: number } }
  | { readonly channel: "standing_changed"; readonly payload: StandingChange };

/** A `drop_created`. */
export function created(payload: DropCreated): TimelineEvent {
  return { channel: "drop_created", payload };
}

/** A `drop_deleted`. */
export function deleted(drop_id: string, user_id?: string): TimelineEvent {
  return { channel: "drop_deleted", payload: user_id === undefined ? { drop_id } : { drop_id, user_id } };
}

/** A `drop_edited`. */
export function edited(drop_id: string, user_id: string, revision = 2): TimelineEvent {
  return { channel: "drop_edited", payload: { drop_id, user_id, revision, updated_at: Date.now() } };
}

/** An `ap_drop_received`. */
export function received(payload: RemoteDrop): TimelineEvent {
  return { channel: "ap_drop_received", payload };
}

/** A `user_followed`. */
export function followed(follower_id: string, following_id: string, version: number): TimelineEvent {
  return { channel: "user_followed", payload: { follower_id, following_id, version } };
}

/** A `user_unfollowed`. */
export function unfollowed(follower_id: string, following_id: string, version: number): TimelineEvent {
  return { channel: "user_unfollowed", payload: { follower_id, following_id, version } };
}

/** A `user_blocked`, `user_unblocked`, `user_muted` or `user_unmuted`. */
export function related(
  channel: RelationChannel,
  user_id: string,
  target_id: string,
  { version = 1, reposts_only = false, expires_at = 0 } = {},
): TimelineEvent {
  return { channel, payload: { user_id, target_id, version, reposts_only, expires_at } };
}

/** A `standing_changed`. */
export function standing(
  subject: { readonly user_id: string } | { readonly host: string },
  name: string,
  { version = 1, until = 0 } = {},
): TimelineEvent {
  return { channel: "standing_changed", payload: { ...subject, standing: name, until, version } };
}

/** The identity of an event: channel and drop id, or both users and the version. */
function identity(event: TimelineEvent): string {
  const { payload } = event;
  if ("revision" in payload) return JSON.stringify([event.channel, payload.drop_id, payload.revision]);
  if ("drop_id" in payload) return JSON.stringify([event.channel, payload.drop_id]);
  if ("target_id" in payload)
    return JSON.stringify([event.channel, payload.user_id, payload.target_id, payload.version]);
  if ("standing" in payload) return JSON.stringify([event.channel, payload.user_id, payload.host, payload.version]);
  if ("user_id" in payload) return JSON.stringify([event.channel, payload.user_id]);
  return JSON.stringify([event.channel, payload.follower_id, payload.following_id, payload.version]);
}

/** Number of messages that the log must hold after these events. */
export function admitted(history: readonly TimelineEvent[]): number {
  return new Set(history.map(identity)).size;
}

/** Publishes events in order; fails when nobody listens, since Pub/Sub would just lose them. */
export async function publish(redis: Redis, ...events: readonly TimelineEvent[]): Promise<void> {
  const pipeline = redis.pipeline();
  for (const event of events) pipeline.publish(event.channel, JSON.stringify(event.payload));
  const replies = (await pipeline.exec()) ?? [];
  for (const [error, listeners] of replies) {
    if (error) throw error;
    if (listeners === 0) throw new Error("published to nobody: the bridge does not listen");
  }
}
