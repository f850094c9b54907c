import { z } from "zod";
import { AppError } from "../kernel/errors.js";
import { encodeId } from "../kernel/ids.js";
import { date, parseJson, source } from "./events.js";
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

const shared = {
  ...source,
  /** False: the like or the request was taken back, or the request was answered. */
  active: z.boolean(),
  /** The newest version of a key counts. */
  version,
  /** The time of the like or of the request; without it the time of admission counts. */
  created_at: date.optional(),
};

/** A like of a drop of this server. The key is the drop, the kind and the user. */
const reacted = z.object({
  ...shared,
  drop_id: dropId,
  author_id: userId,
  user_id: userId,
  kind: z.enum(["like"]),
});

/** A request to follow somebody who approves followers. The versions of an edge are those of its follows, too. */
const requested = z.object({ ...shared, follower_id: userId, following_id: userId });

export const ACTIVITY_PAYLOADS = { drop_reacted: reacted, user_requested: requested } as const;

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
