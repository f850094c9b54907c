/** An event to be written in the same statement as the change it describes. */
export interface EventDraft {
  /** Owners are published in turn, so that very many events of one do not hold up the others'. */
  readonly owner: string;
  /** Events of one key are published in the order they were written. */
  readonly key: string;
  readonly subject: string;
  /** `Nats-Msg-Id` */
  readonly messageId: string;
  /** JSON */
  readonly body: string;
  readonly traceparent: string | undefined;
}

/** An event of the outbox, as it is published. */
export interface OutboxEvent {
  readonly id: number;
  readonly key: string;
  readonly subject: string;
  readonly messageId: string;
  readonly body: string;
  readonly traceparent?: string | undefined;
  /** ms since the epoch, by the database's clock. */
  readonly createdAt: number;
}

/**
 * The only way into the outbox: an INSERT of an event for each row of a table expression, to be one part of a larger
 * statement. The fields of `event` are SQL expressions over that row.
 */
export const insertEvents = (
  source: "posts" | "users",
  event: Readonly<Record<keyof EventDraft, string>>,
  from: string,
): string => `
  INSERT INTO public.outbox (source, owner, key, subject, message_id, body, traceparent)
  SELECT '${source}', ${event.owner}, ${event.key}, ${event.subject}, ${event.messageId}, ${event.body},
    ${event.traceparent} FROM ${from}`;
