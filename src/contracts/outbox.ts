/**
 * Each has relays of its own, so that a stream that takes nothing delays no event of another stream: those of `posts` and
 * `users` go to DROPS, those of `edges` to EDGES, those of `reactions` to ENGAGEMENT.
 */
export type OutboxSource = "posts" | "reactions" | "users" | "edges";

/**
 * The newest event of a key stands for those before it: an edge is as its newest version says, and a reaction is
 * counted as its row is.
 */
export const NEWEST_COUNTS: ReadonlySet<OutboxSource> = new Set(["reactions", "edges"]);

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

export interface OutboxEvent {
  readonly id: number;
  readonly key: string;
  readonly subject: string;
  readonly messageId: string;
  readonly body: string;
  readonly traceparent?: string | null | undefined;
  readonly createdAt: number;
}

/** The columns of a draft that a statement reads from JSON. */
const DRAFT = `(owner text, key text, subject text, "messageId" text, body text, traceparent text)`;

/** Returns the row `e` of a table expression: a draft that is passed as JSON. */
export const draftIn = (json: string): string => `json_to_record(${json}::json) AS e ${DRAFT}`;

/** Returns the rows `e` of a table expression: drafts that are passed as a JSON array. */
export const draftsIn = (json: string): string => `json_to_recordset(${json}::json) AS e ${DRAFT}`;

/**
 * Returns an INSERT of the event of each row of a table expression, whose rows `e` are drafts. The fields of `computed`
 * are SQL expressions over such a row.
 */
export function insertEvents(
  source: OutboxSource,
  from: string,
  computed: { readonly owner?: string; readonly messageId?: string; readonly body?: string } = {},
): string {
  const { owner = "e.owner", messageId = 'e."messageId"', body = "e.body" } = computed;
  return `
    INSERT INTO public.outbox (source, owner, key, subject, message_id, body, traceparent)
    SELECT '${source}', ${owner}, e.key, e.subject, ${messageId}, ${body}, e.traceparent FROM ${from}`;
}

/** The message id of an event ends with the version of a row. */
export const messageIdOf = (version: string): string => `e."messageId" || ':' || ${version}`;
