import { z } from "zod";
import { about } from "../kernel/fields.js";
import { ANALYSIS_TYPES } from "./analysis.js";
import type { TimelineName } from "./timeline-pages.js";

const drop_id = z.string();
const created_at = about("ms since the epoch", z.int().min(0));
const analysis_id = z.uuid();

/** Kinds of notifications, as JSON names them. */
export const NOTIFICATION_KINDS = ["FOLLOW", "FOLLOW_REQUEST", "LIKE", "REPOST", "REPLY", "MENTION"] as const;
export type NotificationKindName = (typeof NOTIFICATION_KINDS)[number];

const RESET =
  "why the client has to read its timeline again: events may be missing (`unknown_position`, `too_old`, `registration_lost`, `stream_replaced`, `relations_unknown`), or the drops of an erased user are gone (`user_erased`)";

/** The data of each event of a user's event stream, by the event's name. */
export const STREAM_EVENTS = {
  new_drop: z.object({
    drop_id: about("the drop that is in the timeline", drop_id),
    created_at,
    repost_of: about("the drop is a repost: the original", drop_id).optional(),
  }),
  drop_deleted: z.object({
    drop_id: about("the drop that has left the timeline; the client may not have it", drop_id),
  }),
  drop_edited: z.object({
    drop_id,
    revision: about(
      "the highest one counts: of many edits at once only the newest are sent, perhaps not in their order",
      z.int().min(1),
    ),
  }),
  new_position: z.object({
    timeline: about("`home`, `local`, `global`, or `list:` and the id of a list", z.string()),
    drop_id: about("the newest drop that the user has read there", drop_id),
    version: about("a newer position has a higher one", z.int().min(0)),
  }),
  reset: z.object({ reason: about(RESET, z.string()) }),
  analysis_completed: z.object({
    analysis_id,
    did: about("the account", z.string()),
    type: z.enum(ANALYSIS_TYPES),
    status_url: z.string().meta({ format: "uri-reference", description: "path of the results" }),
  }),
  analysis_failed: z.object({ analysis_id, error_code: about("why it failed for good", z.string()) }),
  xp_earned: z.object({
    event_id: about("the event of the analysis that is rewarded", z.uuid()),
    amount: about("XP of this reward", z.number()),
    total: about("XP of the user, this reward included", z.number()),
  }),
  notification: z.object({
    id: about("as in `ListNotifications`; a later one is greater", z.string()),
    kind: z.enum(NOTIFICATION_KINDS),
    actor_id: about("who did it", z.string()),
    drop_id: about("of a like or repost the user's drop, of a reply or mention the new one", drop_id).optional(),
    created_at,
    count: about("likes or reposts of that drop since the last event; left out: one", z.int().min(2)).optional(),
  }),
  notifications_read: z.object({ up_to_id: about("all with this id and lower ones are read", z.string()) }),
} as const;

const CHANGES = ["new_drop", "drop_edited", "drop_deleted", "reset"] as const;

/** Names of the events that each event stream over HTTP may send, by its path below /events/timeline/. */
export const EVENT_STREAMS = {
  home: Object.keys(STREAM_EVENTS) as (keyof typeof STREAM_EVENTS)[],
  local: CHANGES,
  global: CHANGES,
  "list/{id}": CHANGES,
} as const satisfies Readonly<Record<TimelineName | "list/{id}", readonly (keyof typeof STREAM_EVENTS)[]>>;

export const streamPath = (name: string): string => `/events/timeline/${name}`;

type StreamEvents = typeof STREAM_EVENTS;

type Named<Name extends keyof StreamEvents> = {
  [Event in Name]: { readonly event: Event } & Readonly<z.output<StreamEvents[Event]>>;
}[Name];

/**
 * Body of a message in NOTIFY. The gateway sends `event` as the name and the other fields as data. It omits `by`, the
 * byline of a drop, which tells it whether the user may see the drop. Deletions have one for streams of lists only, which
 * are told of drops without a byline if they have told of the new drop.
 */
export type DropNotification = (Named<"new_drop"> & { readonly by: string }) | Changed;
type Changed = Named<"drop_edited" | "drop_deleted"> & { readonly by?: string | undefined };

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
