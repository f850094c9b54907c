import type { NatsConnection } from "nats";
import { type NotifyPart, notifyPartOf, notifyParts, otherPartsOf } from "../contracts/notify-parts.js";
import { liveSubject } from "../contracts/subjects.js";
import { encodeId } from "../kernel/ids.js";
import { createSubjectFeed, lastSequence, type SubjectFeed, type SubjectMessage } from "../platform/nats/feed.js";
import { followPresentParts } from "../platform/nats/notify-streams.js";
import { checkOf, isSampled, type Notification, readContent, readSignal, traceOf } from "./notification.js";

export interface Follower {
  take(notification: Notification): void;
  /** A notification has come that another part stores: its sequence means nothing here. */
  takeElsewhere(notification: Notification): void;
  /** A message that the user is erased has come, which is no notification. */
  userErased(): void;
  /** The user's tokens issued before `at`, in ms since the epoch, are refused from now on. */
  userLoggedOut(loggedOutAt: number): void;
}

interface FeedOptions {
  /** Number of streams that share the notifications. */
  readonly parts: number;
  /** Callback: called when live notifications of a part may have been missed, or its stream was replaced. */
  readonly onGap: (part: PartFeed) => void;
}

/** Everything rejects with AppError `unavailable`. */
export type Feed = ReturnType<typeof createFeed>;
/** Reads one part of NOTIFY. */
export type PartFeed = ReturnType<typeof createPartFeed>;
export type FeedState = Awaited<ReturnType<PartFeed["state"]>>;

export function createFeed(connection: NatsConnection, { parts, onGap }: FeedOptions) {
  const present = followPresentParts(connection);
  const isElsewhere = async (user: string): Promise<boolean> => {
    await present.looked();
    const others = otherPartsOf(user, parts).filter(({ stream }) => present.has(stream));
    const last = others.map(({ stream, subject }) => lastSequence(connection, stream, subject(encodeId(user))));
    return (await Promise.all(last)).some((seq) => seq > 0);
  };
  const feeds = new Map(
    notifyParts(parts).map((part) => {
      const feed: PartFeed = createPartFeed(
        createSubjectFeed(connection, part.stream, () => onGap(feed)),
        { part, isElsewhere },
      );
      return [part, feed];
    }),
  );
  const [first] = [...feeds.values()] as [PartFeed];
  const feedOf = (user: string): PartFeed => feeds.get(notifyPartOf(user, parts)) ?? first;
  const followed = new Map<string, FollowedUser>();
  return {
    of: feedOf,
    /** Delivers a user's notifications from now on. A user's event streams share a subscription. Returns how to stop. */
    follow: (user: string, follower: Follower): (() => void) => {
      const entry = followed.get(user) ?? followUser(feedOf(user), user, present.add);
      followed.set(user, entry);
      entry.followers = [...entry.followers, follower];
      return () => {
        entry.followers = entry.followers.filter((other) => other !== follower);
        if (entry.followers.length > 0 || followed.get(user) !== entry) return;
        entry.stop();
        followed.delete(user);
      };
    },
    users: (): number => followed.size,
    // All parts share the connection.
    flushed: first.flushed,
    connected: first.connected,
    close: (): void => {
      for (const feed of feeds.values()) feed.close();
      present.close();
    },
  };
}

interface PartFeedOptions {
  readonly part: NotifyPart;
  readonly isElsewhere: (user: string) => Promise<boolean>;
}

function createPartFeed(feed: SubjectFeed, { part, isElsewhere }: PartFeedOptions) {
  const subjectOf = (user: string): string => part.subject(encodeId(user));
  return {
    ...feed,
    /** Positions name the part; it is unset if there is one stream. */
    part: part.number,
    /**
     * Tells whether another part, which was or will be the user's under another number of parts, stores notifications of
     * the user. The feed of this part cannot replay them.
     */
    isElsewhere,
    lastOf: (user: string) => feed.lastOf(subjectOf(user)),
    oldestOf: (user: string) => feed.oldestOf(subjectOf(user)),
    /** Passes the user's notifications after `after` on, oldest first, until `take` returns false. */
    read: (user: string, after: number, take: (notification: Notification) => boolean) =>
      feed.read(subjectOf(user), after, (message) => take(notificationOf(message))),
  };
}

interface FollowedUser {
  followers: readonly Follower[];
  readonly stop: () => void;
}

function followUser(feed: PartFeed, user: string, foundElsewhere: (stream: string) => void): FollowedUser {
  const deliver = (message: SubjectMessage): void => {
    const { otherStream } = message;
    const notification = notificationOf(message);
    if (otherStream !== undefined) foundElsewhere(otherStream);
    for (const follower of entry.followers) {
      if (notification.loggedOutAt !== undefined) follower.userLoggedOut(notification.loggedOutAt);
      if (notification.erased) follower.userErased();
      else if (otherStream === undefined) follower.take(notification);
      else follower.takeElsewhere(notification);
    }
  };
  const entry: FollowedUser = { followers: [], stop: feed.follow(liveSubject(user), deliver) };
  return entry;
}

function notificationOf({ seq, previous, storedAt, header, body }: SubjectMessage): Notification {
  const content = readContent(body, () => header("Nats-Msg-Id"));
  const traced = isSampled(header("traceparent")) ? traceOf(header) : undefined;
  const signal: ReturnType<typeof readSignal> = content ? {} : readSignal(body);
  return { seq, previous, storedAt, traced, content, ...signal, check: checkOf(body), heardAt: performance.now() };
}
