import { type Drop, type RemoteObject, Visibility } from "../../gen/avion/posts.js";
import { type Db, NOW } from "../../platform/db/db.js";
import { type Position, payloadColumns } from "./drops.sql.js";
import { notErased } from "./erased.sql.js";

export type StoredRemoteObject = RemoteObject & {
  readonly deleted_at: number | null;
  /** The id under which a drop has reactions; null if an earlier version has stored it. */
  readonly drop_id: string | null;
  /** The author of the parent, once that is stored; else empty. */
  readonly reply_to_author: string;
};

export type RemoteReads = ReturnType<typeof createRemoteReads>;

/** Drops of other servers are read like those of this server; `get` and `storedAmong` also know actors. */
export function createRemoteReads(db: Db) {
  return {
    get: async (uri: string): Promise<StoredRemoteObject | undefined> =>
      (await db.query<StoredRemoteObject>(GET, [uri]))[0],
    /**
     * Returns drops, and tombstones of unknown kind: an object that was deleted before it was stored may have been a
     * drop.
     */
    dropsByUris: (uris: readonly string[]): Promise<StoredRemoteObject[]> =>
      db.query<StoredRemoteObject>(DROPS_BY_URIS, [uris]),
    /** Resolves to the author of a drop or a remote drop that is stored; to "" if there is none, or the author is erased. */
    authorOf: async (drop: string): Promise<string> =>
      (await db.query<{ author: string }>(AUTHOR_OF, [drop]))[0]?.author ?? "",
    storedAmong: async (uris: readonly string[]): Promise<string[]> =>
      (await db.query<{ uri: string }>(STORED_AMONG, [uris])).map(({ uri }) => uri),
    /**
     * Returns replies that are for everybody; with a viewer also all replies for followers, and direct ones to the
     * viewer.
     */
    replies: (
      { replyTo, after, viewer }: { replyTo: string; after: string; viewer: string },
      limit: number,
    ): Promise<(StoredRemoteObject & { readonly drop_id: string })[]> =>
      db.query(REPLIES, [replyTo, after, limit, viewer]),
    listed: (
      { userId, viewer, replies }: { userId: string; viewer: string; replies: boolean },
      below: string,
      limit: number,
    ): Promise<(StoredRemoteObject & { readonly drop_id: string })[]> =>
      db.query(LISTED, [userId, below, limit, viewer, replies]),
    byActor: (actorUri: string, below: Position | undefined, limit: number): Promise<Drop[]> =>
      db.query<Drop>(BY_ACTOR, [actorUri, below?.createdAt ?? Number.MAX_SAFE_INTEGER, below?.id ?? "", limit]),
  };
}

const authorOf = (drop: string): string => `coalesce(
    (SELECT p.actor_uri FROM posts.remote_objects p WHERE p.uri = ${drop} AND p.kind = 1),
    (SELECT p.user_id FROM posts.drops p WHERE p.drop_id = CASE WHEN ${drop} !~ ':' THEN ${drop}::uuid END), ''
  )`;

const AUTHOR_OF = `SELECT author FROM (SELECT ${authorOf("$1::text")} AS author) a WHERE ${notErased("author")}`;

/** The author of the parent of a remote drop `o`, which may come before its parent: each read looks it up. */
export const REMOTE_REPLY_AUTHOR = authorOf("o.reply_to");

/** The author of the parent as the event of the drop named it: homes judge a reply by the event, and by this. */
const TOLD_REPLY_AUTHOR = `CASE WHEN o.parent_known THEN ${REMOTE_REPLY_AUTHOR} ELSE '' END`;

export const REMOTE_COLUMNS = `o.uri, o.kind, o.actor_uri, o.created_at, o.visibility, o.recipients, o.document, o.public_key, o.webfinger,
  o.webfinger_type, o.webfinger_href, o.lrdd_template, o.fetched_at, o.expires_at, o.expires_at <= ${NOW} AS expired, o.deleted_at, o.drop_id,
  coalesce(o.reply_to, '') AS reply_to, ${REMOTE_REPLY_AUTHOR} AS reply_to_author, coalesce(o.mentions, '{}') AS mentions,
  ${payloadColumns("o")}`;

const GET = `SELECT ${REMOTE_COLUMNS} FROM posts.remote_objects o WHERE uri = $1`;

const DROPS_BY_URIS = `
SELECT ${REMOTE_COLUMNS} FROM posts.remote_objects o WHERE o.uri = ANY ($1::text[]) AND o.kind <= 1`;

/** Also returns actors without an object whom a drop or a reaction names. */
const STORED_AMONG = `
SELECT t.uri FROM unnest($1::text[]) AS t (uri)
WHERE EXISTS (SELECT FROM posts.remote_objects o WHERE o.uri = t.uri)
  OR EXISTS (SELECT FROM posts.remote_objects o WHERE o.actor_uri = t.uri AND o.kind = 1 AND o.deleted_at IS NULL)
  OR EXISTS (SELECT FROM posts.remote_reactions r WHERE r.uri = t.uri)
  OR EXISTS (SELECT FROM posts.remote_reactions r WHERE r.actor_uri = t.uri)
  OR EXISTS (SELECT FROM posts.erased e WHERE e.user_id = t.uri)`;

/** A condition on a remote drop `o` by its own audience, as `maybeSeenBy` is one on a drop of this server. */
export const maybeSeenRemote = (viewer: string): string => `(
  o.visibility <= ${Visibility.UNLISTED} OR (${viewer}::text <> '' AND (
    o.visibility = ${Visibility.FOLLOWERS} OR o.actor_uri = ${viewer}::text OR ${viewer}::text = ANY (o.recipients)
  ))
)`;

const MAYBE_SEEN = maybeSeenRemote("$4");

const LISTED = `
SELECT ${REMOTE_COLUMNS} FROM posts.remote_objects o
WHERE o.actor_uri = $1 AND o.kind = 1 AND o.deleted_at IS NULL AND NOT o.awaits_actor AND o.drop_id < $2::uuid
  AND ($5::boolean OR o.reply_to IS NULL) AND ${MAYBE_SEEN}
ORDER BY o.drop_id DESC LIMIT $3`;

const REPLIES = `
SELECT ${REMOTE_COLUMNS} FROM posts.remote_objects o
WHERE o.reply_to = $1 AND o.deleted_at IS NULL AND o.drop_id > $2::uuid AND ${MAYBE_SEEN}
ORDER BY o.drop_id LIMIT $3`;

const BY_ACTOR = `
SELECT uri AS drop_id, actor_uri AS user_id, visibility, created_at, false AS deleted, recipients,
  '' AS repost_of, '' AS repost_author, coalesce(reply_to, '') AS reply_to, coalesce(mentions, '{}') AS mentions,
  ${TOLD_REPLY_AUTHOR} AS reply_to_author
FROM posts.remote_objects o
WHERE actor_uri = $1 AND kind = 1 AND deleted_at IS NULL AND NOT awaits_actor AND (created_at, uri) < ($2::bigint, $3::text)
ORDER BY created_at DESC, uri DESC LIMIT $4`;
