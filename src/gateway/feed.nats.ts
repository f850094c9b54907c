import { EventEmitter } from "node:events";
import type { NatsConnection } from "nats";
import { liveSubject, notifySubject, STREAM } from "../contracts/subjects.js";
import { createSubjectFeed, type SubjectMessage } from "../platform/nats/feed.js";
import { type Notification, readContent } from "./notification.js";

/** Everything rejects with AppError `unavailable`. */
export type Feed = ReturnType<typeof createFeed>;
export type FeedState = Awaited<ReturnType<Feed["state"]>>;

/** @param onDoubt called when live notifications may have been missed, or the stream was replaced */
export function createFeed(connection: NatsConnection, onDoubt: () => void) {
  const feed = createSubjectFeed(connection, STREAM.notify, onDoubt);
  const subscriptions = new Map<string, () => void>();
  // Events are named by subject: a user id could be a name that EventEmitter reserves.
  const live = new EventEmitter().setMaxListeners(0);
  return {
    /** Delivers a user's notifications from now on, over one subscription for all followers; returns how to stop. */
    follow: (user: string, take: (notification: Notification) => void): (() => void) => {
      const subject = liveSubject(user);
      live.on(subject, take);
      if (!subscriptions.has(subject))
        subscriptions.set(
          subject,
          feed.follow(subject, (message) => live.emit(subject, notificationOf(message))),
        );
      return () => {
        live.off(subject, take);
        if (live.listenerCount(subject) > 0) return;
        subscriptions.get(subject)?.();
        subscriptions.delete(subject);
      };
    },
    users: (): number => subscriptions.size,
    state: async () => {
      const { createdAt, ...state } = await feed.state();
      return { ...state, incarnation: incarnationOf(createdAt) };
    },
    /** Undefined while the stream may have been replaced. */
    current: (): string | undefined => {
      const createdAt = feed.current();
      return createdAt === undefined ? undefined : incarnationOf(createdAt);
    },
    lastOf: (user: string) => feed.lastOf(notifySubject(user)),
    oldestOf: (user: string) => feed.oldestOf(notifySubject(user)),
    /** Passes the user's notifications after `after` on, oldest first, until `take` returns false. */
    read: (user: string, after: number, take: (notification: Notification) => boolean) =>
      feed.read(notifySubject(user), after, (message) => take(notificationOf(message))),
    flushed: feed.flushed,
    connected: feed.connected,
    close: feed.close,
  };
}

const incarnationOf = (createdAt: number): string => createdAt.toString(36);

function notificationOf({ seq, previous, storedAt, headers, body }: SubjectMessage): Notification {
  return { seq, previous, storedAt, headers, content: readContent(body, headers.get("Nats-Msg-Id")) };
}
