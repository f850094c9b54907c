import type { NatsConnection } from "nats";
import { liveSubject, notifySubject, STREAM } from "../contracts/subjects.js";
import { createSubjectFeed, type SubjectMessage } from "../platform/nats/feed.js";
import { readContent } from "./note.js";
import type { Feed, Note } from "./ports.js";
import { incarnationOf } from "./position.js";

export type { NatsConnection };

/** Notifications out of NOTIFY, and live by its republished copies. */
export function createFeed(connection: NatsConnection, onDoubt: () => void): Feed {
  const feed = createSubjectFeed(connection, STREAM.notify, onDoubt);
  return {
    follow: (user, take) => feed.follow(liveSubject(user), (message) => take(noteOf(message))),
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
    read: (user, after, take) => feed.read(notifySubject(user), after, (message) => take(noteOf(message))),
    connected: feed.connected,
    close: feed.close,
  };
}

function noteOf({ seq, previous, storedAt, headers, body }: SubjectMessage): Note {
  return { seq, previous, storedAt, headers, content: readContent(body, headers.get("Nats-Msg-Id")) };
}
