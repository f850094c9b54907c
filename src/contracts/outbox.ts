import { messageId, SUBJECT_OF, type TimelineEvent } from "./events.js";

/**
 * Each source has relays of its own, so that a stream that takes nothing delays no event of another stream: those of `posts` and
 * `users` go to DROPS, those of `edges` to EDGES, those of `reactions` to ENGAGEMENT, those of `activity` (likes) and
 * `requests` (to follow) to ACTIVITY.
 */
export type OutboxSource = PostsSource | UsersSource;
export type PostsSource = "posts" | "reactions" | "activity";
export type UsersSource = "users" | "edges" | "requests";

/**
 * The newest event of a key stands for those before it: an edge, a like and a request are as their newest versions say,
 * and a reaction is counted as its row is.
 */
export const NEWEST_COUNTS: ReadonlySet<OutboxSource> = new Set(["reactions", "activity", "edges", "requests"]);

export interface EventDraft {
  /** Owners are published in turn, so that many events of one do not hold up the others'. */
  readonly owner: string;
  /** Events of one key are published in the order they were written. */
  readonly key: string;
  readonly subject: string;
  readonly messageId: string;
  readonly body: string;
  readonly traceparent: string | undefined;
}

export const draftOf = (
  event: TimelineEvent,
  { owner, key, traceparent }: Pick<EventDraft, "owner" | "key" | "traceparent">,
): EventDraft => ({
  owner,
  key,
  traceparent,
  subject: SUBJECT_OF[event.name],
  messageId: messageId(event),
  body: JSON.stringify(event.payload),
});

export interface OutboxEvent extends Omit<EventDraft, "owner" | "traceparent"> {
  readonly id: number;
  readonly traceparent?: string | null | undefined;
  readonly createdAt: number;
}

/** Each field is an SQL expression. */
type DraftColumns = Readonly<Record<keyof EventDraft, string>>;

/** Returns the fields of an EventDraft that a statement gets as JSON. */
export const draftIn = (json: string): DraftColumns => ({
  owner: `${json} ->> 'owner'`,
  key: `${json} ->> 'key'`,
  subject: `${json} ->> 'subject'`,
  messageId: `${json} ->> 'messageId'`,
  body: `${json} ->> 'body'`,
  traceparent: `${json} ->> 'traceparent'`,
});

/** Ends the message id of an event with the version of a row. */
export const withVersion = (event: DraftColumns, version: string): DraftColumns => ({
  ...event,
  messageId: `(${event.messageId}) || ':' || ${version}`,
});

/** Returns an INSERT of an event for each row of `from`. */
export const insertEvents = (source: OutboxSource, event: DraftColumns, from: string): string => `
  INSERT INTO public.outbox (source, owner, key, subject, message_id, body, traceparent)
  SELECT '${source}', ${event.owner}, ${event.key}, ${event.subject}, ${event.messageId}, ${event.body},
    ${event.traceparent} FROM ${from}`;
