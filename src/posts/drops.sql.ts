import type { EventDraft } from "../contracts/outbox.js";
import type { DropDetails } from "../gen/avion/posts.js";
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

interface CreateOptions {
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

/** Each change is one statement, and so all or nothing in one round trip. */
export function createDropWrites(db: Db, partitions: Pick<PartitionStore, "make">) {
  return {
    /** Resolves to false where the key has made a drop before, or the drop that is replied to does not exist. */
    create: async (drop: NewDrop, options: CreateOptions): Promise<boolean> => {
      const { text, values } = createStatement(drop, options);
      const insert = (): Promise<unknown[]> => db.query(text, values);
      const made = await insert().catch(async (error: unknown) => {
        if (!lacksPartition(error)) throw error;
        await partitions.make(monthOf(createdAtOf(drop.drop_id)));
        return insert();
      });
      return made.length > 0;
    },
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

/**
 * The gates let one row through, or none: the drop that is replied to exists, and is not deleted before this commits (FOR
 * SHARE); the key is not taken. All other parts select from that row.
 */
function createStatement(drop: NewDrop, { idempotencyKey, created, replied }: CreateOptions) {
  const parameters = new Parameters();
  const id = parameters.add(drop.drop_id, "uuid");
  const author = parameters.add(drop.user_id, "text");
  const replyTo = parameters.add(drop.reply_to === "" ? null : drop.reply_to, "text");
  const gates: string[] = [];
  const parts: string[] = [];
  const fromGates = (): string => (gates.length === 0 ? "" : `FROM ${gates.join(", ")}`);
  if (drop.reply_to !== "") {
    const parent = isUri(drop.reply_to) ? remoteParent(replyTo) : localParent(parameters.add(drop.reply_to, "uuid"));
    parts.push(`parent AS (${parent})`);
    gates.push("parent");
  }
  if (idempotencyKey !== "") {
    const key = parameters.add(idempotencyKey, "text");
    parts.push(`claim AS (
      INSERT INTO posts.idempotency AS i (user_id, key, drop_id, created_at)
      SELECT ${author}, ${key}, ${id}, ${NOW} ${fromGates()}
      ON CONFLICT (user_id, key) DO UPDATE SET drop_id = excluded.drop_id, created_at = excluded.created_at
        WHERE i.created_at < ${NOW} - ${KEY_LIFETIME_MS}
      RETURNING 1
    )`);
    gates.push("claim");
  }
  const texts = `${parameters.add(drop.summary, "text")}, ${parameters.add(drop.body, "text")}`;
  const seen = `${parameters.add(drop.visibility, "smallint")}, ${parameters.add(drop.recipients, "text[]")}`;
  const createdAt = parameters.add(createdAtOf(drop.drop_id), "bigint");
  parts.push(`made AS (
    INSERT INTO posts.drops (drop_id, user_id, reply_to, summary, body, visibility, recipients, updated_at, changed_at)
    SELECT ${id}, ${author}, ${replyTo}, ${texts}, ${seen}, ${createdAt}, ${NOW} ${fromGates()}
    RETURNING drop_id
  )`);
  if (replied !== undefined) {
    parts.push(`reply AS (
      INSERT INTO posts.reactions (drop_id, kind, actor_id, active, version, changed_at)
      SELECT parent.drop_id, 'reply', made.drop_id::text, true, 1, ${NOW} FROM parent, made
      RETURNING version
    )`);
    parts.push(`replying AS (${parameters.insertEvent(replied, "reply", VERSION)})`);
  }
  const text = `WITH ${parts.join(", ")} ${parameters.insertEvent(created, "made")} RETURNING key`;
  return { text, values: parameters.values };
}

const localParent = (id: string): string =>
  `SELECT drop_id FROM posts.drops WHERE drop_id = ${id} AND deleted_at IS NULL FOR SHARE`;
const remoteParent = (uri: string): string =>
  `SELECT FROM posts.remote_objects WHERE uri = ${uri} AND kind = 1 AND deleted_at IS NULL`;

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
