import { z } from "zod";
import { AppError } from "../kernel/errors.js";
import { encodeId } from "../kernel/ids.js";
import { wrongUnitOf } from "../kernel/time.js";
import { hostOf, STANDINGS, subjectToken } from "./standings.js";
import { VISIBILITY_NAMES } from "./timelines.js";
import { CLOCK_SKEW_MS, isTime, isTooFarAhead } from "./times.js";
import { dropId, MAX_MENTIONS, MAX_RECIPIENTS, understood, userId, userIds } from "./untrusted.js";
import { version, withExactVersions } from "./versions.js";

export const EVENT_NAMES = [
  "drop_created",
  "drop_deleted",
  "drop_edited",
  "ap_drop_received",
  "user_followed",
  "user_unfollowed",
  "user_blocked",
  "user_unblocked",
  "user_muted",
  "user_unmuted",
  "user_erased",
  "standing_changed",
] as const;
export type EventName = (typeof EVENT_NAMES)[number];

export const SUBJECT_OF: Readonly<Record<EventName, string>> = {
  drop_created: "drops.created",
  drop_deleted: "drops.deleted",
  drop_edited: "drops.edited",
  ap_drop_received: "drops.ap_received",
  user_followed: "graph.followed",
  user_unfollowed: "graph.unfollowed",
  user_blocked: "graph.blocked",
  user_unblocked: "graph.unblocked",
  user_muted: "graph.muted",
  user_unmuted: "graph.unmuted",
  user_erased: "graph.erased",
  standing_changed: "graph.standing",
};

const EVENT_OF = new Map(EVENT_NAMES.map((name) => [SUBJECT_OF[name], name]));

export const knownEvent = (subject: string): EventName | undefined => EVENT_OF.get(subject);

/** @throws AppError `invalid`: a later version may have stored the message */
export function eventOfSubject(subject: string): EventName {
  const name = knownEvent(subject);
  if (!name) throw new AppError("invalid", `no event is logged under ${subject}`);
  return name;
}

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
  traceparent: z.string().max(128).optional().catch(undefined),
  producer: z.string().max(128).optional().catch(undefined),
  seq: z.number().int().nonnegative().optional().catch(undefined),
};

const visibility = z.enum(Object.values(VISIBILITY_NAMES));

const created = z.object({
  ...source,
  drop_id: dropId,
  user_id: userId,
  visibility,
  created_at: date,
  recipients: userIds(MAX_RECIPIENTS).optional(),
  /** Of a repost: the original and its author. */
  repost_of: dropId.optional(),
  repost_author: userId.optional(),
  /** Of a reply: its parent, and the parent's author where that is known. */
  reply_to: dropId.optional(),
  reply_to_author: userId.optional(),
  mentions: userIds(MAX_MENTIONS).optional(),
});

const deleted = z.object({ ...source, drop_id: dropId, user_id: userId.optional() });

/** Revisions of a drop count from 1. */
const edited = z.object({ ...source, drop_id: dropId, user_id: userId, revision: z.int().min(1), updated_at: date });

const received = z.object({
  ...source,
  drop_id: dropId,
  user_id: userId.optional(),
  visibility: visibility.default("public"),
  created_at: date,
  recipients: userIds(MAX_RECIPIENTS).optional(),
  /** As of a drop that was created. */
  reply_to: dropId.optional(),
  reply_to_author: userId.optional(),
  mentions: userIds(MAX_MENTIONS).optional(),
});

const edge = z.object({
  ...source,
  follower_id: userId,
  following_id: userId,
  version,
  /** The time of the change; without a valid one the time of admission counts, as it did when no event had this field. */
  created_at: date.optional().catch(undefined),
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

const relation = z.object({
  ...source,
  user_id: userId,
  target_id: userId,
  version,
  /** Of a mute. */
  expires_at: end,
  /** Of a mute: it hides only what the target reposts. */
  reposts_only: z.boolean().default(false),
});

const erasure = z.object({ ...source, user_id: userId, version });

const host = z.string().transform((text, context): string => {
  const host = hostOf(text);
  if (host === undefined) context.addIssue({ code: "custom", message: "must be the name of a host" });
  return host ?? z.NEVER;
});

const standing = z
  .object({
    ...source,
    user_id: userId.optional(),
    host: host.optional(),
    standing: z.enum(STANDINGS),
    until: end,
    version,
  })
  .superRefine(({ user_id, host }, context) => {
    if ((user_id === undefined) === (host === undefined))
      context.addIssue({ code: "custom", message: "must have either a user_id or a host" });
  });

/** Producers publish these payloads. */
export const PAYLOADS = {
  drop_created: created,
  drop_deleted: deleted,
  drop_edited: edited,
  ap_drop_received: received,
  user_followed: edge,
  user_unfollowed: edge,
  user_blocked: relation,
  user_unblocked: relation,
  user_muted: relation,
  user_unmuted: relation,
  user_erased: erasure,
  standing_changed: standing,
} as const;

export type DropCreated = z.output<typeof created>;
export type RemoteDropReceived = z.output<typeof received>;

export type TimelineEvent = {
  [Name in EventName]: { readonly name: Name; readonly payload: z.output<(typeof PAYLOADS)[Name]> };
}[EventName];
export type EdgeEvent = Extract<TimelineEvent, { readonly name: "user_followed" | "user_unfollowed" }>;
export type RelationEvent = Extract<TimelineEvent, { readonly payload: { readonly target_id: string } }>;
export type ErasureEvent = Extract<TimelineEvent, { readonly name: "user_erased" }>;
export type EditEvent = Extract<TimelineEvent, { readonly name: "drop_edited" }>;
export type StandingEvent = Extract<TimelineEvent, { readonly name: "standing_changed" }>;
export type DropEvent = Exclude<TimelineEvent, EdgeEvent | RelationEvent | ErasureEvent | StandingEvent>;

export const isEdge = (event: TimelineEvent): event is EdgeEvent => "follower_id" in event.payload;
export const isRelation = (event: TimelineEvent): event is RelationEvent => "target_id" in event.payload;
export const isErasure = (event: TimelineEvent): event is ErasureEvent => event.name === "user_erased";
export const isStanding = (event: TimelineEvent): event is StandingEvent => event.name === "standing_changed";

const utf8 = new TextDecoder("utf-8", { fatal: true });

export function parseJson(bytes: Uint8Array): unknown {
  try {
    return JSON.parse(withExactVersions(utf8.decode(bytes)));
  } catch (error) {
    // The parser's message quotes the payload, ids and all.
    throw new AppError("invalid", "payload: is not JSON in UTF-8", { cause: error });
  }
}

/** `arrival` is in ms since the epoch, and clamps remote drops. @throws AppError `invalid`, naming the fields */
export function parseEvent(name: EventName, bytes: Uint8Array, arrival: number): TimelineEvent {
  const event = { name, payload: understood(PAYLOADS[name], parseJson(bytes)) } as TimelineEvent;
  return datedEvent(event, arrival);
}

export const parseStored = (subject: string, bytes: Uint8Array, storedAt: number): TimelineEvent =>
  parseEvent(eventOfSubject(subject), bytes, storedAt + CLOCK_SKEW_MS);

function datedEvent(event: TimelineEvent, arrival: number): TimelineEvent {
  if (event.name === "ap_drop_received" && event.payload.created_at > arrival) {
    return { name: event.name, payload: { ...event.payload, created_at: arrival } };
  }
  if (event.name === "drop_created" && isTooFarAhead(event.payload.created_at, arrival)) {
    throw new AppError("invalid", "created_at: is more than five minutes ahead of arrival");
  }
  return event;
}

export function messageId(event: TimelineEvent): string {
  if (isEdge(event)) {
    const { follower_id, following_id, version } = event.payload;
    return `${event.name}:${encodeId(follower_id)}:${encodeId(following_id)}:${version}`;
  }
  if (isRelation(event)) {
    const { user_id, target_id, version } = event.payload;
    return `${event.name}:${encodeId(user_id)}:${encodeId(target_id)}:${version}`;
  }
  if (isErasure(event)) return `${event.name}:${encodeId(event.payload.user_id)}`;
  if (isStanding(event)) return `${event.name}:${subjectToken(event.payload)}:${event.payload.version}`;
  const id = `${event.name}:${encodeId(event.payload.drop_id)}`;
  return event.name === "drop_edited" ? `${id}:${event.payload.revision}` : id;
}
