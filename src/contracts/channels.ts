import {
  ACTIVITY_NAMES,
  ACTIVITY_SUBJECT_OF,
  type ActivityEvent,
  type ActivityName,
  activityId,
  knownActivity,
  parseActivity,
} from "./activity.js";
import {
  EVENT_NAMES,
  type EventName,
  knownEvent,
  messageId,
  parseEvent,
  SUBJECT_OF,
  type TimelineEvent,
} from "./events.js";
import { STREAM } from "./subjects.js";

/** Channels of Redis Pub/Sub have the names of their events. */
export const CHANNELS = [...EVENT_NAMES, ...ACTIVITY_NAMES] as const;
export type Channel = EventName | ActivityName;
export type PublishedEvent = TimelineEvent | ActivityEvent;

const isActivity = (name: Channel): name is ActivityName => name in ACTIVITY_SUBJECT_OF;

/** `arrival` is in ms since the epoch, and clamps remote drops. @throws AppError `invalid`, naming the fields */
export const parsePublished = (channel: Channel, bytes: Uint8Array, arrival: number): PublishedEvent =>
  isActivity(channel) ? parseActivity(channel, bytes) : parseEvent(channel, bytes, arrival);

export const streamOf = (channel: Channel): string => (isActivity(channel) ? STREAM.activity : STREAM.drops);

export const subjectOf = (channel: Channel): string =>
  isActivity(channel) ? ACTIVITY_SUBJECT_OF[channel] : SUBJECT_OF[channel];

export const publishedId = (event: PublishedEvent): string =>
  event.name === "drop_reacted" || event.name === "user_requested" ? activityId(event) : messageId(event);

/** Returns undefined for a subject that no channel has. */
export const channelOf = (subject: string): Channel | undefined => knownEvent(subject) ?? knownActivity(subject);
