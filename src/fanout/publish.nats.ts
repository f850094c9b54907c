import { randomUUID } from "node:crypto";
import {
  type EdgeJob,
  edgeJobMessageId,
  type FanoutCompleted,
  type FanoutJob,
  jobMessageId,
} from "../contracts/fanout.js";
import {
  type DropNotification,
  HIDING_EVENT,
  type HidingNotification,
  type RelationsNotification,
  type SharedNotification,
} from "../contracts/stream-events.js";
import {
  COMPLETED_FANOUT,
  edgeJobSubject,
  jobSubject,
  notifySubject,
  PUBLICATION_CHECK,
  SHARED_CHANGED,
} from "../contracts/subjects.js";
import { encodeId } from "../kernel/ids.js";
import type { Message, PublishAll } from "../platform/nats/publish.js";
import { createQueue, type Queue, stored } from "../platform/nats/queue.js";
import type { HidingChange, Viewers } from "../state/index.js";
import { traceHeaders } from "../telemetry/spans.js";
import { observeFanout } from "./observe.js";

/** Headers that continue a trace. Default: those of the active trace. */
export type Trace = Readonly<Record<string, string>> | undefined;

/** A notification with its recipients. Those in `unknown` are told to read the timeline again instead. */
export interface AddressedNotification extends Viewers {
  readonly notification: DropNotification;
  /**
   * Prefix that makes the id of the message a new one: NOTIFY stores an id once in two minutes, and may have stored
   * this one before a message that it has to follow.
   */
  readonly idPrefix?: string;
  readonly trace?: Trace;
}

/** Resolves after every PubAck. */
export type PublishNotifications = (all: readonly AddressedNotification[]) => Promise<void>;

export type { Queue };

/** Resolves after every PubAck. */
export type Complete = (
  all: readonly { readonly completed: FanoutCompleted; readonly trace?: Trace }[],
) => Promise<void>;

export const createPublishNotifications =
  (publishAll: PublishAll): PublishNotifications =>
  async (all) => {
    const messages = all.flatMap((addressed) => [...messagesOf(addressed), ...resetsOf(addressed)]);
    if (messages.length === 0) return;
    await stored(publishAll, messages);
    observeFanout.notified(messages.length);
  };

function resetsOf({ unknown, notification, trace }: AddressedNotification): Message[] {
  if (unknown.length === 0) return [];
  const body = JSON.stringify({ event: "reset", reason: "relations_unknown" });
  const id = `reset:${encodeId(notification.drop_id)}:`;
  const headers = trace ?? traceHeaders();
  return unknown.map((user) => ({ subject: notifySubject(user), body, id: id + encodeId(user), headers }));
}

/** A change of which the event streams of local and global are told. */
export interface SharedNotice {
  readonly notification: SharedNotification;
  readonly trace: Trace;
}

/** Tells the event streams of local and global. Resolves after every PubAck. */
export type NotifyShared = (all: readonly SharedNotice[]) => Promise<void>;

export const createNotifyShared =
  (publishAll: PublishAll): NotifyShared =>
  async (all) => {
    const active = traceHeaders();
    const messages = all.map(({ notification, trace: headers = active }): Message => {
      const id = `${SHARED_CHANGED}:${notificationId(notification)}`;
      return { subject: SHARED_CHANGED, body: JSON.stringify(notification), id, headers };
    });
    await stored(publishAll, messages);
  };

/**
 * Tells gateways that drops of a user are hidden from a listener, or not any more, and for the streams of local and global
 * whose relations changed.
 */
export type NotifyHiding = (changes: readonly HidingChange[], users: readonly string[]) => Promise<void>;

export const createNotifyHiding =
  (publishAll: PublishAll): NotifyHiding =>
  (changes, users) => {
    const headers = traceHeaders();
    const messages = changes.map(({ user, target, hiding, until }): Message => {
      const end = until === undefined ? {} : { until };
      const body: HidingNotification = { event: HIDING_EVENT, user_id: target, hiding: hiding ?? "none", ...end };
      return { subject: notifySubject(user), body: JSON.stringify(body), id: `hiding:${randomUUID()}`, headers };
    });
    const shared = users.map((user_id): Message => {
      const body: RelationsNotification = { event: HIDING_EVENT, user_id };
      return { subject: SHARED_CHANGED, body: JSON.stringify(body), id: `hiding:${randomUUID()}`, headers };
    });
    return stored(publishAll, [...messages, ...shared]);
  };

function messagesOf({ seeing, notification, idPrefix = "", trace }: AddressedNotification): Message[] {
  if (seeing.length === 0) return [];
  const body = JSON.stringify(notification);
  const headers = trace ?? traceHeaders();
  const id = idPrefix + notificationId(notification);
  return seeing.map((user) => ({ subject: notifySubject(user), body, id: id + encodeId(user), headers }));
}

function notificationId(notification: DropNotification | SharedNotification): string {
  const revision = notification.event === "drop_edited" ? `${notification.revision}:` : "";
  return `${notification.event}:${encodeId(notification.drop_id)}:${revision}`;
}

export const createQueueJobs = (publishAll: PublishAll): Queue<FanoutJob> =>
  createQueue(publishAll, jobSubject, jobMessageId);

export const createQueueEdges = (publishAll: PublishAll): Queue<EdgeJob> =>
  createQueue(publishAll, ({ admitted_at }) => edgeJobSubject(admitted_at), edgeJobMessageId);

/** Chooses the completions that are to be checked later. */
export type Sample = (all: readonly FanoutCompleted[]) => ReadonlySet<FanoutCompleted>;

export function createComplete(publishAll: PublishAll, sample: Sample): Complete {
  return async (all) => {
    const toCheck = sample(all.map(({ completed }) => completed));
    const active = traceHeaders();
    const messages: Message[] = [];
    for (const { completed, trace: headers = active } of all) {
      const id = `${completed.event}:${encodeId(completed.drop_id)}`;
      const message = { subject: COMPLETED_FANOUT, body: JSON.stringify(completed), id, headers };
      messages.push(message);
      if (toCheck.has(completed)) messages.push({ ...message, subject: PUBLICATION_CHECK });
    }
    await stored(publishAll, messages);
    observeFanout.completed(all.map(({ completed }) => completed));
  };
}
