import { type Db, SQLSTATE, sqlState } from "../platform/db/db.js";
import { createStatement, KEY_LIFETIME_MS } from "./create-statement.js";
import { createdAtOf } from "./drop-ids.js";
import { monthOf } from "./months.js";
import type { DropStore, PartitionStore, Removal, StoredDrop } from "./ports.js";
import { dropColumns, NOW, Parameters, type Statement, VERSION } from "./statement.js";

type Writes = Pick<DropStore, "create" | "dropOfKey" | "edit" | "remove">;

/** What changes drops. Each change is one statement, and so all or nothing in one round trip. */
export function createDropWrites(db: Db, partitions: Pick<PartitionStore, "make">): Writes {
  return {
    create: async (drop, options) => {
      const { text, values } = createStatement(drop, options);
      const insert = (): Promise<unknown[]> => db.query(text, values);
      const made = await insert().catch(async (error: unknown) => {
        if (!lacksPartition(error)) throw error;
        await partitions.make(monthOf(createdAtOf(drop.dropId)));
        return insert();
      });
      return made.length > 0;
    },
    dropOfKey: async (userId, key) => {
      const rows = await db.query<{ dropId: string }>(
        `SELECT drop_id AS "dropId" FROM posts.idempotency
         WHERE user_id = $1 AND key = $2 AND created_at >= ${NOW} - ${KEY_LIFETIME_MS}`,
        [userId, key],
      );
      return rows[0]?.dropId;
    },
    edit: async ({ dropId, userId, summary, body, expectedRevision }) => {
      const rows = await db.query<StoredDrop>(EDIT, [dropId, userId, summary, body, expectedRevision]);
      return rows[0];
    },
    remove: async (removal) => {
      const { text, values } = removeStatement(removal);
      return (await db.query<StoredDrop>(text, values))[0];
    },
  };
}

function removeStatement({ dropId, userId, deleted, withdrawn }: Removal): Statement {
  const parameters = new Parameters();
  const id = parameters.add(dropId, "uuid");
  const author = parameters.add(userId, "text");
  const parts = [
    `d AS (
      UPDATE posts.drops SET deleted_at = ${NOW}, changed_at = ${NOW}, summary = '', body = '', recipients = '{}'
      WHERE drop_id = ${id} AND user_id = ${author} AND deleted_at IS NULL
      RETURNING *
    )`,
    `versions AS (DELETE FROM posts.revisions WHERE drop_id = ${id} AND EXISTS (SELECT FROM d))`,
    `told AS (${parameters.insertEvent(deleted, "d")})`,
  ];
  if (withdrawn !== undefined) {
    const parent = parameters.add(withdrawn.parentId, "uuid");
    parts.push(
      `withdrawn AS (
        UPDATE posts.reactions r SET active = false, version = r.version + 1, changed_at = ${NOW}
        FROM d WHERE r.drop_id = ${parent} AND r.kind = 'reply' AND r.actor_id = d.drop_id::text AND r.active
        RETURNING r.version
      )`,
      `withdrawing AS (${parameters.insertEvent(withdrawn.event, "withdrawn", VERSION)})`,
    );
  }
  return { text: `WITH ${parts.join(", ")} SELECT ${dropColumns()} FROM d`, values: parameters.values };
}

/** Who edits waits for who edits or deletes before, and goes on with what that left. */
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
