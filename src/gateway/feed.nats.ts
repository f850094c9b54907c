import { EventEmitter } from "node:events";
import type { NatsConnection } from "nats";
import { liveSubject, notifySubject, STREAM } from "../contracts/subjects.js";
import { createSubjectFeed, type SubjectMessage } from "../platform/nats/feed.js";
import { type Notification, readContent } from "./notification.js";

export interface FeedState {
  readonly incarnation: string;
  readonly firstSeq: number;
  readonly lastSeq: number;
  /** Notifications of one user that the stream keeps at most. */
  readonly perSubject: number;
}

/** Notifications of users, live and out of NOTIFY. Everything rejects with AppError `unavailable`. */
export interface Feed {
  /** Delivers a user's notifications from now on, over one subscription for all followers; returns how to stop. */
  follow(user: string, take: (notification: Notification) => void): () => void;
  /** Users who are followed. */
  users(): number;
  /** Resolves when every `follow` before the call is in force. */
  flushed(): Promise<void>;
  /** The state at some time after the call. */
  state(): Promise<FeedState>;
  /** The incarnation that live notifications belong to; undefined while the stream may have been replaced. */
  current(): string | undefined;
  /** The user's last sequence, from the leader; 0: none. */
  lastOf(user: string): Promise<number>;
  /** The user's oldest sequence still held, from the leader; undefined: none. */
  oldestOf(user: string): Promise<number | undefined>;
  /** Passes the user's notifications after `after` on, oldest first, until `take` returns false. */
  read(user: string, after: number, take: (notification: Notification) => boolean): Promise<void>;
  connected(): boolean;
  close(): void;
}

/** @param onDoubt called when live notifications may have been missed, or the stream was replaced */
export function createFeed(connection: NatsConnection, onDoubt: () => void): Feed {
  const feed = createSubjectFeed(connection, STREAM.notify, onDoubt);
  const subscriptions = new Map<string, () => void>();
  // Events are named by subject: a user id could be a name that EventEmitter reserves.
  const live = new EventEmitter().setMaxListeners(0);
  return {
    follow: (user, take) => {
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
    users: () => subscriptions.size,
    flushed: feed.flushed,
    state: async () => {
      const { createdAt, ...state } = await feed.state();
      return { ...state, incarnation: incarnationOf(createdAt) };
    },
    current: () => {
      const createdAt = feed.current();
      return createdAt === undefined ? undefined : incarnationOf(createdAt);
    },
    lastOf: (user) => feed.lastOf(notifySubject(user)),
    oldestOf: (user) => feed.oldestOf(notifySubject(user)),
    read: (user, after, take) => feed.read(notifySubject(user), after, (message) => take(notificationOf(message))),
    connected: feed.connected,
    close: feed.close,
  };
}

const incarnationOf = (createdAt: number): string => createdAt.toString(36);

function notificationOf({ seq, previous, storedAt, headers, body }: SubjectMessage): Notification {
  return { seq, previous, storedAt, headers, content: readContent(body, headers.get("Nats-Msg-Id")) };
}
