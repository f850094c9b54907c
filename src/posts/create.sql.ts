import { type EventDraft, insertEvents } from "../contracts/outbox.js";
import { type Db, NOW } from "../platform/db/db.js";
import { SQLSTATE, sqlState } from "../platform/db/errors.js";
import { createSharedWrites, givenRows } from "../platform/db/shared-writes.js";
import type { NewDrop } from "./drops.sql.js";
import { createdAtOf, monthOf } from "./ids.js";
import { KEY_LIFETIME_MS, type PartitionStore } from "./maintenance.sql.js";
import { isUri } from "./request.js";
import { VERSION } from "./statement.js";

interface Creation {
  readonly drop: NewDrop;
  readonly idempotencyKey: string;
  readonly created: EventDraft;
  readonly replied: EventDraft | undefined;
}

/**
 * Resolves to false where the key has made a drop before, or the drop that is replied to does not exist. Drops that
 * are created while others are being committed share the next statement and its commit.
 */
export function createCreation(db: Db, partitions: Pick<PartitionStore, "make">) {
  return createSharedWrites(async (all: readonly Creation[]): Promise<boolean[]> => {
    const rows = all.map(rowOf);
    const plain = rows.every(({ reply_to, key }) => reply_to === undefined && key === undefined);
    const { parts, values } = plain ? givenPlain(rows) : givenConditional(rows);
    const text = plain ? plainStatement(parts) : conditionalStatement(parts, rows);
    const insert = () => db.query<{ key: string }>(text, values);
    const made = await insert().catch(async (error: unknown) => {
      const [first, ...others] = all;
      if (!lacksPartition(error) || first === undefined || others.length > 0) throw error;
      await partitions.make(monthOf(createdAtOf(first.drop.drop_id)));
      return insert();
    });
    if (plain) return all.map(() => true);
    const keys = new Set(made.map(({ key }) => key));
    return all.map(({ drop }) => keys.has(drop.drop_id));
  });
}

/** A CHECK names its constraint; a missing partition has none. */
function lacksPartition(error: unknown): boolean {
  const { constraint } = error as { constraint?: string };
  return sqlState(error) === SQLSTATE.checkViolation && (constraint ?? "") === "";
}

const isLocal = ({ reply_to }: NewDrop): boolean => reply_to !== "" && !isUri(reply_to);
const isRemote = ({ reply_to }: NewDrop): boolean => reply_to !== "" && isUri(reply_to);

const rowOf = ({ drop, idempotencyKey, created, replied }: Creation) => ({
  drop_id: drop.drop_id,
  user_id: drop.user_id,
  reply_to: drop.reply_to || undefined,
  parent: isLocal(drop) ? drop.reply_to : undefined,
  remote: isRemote(drop) ? drop.reply_to : undefined,
  key: idempotencyKey || undefined,
  summary: drop.summary,
  body: drop.body,
  visibility: drop.visibility,
  recipients: drop.recipients,
  updated_at: createdAtOf(drop.drop_id),
  created_owner: created.owner,
  created_key: created.key,
  created_subject: created.subject,
  created_message_id: created.messageId,
  created_body: created.body,
  created_traceparent: created.traceparent,
  replied_owner: replied?.owner,
  replied_key: replied?.key,
  replied_subject: replied?.subject,
  replied_message_id: replied?.messageId,
  replied_body: replied?.body,
  replied_traceparent: replied?.traceparent,
});

type Row = ReturnType<typeof rowOf>;

const PLAIN = {
  drop_id: "uuid",
  user_id: "text",
  reply_to: "text",
  summary: "text",
  body: "text",
  visibility: "smallint",
  recipients: "text[]",
  updated_at: "bigint",
  created_owner: "text",
  created_key: "text",
  created_subject: "text",
  created_message_id: "text",
  created_body: "text",
  created_traceparent: "text",
} as const;

const givenPlain = givenRows(PLAIN);

const givenConditional = givenRows({
  ...PLAIN,
  parent: "uuid",
  remote: "text",
  key: "text",
  replied_owner: "text",
  replied_key: "text",
  replied_subject: "text",
  replied_message_id: "text",
  replied_body: "text",
  replied_traceparent: "text",
});

/** Drops that reply to nothing and have no key are all inserted: returning them would cost more than a condition. */
const plainStatement = (given: string): string =>
  `WITH ${given}, made AS (${insertDrops("")}) ${insertEvent("created", "w")}`;

/**
 * The statement has the conditions that its rows need: the drop that is replied to exists, and is not deleted before
 * this commits (FOR SHARE); the key is not taken.
 */
function conditionalStatement(given: string, rows: readonly Row[]): string {
  const parts = [given];
  const conditions: string[] = [];
  if (rows.some(({ parent }) => parent !== undefined)) {
    parts.push(`parents AS (
      SELECT drop_id FROM posts.drops WHERE drop_id = ANY (ARRAY(SELECT parent FROM w)) AND deleted_at IS NULL
      ORDER BY drop_id FOR SHARE
    )`);
    conditions.push("(parent IS NULL OR parent IN (SELECT drop_id FROM parents))");
  }
  if (rows.some(({ remote }) => remote !== undefined)) {
    parts.push(`remotes AS (
      SELECT uri FROM posts.remote_objects
      WHERE uri = ANY (ARRAY(SELECT remote COLLATE "C" FROM w)) AND kind = 1 AND deleted_at IS NULL
    )`);
    conditions.push('(remote IS NULL OR remote COLLATE "C" IN (SELECT uri FROM remotes))');
  }
  if (rows.some(({ key }) => key !== undefined)) {
    parts.push(`claims AS (
      INSERT INTO posts.idempotency AS i (user_id, key, drop_id, created_at)
      SELECT DISTINCT ON (user_id, key) user_id, key, drop_id, ${NOW} FROM w ${where([...conditions, "key IS NOT NULL"])}
      ORDER BY user_id, key, drop_id
      ON CONFLICT (user_id, key) DO UPDATE SET drop_id = excluded.drop_id, created_at = excluded.created_at
        WHERE i.created_at < ${NOW} - ${KEY_LIFETIME_MS}
      RETURNING drop_id
    )`);
    conditions.push("(key IS NULL OR drop_id IN (SELECT drop_id FROM claims))");
  }
  parts.push(`made AS (${insertDrops(where(conditions))} RETURNING drop_id)`);
  if (rows.some(({ replied_subject }) => replied_subject !== undefined)) {
    parts.push(`replies AS (
      INSERT INTO posts.reactions (drop_id, kind, actor_id, active, version, changed_at)
      SELECT parent, 'reply', drop_id::text, true, 1, ${NOW} FROM w JOIN made USING (drop_id) WHERE replied_subject IS NOT NULL
      RETURNING actor_id, version
    )`);
    parts.push(`replying AS (${insertEvent("replied", "w JOIN replies ON actor_id::uuid = drop_id", VERSION)})`);
  }
  return `WITH ${parts.join(", ")} ${insertEvent("created", "w JOIN made USING (drop_id)")} RETURNING key`;
}

const insertDrops = (condition: string): string => `
  INSERT INTO posts.drops (drop_id, user_id, reply_to, summary, body, visibility, recipients, updated_at, changed_at)
  SELECT drop_id, user_id, reply_to, summary, body, visibility, recipients, updated_at, ${NOW} FROM w ${condition}`;

const where = (conditions: readonly string[]): string =>
  conditions.length === 0 ? "" : `WHERE ${conditions.join(" AND ")}`;

/** Inserts an event of the rows; `suffix` is added to its message id. */
const insertEvent = (event: "created" | "replied", from: string, suffix = "''"): string =>
  insertEvents(
    event === "created" ? "posts" : "reactions",
    {
      owner: `${event}_owner`,
      key: `${event}_key`,
      subject: `${event}_subject`,
      messageId: `${event}_message_id || ${suffix}`,
      body: `${event}_body`,
      traceparent: `${event}_traceparent`,
    },
    from,
  );
