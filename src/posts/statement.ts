import type { EventDraft } from "./ports.js";

/** Now by the database's clock, in ms since the epoch. */
export const NOW = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint";

/** Where events are written to be published; see the outbox's migrations. */
const OUTBOX = "public.outbox (source, owner, key, subject, message_id, body, traceparent)";

/** The columns of a drop, as `StoredDrop` names them; `from` is the table its text is taken from. */
export const dropColumns = (from = "d"): string =>
  `d.drop_id AS "dropId", d.user_id AS "userId", d.visibility, d.recipients, coalesce(d.reply_to, '') AS "replyTo",
   ${from}.summary, ${from}.body, ${from}.revision, ${from}.updated_at AS "updatedAt", d.deleted_at AS "deletedAt"`;

/** What a reaction's event has behind its message id. */
export const VERSION = "':' || version";

/** A statement with its parameters; its text is the same for all of its shape, so that it is prepared once. */
export interface Statement {
  readonly text: string;
  readonly values: readonly unknown[];
}

/** Collects the parameters of a statement while its text is written. */
export class Parameters {
  readonly values: unknown[] = [];

  /** Adds a value; returns how the text names it. */
  add(value: unknown, type: string): string {
    this.values.push(value);
    return `$${this.values.length}::${type}`;
  }

  /** An INSERT of an event for each row of a table expression; `suffix` is added to the message id. */
  insertEvent(event: EventDraft, from: string, suffix = "''"): string {
    const owner = this.add(event.owner, "text");
    const key = this.add(event.key, "text");
    const subject = this.add(event.subject, "text");
    const messageId = this.add(event.messageId, "text");
    const body = this.add(event.body, "text");
    const traceparent = this.add(event.traceparent ?? null, "text");
    return `INSERT INTO ${OUTBOX}
      SELECT 'posts', ${owner}, ${key}, ${subject}, ${messageId} || ${suffix}, ${body}, ${traceparent} FROM ${from}`;
  }
}
