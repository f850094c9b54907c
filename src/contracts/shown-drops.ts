import { z } from "zod";

const ms = (about: string) =>
  z
    .int()
    .min(0)
    .meta({ description: `${about}, ms since the epoch` });
const visibility = z.enum([
  "VISIBILITY_UNSPECIFIED",
  "VISIBILITY_PUBLIC",
  "VISIBILITY_UNLISTED",
  "VISIBILITY_FOLLOWERS",
  "VISIBILITY_DIRECT",
]);

const ATTACHMENT = z.object({
  url: z.string(),
  media_type: z.string(),
  description: z.string(),
  width: z.int(),
  height: z.int(),
});

const TEXTS = {
  mentions: z.array(z.string()),
  attachments: z.array(ATTACHMENT),
  language: z.string(),
  sensitive: z.boolean(),
};

const LOCAL = z.object({
  drop_id: z.string(),
  user_id: z.string(),
  visibility,
  recipients: z.array(z.string()),
  reply_to: z.string(),
  summary: z.string(),
  body: z.string(),
  revision: z.int(),
  created_at: ms("Of the drop"),
  updated_at: ms("Of this revision"),
  repost_of: z.string(),
  ...TEXTS,
  extra: z.record(z.string(), z.unknown()).optional(),
});

const REMOTE = z.object({
  uri: z.string(),
  kind: z.string().meta({ description: "REMOTE_KIND_DROP" }),
  actor_uri: z.string(),
  created_at: ms("Of the drop"),
  document: z.string().meta({ description: "JSON, as it was received" }),
  public_key: z.string(),
  webfinger: z.string(),
  webfinger_type: z.string(),
  webfinger_href: z.string(),
  lrdd_template: z.string(),
  fetched_at: ms("Of the fetch"),
  expires_at: ms("Of the expiry"),
  expired: z.boolean(),
  visibility,
  recipients: z.array(z.string()),
  reply_to: z.string(),
  ...TEXTS,
});

const count = z.int().min(0);

/** A drop over HTTP: GetDropResponse as JSON, with names of enumerations and numbers. One of the first three is set. */
export const SHOWN_DROP = z.object({
  drop: LOCAL.extend({ original: LOCAL.optional(), remote_original: REMOTE.optional() }).optional(),
  remote: REMOTE.optional().meta({ description: "A drop of another server" }),
  tombstone: z
    .object({ id: z.string(), former_type: z.string(), deleted_at: ms("Of the deletion") })
    .optional()
    .meta({ description: "The drop was deleted after the page was read" }),
  counts: z.object({ drop_id: z.string(), likes: count, shares: count, replies: count }).optional(),
  viewer: z
    .object({ liked: z.boolean(), repost_id: z.string() })
    .optional()
    .meta({ description: "What the caller has done with the drop" }),
});
