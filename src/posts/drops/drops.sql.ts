import { draftIn, type EventDraft, insertEvents, withVersion } from "../../contracts/outbox.js";
import { type DropDetails, Visibility } from "../../gen/avion/posts.js";
import { DAY } from "../../kernel/time.js";
import { type Db, NOW } from "../../platform/db/db.js";
import { noneErased, notErased, rethrowErased } from "./erased.sql.js";
import { type Payload, storedPayload } from "./payload.js";

/** Lifetime of an idempotency key: within this time a key makes one drop. */
export const KEY_LIFETIME_MS = DAY;

/** A drop before it is stored. Fields and columns have the names of the wire. The id contains the time of creation. */
export type NewDrop = Omit<
  DropDetails,
  "revision" | "created_at" | "updated_at" | "repost_of" | "original" | "remote_original" | "mentions" | keyof Payload
> &
  Partial<Payload> & {
    readonly mentions?: readonly string[];
    /** The author of the drop that is replied to; unset if it is not known. */
    readonly reply_to_author?: string;
  };

/** The texts and recipients of a deleted drop are empty. Times are ms since the epoch. */
export type StoredDrop = Omit<DropDetails, "created_at" | "original" | "remote_original"> & {
  /** The id under which the original of a repost has reactions: that of a remote one is not its URI. */
  readonly original_key: string;
  /** The author of the original of a repost. */
  readonly repost_author: string;
  readonly reply_to_author: string;
  readonly deleted_at: number | null;
};

/** A position in the order (created_at, drop_id). The id may be any text. */
export interface Position {
  readonly createdAt: number;
  readonly id: string;
}

interface Edit extends Pick<NewDrop, "drop_id" | "user_id" | "summary" | "body">, Payload {
  readonly mentions: readonly string[];
  /** The revision that is edited; 0 accepts any. */
  readonly expected_revision: number;
  readonly edited: EventDraft;
}

interface RemoveOptions {
  readonly deleted: EventDraft;
  /** The event by which the parent has one reply fewer. */
  readonly withdrawn: EventDraft | undefined;
  /** The id under which the parent has reactions. */
  readonly parent: string | undefined;
}

export const dropColumns = (from = "d"): string =>
  `d.drop_id, d.user_id, d.visibility, d.recipients, coalesce(d.reply_to, '') AS reply_to,
   coalesce(d.repost_uri, d.repost_of::text, '') AS repost_of, coalesce(d.repost_of::text, '') AS original_key,
   coalesce(d.repost_author, '') AS repost_author, coalesce(d.reply_author, '') AS reply_to_author,
   ${from}.summary, ${from}.body, ${from}.revision, ${from}.updated_at, d.deleted_at,
   ${from === "d" ? "coalesce(d.mentions, '{}')" : "'{}'::text[]"} AS mentions,
   ${payloadColumns(from)}, ${from}.payload -> 'extra' AS extra`;

export const payloadColumns = (from: string): string =>
  `coalesce(${from}.payload -> 'attachments', '[]') AS attachments, coalesce(${from}.payload ->> 'language', '') AS language,
   ${from}.payload -> 'sensitive' IS NOT NULL AS sensitive`;

/**
 * A condition on a drop `d` by its own audience. The service checks blocks and originals afterwards. The viewer "" sees
 * only drops for everybody.
 */
export const maybeSeenBy = (viewer: string): string => `(
  d.visibility <= ${Visibility.UNLISTED} OR (${viewer}::text <> '' AND (
    d.visibility = ${Visibility.FOLLOWERS} OR d.user_id = ${viewer}::text OR ${viewer}::text = ANY (d.recipients)
  ))
)`;

/** Most drops mention nobody: null takes no room. */
export const mentionsOrNull = ({ mentions = [] }: Pick<NewDrop, "mentions">): readonly string[] | null =>
  mentions.length === 0 ? null : mentions;

/** Each change is one statement, and so all or nothing in one round trip. */
export function createDropWrites(db: Db) {
  return {
    dropOfKey: async (userId: string, key: string): Promise<string | undefined> => {
      const rows = await db.query<{ dropId: string }>(
        `SELECT drop_id AS "dropId" FROM posts.idempotency
         WHERE user_id = $1 AND key = $2 AND created_at >= ${NOW} - ${KEY_LIFETIME_MS}`,
        [userId, key],
      );
      return rows[0]?.dropId;
    },
    /**
     * Resolves to undefined if the author or revision is another or the author erased, or the drop is deleted or a
     * repost. @throws AppError `conflict` if somebody who is mentioned is erased
     */
    edit: async ({
      drop_id,
      user_id,
      summary,
      body,
      expected_revision,
      edited: event,
      ...edit
    }: Edit): Promise<StoredDrop | undefined> => {
      const content = [summary, body, expected_revision, mentionsOrNull(edit), storedPayload(edit)];
      const edited = db.query<StoredDrop>(EDIT, [drop_id, user_id, ...content, event]);
      return (await edited.catch((error) => rethrowErased(error, { user_id, mentions: edit.mentions })))[0];
    },
    /**
     * Replaces a drop by a tombstone. Resolves to false if it is not this author's, the author is erased, or it is
     * deleted already.
     */
    remove: async (drop: NewDrop, { deleted, withdrawn, parent }: RemoveOptions): Promise<boolean> =>
      (await db.query(REMOVE, [drop.drop_id, drop.user_id, deleted, parent, withdrawn])).length > 0,
  };
}

/** An assignment: a tombstone has no texts, and names nobody but its author. */
export const NOTHING_LEFT =
  "summary = '', body = '', recipients = '{}', mentions = NULL, payload = NULL, reply_author = NULL";

const REMOVE = `
WITH d AS (
  UPDATE posts.drops SET deleted_at = ${NOW}, changed_at = ${NOW}, ${NOTHING_LEFT}
  WHERE drop_id = $1 AND user_id = $2 AND deleted_at IS NULL AND ${notErased("$2")}
  RETURNING *
), versions AS (
  DELETE FROM posts.revisions WHERE drop_id = $1 AND EXISTS (SELECT FROM d)
), event AS (
  ${insertEvents("posts", draftIn("$3::json"), "d")}
), withdrawn AS (
  UPDATE posts.reactions r SET active = false, version = r.version + 1, changed_at = ${NOW}
  FROM d WHERE r.drop_id = $4 AND r.kind = 'reply' AND r.actor_id = d.drop_id::text AND r.active
  RETURNING r.version
), withdrawing AS (
  ${insertEvents("reactions", withVersion(draftIn("$5::json"), "version"), "withdrawn")}
)
SELECT FROM d`;

const EDITED = withVersion(draftIn("$8::json"), "revision");

/** An edit waits for the edits and deletions before it, and continues from their result. */
const EDIT = `
WITH before AS (
  SELECT drop_id, revision, summary, body, updated_at, payload FROM posts.drops
  WHERE drop_id = $1 AND user_id = $2 AND deleted_at IS NULL AND repost_of IS NULL
    AND ($5::integer = 0 OR revision = $5::integer) AND ${notErased("$2")} AND ${noneErased("$6::text[]")}
  FOR NO KEY UPDATE
), kept AS (
  INSERT INTO posts.revisions (drop_id, revision, summary, body, updated_at, payload) SELECT * FROM before
), d AS (
  UPDATE posts.drops d
  SET summary = $3, body = $4, mentions = $6::text[], payload = $7::json, revision = before.revision + 1,
    updated_at = greatest(${NOW}, before.updated_at)
  FROM before WHERE d.drop_id = $1 AND d.drop_id = before.drop_id
  RETURNING d.*
), event AS (
  ${insertEvents(
    "posts",
    {
      ...EDITED,
      body: `((${EDITED.body})::jsonb || jsonb_build_object('revision', revision, 'updated_at', updated_at))::text`,
    },
    "d",
  )}
)
SELECT ${dropColumns()} FROM d`;
