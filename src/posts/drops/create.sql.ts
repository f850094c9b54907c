import { draftIn, type EventDraft, insertEvents, withVersion } from "../../contracts/outbox.js";
import { type Db, NOW } from "../../platform/db/db.js";
import { SQLSTATE, sqlState } from "../../platform/db/errors.js";
import { createSharedWrites, statementOf } from "../../platform/db/shared-writes.js";
import { KEY_LIFETIME_MS, mentionsOrNull, type NewDrop } from "./drops.sql.js";
import { noneErased, rethrowErased } from "./erased.sql.js";
import { createdAtOf, monthOf } from "./ids.js";
import type { PartitionStore } from "./partitions.sql.js";
import { storedPayload } from "./payload.js";
import { isUri } from "./request.js";

interface Creation {
  readonly drop: NewDrop;
  readonly idempotencyKey: string;
  readonly created: EventDraft;
  readonly replied: EventDraft | undefined;
  /** The id under which a remote drop that is replied to has reactions. */
  readonly parentKey?: string | undefined;
}

/**
 * Resolves to false if the key has made a drop before, or the drop that is replied to does not exist. @throws
 * AppError `conflict` if the author or a recipient is erased
 */
export function createCreation(db: Db, partitions: Pick<PartitionStore, "make">) {
  return createSharedWrites(async (all: readonly Creation[]): Promise<boolean[]> => {
    const rows = all.map(rowOf);
    const isReply = rows.some(({ reply_to }) => reply_to !== undefined);
    const plain = !isReply && rows.every(({ idempotency_key }) => idempotency_key === undefined);
    const { text, values } = plain ? insertPlain(rows) : isReply ? insertReplies(rows) : insertKeyed(rows);
    const insert = () => db.query<{ key: string }>(text, values);
    const [first, ...others] = all;
    const isOne = first !== undefined && others.length === 0;
    const made = await (isOne
      ? inItsMonth(partitions, first.drop.drop_id, insert).catch((error) => rethrowErased(error, first.drop))
      : insert());
    if (plain) return all.map(() => true);
    const keys = new Set(made.map(({ key }) => key));
    return all.map(({ drop }) => keys.has(drop.drop_id));
  });
}

/** Runs the insert of a drop, and again once its month is made, if the month is missing. */
export async function inItsMonth<Result>(
  partitions: Pick<PartitionStore, "make">,
  dropId: string,
  insert: () => Promise<Result>,
): Promise<Result> {
  return insert().catch(async (error: unknown) => {
    if (!lacksPartition(error)) throw error;
    await partitions.make(monthOf(createdAtOf(dropId)));
    return insert();
  });
}

/** A CHECK names its constraint; a missing partition has none. */
function lacksPartition(error: unknown): boolean {
  const { constraint } = error as { constraint?: string };
  return sqlState(error) === SQLSTATE.checkViolation && (constraint ?? "") === "";
}

function rowOf({ drop, idempotencyKey, created, replied, parentKey }: Creation) {
  const { drop_id, user_id, visibility, recipients, reply_to, summary, body } = drop;
  const isRemote = isUri(reply_to);
  return {
    drop_id,
    user_id,
    visibility,
    recipients,
    summary,
    body,
    reply_to: reply_to || undefined,
    reply_author: drop.reply_to_author || undefined,
    mentions: mentionsOrNull(drop),
    payload: storedPayload(drop),
    remote_parent: isRemote ? reply_to : undefined,
    local_parent: isRemote ? undefined : reply_to || undefined,
    idempotency_key: idempotencyKey || undefined,
    updated_at: createdAtOf(drop.drop_id),
    event_owner: created.owner,
    event_key: created.key,
    event_subject: created.subject,
    event_message_id: created.messageId,
    event_body: created.body,
    event_traceparent: created.traceparent,
    replied,
    parent_key: parentKey ?? (isRemote ? undefined : reply_to || undefined),
  };
}

const PLAIN = {
  drop_id: "uuid",
  user_id: "text",
  reply_to: "text",
  summary: "text",
  body: "text",
  visibility: "smallint",
  recipients: "text[]",
  reply_author: "text",
  mentions: "text[]",
  payload: "json",
  updated_at: "bigint",
  event_owner: "text",
  event_key: "text",
  event_subject: "text",
  event_message_id: "text",
  event_body: "text",
  event_traceparent: "text",
} as const;

/** Columns cost less than JSON, and every creation has this event. */
const CREATED = {
  owner: "event_owner",
  key: "event_key",
  subject: "event_subject",
  messageId: "event_message_id",
  body: "event_body",
  traceparent: "event_traceparent",
};

const PEOPLE =
  "ARRAY(SELECT user_id FROM w UNION ALL SELECT unnest(recipients) FROM w UNION ALL SELECT unnest(mentions) FROM w)";

const insertDrops = (condition = "true"): string => `
  INSERT INTO posts.drops (drop_id, user_id, reply_to, summary, body, visibility, recipients, reply_author, mentions,
    payload, updated_at, changed_at)
  SELECT drop_id, user_id, reply_to, summary, body, visibility, recipients, reply_author, mentions,
    payload, updated_at, ${NOW} FROM w
  WHERE ${noneErased(PEOPLE)} AND ${condition}`;

/** Drops that reply to nothing and have no key are all inserted: returning them would cost more than a condition. */
const insertPlain = statementOf(
  PLAIN,
  (given) => `WITH ${given}, made AS (${insertDrops()}) ${insertEvents("posts", CREATED, "w")}`,
);

const PARENT_EXISTS = `(local_parent IS NULL OR local_parent IN (SELECT drop_id FROM parents))
  AND (remote_parent IS NULL OR remote_parent COLLATE "C" IN (SELECT uri FROM remotes))`;

const PARENTS = `parents AS (
  SELECT drop_id FROM posts.drops
  WHERE drop_id = ANY (ARRAY(SELECT local_parent FROM w)) AND deleted_at IS NULL AND repost_of IS NULL
  ORDER BY drop_id FOR SHARE
), remotes AS (
  SELECT uri FROM posts.remote_objects
  WHERE uri = ANY (ARRAY(SELECT remote_parent COLLATE "C" FROM w)) AND kind = 1 AND deleted_at IS NULL
  ORDER BY uri FOR SHARE
)`;

const REPLIES = `replies AS (
  INSERT INTO posts.reactions (drop_id, kind, actor_id, active, version, changed_at)
  SELECT parent_key, 'reply', drop_id::text, true, 1, ${NOW} FROM w JOIN made USING (drop_id)
  WHERE replied IS NOT NULL AND parent_key IS NOT NULL
  RETURNING actor_id, version
), replying AS (
  ${insertEvents("reactions", withVersion(draftIn("replied"), "version"), "w JOIN replies ON actor_id::uuid = drop_id")}
)`;

/**
 * Inserts drops whose key is not taken, and whose parent exists and is no repost. FOR SHARE keeps the parent from being
 * deleted before the commit.
 */
const insertWhere = (replies: boolean) =>
  statementOf(
    {
      ...PLAIN,
      local_parent: "uuid",
      remote_parent: "text",
      parent_key: "uuid",
      idempotency_key: "text",
      replied: "json",
    },
    (given) => `
  WITH ${given}, ${replies ? `${PARENTS}, ` : ""} claims AS (
    INSERT INTO posts.idempotency AS i (user_id, key, drop_id, created_at)
    SELECT DISTINCT ON (user_id, idempotency_key) user_id, idempotency_key, drop_id, ${NOW} FROM w
    WHERE idempotency_key IS NOT NULL ${replies ? `AND ${PARENT_EXISTS}` : ""}
    ORDER BY user_id, idempotency_key, drop_id
    ON CONFLICT (user_id, key) DO UPDATE SET drop_id = excluded.drop_id, created_at = excluded.created_at
      WHERE i.created_at < ${NOW} - ${KEY_LIFETIME_MS}
    RETURNING drop_id
  ), made AS (
    ${insertDrops(
      `(idempotency_key IS NULL OR drop_id IN (SELECT drop_id FROM claims)) ${replies ? `AND ${PARENT_EXISTS}` : ""}`,
    )} RETURNING drop_id
  ) ${replies ? `, ${REPLIES}` : ""}
  ${insertEvents("posts", CREATED, "w JOIN made USING (drop_id)")} RETURNING key`,
  );

const insertKeyed = insertWhere(false);
const insertReplies = insertWhere(true);
