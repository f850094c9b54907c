import type { z } from "zod";
import { AppError } from "../kernel/errors.js";
import { encodeId } from "../kernel/ids.js";
import { PAYLOADS } from "./payloads.js";
import { subjectToken } from "./standings.js";
import { CLOCK_SKEW_MS, isTooFarAhead } from "./times.js";
import { understood } from "./untrusted.js";
import { withExactVersions } from "./versions.js";

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

export type DropCreated = z.output<(typeof PAYLOADS)["drop_created"]>;
export type RemoteDropReceived = z.output<(typeof PAYLOADS)["ap_drop_received"]>;

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
