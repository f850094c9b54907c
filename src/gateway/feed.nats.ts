import type { NatsConnection } from "nats";
import { liveSubject, notifySubject, STREAM } from "../contracts/subjects.js";
import { createSubjectFeed, type SubjectFeed, type SubjectMessage } from "../platform/nats/feed.js";
import { checkOf, isSampled, type Notification, readContent, readHiding, traceOf } from "./notification.js";

type Take = (notification: Notification) => void;

/** Everything rejects with AppError `unavailable`. */
export type Feed = ReturnType<typeof createFeed>;
export type FeedState = Awaited<ReturnType<Feed["state"]>>;

/** @param onGap called when live notifications may have been missed, or the stream was replaced */
export function createFeed(connection: NatsConnection, onGap: () => void) {
  const feed = createSubjectFeed(connection, STREAM.notify, onGap);
  const followed = new Map<string, FollowedUser>();
  return {
    ...feed,
    /** Delivers a user's notifications from now on. A user's event streams share a subscription. Returns how to stop. */
    follow: (user: string, take: Take): (() => void) => {
      const entry = followed.get(user) ?? followUser(feed, user);
      followed.set(user, entry);
      entry.takes = [...entry.takes, take];
      return () => {
        entry.takes = entry.takes.filter((one) => one !== take);
        if (entry.takes.length > 0 || followed.get(user) !== entry) return;
        entry.stop();
        followed.delete(user);
      };
    },
    users: (): number => followed.size,
    lastOf: (user: string) => feed.lastOf(notifySubject(user)),
    oldestOf: (user: string) => feed.oldestOf(notifySubject(user)),
    /** Passes the user's notifications after `after` on, oldest first, until `take` returns false. */
    read: (user: string, after: number, take: (notification: Notification) => boolean) =>
      feed.read(notifySubject(user), after, (message) => take(notificationOf(message))),
  };
}

interface FollowedUser {
  takes: readonly Take[];
  readonly stop: () => void;
}

function followUser(feed: SubjectFeed, user: string): FollowedUser {
  const deliver = (message: SubjectMessage): void => {
    const notification = notificationOf(message);
    for (const take of entry.takes) take(notification);
  };
  const entry: FollowedUser = { takes: [], stop: feed.follow(liveSubject(user), deliver) };
  return entry;
}

function notificationOf({ seq, previous, storedAt, header, body }: SubjectMessage): Notification {
  const content = readContent(body, () => header("Nats-Msg-Id"));
  const traced = isSampled(header("traceparent")) ? traceOf(header) : undefined;
  const hiding = content ? undefined : readHiding(body);
  return { seq, previous, storedAt, traced, content, hiding, check: checkOf(body) };
}
