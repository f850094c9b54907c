import { z } from "zod";
import { AppError } from "../kernel/errors.js";
import { about } from "../kernel/fields.js";
import { encodeId } from "../kernel/ids.js";
import { parseJson } from "./events.js";
import { date, source } from "./payloads.js";
import { dropId, understood, userId } from "./untrusted.js";
import { version } from "./versions.js";

/** Events of the stream ACTIVITY: people are told of them, and timelines do not change. */
export const ACTIVITY_NAMES = ["drop_reacted", "user_requested"] as const;
export type ActivityName = (typeof ACTIVITY_NAMES)[number];

export const ACTIVITY_SUBJECT_OF: Readonly<Record<ActivityName, string>> = {
  drop_reacted: "activity.reacted",
  user_requested: "activity.requested",
};

const ACTIVITY_OF = new Map(ACTIVITY_NAMES.map((name) => [ACTIVITY_SUBJECT_OF[name], name]));

export const knownActivity = (subject: string): ActivityName | undefined => ACTIVITY_OF.get(subject);

const reacted = z.object({
  ...source,
  drop_id: dropId,
  author_id: about("the author of the drop", userId),
  user_id: about("who likes it, a user id or the URI of an actor", userId),
  kind: z.enum(["like"]),
  active: about("false: the like is taken back", z.boolean()),
  version: about(
    "0 or more; grows with each like of this drop by this user and its end, and never starts again; the highest one counts",
    version,
  ),
  created_at: about("when it was liked; without it, when the event is admitted", date).optional(),
});

const requested = z.object({
  ...source,
  follower_id: about("who asks", userId),
  following_id: about("who is asked", userId),
  active: about("false: the request has ended", z.boolean()),
  version: about(
    "0 or more; those of `user_followed` and `user_unfollowed` of this pair count on; the highest one counts",
    version,
  ),
  created_at: about("when the request was made; without it, when the event is admitted", date).optional(),
});

export const ACTIVITY_PAYLOADS = {
  drop_reacted: about("Somebody likes a drop of a user of this server, or takes the like back", reacted),
  user_requested: about("Somebody asks to follow a user who approves followers, or the request ends", requested),
} as const;

export type ActivityEvent = {
  [Name in ActivityName]: { readonly name: Name; readonly payload: z.output<(typeof ACTIVITY_PAYLOADS)[Name]> };
}[ActivityName];
export type Reacted = z.output<typeof reacted>;
export type Requested = z.output<typeof requested>;

/** @throws AppError `invalid`, naming the fields */
export const parseActivity = (name: ActivityName, bytes: Uint8Array): ActivityEvent =>
  ({ name, payload: understood(ACTIVITY_PAYLOADS[name], parseJson(bytes)) }) as ActivityEvent;

/** Reads a message of the stream. @throws AppError `invalid` */
export function parseStoredActivity(subject: string, bytes: Uint8Array): ActivityEvent {
  const name = knownActivity(subject);
  if (!name) throw new AppError("invalid", `no activity is stored under ${subject}`);
  return parseActivity(name, bytes);
}

/** Begins the message id, which ends with the version. */
export const reactionId = ({ drop_id, user_id, kind }: Pick<Reacted, "drop_id" | "user_id" | "kind">): string =>
  `drop_reacted:${encodeId(drop_id)}:${encodeId(user_id)}:${kind}`;

export function activityId({ name, payload }: ActivityEvent): string {
  if (name === "drop_reacted") return `${reactionId(payload)}:${payload.version}`;
  const { follower_id, following_id, version } = payload;
  return `user_requested:${encodeId(follower_id)}:${encodeId(following_id)}:${version}`;
}
