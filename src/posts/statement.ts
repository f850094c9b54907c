import { type EventDraft, insertEvents, type OutboxSource } from "../contracts/outbox.js";

export const dropColumns = (from = "d"): string =>
  `d.drop_id, d.user_id, d.visibility, d.recipients, coalesce(d.reply_to, '') AS reply_to,
   ${from}.summary, ${from}.body, ${from}.revision, ${from}.updated_at, d.deleted_at`;

/** The message id of a reaction's event ends with this. */
export const VERSION = "':' || version";

/** Values are passed as parameters, so that all statements of one shape have the same text, which is prepared once. */
export class Parameters {
  readonly values: unknown[] = [];

  add(value: unknown, type: string): string {
    this.values.push(value);
    return `$${this.values.length}::${type}`;
  }

  /** Returns an INSERT of the event of a drop for each row of a table expression. */
  insertEvent(event: EventDraft, from: string): string {
    return this.#insert("posts", event, from, "''");
  }

  /** Returns an INSERT of the event of a reaction, whose version is added to the message id. */
  insertReaction(event: EventDraft, from: string): string {
    return this.#insert("reactions", event, from, VERSION);
  }

  #insert(source: OutboxSource, event: EventDraft, from: string, suffix: string): string {
    const text = (value: string | undefined): string => this.add(value ?? null, "text");
    const columns = {
      owner: text(event.owner),
      key: text(event.key),
      subject: text(event.subject),
      messageId: `${text(event.messageId)} || ${suffix}`,
      body: text(event.body),
      traceparent: text(event.traceparent),
    };
    return insertEvents(source, columns, from);
  }
}
