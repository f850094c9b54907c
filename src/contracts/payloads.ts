import { z } from "zod";
import { about } from "../kernel/fields.js";
import { wrongUnitOf } from "../kernel/time.js";
import { hostOf, STANDINGS } from "./standings.js";
import { VISIBILITY_NAMES } from "./timelines.js";
import { isTime } from "./times.js";
import { dropId, MAX_MENTIONS, MAX_RECIPIENTS, userId, userIds } from "./untrusted.js";
import { version } from "./versions.js";

// RFC 3339, section 5.6, demands a full date and time with an offset.
const RFC3339 = /^(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d)(?:\.(\d+))?(?:[Zz]|[+-]\d\d:\d\d)$/;

function parseDate(text: string): number | undefined {
  const match = RFC3339.exec(text);
  if (!match) return undefined;
  const [, year, month, day] = match.map(Number);
  const lastDay = new Date(Date.UTC(year as number, month as number, 0)).getUTCDate();
  if ((day as number) > lastDay || match[4] === "24") return undefined;
  // A leap second is the second after it here: no clock of ours knows leap seconds.
  const leap = match[6] === "60";
  const ms = Date.parse((leap ? text.replace(/:60/, ":59") : text).toUpperCase().replace(" ", "T"));
  return Number.isNaN(ms) ? undefined : ms + (leap ? 1_000 : 0);
}

const wrongUnit = (unit: string): string => `is a time in ${unit}, and must be ms since the epoch`;

export const date = z
  .union([z.number(), z.string()], { message: "must be a number of ms since the epoch or an RFC 3339 date" })
  .transform((value, context) => {
    const unit = typeof value === "number" ? wrongUnitOf(value) : undefined;
    if (unit !== undefined) {
      context.addIssue({ code: "custom", message: wrongUnit(unit) });
      return z.NEVER;
    }
    const ms = typeof value === "string" ? parseDate(value) : value;
    if (ms !== undefined && isTime(ms)) return ms === 0 ? 0 : ms;
    context.addIssue({
      code: "custom",
      message: "must be an integer of ms since the epoch, at least 0, or an RFC 3339 date",
    });
    return z.NEVER;
  });

/** Fields that every payload may have. */
export const source = {
  traceparent: about("W3C Trace Context; continues a trace", z.string().max(128)).optional().catch(undefined),
  producer: about("name of the publishing process", z.string().max(128)).optional().catch(undefined),
  seq: about("its events counted 1, 2, 3, …; shows which events were lost", z.number().int().nonnegative())
    .optional()
    .catch(undefined),
};

const VISIBILITIES =
  "`public`: local, global and the followers' homes; `unlisted`, `followers`: homes only; `direct`: the author's home and those of recipients who follow the author";
const visibility = about(VISIBILITIES, z.enum(Object.values(VISIBILITY_NAMES)));

const AUTHOR_OF_PARENT =
  "of a reply: the author of its parent, a user id or the URI of an actor; missing if nobody knows. It decides in whose homes the reply is";

/** Fields of a drop that is created here or received. */
const addressed = {
  recipients: about("user ids, at most 1,000; of a `direct` drop", userIds(MAX_RECIPIENTS)).optional(),
  reply_to: about("of a reply: its parent, an id or a URI", dropId).optional(),
  reply_to_author: about(AUTHOR_OF_PARENT, userId).optional(),
  mentions: about("user ids and URIs of actors, at most 50", userIds(MAX_MENTIONS)).optional(),
};

const created = z.object({
  ...source,
  drop_id: dropId,
  user_id: about("the author", userId),
  visibility,
  created_at: about("when the drop was created", date),
  repost_of: about("the drop is a repost, which is in homes only: the original", dropId).optional(),
  repost_author: about("of a repost: the author of the original", userId).optional(),
  ...addressed,
});

const AUTHOR_OF_DELETED = "the author; give it for a local drop: without it only homes that are read lose the drop";

const deleted = z.object({ ...source, drop_id: dropId, user_id: about(AUTHOR_OF_DELETED, userId).optional() });

const edited = z.object({
  ...source,
  drop_id: dropId,
  user_id: about("the author", userId),
  revision: about("1 or more; grows with each edit of the drop", z.int().min(1)),
  updated_at: about("when the drop was edited", date),
});

const received = z.object({
  ...source,
  drop_id: about("its URI, or an id of yours", dropId),
  user_id: about("the actor; with it the drop reaches the homes of the actor's followers, too", userId).optional(),
  visibility: about(`${VISIBILITIES}; \`public\` if it is missing`, visibility).default("public"),
  created_at: about("as the other server says it", date),
  ...addressed,
  reply_to_author: about(
    `${AUTHOR_OF_PARENT}; without it the drop is treated as any drop, and \`GetDropsByUserID\` must not name the author either`,
    userId,
  ).optional(),
});

const TIME_OF_FOLLOW =
  "when it happened; without it, when the event is admitted. A follow that was more than six hours old then notifies nobody";

const edge = z.object({
  ...source,
  follower_id: userId,
  following_id: about("the followed user", userId),
  version: about(
    "0 or more; grows with each follow and unfollow of this pair and never starts again; the highest one counts",
    version,
  ),
  // One that is not valid is ignored, as it was when no event had this field.
  created_at: about(TIME_OF_FOLLOW, date).optional().catch(undefined),
});

/** ms since the epoch; 0: never. */
const end = z
  .number()
  .superRefine((value, context) => {
    const unit = wrongUnitOf(value);
    if (unit !== undefined) context.addIssue({ code: "custom", message: wrongUnit(unit) });
    else if (!isTime(value))
      context.addIssue({ code: "custom", message: "must be an integer of ms since the epoch, at least 0" });
  })
  .default(0);

const relation = (words: Readonly<Record<"user" | "target" | "version" | "end" | "reposts", string>>) =>
  z.object({
    ...source,
    user_id: about(words.user, userId),
    target_id: about(words.target, userId),
    version: about(words.version, version),
    expires_at: about(words.end, end),
    reposts_only: about(words.reposts, z.boolean()).default(false),
  });

const block = relation({
  user: "who blocks",
  target: "who is blocked",
  version:
    "0 or more; grows with each block and unblock of this pair, in this direction, and never starts again; the highest one counts",
  end: "0, or missing",
  reposts: "false, or missing",
});

const mute = relation({
  user: "who mutes",
  target: "who is muted",
  version:
    "0 or more; grows with each change of the mute of this pair, its end included, and never starts again; the highest one counts",
  end: "of `user_muted`: when the mute ends; 0 or missing: never",
  reposts: "of `user_muted`: true: only what the target reposts is hidden",
});

const erasure = z.object({
  ...source,
  user_id: about("who is erased", userId),
  version: about("0 or more", version),
});

const host = z.string().transform((text, context): string => {
  const host = hostOf(text);
  if (host === undefined) context.addIssue({ code: "custom", message: "must be the name of a host" });
  return host ?? z.NEVER;
});

const standing = z
  .object({
    ...source,
    user_id: about("the user; either this or `host`", userId).optional(),
    host: about("the host", host).optional(),
    standing: z.enum(STANDINGS),
    until: about("when it ends, in ms; 0 or missing: not by itself", end),
    version: about(
      "0 or more; grows with each change of this user or host, and never starts again; the highest one counts",
      version,
    ),
  })
  .superRefine(({ user_id, host }, context) => {
    if ((user_id === undefined) === (host === undefined))
      context.addIssue({ code: "custom", message: "must have either a user_id or a host" });
  });

/** Producers publish these payloads. */
export const PAYLOADS = {
  drop_created: about("A drop is published", created),
  drop_deleted: about("A drop is gone, also a remote one", deleted),
  drop_edited: about("A drop has another text", edited),
  ap_drop_received: about("A drop of another server has arrived by ActivityPub", received),
  user_followed: about("Somebody follows a user", edge),
  user_unfollowed: about("Somebody unfollows a user", edge),
  user_blocked: about("A block hides each of the two users from the other", block),
  user_unblocked: about("A block ends", block),
  user_muted: about("A mute hides the target from the user", mute),
  user_unmuted: about("A mute ends", mute),
  user_erased: about("The user is erased for ever", erasure),
  standing_changed: about("Users are limited or suspended, or active again", standing),
} as const;
