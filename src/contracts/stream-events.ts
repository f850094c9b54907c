import { z } from "zod";
import { ANALYSIS_TYPES } from "./analysis.js";

const drop_id = z.string();
const created_at = z.int().min(0).meta({ description: "ms since the epoch" });
const analysis_id = z.uuid();

/** Kinds of notifications, as JSON names them. */
export const NOTIFICATION_KINDS = ["FOLLOW", "FOLLOW_REQUEST", "LIKE", "REPOST", "REPLY", "MENTION"] as const;
export type NotificationKindName = (typeof NOTIFICATION_KINDS)[number];

/** The data of each event of a user's event stream, by the event's name. */
export const STREAM_EVENTS = {
  new_drop: z.object({
    drop_id,
    created_at,
    repost_of: drop_id.optional().meta({ description: "of a repost: the original" }),
  }),
  drop_deleted: z.object({ drop_id }),
  drop_edited: z.object({ drop_id, revision: z.int().min(1) }),
  new_position: z.object({ timeline: z.string(), drop_id, version: z.int().min(0) }),
  reset: z.object({ reason: z.string() }),
  analysis_completed: z.object({
    analysis_id,
    did: z.string(),
    type: z.enum(ANALYSIS_TYPES),
    status_url: z.string().meta({ format: "uri-reference" }),
  }),
  analysis_failed: z.object({ analysis_id, error_code: z.string() }),
  xp_earned: z.object({ event_id: z.uuid(), amount: z.number(), total: z.number() }),
  notification: z.object({
    id: z.string(),
    kind: z.enum(NOTIFICATION_KINDS),
    actor_id: z.string(),
    drop_id: drop_id.optional().meta({ description: "left out for follows" }),
    created_at,
    count: z.int().min(2).optional().meta({
      description: "how many of this kind and drop since the last event, of which this is the newest; left out: one",
    }),
  }),
  notifications_read: z.object({ up_to_id: z.string() }),
} as const;

type StreamEvents = typeof STREAM_EVENTS;

type Named<Name extends keyof StreamEvents> = {
  [Event in Name]: { readonly event: Event } & Readonly<z.output<StreamEvents[Event]>>;
}[Name];

/**
 * Body of a message in NOTIFY. The gateway sends `event` as the name and the other fields as data. It omits `by`, the
 * byline of a new or edited drop, which tells it whether the user may see the drop.
 */
export type DropNotification = (Named<"new_drop" | "drop_edited"> & { readonly by: string }) | Named<"drop_deleted">;
/**
 * Tells the gateway that drops of `user_id` are hidden from now on, also those in NOTIFY; "none": that they are not. No
 * event of a stream has this name, so a gateway that does not know it sends nothing.
 */
export interface HidingNotification {
  readonly event: typeof HIDING_EVENT;
  readonly user_id: string;
  readonly hiding: "all" | "reposts" | "none";
  /** When a mute ends, ms since the epoch; left out: not by itself. */
  readonly until?: number;
}

export const HIDING_EVENT = "~hiding";

/**
 * Body of a message in SHARED. `shown_in`: the timelines that show the drop; local stands for both. It is left out of a
 * deletion or an edit of a drop that neither has now, though streams may have announced it. `by` is a byline; the author
 * of a deleted drop may be unknown.
 */
export type SharedNotification = (Named<"new_drop" | "drop_edited"> | Named<"drop_deleted">) & {
  readonly shown_in?: SharedTimeline | undefined;
  readonly by?: string | undefined;
};

export type SharedTimeline = "local" | "global";

/** Body of a message in SHARED: other users are hidden from `user_id` than before. No client gets it. */
export interface RelationsNotification {
  readonly event: typeof HIDING_EVENT;
  readonly user_id: string;
}

/** Tells the gateway that the user is erased: it ends their streams. No client gets it. */
export interface ErasedNotification {
  readonly event: typeof ERASED_EVENT;
}

export const ERASED_EVENT = "~erased";

/** Tells the gateway that the user is logged out everywhere: it ends streams of tokens issued before `at`, in ms. */
export interface LoggedOutNotification {
  readonly event: typeof LOGGED_OUT_EVENT;
  readonly at: number;
}

export const LOGGED_OUT_EVENT = "~logged_out";

/** Notifies a user of something else than drops. */
export type UserNotification = Named<
  | "reset"
  | "new_position"
  | "analysis_completed"
  | "analysis_failed"
  | "xp_earned"
  | "notification"
  | "notifications_read"
>;
