import { type EventDraft, insertEvents } from "../contracts/outbox.js";
import type { DropDetails } from "../gen/avion/posts.js";
import { createBatch } from "../kernel/sharing.js";
import { type Db, NOW } from "../platform/db/db.js";
import { SQLSTATE, sqlState } from "../platform/db/errors.js";
import { createdAtOf, monthOf } from "./ids.js";
import { KEY_LIFETIME_MS, type PartitionStore } from "./maintenance.sql.js";
import { isUri } from "./request.js";
import { dropColumns, Parameters, VERSION } from "./statement.js";

/** The fields of drops are named as on the wire, in the tables too. The id contains the time of creation. */
export type NewDrop = Omit<DropDetails, "revision" | "created_at" | "updated_at">;

/** The texts and recipients of a deleted drop are empty. Times are ms since the epoch. */
export type StoredDrop = Omit<DropDetails, "created_at"> & { readonly deleted_at: number | null };

interface Creation {
  readonly drop: NewDrop;
  readonly idempotencyKey: string;
  readonly created: EventDraft;
  readonly replied: EventDraft | undefined;
}

interface Edit extends Pick<NewDrop, "drop_id" | "user_id" | "summary" | "body"> {
  /** 0: any. */
  readonly expected_revision: number;
}

interface RemoveOptions {
  readonly deleted: EventDraft;
  /** Of a reply to a drop of this server, whose count of replies falls by one. */
  readonly withdrawn: EventDraft | undefined;
}

/** Drops that a statement creates at most. */
const CREATED_AT_ONCE = 100;

/** Each change is one statement, and so all or nothing in one round trip. */
export function createDropWrites(db: Db, partitions: Pick<PartitionStore, "make">) {
  return {
    /**
     * Resolves to false where the key has made a drop before, or the drop that is replied to does not exist. Drops that
     * are created while others are being committed share the next statement and its commit.
     */
    create: createBatch(CREATED_AT_ONCE, async (all: readonly Creation[]): Promise<boolean[]> => {
      const values = [JSON.stringify(all.map(rowOf))];
      const insert = () => db.query<{ key: string }>(createStatement(all), values);
      const made = await insert().catch(async (error: unknown) => {
        const [first, ...others] = all;
        if (!lacksPartition(error) || first === undefined || others.length > 0) throw error;
        await partitions.make(monthOf(createdAtOf(first.drop.drop_id)));
        return insert();
      });
      const keys = new Set(made.map(({ key }) => key));
      return all.map(({ drop }) => keys.has(drop.drop_id));
    }),
    dropOfKey: async (userId: string, key: string): Promise<string | undefined> => {
      const rows = await db.query<{ dropId: string }>(
        `SELECT drop_id AS "dropId" FROM posts.idempotency
         WHERE user_id = $1 AND key = $2 AND created_at >= ${NOW} - ${KEY_LIFETIME_MS}`,
        [userId, key],
      );
      return rows[0]?.dropId;
    },
    /** Undefined if the author or revision is another, or the drop is deleted. */
    edit: async ({ drop_id, user_id, summary, body, expected_revision }: Edit): Promise<StoredDrop | undefined> =>
      (await db.query<StoredDrop>(EDIT, [drop_id, user_id, summary, body, expected_revision]))[0],
    /** Replaces a drop by a tombstone; undefined if it is not this author's, or is deleted already. */
    remove: async (drop: NewDrop, options: RemoveOptions): Promise<StoredDrop | undefined> => {
      const { text, values } = removeStatement(drop, options);
      return (await db.query<StoredDrop>(text, values))[0];
    },
  };
}

const isLocal = ({ reply_to }: NewDrop): boolean => reply_to !== "" && !isUri(reply_to);
const isRemote = ({ reply_to }: NewDrop): boolean => reply_to !== "" && isUri(reply_to);

const rowOf = ({ drop, idempotencyKey, created, replied }: Creation) => ({
  ...drop,
  reply_to: drop.reply_to || null,
  parent: isLocal(drop) ? drop.reply_to : null,
  remote: isRemote(drop) ? drop.reply_to : null,
  key: idempotencyKey || null,
  updated_at: createdAtOf(drop.drop_id),
  created,
  replied,
});

const ROWS = `SELECT * FROM json_to_recordset($1::json) AS row (
  drop_id uuid, user_id text, reply_to text, parent uuid, remote text, key text, summary text, body text, visibility smallint,
  recipients text[], updated_at bigint, created json, replied json)`;

/**
 * Gates leave out rows: the drop that is replied to exists, and is not deleted before this commits (FOR SHARE); the key
 * is not taken. A statement has the gates that its rows need.
 */
function createStatement(all: readonly Creation[]): string {
  const gates: string[] = [];
  const parts = [`w AS (${ROWS})`];
  if (all.some(({ drop }) => isLocal(drop))) {
    parts.push(`parents AS (
      SELECT drop_id FROM posts.drops WHERE drop_id = ANY (ARRAY(SELECT parent FROM w)) AND deleted_at IS NULL
      ORDER BY drop_id FOR SHARE
    )`);
    gates.push("(parent IS NULL OR parent IN (SELECT drop_id FROM parents))");
  }
  if (all.some(({ drop }) => isRemote(drop))) {
    parts.push(`remotes AS (
      SELECT uri FROM posts.remote_objects
      WHERE uri = ANY (ARRAY(SELECT remote COLLATE "C" FROM w)) AND kind = 1 AND deleted_at IS NULL
    )`);
    gates.push('(remote IS NULL OR remote COLLATE "C" IN (SELECT uri FROM remotes))');
  }
  if (all.some(({ idempotencyKey }) => idempotencyKey !== "")) {
    parts.push(`claims AS (
      INSERT INTO posts.idempotency AS i (user_id, key, drop_id, created_at)
      SELECT DISTINCT ON (user_id, key) user_id, key, drop_id, ${NOW} FROM w ${where([...gates, "key IS NOT NULL"])}
      ORDER BY user_id, key, drop_id
      ON CONFLICT (user_id, key) DO UPDATE SET drop_id = excluded.drop_id, created_at = excluded.created_at
        WHERE i.created_at < ${NOW} - ${KEY_LIFETIME_MS}
      RETURNING drop_id
    )`);
    gates.push("(key IS NULL OR drop_id IN (SELECT drop_id FROM claims))");
  }
  parts.push(`made AS (
    INSERT INTO posts.drops (drop_id, user_id, reply_to, summary, body, visibility, recipients, updated_at, changed_at)
    SELECT drop_id, user_id, reply_to, summary, body, visibility, recipients, updated_at, ${NOW} FROM w ${where(gates)}
    RETURNING drop_id
  )`);
  if (all.some(({ replied }) => replied !== undefined)) {
    parts.push(`replies AS (
      INSERT INTO posts.reactions (drop_id, kind, actor_id, active, version, changed_at)
      SELECT parent, 'reply', drop_id::text, true, 1, ${NOW} FROM w JOIN made USING (drop_id) WHERE replied IS NOT NULL
      RETURNING actor_id, version
    )`);
    parts.push(`replying AS (${eventOf("replied", "w JOIN replies ON actor_id::uuid = drop_id", VERSION)})`);
  }
  return `WITH ${parts.join(", ")} ${eventOf("created", "w JOIN made USING (drop_id)")} RETURNING key`;
}

const where = (gates: readonly string[]): string => (gates.length === 0 ? "" : `WHERE ${gates.join(" AND ")}`);

/** Inserts the event in a column of the rows; `suffix` is added to the message id. */
function eventOf(column: "created" | "replied", from: string, suffix = "''"): string {
  const field = (name: keyof EventDraft): string => `${column} ->> '${name}'`;
  const [owner, key, subject, body, traceparent] = (["owner", "key", "subject", "body", "traceparent"] as const).map(
    field,
  ) as [string, string, string, string, string];
  const messageId = `(${field("messageId")}) || ${suffix}`;
  return insertEvents("posts", { owner, key, subject, messageId, body, traceparent }, from);
}

function removeStatement({ drop_id, user_id, reply_to }: NewDrop, { deleted, withdrawn }: RemoveOptions) {
  const parameters = new Parameters();
  const id = parameters.add(drop_id, "uuid");
  const author = parameters.add(user_id, "text");
  const parts = [
    `d AS (
      UPDATE posts.drops SET deleted_at = ${NOW}, changed_at = ${NOW}, summary = '', body = '', recipients = '{}'
      WHERE drop_id = ${id} AND user_id = ${author} AND deleted_at IS NULL
      RETURNING *
    )`,
    `versions AS (DELETE FROM posts.revisions WHERE drop_id = ${id} AND EXISTS (SELECT FROM d))`,
    `event AS (${parameters.insertEvent(deleted, "d")})`,
  ];
  if (withdrawn !== undefined) {
    const parent = parameters.add(reply_to, "uuid");
    parts.push(
      `withdrawn AS (
        UPDATE posts.reactions r SET active = false, version = r.version + 1, changed_at = ${NOW}
        FROM d WHERE r.drop_id = ${parent} AND r.kind = 'reply' AND r.actor_id = d.drop_id::text AND r.active
        RETURNING r.version
      )`,
      `withdrawing AS (${parameters.insertEvent(withdrawn, "withdrawn", VERSION)})`,
    );
  }
  return { text: `WITH ${parts.join(", ")} SELECT ${dropColumns()} FROM d`, values: parameters.values };
}

/** An edit waits for the edits and deletions before it, and continues from their result. */
const EDIT = `
WITH before AS (
  SELECT drop_id, revision, summary, body, updated_at FROM posts.drops
  WHERE drop_id = $1 AND user_id = $2 AND deleted_at IS NULL AND ($5::integer = 0 OR revision = $5::integer)
  FOR NO KEY UPDATE
), kept AS (
  INSERT INTO posts.revisions (drop_id, revision, summary, body, updated_at) SELECT * FROM before
)
UPDATE posts.drops d
SET summary = $3, body = $4, revision = before.revision + 1, updated_at = greatest(${NOW}, before.updated_at)
FROM before WHERE d.drop_id = $1 AND d.drop_id = before.drop_id
RETURNING ${dropColumns()}`;

/** A CHECK names its constraint; a missing partition has none. */
function lacksPartition(error: unknown): boolean {
  const { constraint } = error as { constraint?: string };
  return sqlState(error) === SQLSTATE.checkViolation && (constraint ?? "") === "";
}
