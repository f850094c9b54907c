import { draftIn, type EventDraft, insertEvents } from "../../contracts/outbox.js";
import type { Db } from "../../platform/db/db.js";
import type { Addressing } from "../drops/addressing.js";
import { REMOTE_COLUMNS, type StoredRemoteObject } from "../drops/remote-drops.sql.js";

export interface UndecidedDrop extends StoredRemoteObject {
  readonly actor_document: string;
  /** True: the author of the parent was known when the drop came. */
  readonly parent_known: boolean;
}

interface Decision extends Addressing {
  readonly uri: string;
  readonly event: EventDraft;
}

/** Finds remote drops that wait for the document of their actor, which is stored by now, and decides them. */
export function createAudienceStore(db: Db) {
  return {
    undecided: (limit: number, actorUri?: string): Promise<UndecidedDrop[]> =>
      actorUri === undefined
        ? db.query<UndecidedDrop>(undecided("true"), [limit])
        : db.query<UndecidedDrop>(undecided("o.actor_uri = $2"), [limit, actorUri]),
    /** Direct drops that their documents address to these collections of their actor wait for it again. */
    reopen: async (actorUri: string, followers: readonly string[], limit: number): Promise<void> =>
      void (await db.query(REOPEN, [actorUri, followers, limit])),
    /** One of several processes decides a drop, and writes its event in the same statement. */
    decide: async (decisions: readonly Decision[]): Promise<number> =>
      (await db.query(DECIDE, [JSON.stringify(decisions)])).length,
  };
}

const undecided = (condition: string): string => `
SELECT ${REMOTE_COLUMNS}, o.parent_known, a.document AS actor_document
FROM posts.remote_objects o JOIN posts.remote_objects a ON a.uri = o.actor_uri
WHERE o.awaits_actor AND o.deleted_at IS NULL AND ${condition} AND a.kind = 2 AND a.deleted_at IS NULL
ORDER BY o.actor_uri, o.uri LIMIT $1`;

const REOPEN = `
UPDATE posts.remote_objects SET awaits_actor = true, visibility = 3, recipients = '{}' WHERE uri = ANY (ARRAY(
  SELECT uri FROM posts.remote_objects
  WHERE recipients && $2::text[] AND visibility = 4 AND deleted_at IS NULL AND actor_uri = $1 AND by_document
  ORDER BY uri LIMIT $3 FOR UPDATE
))`;

const DECIDE = `
WITH d AS (
  SELECT uri COLLATE "C" AS uri, visibility, recipients, event
  FROM json_to_recordset($1::json) AS d (uri text, visibility smallint, recipients text[], event json)
), picked AS (
  SELECT uri FROM posts.remote_objects
  WHERE uri = ANY (ARRAY(SELECT uri FROM d)) AND awaits_actor AND deleted_at IS NULL ORDER BY uri FOR UPDATE
), decided AS (
  UPDATE posts.remote_objects o SET awaits_actor = false, visibility = d.visibility, recipients = d.recipients
  FROM picked JOIN d ON d.uri = picked.uri WHERE o.uri = picked.uri RETURNING o.uri
), event AS (${insertEvents("posts", draftIn("d.event"), "decided JOIN d ON d.uri = decided.uri")})
SELECT uri FROM decided`;
