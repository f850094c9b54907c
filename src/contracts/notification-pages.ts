import { z } from "zod";
import { NOTIFICATION_KINDS, STREAM_EVENTS } from "./stream-events.js";
import { MAX_CURSOR_CHARS, PAGE_LIMIT } from "./timeline-pages.js";

export const NOTIFICATIONS_PATH = "/api/v1/notifications";

const kind = z.enum(NOTIFICATION_KINDS, { message: `must be some of ${NOTIFICATION_KINDS.join(", ")}` });

const id = z.string().min(1).max(MAX_CURSOR_CHARS);

/** The query of a page over HTTP. */
export const NOTIFICATIONS_QUERY = z.object({
  limit: PAGE_LIMIT,
  max_id: id
    .optional()
    .meta({ description: "Only notifications older than this one: next_max_id of a page, or an id" }),
  // A parameter that is repeated is an array.
  kinds: z
    .union([z.string(), z.array(z.string())])
    .default([])
    .transform((given) => [given].flat().flatMap((text) => text.split(",")))
    .pipe(z.array(kind).max(NOTIFICATION_KINDS.length))
    .meta({ description: "Only these kinds, repeated or separated by commas" }),
});

/** A page over HTTP has the fields of the event on the stream. */
export const NOTIFICATIONS_PAGE = z
  .object({
    notifications: z.array(STREAM_EVENTS.notification.omit({ count: true })).meta({ description: "The newest first" }),
    has_more: z.boolean().meta({ description: "There are older ones" }),
    next_max_id: z.string().meta({ description: "Hand back as max_id for the next older page" }),
  })
  .meta({ description: "A page of notifications" });

export const UNREAD = z
  .object({
    count: z.int().min(0).max(100),
    newest_id: z.string().meta({ description: "The newest notification, read or not; empty if there is none" }),
  })
  .meta({ description: "How many notifications are unread, at most 100" });

export const READ_MARK = z
  .object({ up_to_id: id.meta({ description: "This notification and all older ones are read" }) })
  .meta({ description: "A mark; one that is older than the present one changes nothing" });

export const MARKED = z
  .object({ changed: z.boolean().meta({ description: "The mark has moved" }) })
  .meta({ description: "What a mark has changed" });

export type NotificationsPage = z.output<typeof NOTIFICATIONS_PAGE>;
